"""How fast `servo partition why` explains one partition of many, from a cold start."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb

from bench.figure import Figure, alternating
from servo.assets.loading import load
from servo.events import Proposal
from servo.events.columns import InputPartitions, Outcome, PartitionOutcomes
from servo.events.definitions import PlannedTask, Source
from servo.events.model import RunFinished, RunPlanned, RunRequested, TaskFinished
from servo.partitions import Cron, Partitions, PartitionSet
from servo.planning.catalog import Catalog
from servo.runtime.deploying import deploy
from servo.runtime.settings import load_settings
from servo.runtime.wiring import Project, open_workspace
from servo.status.keysets import stored

TIMES = 9
SET = 1_000
DAYS = 10_000
SERVO = [str(Path(sys.executable).with_name("servo"))]
MANUAL = Source(kind="manual", id="bench")

DEFINITIONS = f"""
from datetime import date, timedelta
from servo import Daily, Monthly, Static, asset

days = Daily("date", start="1990-01-01", end=date(1990, 1, 1) + timedelta(days={DAYS}))
regions = Static("region", ["ap", "eu", "me", "sa", "us"])

@asset(partitions=days * regions)
def raw(context): ...

@asset(partitions=days * regions)
def orders(raw): ...

@asset(partitions=Monthly("month", start="1990-01", end="2020-01"))
def report(orders): ...
"""


def explain_one() -> Iterator[Figure]:
    """Two assets of 50,000 partitions: one that is stale, and one that is not, which is looked at up to its sources.

    The interpreter's own start is taken off.
    """
    with tempfile.TemporaryDirectory(prefix="servo-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        total = _filled(folder)
        _run([*SERVO, "ledger", "replay", "--json"], folder)
        for name_, partition in (("cli.why", "2001-05-05,eu"), ("cli.why_fresh", "2001-05-06,eu")):
            command = [*SERVO, "partition", "why", "orders", partition, "--json"]
            ours, theirs = alternating(
                lambda command=command: _run(command, folder),  # type: ignore[misc]
                lambda: _run([sys.executable, "-c", "pass"], folder),
                times=TIMES,
            )
            yield Figure(
                id=name_,
                value=(ours - theirs) * 1000,
                unit="ms",
                size=total,
                ratio=ours / theirs,
                baseline="python -c pass",
                aim="value < 300",
            )


def count_million() -> Iterator[Figure]:
    """What each of a million partitions of one asset is, as sets: five-minute windows, one in a thousand frozen."""
    definition = Partitions.of(Cron("window", "*/5 * * * *", start="2012-01-01"))
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE partition_status AS SELECT 'a' AS asset_id, 'window=t:' || strftime(TIMESTAMP '2012-01-01'"
            " + to_minutes(CAST(5 * i AS INT)), '%Y-%m-%dT%H:%M:%S.000000Z') AS partition_key, i % 1000 = 0 AS frozen"
            " FROM range(1000000) numbers(i)"
        )
        ours, theirs = alternating(
            lambda: stored(_Asked(connection), {"a": definition}, ["frozen"]),  # type: ignore[arg-type]
            lambda: connection.execute("SELECT partition_key, frozen FROM partition_status ORDER BY ALL").fetchnumpy(),
            times=5,
        )
    yield Figure(
        id="status.count",
        value=ours,
        unit="s",
        size=1_000_000,
        ratio=ours / theirs,
        baseline="the keys sorted, without a look at what they are",
        aim="value < 2",
    )


class _Asked:
    """Answers like a snapshot."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def query(self, sql: str, parameters: dict[str, Any]) -> SimpleNamespace:
        return SimpleNamespace(rows=self._connection.execute(sql, parameters).fetchall())


def _filled(folder: Path) -> int:
    """A project with all partitions of two assets, each read from its twin; how many there are."""
    (folder / "servo.toml").write_text('namespace = "shop"\n')
    (folder / "definitions.py").write_text(DEFINITIONS)
    settings = load_settings(folder, {})
    with open_workspace(settings, create=True) as project:
        known = deploy(project, load(settings)).catalog
        read: dict[str, str] = {}
        total = 0
        for asset_key in ("shop/raw", "shop/orders"):
            everything = known.spec(asset_key).partitions.everything(project.clock())
            total += everything.count
            for number, chunk in enumerate(everything.chunks(SET)):
                record_run(project, known, asset_key, f"{asset_key[5:]}{number}", chunk=chunk, read=read)
        again = known.spec("shop/raw").partitions.set_of(["2001-05-05,eu"])
        record_run(project, known, "shop/raw", "again", chunk=again, read=read)
        return total + 1


def record_run(
    project: Project, known: Catalog, asset_key: str, run: str, *, chunk: PartitionSet, read: dict[str, str]
) -> None:
    """A run of one task, from its request to its end."""
    keys = [str(key) for key in chunk]
    run_id = f"run_{run:a>26}"
    made = PartitionOutcomes(
        keys=keys,
        first_materialization_id=project.mint(len(keys)),
        rows=3,
        content_hash=[os.urandom(16).hex() for _ in keys],
    )
    inputs = []
    if asset_key == "shop/orders":
        raw = known.asset_id("shop/raw")
        ids = [read[key] for key in keys]
        inputs = [InputPartitions(asset_id=raw, asset_key="shop/raw", keys=keys, materialization_ids=ids)]
    else:
        read.update({key: name for key, name in zip(keys, made.materialization_ids(), strict=True) if name})
    planned = PlannedTask(
        task_key=asset_key,
        asset_id=known.asset_id(asset_key),
        asset_key=asset_key,
        partition_count=len(keys),
        partitions=chunk.to_json(),
        upstream=[],
        code_version=known.spec(asset_key).code_version,
    )
    facts = [
        RunRequested(
            run_id=run_id,
            run_key=f"manual:{run}",
            request_fingerprint="0" * 64,
            asset_selection=[asset_key],
            partitions={asset_key: chunk.to_json()},
            source=MANUAL,
        ),
        RunPlanned(run_id=run_id, tasks=[planned], deployment_id=known.deployment_id),
        TaskFinished(
            run_id=run_id,
            task_key=asset_key,
            attempt=1,
            asset_id=known.asset_id(asset_key),
            asset_key=asset_key,
            outcome=Outcome.SUCCEEDED,
            code_version=known.spec(asset_key).code_version,
            partitions=made,
            inputs=inputs,
        ),
        RunFinished(run_id=run_id, outcome=Outcome.SUCCEEDED, source=MANUAL),
    ]
    now = datetime.now(UTC) - timedelta(seconds=1)
    project.ledger.append([Proposal(fact=fact, occurred_at=now, actor="worker:bench") for fact in facts])


def _run(command: list[str], folder: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}
    subprocess.run(command, check=True, capture_output=True, cwd=folder, env=kept)

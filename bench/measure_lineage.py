"""How fast a lineage of a million reads is walked."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from bench.figure import Figure, alternating
from servo.assets.loading import load
from servo.events import Proposal
from servo.events.columns import InputPartitions, Outcome, PartitionOutcomes
from servo.events.model import TaskFinished
from servo.ids import ulid_range
from servo.operations.lineage.lineages import Lineage, lineage_of
from servo.planning.catalog import Catalog
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.deploying import deploy
from servo.runtime.states import state_of

HOURS, REACHED, SET, TIMES = 200_000, 5_000, 1_000, 9
WANTED = 123_456  # the hour that is asked about

DEFINITIONS = """
from servo import Daily, Hourly, asset

hours = Hourly("hour", start="2000-01-01", end="2023-01-01")
days = Daily("date", start="2000-01-01", end="2023-01-01")

@asset(partitions=hours)
def raw(context): ...

@asset(partitions=hours)
def orders(raw): ...

@asset(partitions=hours)
def left(orders): ...

@asset(partitions=hours)
def right(orders): ...

@asset(partitions=hours)
def joined(left, right): ...

@asset
def rates(context): ...

@asset(partitions=days)
def converted(rates): ...

@asset(partitions=days)
def summed(converted): ...
"""
READS = {
    "raw": [],
    "orders": ["raw"],
    "left": ["orders"],
    "right": ["orders"],
    "joined": ["left", "right"],
    "rates": [],
    "converted": ["rates"],
    "summed": ["converted"],
}


class Shop:
    """A million reads: a diamond over two hundred thousand hours; and one source that ten thousand partitions read."""

    def __init__(self, project: Project, known: Catalog) -> None:
        self.project = project
        made: dict[str, list[str]] = {}
        for asset, upstreams in READS.items():
            made[asset] = self._record(known, asset, [(one, made[one]) for one in upstreams])
        with project.compactor() as compactor:
            compactor.replay()

    def lineage(self, *arguments: Any, **options: Any) -> Lineage:
        return lineage_of(state_of(self.project), *arguments, **options)

    def _record(self, known: Catalog, asset: str, inputs: list[tuple[str, list[str]]]) -> list[str]:
        keys = _keys(asset)
        names = ulid_range(self.project.mint(len(keys)), len(keys))
        proposals = [
            self._finished(known, asset, inputs, keys=keys, names=names, start=start)
            for start in range(0, len(keys), SET)
        ]
        for start in range(0, len(proposals), 20):
            self.project.ledger.append(proposals[start : start + 20])
        return names

    def _finished(
        self,
        known: Catalog,
        asset: str,
        inputs: list[tuple[str, list[str]]],
        *,
        keys: Sequence[str],
        names: Sequence[str],
        start: int,
    ) -> Proposal:
        some = slice(start, start + SET)
        count = len(keys[some])
        spec = known.spec(f"bench/{asset}")
        return Proposal(
            fact=TaskFinished(
                run_id=f"run_{asset}",
                task_key=f"{spec.key}#{start}",
                attempt=1,
                asset_id=known.asset_id(spec.key),
                asset_key=spec.key,
                outcome=Outcome.SUCCEEDED,
                code_version=spec.code_version,
                partitions=PartitionOutcomes(
                    keys=list(keys[some]),
                    first_materialization_id=names[start],
                    content_hash=[f"{number:032x}" for number in range(start, start + count)],
                ),
                inputs=[
                    InputPartitions(
                        asset_id=known.asset_id(f"bench/{one}"),
                        asset_key=f"bench/{one}",
                        keys=_keys(one)[some] if len(above) > 1 else [""],
                        materialization_ids=above[some] if len(above) > 1 else above,
                        edges=None if len(above) > 1 else [[0]] * count,
                    )
                    for one, above in inputs
                ],
            ),
            occurred_at=datetime.now(UTC),
            actor="worker:bench",
        )


@cache
def _keys(asset: str) -> list[str]:
    first = datetime(2000, 1, 1)  # noqa: DTZ001 (texts are made of it)
    if asset == "rates":
        return [""]
    if asset in ("converted", "summed"):
        return [f"date=d:{first + timedelta(days=number):%Y-%m-%d}" for number in range(REACHED)]
    return [f"hour=t:{(first + timedelta(hours=n)).isoformat(timespec='microseconds')}Z" for n in range(HOURS)]


def walk_a_million() -> Iterator[Figure]:
    """Both directions from one node, and what a source reaches; against one hop in bare DuckDB on the same files."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="servo-bench-")))
        (folder / "servo.toml").write_text('namespace = "bench"\n')
        (folder / "definitions.py").write_text(DEFINITIONS)
        project = stack.enter_context(open_workspace(load_settings(folder, {}), create=True))
        shop = Shop(project, deploy(project, load(project.settings), actor="person:bench").catalog)
        hour = _keys("raw")[WANTED]
        yield _walk(shop, "lineage.upstream", "joined", hour, "upstream")
        yield _walk(shop, "lineage.downstream", "raw", hour, "downstream")
        yield _impact(shop)


def _walk(shop: Shop, name: str, asset: str, key: str, direction: Any) -> Figure:
    def ask() -> None:
        assert len(shop.lineage(direction, asset, [key]).nodes) == len(READS) - 3  # the diamond

    ours, theirs = alternating(ask, _one_hop(shop, asset, key, direction), times=TIMES)
    return Figure(
        id=name,
        value=ours,
        unit="s",
        size=1_010_000,
        ratio=ours / theirs,
        baseline="one hop in bare DuckDB on the same file",
        aim="value < 0.2",
    )


def _impact(shop: Shop) -> Figure:
    def ask() -> None:
        assert len(shop.lineage("downstream", "rates", statuses=True).found) == 2 * REACHED

    ours, theirs = alternating(ask, _one_hop(shop, "rates", "", "downstream"), times=TIMES)
    return Figure(
        id="lineage.impact",
        value=ours,
        unit="s",
        size=2 * REACHED,
        ratio=ours / theirs,
        baseline="one hop in bare DuckDB on the same file",
        aim="value < 0.5",
    )


def _one_hop(shop: Shop, asset: str, key: str, direction: str) -> Any:
    store = shop.project.store
    files = [str(store.path("lineage", file)) for file in store.current().tables["lineage"]]
    side = "" if direction == "upstream" else "upstream_"
    sql = f"SELECT * FROM read_parquet({files}) WHERE {side}asset_key = ? AND {side}partition_key = ?"
    bare = duckdb.connect()
    return lambda: bare.execute(sql, [f"bench/{asset}", key]).fetchall()

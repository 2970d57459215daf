"""`servo demo`: what Servo does, on real data, in a minute."""

from __future__ import annotations

import os
import shutil
import sys
from datetime import datetime
from pathlib import Path

import click

from servo.cli.output import table
from servo.events import Proposal
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.definitions import Source
from servo.events.fact import Fact
from servo.events.model import RunFinished, RunRequested, RunStarted, TaskFinished, TaskStarted
from servo.execution.sample import DAYS, REGIONS, orders, write_partitions
from servo.execution.spark import session
from servo.ids import request_fingerprint, run_id, uuid7
from servo.runtime.service import Service
from servo.runtime.settings import load_settings
from servo.runtime.wiring import Project, open_workspace

_ASSET = "sales/orders"
_FOLDER = Path(".servo") / "demo"
_SETTINGS = '# The demonstration\'s own project.\ntenant = "demo"\nworkspace = "main"\n'
_BY_REGION = """
    SELECT partition_values['region'] AS region, last_attempt_outcome AS last_attempt, count(*) AS partitions,
           sum(rows) AS rows, sum(bytes) AS bytes
    FROM partition_status JOIN materializations USING (materialization_id)
    GROUP BY ALL ORDER BY ALL
"""
_ONE_DAY = """
    SELECT partition_values['region'] AS region,
           last_materialization_at AS materialized, left(content_hash, 12) AS content,
           last_attempt_outcome AS last_attempt, last_attempt_at AS attempted
    FROM partition_status WHERE partition_values['date'] = '2025-01-15' ORDER BY region
"""


@click.command()
def demo() -> None:
    """Show what Servo does, from nothing to results.

    Spark writes a month of orders by day and region; Servo records what happened, folds it, answers questions about it,
    and proves that it lost nothing. Everything is in .servo/demo, made anew each time.
    """
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    (_FOLDER / "servo.toml").write_text(_SETTINGS)
    click.secho("Starting Spark on this machine …", dim=True)
    with open_workspace(load_settings(_FOLDER), create=True) as project, session() as spark:
        servo = Service(project)
        story = _Story(project)

        _step("Spark writes a month of orders, one job for all days and regions")
        story.request(DAYS * len(REGIONS))
        outcomes = write_partitions(orders(spark), _FOLDER / "data" / "orders", project.mint(DAYS * len(REGIONS)))
        story.finish(outcomes)
        click.echo(f"  {len(outcomes.keys)} partitions in {_FOLDER / 'data' / 'orders'}, recorded as one event")

        _step("What is there?")
        _ask(servo, _BY_REGION)

        before = project.clock()
        _step("A second run fails on one day: the good data stays, and both facts are told apart")
        story.fail("date=d:2025-01-15,region=s:ZXU")
        _ask(servo, _ONE_DAY)

        _step("The same question as of a moment before that")
        _ask(servo, _ONE_DAY, as_of=before)

        _step("Was anything in the ledger changed, removed or inserted?")
        found = servo.verify()
        click.secho(f"  ✓ {found.events} events, hash chain intact up to {found.head.chain_hash[:16]}…", fg="green")

        _step("Projections can be thrown away: rebuilt by Spark, compared row for row")
        servo.compact()
        replayed = servo.replay(engine="spark")
        if not replayed.is_equal or not replayed.tables:
            raise click.ClickException("the replay on Spark differs from what was there")
        rows = sum(one.rows for one in replayed.tables)
        click.secho(f"  ✓ equal: {rows} rows in {len(replayed.tables)} tables", fg="green")
    _what_next()


class _Story:
    """Tells the ledger what happens."""

    def __init__(self, project: Project) -> None:

        self._project = project
        self._runs = 0
        self._run_id = ""
        milliseconds = int(project.clock().timestamp() * 1000)
        self._asset_id = uuid7(milliseconds, os.urandom)

    def request(self, partition_count: int) -> None:
        """A person asks for a run, and a worker takes it."""
        self._runs += 1
        run_key = f"manual:demo-{self._runs}"
        workspace, secret = self._project.workspace, self._project.secret.value
        self._run_id = run_id(workspace.tenant, workspace.name, run_key, secret)
        source = Source(kind="manual", id="demo")
        self._append(
            RunRequested(
                run_id=self._run_id,
                run_key=run_key,
                request_fingerprint=request_fingerprint([_ASSET], None),
                asset_selection=[_ASSET],
                source=source,
            ),
            RunStarted(run_id=self._run_id, source=source),
            TaskStarted(
                run_id=self._run_id,
                task_key=_ASSET,
                attempt=1,
                asset_id=self._asset_id,
                asset_key=_ASSET,
                partition_count=partition_count,
            ),
        )

    def finish(self, outcomes: PartitionOutcomes, outcome: Outcome = Outcome.SUCCEEDED) -> None:
        """Its partitions are published, all by one event."""
        failed = outcome is Outcome.FAILED
        self._append(
            TaskFinished(
                run_id=self._run_id,
                task_key=_ASSET,
                attempt=1,
                asset_id=self._asset_id,
                asset_key=_ASSET,
                outcome=outcome,
                partitions=outcomes,
                code_version="1",
                error="the source was not reachable" if failed else None,
            ),
            RunFinished(
                run_id=self._run_id,
                outcome=outcome,
                source=Source(kind="manual", id="demo"),
                tasks_failed=int(failed),
                tasks_succeeded=int(not failed),
            ),
        )

    def fail(self, key: str) -> None:
        """Another run, which comes to nothing."""

        self.request(partition_count=1)
        self.finish(PartitionOutcomes(keys=[key], outcome=Outcome.FAILED), Outcome.FAILED)

    def _append(self, *facts: Fact) -> None:

        now = self._project.clock()
        self._project.ledger.append([Proposal(fact=fact, occurred_at=now, actor="person:demo") for fact in facts])


def _step(title: str) -> None:
    click.echo()
    click.secho(f"▸ {title}", bold=True)


def _ask(servo: Service, sql: str, as_of: datetime | None = None) -> None:
    answer = servo.query(sql, as_of=as_of)
    table(answer.columns, answer.rows, f"as of event {answer.watermark.position}, {answer.watermark.event_id}")


def _what_next() -> None:
    servo = os.path.relpath(Path(sys.executable).with_name("servo"), _FOLDER)
    click.echo()
    click.secho("Try next", bold=True)
    click.echo(f"  cd {_FOLDER}")
    for command, what in (
        ("query --tables", "every table there is"),
        ('query "SELECT * FROM runs"', "one of them"),
        ("ledger export | head -3", "the events themselves"),
        ("ledger verify", "the proof, again"),
        ("doctor", "is everything in order?"),
    ):
        click.echo(f"  {servo} {command:<28}  # {what}")

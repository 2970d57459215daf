"""`servo demo`: the story of examples/orders, told by the commands that a person would type.

What it shows is what they answer. Beside them it asks for itself, and fails where the answers are not as it tells.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import click

from servo.cli.interrupts import reacting
from servo.cli.states import duration
from servo.cli.story import Story, up
from servo.errors import NotFound

_FOLDER = Path(".servo") / "demo"
_EXAMPLE = Path(__file__).parents[3] / "examples" / "orders"  # in the checkout; it is no part of the package
_DAYS, _REGIONS = 31, 2
_BROKEN_DAY, _LATE_DAY = "2025-01-17", "2025-01-05"
_REPORT = ("month_report", "2025-01")

_STATUS = (
    "SELECT asset_key, last_attempt_outcome AS last_attempt, count(*) AS partitions,"
    " count(materialization_id) AS published FROM partition_status GROUP BY ALL ORDER BY ALL"
)
_BACKFILLS = "SELECT state, count(*), sum(total_partitions) FROM backfills GROUP BY ALL"
_READ_BY_THE_REPORT = """
    SELECT count(*) FROM lineage JOIN partition_status USING (asset_key, partition_key, materialization_id)
    WHERE asset_key = 'shop/month_report'"""


@click.command()
def demo() -> None:
    """Show what Servo does, from nothing to results.

    A shop's orders: Spark computes a month of them, a broken day is kept out, repaired and taken in, the month's report
    is traced back to what it was made from, late orders are followed through, and a week is backfilled. Everything is
    in .servo/demo, made anew each time. Fails if anything is not as it tells.
    """
    from servo.execution.java import require_java

    require_java(os.environ)  # in one line, before Spark says it in many
    began = time.monotonic()
    story = Story(_made_anew())
    with reacting(story.stop):
        _tell(story)
    click.echo()
    click.secho(f"✓ all of this in {duration(time.monotonic() - began)}; nothing is left running", fg="green")
    _what_next()


def _tell(story: Story) -> None:
    story.step("A shop delivers a month of orders, made up by Spark. One day's file comes twice")
    story.run(sys.executable, "generate.py", shown="python generate.py", quiet=True)

    story.step("Four assets in definitions.py: do they fit together, and what would a run of the month do?")
    story.servo("check")
    story.servo("plan", "+month_report", "--partitions", "2025-01")

    with up(story):
        story.step("Compute the month. The day whose orders came twice is not let in, and nothing is made from it")
        story.servo("materialize", "+month_report", "--partitions", "2025-01", code=1)
        failed = story.newest_run()
        story.expect("of that run", story.counts(failed), {"succeeded": 120, "failed": 1, "skipped": 4})

        story.step("What is there? The other thirty days, from raw orders to revenue by region")
        story.servo("partition", "status")
        story.expect("of what is there", story.ask(_STATUS), _without_a_day())

        story.step("Somebody repairs the delivery. What failed and what was skipped runs again, and no more")
        story.run("rm", f"landing/date={_BROKEN_DAY}/again.json")
        story.servo("run", "retry", failed)
        retried = story.counts(story.newest_run())
        story.expect("of the retry", retried, {"succeeded": 5, "failed": 0, "skipped": 0})
        story.expect("of what is there", story.ask(_STATUS), _complete())
        story.servo("read", "month_report", "2025-01")

        story.step("What was the report made from? Each slice that it read is on record")
        story.servo("lineage", "upstream", "month_report", "2025-01")
        story.expect("of its lineage", story.ask(_READ_BY_THE_REPORT), [(_DAYS * _REGIONS,)])

        before, then = story.data(*_REPORT), story.now()
        story.step("Later two more orders of one day arrive, and that day is computed again. What must follow?")
        story.run("cp", "late.json", f"landing/date={_LATE_DAY}/")
        story.servo("materialize", f"raw_orders@{_LATE_DAY}")
        story.servo("partition", "why", "month_report", "2025-01")
        story.servo("plan", "--stale", "*")

        story.step("Exactly that runs, and nothing else")
        story.servo("materialize", "--stale", "*")
        story.expect("of what is stale", story.stale(), 0)
        story.servo("read", "month_report", "2025-01")
        story.expect("of the new report", story.data(*_REPORT) == before, False)

        story.step("Nothing was overwritten. What did the report say before?")
        story.servo("partition", "history", "month_report", "2025-01")
        story.servo("read", "month_report", "2025-01", "--as-of", then)
        story.expect("of the report of then", story.data(*_REPORT, as_of=then), before)
        click.secho(f"  ✓ the report of then, to the last bit: content {before[0][:12]}…", fg="green")

        story.step("A week is to be computed anew, with all that it is made from first: a backfill, in chunks")
        asked = ("revenue", "--start", "2025-01-06", "--end", "2025-01-12", "--name", "week-2")
        story.servo("backfill", "create", *asked, "--include-upstream", "--max-upstream-depth", "2", "--wait")
        story.expect("of the backfill", story.ask(_BACKFILLS), [("SUCCEEDED", 3, 4 * 7)])

        story.step("Was anything in the ledger changed, removed or inserted?")
        story.servo("ledger", "verify")


def _without_a_day() -> list[tuple[Any, ...]]:
    """Thirty days of everything, one day that was not let in, and no report."""
    days, slices = _DAYS - 1, (_DAYS - 1) * _REGIONS
    return [
        ("shop/orders", "SUCCEEDED", days, days),
        ("shop/raw_orders", "FAILED", 1, 0),
        ("shop/raw_orders", "SUCCEEDED", days, days),
        ("shop/revenue", "SUCCEEDED", slices, slices),
    ]


def _complete() -> list[tuple[Any, ...]]:
    counts = {"month_report": 1, "orders": _DAYS, "raw_orders": _DAYS, "revenue": _DAYS * _REGIONS}
    return [(f"shop/{name}", "SUCCEEDED", count, count) for name, count in counts.items()]


def _made_anew() -> Path:
    """The example project in a folder of its own, in which nothing was run yet."""
    if not (_EXAMPLE / "servo.toml").is_file():
        raise NotFound(
            "the demonstration's project is not part of this installation",
            hint="run `make demo` in a checkout, or begin with `servo init`",
        )
    shutil.rmtree(_FOLDER, ignore_errors=True)
    left_behind = shutil.ignore_patterns("landing", ".*", "__pycache__", "spark-warehouse")
    shutil.copytree(_EXAMPLE, _FOLDER, ignore=left_behind)
    return _FOLDER.absolute()


def _what_next() -> None:
    program = Path(sys.executable).with_name("servo")
    servo = min(os.path.relpath(program, _FOLDER), str(program), key=len)
    commands = [
        ("asset list", "the assets; they are in definitions.py"),
        ("run list", "the runs, the newest first"),
        ("backfill status week-2", "how the backfill went"),
        ("read revenue 2025-01-05,eu", "data of one slice"),
        ('partition rollback month_report 2025-01 --reason "not yet"', "back to the report of before"),
        ("query --tables", "every table there is"),
        ("materialize month_report@2025-01", "a run of your own; it brings a worker along"),
    ]
    width = max(len(command) for command, _ in commands)
    click.echo()
    click.secho("Try next", bold=True)
    click.echo(f"  cd {_FOLDER}")
    for command, what in commands:
        click.echo(f"  {servo} {command:<{width}}  # {what}")
    click.echo("A project of your own in ten minutes: docs/quickstart.md")

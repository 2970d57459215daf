"""`servo tick`."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import click

from servo.cli.opening import actor, project
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, plain_struct
from servo.cli.progress import aside, shown
from servo.cli.states import counted, marked
from servo.ui.proof import ago

if TYPE_CHECKING:
    from servo.runtime.automation.driver import PassReport
    from servo.runtime.runs import Runs
    from servo.runtime.wiring import Project

_MOST = 10_000  # runs that one call sees through
_UNENDED = ("REQUESTED", "PLANNED", "RUNNING", "CANCELLING")


@click.command()
@click.option("--work", is_flag=True, help="Also see through all runs that are to be done, and end when they have.")
@json_option
@click.pass_context
def tick(ctx: click.Context, *, work: bool, as_json: bool) -> None:
    """Do what is due by schedules and sensors, once, and exit: for cron, Cloud Tasks or a CronJob.

    Definitions that have changed take effect first. Any number may run at the same time, beside `servo up` too: each
    tick happens once. Without --work somebody else must do the runs (`servo up`). Ticks and evaluations that failed are
    exit code 1, and so are runs with --work.
    """
    from servo.runtime.automation.driver import one_pass
    from servo.runtime.cataloguing import deployed_catalog
    from servo.runtime.embedded import require_workable
    from servo.runtime.evaluation.evaluating import Evaluators

    with project(as_json=as_json, create=True) as opened:
        if work:
            require_workable(opened)
        deployed_catalog(opened, actor=actor())
        evaluators = Evaluators(opened.settings)
        try:
            report = one_pass(opened, evaluators)
        finally:
            evaluators.close()
        if not as_json:
            _say(opened, report)
        failed = _work(opened, as_json=as_json) if work else 0
        if as_json:
            echo_json(plain_struct(report) | ({"runs_failed": failed} if work else {}))
        elif report.runs and not work and not any(holder.kind == "worker" for holder in opened.leases.live()):
            aside("nothing is at work here: the runs begin when `servo up` does, or with --work")
    ctx.exit(1 if failed or report.failed else 0)


def _say(opened: Project, report: PassReport) -> None:
    parts = [counted(report.ticks, "tick"), counted(report.evaluations, "evaluation"), counted(report.runs, "run")]
    parts += [f"{report.skipped:,} skipped"] if report.skipped else []
    parts += [click.style(f"{report.failed:,} failed", fg="red")] if report.failed else []
    click.echo(f"{'✗' if report.failed else '✓'} {', '.join(parts)}")
    if report.next_due is not None:
        note(f"next due {ago(report.next_due, opened.clock())}: {report.next_due:%Y-%m-%d %H:%M:%SZ}")


def _work(opened: Project, *, as_json: bool) -> int:
    """Have every run done that is not done yet, by one worker if nobody else is there; how many of them failed."""
    from servo.runtime.embedded import working
    from servo.runtime.runs import Runs

    runs = Runs(opened)
    seen: dict[str, str] = {}
    if not _open(runs, seen):
        return 0
    with working(opened) as place:
        while todo := _open(runs, seen):
            for run_id in todo:
                with shown(as_json=as_json) as show:
                    seen[run_id] = runs.follow(run_id, show, tick=place.alive).status
                if not as_json:
                    click.echo(f"{marked(seen[run_id])} {run_id}")
    return sum(status == "FAILED" for status in seen.values())


def _open(runs: Runs, seen: Container[str]) -> list[str]:
    """Runs that have not ended and were not seen through yet, oldest first."""
    found = [run for status in _UNENDED for run in runs.list(status=status, limit=_MOST)]
    found.sort(key=lambda run: run.requested_at)
    return [run.run_id for run in found if run.run_id not in seen]

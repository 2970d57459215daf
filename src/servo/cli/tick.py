"""What `servo tick` does: one pass over what is due, and with `--work` the runs that come of it."""

from __future__ import annotations

from collections.abc import Container

import click

from servo.cli.opening import actor, project
from servo.cli.output import aside, echo_json, marked, note, plain_struct
from servo.cli.progress import shown
from servo.operations.runs.views import runs_listed
from servo.runtime.deploying import deployed_catalog
from servo.runtime.evaluation.pool import EvaluatorPool
from servo.runtime.loop.driver import PassReport, one_pass
from servo.runtime.processes.workplace import require_workable, working
from servo.runtime.runs import follow_run
from servo.runtime.states import state_of
from servo.runtime.wiring import Project
from servo.ui.marks import counted
from servo.ui.proof import ago

_MOST = 10_000  # runs that one call sees through
_UNENDED = ("REQUESTED", "PLANNED", "RUNNING", "CANCELLING")


def run_tick(*, work: bool, as_json: bool) -> int:
    """Do what is due, once, and with `work` see through all runs that are to be done; the exit code."""
    with project(as_json=as_json, create=True) as opened:
        if work:
            require_workable(opened)
        deployed_catalog(opened, actor=actor())
        evaluators = EvaluatorPool(opened.settings)
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
    return 1 if failed or report.failed else 0


def _say(opened: Project, report: PassReport) -> None:
    parts = [counted(report.ticks, "tick"), counted(report.evaluations, "evaluation"), counted(report.runs, "run")]
    parts += [f"{report.skipped:,} skipped"] if report.skipped else []
    parts += [click.style(f"{report.failed:,} failed", fg="red")] if report.failed else []
    click.echo(f"{'✗' if report.failed else '✓'} {', '.join(parts)}")
    if report.next_due is not None:
        note(f"next due {ago(report.next_due, opened.clock())}: {report.next_due:%Y-%m-%d %H:%M:%SZ}")


def _work(opened: Project, *, as_json: bool) -> int:
    """Have every run done that is not done yet, by one worker if nobody else is there; how many of them failed."""
    seen: dict[str, str] = {}
    if not _open(opened, seen):
        return 0
    with working(opened) as place:
        while todo := _open(opened, seen):
            for run_id in todo:
                with shown(as_json=as_json) as show:
                    seen[run_id] = follow_run(opened, run_id, show, tick=place.alive).status
                if not as_json:
                    click.echo(f"{marked(seen[run_id])} {run_id}")
    return sum(status == "FAILED" for status in seen.values())


def _open(opened: Project, seen: Container[str]) -> list[str]:
    """Runs that have not ended and were not seen through yet, oldest first."""
    state = state_of(opened)
    found = [run for status in _UNENDED for run in runs_listed(state, status=status, limit=_MOST)]
    found.sort(key=lambda run: run.requested_at)
    return [run.run_id for run in found if run.run_id not in seen]

"""Following a run to its end, and the logs of its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from servo.answers.runs import Requested, RunProgress
from servo.controllers.board import Board
from servo.operations.runs.views import find_run, progress_of, run_of
from servo.runtime.states import state_of
from servo.runtime.wiring import Project
from servo.runtime.worker.task_log import read_logs

if TYPE_CHECKING:
    from servo.answers.runs import Record

__all__ = ["follow_logs", "follow_run"]


def follow_run(
    project: Project,
    run: Requested | str,
    on_change: Callable[[RunProgress], None],
    *,
    timeout: float | None = None,
    tick: Callable[[], None] = lambda: None,
) -> RunProgress:
    """Report every change until the run has ended, waits for nothing but a person, or the time is up.

    `tick` is called about once a second.
    """
    if isinstance(run, Requested) and run.position is not None:
        name, position = run.run_id, run.position
    else:
        name, position = find_run(state_of(project), run.run_id if isinstance(run, Requested) else run)
    board = Board(position=position - 1, keep_ended=True)
    begun = project.clock()
    while True:
        changed = _take_news(project, board, name)
        now = progress_of(board.runs[name])
        if changed:
            on_change(now)
        late = timeout is not None and (project.clock() - begun).total_seconds() > timeout
        if now.ended or now.parked or late:
            return now
        tick()
        project.follower.wait(board.position, 1.0 if timeout is None else min(1.0, timeout))


def _take_news(project: Project, board: Board, run_id: str) -> bool:
    """Take the new events; whether any of them is about the run."""
    changed = False
    for events in project.follower.new_events(board.position):
        board.take(events)
        changed |= any(event.correlation_id == run_id for event in events)
    return changed


def follow_logs(project: Project, run_id: str, *, task: str | None = None, follow: bool = False) -> Iterator[Record]:
    """The log records of a run's tasks, in the order of time; with `follow`, also those that still come."""
    name = find_run(state_of(project), run_id).run_id
    ended = lambda: run_of(state_of(project), name).ended  # noqa: E731 (it is asked again and again)
    return read_logs(project.settings, name, task, follow=follow, ended=ended)

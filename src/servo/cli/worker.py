"""What `servo worker` runs: a loop that takes tasks and computes them on Spark."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from threading import Event, Thread

from servo.answers.runs import RunProgress
from servo.cli.interrupts import reacting
from servo.cli.opening import project
from servo.cli.output import aside
from servo.controllers.backfill_board import Backfill
from servo.operations.backfills.records import going_on
from servo.operations.runs.views import progress_of, run_of, runs_listed
from servo.runtime.states import state_of
from servo.runtime.telemetry.json_logs import log_as_json, wants_json
from servo.runtime.wiring import Project
from servo.runtime.worker.worker import open_worker
from servo.ui.marks import counted

_LOOK_SECONDS = 1.0  # between two looks at whether there is anything left to do
_GRACE_SECONDS = 20.0  # for the tasks at work, once the parent process is gone
_ALL = 1_000_000
_SESSIONS_LOST = "SERVO_SESSIONS_LOST"  # in a row, as one worker tells the next
_WORK = ("READY", "RUNNING", "RETRY_WAIT")
_UNDER_WAY = ("PLANNED", "RUNNING", "CANCELLING")


def run_worker(*, until_idle: bool, run_id: str | None, child: bool, as_json: bool) -> None:
    """Take tasks until there are enough, or a signal stops it; `child`: until the parent process is gone."""
    stop = Event()

    def stopping() -> None:
        if not as_json and not child:
            aside("stopping …  (again to leave at once)")
        stop.set()

    here = project(as_json=as_json, create=True, local=True, quietly=child, timed=True)
    lost = int(os.environ.pop(_SESSIONS_LOST, "0"))
    with here as opened, reacting(stopping):
        if wants_json(as_json=as_json):
            log_as_json(opened.settings)
        if child:
            Thread(target=_end_with_parent, args=(stop,), name="parent", daemon=True).start()
        opened.ledger.head()
        opened.require_own_secret()
        with open_worker(opened, sessions_lost=lost) as at_work:
            at_work.run(stop, until=_until(opened, until_idle=until_idle, run_id=run_id))
        if until_idle and not as_json and (left := _undecided(opened)):
            aside(f"{counted(left, 'run')} cannot end before somebody decides: start `servo up`")
    if at_work.must_be_replaced is not None and not stop.is_set():
        _replace(at_work.sessions_lost)


def _replace(sessions_lost: int) -> None:
    """Replace the program in this process: it keeps its id, streams and arguments, and loses its objects."""
    os.environ[_SESSIONS_LOST] = str(sessions_lost)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _until(opened: Project, *, until_idle: bool, run_id: str | None) -> Callable[[], bool]:
    """Make the test for the end of the loop, which is called often, and looks seldom."""
    if not until_idle and run_id is None:
        return lambda: False
    looked = time.monotonic()

    def idle() -> bool:
        planning = any(holder.kind == "control" for holder in opened.leases.live())
        waiting = (*_UNDER_WAY, "REQUESTED") if planning else _UNDER_WAY
        under_way = _progress(opened, waiting)
        # What waits for a person may wait for days, and leaves nothing to do for a worker. Nor do runs of which only
        # decisions are left, while no process takes them.
        # Between two chunks of a backfill no run may be under way.
        more = planning and any(job.next_chunk < job.chunks for job in _progressing(opened))
        return not more and all(run.parked or not (planning or _computable(run)) for run in under_way)

    def enough() -> bool:
        nonlocal looked
        now = time.monotonic()
        if now - looked < _LOOK_SECONDS:
            return False
        looked = now
        return (run_id is not None and run_of(state_of(opened), run_id).ended) or (until_idle and idle())

    return enough


def _progressing(opened: Project) -> list[Backfill]:
    """The backfills that have chunks to come and wait for nothing."""
    board = going_on(opened.reader.tables(fresh=True))
    return [job for job in board.open if job.state != "PAUSED" and board.may_start(job)]


def _undecided(opened: Project) -> int:
    """Count the runs that are under way while no process plans or ends them."""
    if any(holder.kind == "control" for holder in opened.leases.live()):
        return 0
    return sum(not run.parked for run in _progress(opened, (*_UNDER_WAY, "REQUESTED")))


def _progress(opened: Project, statuses: tuple[str, ...]) -> list[RunProgress]:
    """The progress of the runs that have one of these statuses."""
    state = state_of(opened)
    runs = [run for status in statuses for run in runs_listed(state, status=status, limit=_ALL)]
    return [progress_of(run_of(state, run.run_id)) for run in runs]


def _computable(run: RunProgress) -> bool:
    return any(task.state in _WORK for task in run.tasks)


def _end_with_parent(stop: Event) -> None:
    """End when standard input does: the process that holds its other end has ended, however it did.

    A task may be where nothing can interrupt it, for hours: it has as long as the parent would have given it, and is
    then given up like one that was killed.
    """
    # Not through sys.stdin, whose lock the interpreter wants when it ends.
    while os.read(0, 1024):
        pass
    stop.set()
    time.sleep(_GRACE_SECONDS)
    os._exit(1)

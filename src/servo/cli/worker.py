"""`servo worker`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import TYPE_CHECKING

import click

from servo.cli.interrupts import reacting
from servo.cli.opening import project
from servo.cli.options import json_option
from servo.cli.progress import aside
from servo.cli.states import counted

if TYPE_CHECKING:
    from servo.answers.runs import RunProgress
    from servo.controllers.backfill_states import Backfill
    from servo.runtime.runs import Runs
    from servo.runtime.wiring import Project

_LOOK_SECONDS = 1.0  # between two looks at whether there is anything left to do
_GRACE_SECONDS = 20.0  # for what it is at, once whoever started it is gone
_ALL = 1_000_000
_SESSIONS_LOST = "SERVO_SESSIONS_LOST"  # in a row, as one worker tells the next
_WORK = ("READY", "RUNNING", "RETRY_WAIT")
_UNDER_WAY = ("PLANNED", "RUNNING", "CANCELLING")


@click.command()
@click.option("--until-idle", is_flag=True, help="End when no run is under way.")
@click.option("--for", "run_id", metavar="RUN", help="End when this run has ended.")
@click.option("--child", is_flag=True, hidden=True, help="End when standard input does: whoever started it is gone.")
@json_option
def worker(until_idle: bool, run_id: str | None, child: bool, as_json: bool) -> None:
    """Take tasks and run them on Spark, until stopped.

    As many workers as you like may run, on as many machines as reach the ledger and the storage. Ctrl-C or SIGTERM ends
    one cleanly: what it is at is handed back and another worker takes it. Somebody must plan the runs: `servo up`.
    """
    from servo.runtime.json_logs import log_as_json, wants_json
    from servo.runtime.worker import open_worker

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
            Thread(target=_outlive_nobody, args=(stop,), name="parent", daemon=True).start()
        opened.ledger.head()
        opened.require_own_secret()
        with open_worker(opened, sessions_lost=lost) as at_work:
            at_work.run(stop, until=_until(opened, until_idle=until_idle, run_id=run_id))
        if until_idle and not as_json and (left := _undecided(opened)):
            aside(f"{counted(left, 'run')} cannot end before somebody decides: start `servo up`")
    if at_work.must_be_replaced is not None and not stop.is_set():
        _replace(at_work.sessions_lost)


def _replace(sessions_lost: int) -> None:
    """Begin anew in the same process: with its id, its standard streams and its arguments, and without its objects."""
    os.environ[_SESSIONS_LOST] = str(sessions_lost)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _until(opened: Project, *, until_idle: bool, run_id: str | None) -> Callable[[], bool]:
    """What says that it is enough. It is asked often, and looks seldom."""
    from servo.runtime.runs import Runs

    if not until_idle and run_id is None:
        return lambda: False
    runs = Runs(opened)
    looked = time.monotonic()

    def idle() -> bool:
        planning = any(holder.kind == "control" for holder in opened.leases.live())
        waiting = (*_UNDER_WAY, "REQUESTED") if planning else _UNDER_WAY
        under_way = [runs.progress(run_id) for run_id in _runs(runs, waiting)]
        # What waits for a person may wait for days, and nothing is left to do for a worker. Neither is where all that
        # is left is to be decided, and nobody is there to decide it.
        # Between two chunks of a backfill no run may be under way.
        more = planning and any(job.next_chunk < job.chunks for job in _progressing(opened))
        return not more and all(run.parked or not (planning or _computable(run)) for run in under_way)

    def enough() -> bool:
        nonlocal looked
        now = time.monotonic()
        if now - looked < _LOOK_SECONDS:
            return False
        looked = now
        return (run_id is not None and runs.progress(run_id).ended) or (until_idle and idle())

    return enough


def _progressing(opened: Project) -> list[Backfill]:
    """The backfills that have chunks to come and wait for nothing."""
    from servo.runtime.backfill_loading import going_on

    board = going_on(opened)
    return [job for job in board.open if job.state != "PAUSED" and board.may_start(job)]


def _undecided(opened: Project) -> int:
    """How many runs are under way although nobody is there to plan or end them."""
    from servo.runtime.runs import Runs

    if any(holder.kind == "control" for holder in opened.leases.live()):
        return 0
    runs = Runs(opened)
    return sum(not runs.progress(run_id).parked for run_id in _runs(runs, (*_UNDER_WAY, "REQUESTED")))


def _runs(runs: Runs, statuses: tuple[str, ...]) -> list[str]:
    return [run.run_id for status in statuses for run in runs.list(status=status, limit=_ALL)]


def _computable(run: RunProgress) -> bool:
    return any(task.state in _WORK for task in run.tasks)


def _outlive_nobody(stop: Event) -> None:
    """Standard input ends when the process that holds its other end does, however that ends.

    What a worker is at may be where nothing can interrupt it, for hours: it has as long as its parent would have given
    it, and is then given up like one that was killed.
    """
    # Not through sys.stdin, whose lock the interpreter wants when it ends.
    while os.read(0, 1024):
        pass
    stop.set()
    time.sleep(_GRACE_SECONDS)
    os._exit(1)

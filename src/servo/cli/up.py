"""What `servo up` runs: everything but Spark, and workers beside it."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, ExitStack
from math import inf
from threading import Event

import click

from servo.api.serving import Served, serving
from servo.cli.interrupts import reacting
from servo.cli.opening import actor, do_without_pandas, project, timed_at
from servo.cli.output import aside, echo_json, note
from servo.clock import system_clock
from servo.errors import ProjectionDamaged, ProjectionMissing
from servo.local_server import announce, withdraw
from servo.runtime.deploying import deployed_catalog
from servo.runtime.evaluation.pool import EvaluatorPool
from servo.runtime.loop.control import Control
from servo.runtime.loop.driver import Driver, one_pass
from servo.runtime.loop.sensors import Sensing
from servo.runtime.loop.service_loop import ServiceThread
from servo.runtime.processes.children import (
    CompactionProcess,
    Redeployment,
    exit_text,
    tasks_of_worker,
    write_last_words,
)
from servo.runtime.processes.workplace import child_worker, lineage_sender
from servo.runtime.telemetry.json_logs import log_as_json, wants_json
from servo.runtime.wiring import Project
from servo.ui.marks import counted

_COMPACTION_SECONDS = 10.0
_LOOK_SECONDS = 0.5  # between two looks at the children
_PATIENCE_SECONDS = 30.0  # for workers to show up, and for the control loop to end its pass
_SHORT_LIFE_SECONDS = 10.0  # a worker that lives no longer is in trouble, and waits before it is started again
_LONGEST_WAIT_SECONDS = 60.0
_SWITCH_SECONDS = 0.002
_PLACES = ("tenant", "workspace", "ledger", "storage", "projections", "spark.master", "spark.remote")


def run_up(workers: int, host: str | None, port: int | None, *, as_json: bool) -> None:
    """Run everything until stopped: the control loop, the driver and the server in threads, workers as processes."""
    do_without_pandas()
    # Many threads answer here while others decide: none may wait long for the interpreter.
    sys.setswitchinterval(_SWITCH_SECONDS)
    stop = Event()

    def stopping() -> None:
        if not as_json:
            _tell("stopping …  (again to leave at once)")
        stop.set()

    with (
        project(as_json=as_json, create=True, local=True, timed=True) as opened,
        reacting(stopping),
        ExitStack() as after,
    ):
        if wants_json(as_json=as_json):
            log_as_json(opened.settings)
        # What is wrong with the ledger, its secret or the definitions is said before anything starts.
        opened.ledger.head()
        opened.require_own_secret()
        _rebuild_damaged(opened)
        deployed_catalog(opened, actor=actor())
        after.enter_context(lineage_sender(opened))
        folder = Redeployment(opened.settings)
        after.callback(folder.close)
        evaluators = after.enter_context(EvaluatorPool(opened.settings))
        _begin_compacted(opened)
        server = after.enter_context(_served(opened, evaluators, host, port))
        announce(opened.settings.home, server.url)
        after.callback(withdraw, opened.settings.home)
        # Without one of its loops nothing goes on: what ends one of them ends the program.
        threads = [
            ServiceThread(Control(opened, compact_aside=CompactionProcess(opened.settings)), stop),
            ServiceThread(Driver(opened, evaluators), stop),
        ]
        for thread in threads:
            thread.start()
        crew = [_Member(opened, number) for number in range(1, workers + 1)]
        try:
            _until_heard_of(opened, crew, stop)
            _say_where(opened, crew, server.url, as_json=as_json)
            while not stop.wait(_LOOK_SECONDS):
                for member in crew:
                    member.look()
                if (news := folder.look()) is not None:
                    _tell(news)
                if server.problem is not None:
                    raise server.problem
        finally:
            stop.set()
            for member in crew:
                member.ask_to_end()
            for member in crew:
                member.end()
            for thread in threads:
                thread.join(_PATIENCE_SECONDS)
        for thread in threads:
            thread.require_well()


def _tell(line: str) -> None:
    """Print what has happened, with the time."""
    aside(f"{timed_at(system_clock())} {line}")


def _rebuild_damaged(opened: Project) -> None:
    """Have projections that cannot be opened rebuilt from the ledger, before anything reads them."""
    try:
        opened.store.current()
    except (ProjectionDamaged, ProjectionMissing) as damage:
        _tell(f"{damage.message}; the projections are rebuilt from the ledger now, which is not affected")
        compaction = CompactionProcess(opened.settings)
        compaction.replay()
        compaction.wait(inf)


def _begin_compacted(opened: Project) -> None:
    """Compact first, if the projections lag behind: then the code that folds events need not be loaded here."""
    if opened.store.current().watermark.position < opened.ledger.head().position:
        compaction = CompactionProcess(opened.settings)
        compaction()
        compaction.wait(_COMPACTION_SECONDS)  # it goes on if it takes longer


def _served(
    opened: Project, evaluators: EvaluatorPool, host: str | None, port: int | None
) -> AbstractContextManager[Served]:
    """The server. If its default port is taken by another project's server, it takes any other."""
    return serving(
        opened,
        user_code=Sensing(opened, evaluators),
        driver=lambda: one_pass(opened, evaluators),
        host=host,
        port=port,
        or_any_port=port is None and "server.port" not in opened.settings.origins,
    )


class _Member:
    """A worker process that is started again whenever it ends, and not too often."""

    def __init__(self, opened: Project, number: int) -> None:
        self._opened = opened
        self._number = number
        self._short_lives = 0
        self._not_before = 0.0
        self._start()

    def _start(self) -> None:
        self._born = time.monotonic()
        self._life = ExitStack()
        self._worker = self._life.enter_context(child_worker(self._opened))
        self.process = self._worker.process

    def look(self) -> None:
        """Notice that the process ended, and start it again when it is time."""
        now = time.monotonic()
        if not self._not_before and (code := self.process.poll()) is not None:
            end = self._how_it_ended(code)
            self.end()
            self._short_lives = self._short_lives + 1 if now - self._born < _SHORT_LIFE_SECONDS else 0
            wait = min(2.0**self._short_lives - 1, _LONGEST_WAIT_SECONDS)
            self._not_before = now + wait
            _tell(f"{end}; it is started again in {wait:.0f} s, see {self._worker.output}")
        if self._not_before and now >= self._not_before:
            self._not_before = 0.0
            self._start()

    def _how_it_ended(self, code: int) -> str:
        """Describe how the process ended, what it was working on, and what becomes of that."""
        end = f"worker {self._number} (process {self.process.pid}) {exit_text(code)}"
        if code and (tasks := tasks_of_worker(self._opened, self.process.pid)):
            write_last_words(self._opened, tasks, self.process.pid, code)
            lease = self._opened.settings.worker.lease_seconds
            end += (
                f" while it worked on {', '.join(map(str, tasks))}; another attempt begins once its lease has run out,"
                f" in at most {lease:g} s"
            )
        return end

    def ask_to_end(self) -> None:
        self._worker.ask_to_end()

    def end(self) -> None:
        """Wait for the process to hand back its tasks."""
        self._life.close()


def _until_heard_of(opened: Project, crew: list[_Member], stop: Event) -> None:
    """Wait for the workers' first signs of life: a run that is asked for before would bring a worker of its own."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline and not stop.wait(_LOOK_SECONDS / 5):
        living = {holder.pid for holder in opened.leases.live()}
        if all(member.process.pid in living or member.process.poll() is not None for member in crew):
            return


def _say_where(opened: Project, crew: list[_Member], url: str, *, as_json: bool) -> None:
    shown = {setting.key: setting.value for setting in opened.settings.shown() if setting.key in _PLACES}
    pids = [member.process.pid for member in crew]
    if as_json:
        echo_json(shown | {"url": url, "workers": pids})
    else:
        click.echo(f"✓ up at {url}, with {counted(len(pids), 'worker')}; Ctrl-C stops it")
        processes = ", ".join(f"process {pid}" for pid in pids) or "none: start `servo worker`"
        for key, value in (shown | {"workers": processes, "logs": str(opened.settings.home / "logs")}).items():
            note(f"  {key:<12} {value}")
    sys.stdout.flush()

"""A project in a folder, for whatever is tested with it.

From inside there are its ledger, runs, backfills and data; from outside the program, in processes that a test may kill,
pause and continue.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from servo.answers.backfills import Backfilled, BackfillTree
from servo.answers.runs import RunProgress
from servo.assets.loading import load
from servo.clock import Clock, system_clock
from servo.controllers import backfilling
from servo.errors import Conflict, LedgerUnavailable
from servo.events import RecordedEvent, decode
from servo.events.fact import Fact
from servo.operations.backfills.requests import CreateBackfill
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.deploying import Deployment, deploy
from servo.runtime.loop.service_loop import RunTracker
from tests.support.commands import Commands
from tests.support.operating import Backfills, Runs
from tests.support.questions import Data

ME = "person:tester"
PATIENCE = 240.0  # seconds; a wait ends as soon as what is waited for is so
# Short, so that a lost worker is soon noticed; and long enough for a machine that has other things to do.
PULSE = {"SERVO_WORKER_LEASE_SECONDS": "4", "SERVO_WORKER_HEARTBEAT_SECONDS": "0.5"}


class StillClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


class Workshop(Commands):
    """The project, short ways to ask it and to wait for it, and the processes that were started in it.

    `here`: where commands are typed, if not in its root. `variables`: the environment of its processes, beside that of
    the test.
    """

    def __init__(self, project: Project, *, here: Path | None = None, variables: dict[str, str] | None = None) -> None:
        self.project = project
        self.path = project.settings.root
        self.here = here or self.path
        self.variables = variables or {}
        self.backfills = Backfills(project)
        self.runs = Runs(project)
        self.data = Data(project)
        self._started: list[subprocess.Popen[bytes]] = []

    # ── telling the assets what to do ────────────────────────────────────────────────────────────────────────────

    def tell(self, name: str, text: str = "") -> None:
        """Leave a note that the assets look for; complete when it is there."""
        note = self.path / "notes" / name
        note.parent.mkdir(exist_ok=True)
        part = note.with_name(f".{name}.part")
        part.write_text(text)
        part.replace(note)

    def untell(self, name: str) -> None:
        (self.path / "notes" / name).unlink(missing_ok=True)

    def notes(self, prefix: str) -> list[str]:
        folder = self.path / "notes"
        return sorted(note.name for note in folder.glob(f"{prefix}*")) if folder.is_dir() else []

    # ── from inside ──────────────────────────────────────────────────────────────────────────────────────────────

    def deploy(self, **how: Any) -> Deployment:
        """Have the project's files take effect as they are now."""
        return deploy(self.project, load(self.project.settings), actor=ME, **how)

    def create(self, *assets: str, request_id: str | None = None, **asked: Any) -> Backfilled:
        return self.backfills.create(CreateBackfill(assets=assets, **asked), request_id=request_id, actor=ME)

    def tree(self, backfill: str) -> BackfillTree:
        return self.backfills.tree(backfill)

    def until(self, happened: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
        """What a condition gives once it holds; asked again whenever something was recorded, and now and then."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                position = self.project.ledger.head().position
                if found := happened():
                    return found
                self.project.ledger.head(beyond=position, timeout=0.1)
            except (Conflict, LedgerUnavailable, IndexError):
                time.sleep(0.05)  # somebody else is at it, or nothing is planned yet
            assert time.monotonic() < deadline, f"not in {seconds} seconds: {what}\n{self.said()}"

    def at_rest(self) -> None:
        """Wait until nothing happens by itself: no run can go on, and no backfill can plan another chunk."""
        tracker = RunTracker(self.project, backfills=True)

        def resting() -> bool:
            tracker.refresh()
            assert tracker.backfills is not None
            decided = backfilling.decide(tracker.backfills, tracker.catalog, self.project.clock(), str)
            return all(run.parked for run in tracker.board.runs.values()) and not list(decided)

        self.until(resting, "nothing is under way")

    def ended(self, backfill: str, seconds: float = PATIENCE) -> BackfillTree:
        """The tree once all of it has ended."""
        self.until(lambda: self.tree(backfill).over, f"{backfill} has ended", seconds)
        return self.tree(backfill)

    def events(self, run_id: str | None = None) -> list[RecordedEvent]:
        """All that happened, or all that a run did."""
        return [event for event in self.project.history.events() if run_id in (None, event.correlation_id)]

    def facts(self, *of: type[Fact] | str) -> list[Any]:
        """What happened, of these kinds, and in the run of this id."""
        kinds = {kind.event_type for kind in of if not isinstance(kind, str)}
        [run_id] = [one for one in of if isinstance(one, str)] or [None]
        return [decode(event) for event in self.events(run_id) if not kinds or event.event_type in kinds]

    def request(self, *selection: str, partitions: str | None = None, **options: Any) -> str:
        return self.runs.request(list(selection), partitions=partitions, actor=ME, **options).run_id

    def wait(self, run_id: str) -> RunProgress:
        """How it ended."""
        ended = self.runs.follow(run_id, lambda _: None, timeout=PATIENCE)
        assert ended.ended, (ended, self.said())
        return ended

    def do(self, *selection: str, partitions: str | None = None, **options: Any) -> RunProgress:
        return self.wait(self.request(*selection, partitions=partitions, **options))

    def task(self, run_id: str, number: int = 0) -> Any:
        return self.runs.progress(run_id).tasks[number]

    def rows(self, asset: str, *partitions: str, as_of: Any = None) -> list[tuple[Any, ...]]:
        return sorted(self.data.read(asset, partitions, as_of=as_of).rows)

    def hashes(self, asset: str, *partitions: str, as_of: Any = None) -> dict[str, str | None]:
        return {one.key: one.content_hash for one in self.data.places(asset, partitions, as_of=as_of)[1]}

    def query(self, sql: str, **when: Any) -> list[Any]:
        when = when or {"fresh": True, "timeout": 60.0}
        return list(self.project.reader.query(sql, **when).rows)

    def head(self) -> str | None:
        """The newest event: by its id, everything can be asked as of then."""
        return self.project.ledger.head().event_id

    def files_of(self, materialization_id: str) -> list[Path]:
        return sorted((self.path / ".servo").rglob(f"{materialization_id}/*.parquet"))

    def pid_of(self, worker: str | None) -> int | None:
        """The process that is that worker now."""
        return next((one.pid for one in self.project.leases.live() if one.id == worker), None)

    # ── from outside ─────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        """A process that goes on beside the test, and ends with the workshop."""
        output = self.path / f"said-{len(self._started)}-{args[0]}.log"
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "servo", *args],
                cwd=self.here,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        self._started.append(process)
        return process

    def logs(self) -> str:
        """What the processes wrote."""
        logs = [*self.path.glob("said-*.log"), *(self.path / ".servo" / "logs").glob("*.log")]
        return "\n".join(f"── {log.name}\n{log.read_text(errors='replace')[-40_000:]}" for log in sorted(logs))

    def said(self) -> str:
        """What the processes wrote, how they ended or where they are now, for who wants to know why a test failed.

        Their stacks come twice: what is the same in both waits, what is not goes round in circles.
        """
        started = [process.pid for process in self._started if process.poll() is None]
        ended = [
            f"process {process.pid} ended with {process.returncode}" for process in self._started if process.poll()
        ]
        workers = [worker for pid in started for worker in children(pid, "servo\0worker")]
        for _ in range(2):
            for pid in {*started, *workers}:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
            if started:
                time.sleep(5)  # for their stacks to be written; whoever asks has failed already
        return "\n".join([*ended, self.logs()])

    def close(self) -> None:
        """End the processes, and the project."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self._started:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.project.close()


@contextmanager
def deployed_workshop(
    folder: Path,
    definitions: str,
    *,
    toml: str = "",
    variables: dict[str, str] | None = None,
    clock: Clock = system_clock,
) -> Iterator[Workshop]:
    """A project with these definitions, deployed; nobody is at work yet."""
    with _opened(folder, definitions, toml, variables or {}, clock=clock) as made:
        made.deploy()
        yield made


@contextmanager
def spark_workshop(
    folder: Path, definitions: str, toml: str = "", *, variables: dict[str, str] | None = None, below: str = ""
) -> Iterator[Workshop]:
    """A project whose processes compute on Spark, and soon notice that one of them is lost; nothing is deployed.

    `below`: the folder in it where commands are typed.
    """
    toml = f'{toml}\n[spark]\nmaster = "local[2]"\n'
    with _opened(folder, definitions, toml, PULSE | (variables or {}), below=below) as made:
        yield made


@contextmanager
def _opened(
    folder: Path,
    definitions: str,
    toml: str,
    variables: dict[str, str],
    *,
    below: str = "",
    clock: Clock = system_clock,
) -> Iterator[Workshop]:
    (folder / below).mkdir(parents=True, exist_ok=True)
    (folder / "servo.toml").write_text(f'namespace = "shop"\n{toml}')
    (folder / "definitions.py").write_text(definitions)
    project = open_workspace(load_settings(folder / below, variables), create=True, clock=clock)
    made = Workshop(project, here=folder / below, variables=variables)
    try:
        yield made
    finally:
        made.close()


def is_running(pid: int) -> bool:
    """Whether a process is there and not only waiting to be buried."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int, name: str = "") -> list[int]:
    """The processes below one, whose command line has a name in it."""
    below: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            below.setdefault(parent, []).append(int(folder.name))
    found, queue = [], list(below.get(pid, []))
    for one in queue:
        queue += below.get(one, [])
        try:
            if name in (Path("/proc") / str(one) / "cmdline").read_text():
                found.append(one)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found

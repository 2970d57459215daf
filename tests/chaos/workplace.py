"""A project in a folder, with `servo` processes at work on it that a test may kill, pause and continue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servo.answers.runs import RunProgress
from servo.errors import Conflict, LedgerUnavailable
from servo.events import RecordedEvent, UnknownEvent, decode
from servo.events.fact import Fact
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.data import Data
from servo.runtime.runs import Runs
from tests.support import commands

PATIENCE = 240.0  # seconds; a wait ends as soon as what is waited for is so
ME = "person:tester"
# Short, so that a lost worker is soon noticed; and long enough for a machine that has other things to do.
PULSE = {"SERVO_WORKER_LEASE_SECONDS": "4", "SERVO_WORKER_HEARTBEAT_SECONDS": "0.5"}


class Site:
    """The project, from inside (its ledger and data) and from outside (the program)."""

    def __init__(self, path: Path, definitions: str, settings: str, variables: dict[str, str], below: str) -> None:
        (path / below).mkdir(parents=True, exist_ok=True)
        (path / "servo.toml").write_text(f'namespace = "shop"\n{settings}\n[spark]\nmaster = "local[2]"\n')
        (path / "definitions.py").write_text(definitions)
        self.path = path
        self.here = path / below  # where commands are typed
        self.variables = PULSE | variables
        self.project: Project = open_workspace(load_settings(self.here, self.variables), create=True)
        self.runs = Runs(self.project)
        self.data = Data(self.project)
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

    def request(self, *selection: str, partitions: str | None = None, **options: Any) -> str:
        return self.runs.request(list(selection), partitions=partitions, actor=ME, **options).run_id

    def wait(self, run_id: str) -> RunProgress:
        """How it ended."""
        ended = self.runs.follow(run_id, lambda _: None, timeout=PATIENCE)
        assert ended.ended, (ended, self.said())
        return ended

    def do(self, *selection: str, partitions: str | None = None, **options: Any) -> RunProgress:
        return self.wait(self.request(*selection, partitions=partitions, **options))

    def facts(self, run_id: str) -> list[Fact | UnknownEvent]:
        return [decode(event) for event in self.events(run_id)]

    def events(self, run_id: str) -> list[RecordedEvent]:
        return [event for event in self.project.history.events() if event.correlation_id == run_id]

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

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}
        return kept | self.variables

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        """A process that goes on beside the test, and ends with the site."""
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

    def servo(self, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return commands.servo(args, cwd=self.here, env=self.environment() | variables, timeout=PATIENCE)

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """What a condition gives once it holds."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                if found := condition():
                    return found
            except (Conflict, LedgerUnavailable, IndexError):
                pass  # somebody else is at it, or nothing is planned yet
            time.sleep(0.05)
        raise AssertionError(f"never: {what}\n{self.said()}")

    def said(self) -> str:
        """What the processes wrote and where they are now, for who wants to know why a test failed."""
        started = [process.pid for process in self._started if process.poll() is None]
        workers = [worker for pid in started for worker in children(pid, "servo\0worker")]
        for pid in {*started, *workers}:
            os.kill(pid, signal.SIGUSR1)
        time.sleep(1)  # for their stacks to be written; whoever asks has failed already
        logs = [*self.path.glob("said-*.log"), *(self.path / ".servo" / "logs").glob("*.log")]
        return "\n".join(f"── {log.name}\n{log.read_text(errors='replace')[-8000:]}" for log in sorted(logs))

    def close(self) -> None:
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
def site(
    path: Path, definitions: str, settings: str = "", variables: dict[str, str] | None = None, below: str = ""
) -> Iterator[Site]:
    made = Site(path, definitions, settings, variables or {}, below)
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

"""Child processes: `servo` commands beside this process, how they ended in words, and how whole trees are ended."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

import msgspec

from servo import decoders
from servo.errors import ServoError
from servo.events.lifecycles import TaskStatus
from servo.runtime.definitions_cache import code_stamps
from servo.runtime.settings import VARIABLES, Settings
from servo.runtime.worker.task_log import TaskLog

if TYPE_CHECKING:
    from servo.runtime.wiring import Project

# What usually sends the signals that people do not send themselves.
_CAUSES = {
    signal.SIGKILL: "killed from outside, often because memory ran out",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGBUS: "a crash in native code, or a full disk",
    signal.SIGABRT: "it gave up on itself, in native code",
    signal.SIGILL: "a crash in native code",
    signal.SIGFPE: "a crash in native code",
}
_TASKS = f"""
    SELECT run_id, task_key, asset_key, partition_count, attempt FROM tasks
    WHERE worker = $worker AND state = '{TaskStatus.RUNNING}' ORDER BY started_version
"""
_PATIENCE = 5.0
ENDED_BY_US = -int(signal.SIGKILL)
_REAP_SECONDS = 1.0


def start_servo(
    settings: Settings,
    *command: str,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.STDOUT,
) -> subprocess.Popen[bytes]:
    """Start a `servo` command in the same project, with the settings that are in force here."""
    return subprocess.Popen(
        [sys.executable, "-m", "servo", *command],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=settings.root,
        env={**os.environ, **_variables(settings)},
        start_new_session=True,  # a Ctrl-C in the terminal is for its parent
    )


def _variables(settings: Settings) -> dict[str, str]:
    """The settings as environment variables, wherever they came from: relative paths mean another folder there."""
    values = {name: attrgetter(key)(settings) for name, key in VARIABLES.items()}
    return {name: str(value) for name, value in values.items() if value is not None}


class BackgroundCommand:
    """A `servo` command that runs beside this process, and what it prints. Belongs to one thread."""

    def __init__(self, settings: Settings, *command: str, errors_only: bool = False) -> None:
        self._output = TemporaryFile()  # noqa: SIM115 (closed when the process has ended)
        stdout, stderr = (subprocess.DEVNULL, self._output) if errors_only else (self._output, subprocess.STDOUT)
        self._process = start_servo(settings, *command, stdout=stdout, stderr=stderr)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, but not longer than so many seconds; it goes on."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def end(self, seconds: float) -> None:
        """Wait until it has ended, and kill it if that takes longer."""
        self.wait(seconds)
        if self.is_running:
            self._process.kill()
            self._process.wait()

    def result(self) -> tuple[int, list[str]]:
        """The return code and the lines that it printed. To be asked once, after its end."""
        with self._output:
            self._output.seek(0)
            return self._process.returncode, self._output.read().decode(errors="replace").strip().splitlines()


def exit_text(code: int) -> str:
    """How a process ended, by its return code: `ended with exit code 1`, `was ended by SIGSEGV (a crash in …)`."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code)
    except ValueError:
        return f"was ended by signal {-code}"
    cause = f" ({_CAUSES[name]})" if name in _CAUSES else ""
    return f"was ended by {name.name}{cause}"


class TaskAtWork(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt at a task that a worker is recorded to be at."""

    run_id: str
    task_key: str
    asset_key: str
    partition_count: int
    attempt: int

    def __str__(self) -> str:
        partitions = f"{self.partition_count} partition{'' if self.partition_count == 1 else 's'}"
        return f"{self.asset_key} ({partitions}, task {self.task_key} of run {self.run_id})"


def tasks_of_worker(project: Project, pid: int) -> list[TaskAtWork]:
    """The tasks that a worker process of this machine is recorded to be at.

    Empty where the ledger cannot be read: the caller has a worse problem to report.
    """
    try:
        holders = [one for one in project.leases.live() if (one.kind, one.host) == ("worker", socket.gethostname())]
        return [
            TaskAtWork(run_id=run, task_key=task, asset_key=asset, partition_count=count, attempt=attempt)
            for holder in holders
            if holder.pid == pid
            for run, task, asset, count, attempt in project.reader.ask(
                _TASKS, {"worker": holder.id}, fresh=True, timeout=_PATIENCE
            ).rows
        ]
    except ServoError:
        return []


def write_last_words(project: Project, tasks: list[TaskAtWork], pid: int, code: int) -> None:
    """End the logs of the tasks that a worker process was at with what it died of, which it could not write itself."""
    for task in tasks:
        with TaskLog.open(project.settings, task.run_id, task.task_key, task.attempt, clock=project.clock) as task_log:
            task_log.error("its worker (process %s) %s: this attempt is over, another follows", pid, exit_text(code))


# ── process trees ────────────────────────────────────────────────────────────────────────────────────────────────────


def end_tree(pid: int) -> int:
    """End a child of ours and what it started; give its exit code, or the negative number of a signal.

    Nobody has waited for it, so its number is nobody else's. If it had ended already, that is how it ended.
    """
    below = _descendants(pid)
    _kill(pid)
    for other in below:
        _kill(other)
    return reap(pid, _REAP_SECONDS)


def reap(pid: int, seconds: float = 0.0) -> int:
    """Wait for a child, but not for one that hangs in the kernel; give its exit code."""
    until = time.monotonic() + seconds
    while True:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return ENDED_BY_US
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return ENDED_BY_US
        time.sleep(0.0005)


def children_of(pid: int) -> set[int]:
    """The child processes of a process; empty where the system does not list them."""
    found: set[int] = set()
    with suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found.update(map(int, (task / "children").read_text().split()))
    return found


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    new = {pid}
    while new:
        new = {child for parent in new for child in children_of(parent)} - found
        found |= new
    return found


def _kill(pid: int) -> None:
    """Kill a process, with its group if it leads one."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


# ── compaction and redeployment ──────────────────────────────────────────────────────────────────────────────────────


log = logging.getLogger(__name__)


_GRACE_SECONDS = 30.0
_NEXT = {
    "compact": "reads fold what is new in memory meanwhile, and it is started again as long as there is something to"
    " fold",
    "replay": "it is started again as long as they cannot be read",
}
_SECONDS = 1.0  # between two looks, and as long as files must have been still
_SHARE = 50  # a look that takes long is not taken often: it is one part of so many of the time


class CompactionProcess:
    """Compactions and replays in a child process, one at a time. Belongs to one thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._command: BackgroundCommand | None = None
        self._verb = "compact"

    def __call__(self) -> None:
        self._start("compact", "--gently")

    def replay(self) -> bool:
        """Have the projections rebuilt from the ledger; False where something is under way already."""
        return self._start("replay", "--no-check")

    def _start(self, verb: str, *options: str) -> bool:
        if self._command is not None and self._command.is_running:
            return False
        self._report_end()
        self._verb = verb
        self._command = BackgroundCommand(self._settings, "ledger", verb, *options, "--json", errors_only=True)
        return True

    def wait(self, seconds: float) -> None:
        """Wait until the one that is under way has ended, but not longer than so many seconds; it goes on."""
        if self._command is not None:
            self._command.wait(seconds)
            self._report_end()

    def close(self) -> None:
        """Wait for the one that is under way."""
        if self._command is not None:
            self._command.end(_GRACE_SECONDS)
            self._report_end()

    def _report_end(self) -> None:
        """Warn of a compaction that failed, with the last thing that it said; forget the process."""
        if self._command is None or self._command.is_running:
            return
        (code, lines), self._command = self._command.result(), None
        if code:
            log.warning(
                "the process that %ss the projections %s%s; %s",
                self._verb,
                exit_text(code),
                f" ({lines[-1]:.300})" if lines else "",
                _NEXT[self._verb],
                extra={"action": "compaction.failed"},
            )


# ── redeployment ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Redeployment:
    """Looks at the files of a project, and deploys them when they have changed. Belongs to one thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen = self._deployed = code_stamps(settings)
        self._next = time.monotonic() + _SECONDS
        self._command: BackgroundCommand | None = None

    def look(self) -> str | None:
        """Look for changed files, or for the end of a deployment; give a message where there is one."""
        if self._command is not None:
            return None if self._command.is_running else self._ended(self._command)
        began = time.monotonic()
        if began < self._next:
            return None
        now = code_stamps(self._settings)
        self._next = time.monotonic() + max(_SECONDS, (time.monotonic() - began) * _SHARE)
        still, self._seen = now == self._seen, now
        if still and now is not None and now != self._deployed:
            self._deployed = now
            self._command = BackgroundCommand(self._settings, "deploy", "--json")
        return None

    def _ended(self, command: BackgroundCommand) -> str | None:
        self._command = None
        code, lines = command.result()
        lines = lines or ["it said nothing"]
        if code:
            if code < 0:
                lines = [f"the process that deploys {exit_text(code)}; it is tried again with the next change"]
            return f"what changed in the folder was not deployed: {lines[-1].removeprefix('servo: ')}"
        said = decoders.decode(lines[-1].encode())
        if not said.get("changed"):
            return None
        history = "; ".join(change["sentence"] for change in said.get("changes", ()))
        return "what changed in the folder is deployed" + (f": {history}" if history else "")

    def close(self) -> None:
        if self._command is not None:
            self._command.end(0.0)
            self._command.result()

"""What became of a child process, in words: its exit code or the signal that ended it, and what it was working on."""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING

import msgspec

from servo.errors import ServoError
from servo.events.lifecycles import TaskStatus
from servo.runtime.task_log import TaskLog

if TYPE_CHECKING:
    from servo.runtime.wiring import Project

__all__ = ["TaskAtWork", "exit_text", "tasks_of_worker", "write_last_words"]

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

    Empty where nothing can be found out: who asks has something worse to tell.
    """
    try:
        holders = [one for one in project.leases.live() if (one.kind, one.host) == ("worker", socket.gethostname())]
        return [
            TaskAtWork(run_id=run, task_key=task, asset_key=asset, partition_count=count, attempt=attempt)
            for holder in holders
            if holder.pid == pid
            for run, task, asset, count, attempt in project.reader.query(
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

"""Ending a child process with all that it has started, wherever that has gone."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["ENDED_BY_US", "children_of", "end_tree", "reap"]

ENDED_BY_US = -int(signal.SIGKILL)
_REAP_SECONDS = 1.0


def end_tree(pid: int) -> int:
    """End a child of ours and what it started; how it ended: its exit code, or the negative number of a signal.

    Nobody has waited for it, so its number is nobody else's. If it had ended already, that is how it ended.
    """
    below = _descendants(pid)
    _kill(pid)
    for other in below:
        _kill(other)
    return reap(pid, _REAP_SECONDS)


def reap(pid: int, seconds: float = 0.0) -> int:
    """How a child ended. One that hangs in the kernel is waited for no longer than this: others are waiting too."""
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
    """Empty where the system does not tell."""
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
    """With its group, if it leads one."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)

"""Named failure points: no-ops unless a test arms them.

Code that must survive a crash calls `reach("append.before_commit")` at every moment at which dying would be
interesting. A test arms a point with an action (kill the process, raise, close a connection) in the same process
with `arm`, or in a child process with `SERVO_FAULTS=append.before_commit=kill`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

POINTS = frozenset(
    {
        "append.begin",
        "append.after_insert",
        "append.before_commit",
        "append.after_commit",
        "compact.begin",
        "compact.after_file",
        "compact.during_merge",
        "compact.after_merge",
        "compact.after_files",
        "manifest.before_write",
        "manifest.after_write",
        "pointer.before_swap",
        "pointer.after_swap",
        "archive.begin",
        "archive.after_segment",
        "archive.after_index",
        "archive.after_trim",
    }
)

_armed: dict[str, Callable[[], None]] = {}


def reach(point: str) -> None:
    """Pass a failure point; costs one dictionary look-up where nothing is armed."""
    if _armed and (action := _armed.get(point)) is not None:
        action()


@contextmanager
def arm(point: str, action: Callable[[], None]) -> Iterator[None]:
    """Run `action` whenever `point` is reached inside the block."""
    _require_known(point)
    _armed[point] = action
    try:
        yield
    finally:
        _armed.pop(point, None)


def _require_known(point: str) -> None:
    if point not in POINTS:
        raise ValueError(f"there is no failure point {point!r}; known: {', '.join(sorted(POINTS))}")


def _kill_at_visit(visit: int) -> Callable[[], None]:
    remaining = visit
    counting = Lock()  # a point may be reached by several threads

    def kill() -> None:
        nonlocal remaining
        with counting:
            remaining -= 1
            if remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return kill


def _arm_from_environment() -> None:
    """Read `point=kill` or `point=kill:3` (at the third visit) from SERVO_FAULTS, comma-separated."""
    for entry in filter(None, os.environ.get("SERVO_FAULTS", "").split(",")):
        point, _, action = entry.partition("=")
        _require_known(point)
        name, _, visit = action.partition(":")
        if name != "kill":
            raise ValueError(f"SERVO_FAULTS: unknown action {action!r} for {point}; the only one is kill[:N]")
        _armed[point] = _kill_at_visit(int(visit or 1))


_arm_from_environment()

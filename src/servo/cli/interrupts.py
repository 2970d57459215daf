"""What Ctrl-C and SIGTERM do.

A command works in a thread of its own while the main thread listens (see `servo.cli.main`). Left to itself a signal
ends the program at once. A command that has to put something in order first registers a function with `reacting`.
SIGUSR1 writes the stack of every thread to stderr, and nothing else happens.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_reactions: list[Callable[[], None]] = []


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


class Left(KeyboardInterrupt):
    """The command stops waiting, and the work goes on. The message says how to get back to it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@contextmanager
def reacting(react: Callable[[], None]) -> Iterator[None]:
    """In the block, the first signal calls `react` in the main thread and the command goes on; the next one ends it."""
    _reactions.append(react)
    try:
        yield
    finally:
        if react in _reactions:
            _reactions.remove(react)


def react() -> bool:
    """Call the newest reaction, once; False if there is none."""
    if not _reactions:
        return False
    _reactions.pop()()
    return True


def listen() -> None:
    """Handle SIGTERM like Ctrl-C, and SIGUSR1. Only the main thread may call this."""
    signal.signal(signal.SIGTERM, _terminated)
    if sys.stderr is not None:  # it may have been closed
        signal.signal(signal.SIGUSR1, _write_stacks)


def _write_stacks(*_: Any) -> None:
    # In Python, where no other thread runs meanwhile: `faulthandler.register` walks the frames of threads that go on,
    # and now and then the process dies of it.
    faulthandler.dump_traceback()


def _terminated(*_: Any) -> None:
    raise Terminated

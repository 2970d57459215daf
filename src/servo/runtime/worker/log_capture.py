"""Capture of what a thread prints and logs, into the log of the task that it works on.

While a thread is in `capture(log)`, all of this goes to the task's file: `print`, `sys.stdout`, `sys.stderr`, warnings
and every logger. Other threads print and log as before. A thread that is started for a part of the task enters it with
`capture(log, partition)`, which may decorate its function, or with a copy of the context. What child processes and the
JVM write is theirs, and not captured; nor is what Servo itself logs, which is the worker's.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal, TextIO, cast

from servo.answers.runs import Stream
from servo.runtime.worker.task_log import Sink, TaskLog, current, entered_log, formatted

_NOISY = "py4j"  # says every step that it takes


@contextmanager
def capture(log: TaskLog, partition: str | None = None) -> Iterator[None]:
    """Let all that this thread prints and logs go to a task's log, until the block ends. In it already, it nests."""
    sink = Sink(log, partition)
    _hooks.add()
    token = current.set(sink)
    try:
        yield
    finally:
        current.reset(token)
        sink.close()
        _hooks.remove()


class _Output:
    """Stands for `sys.stdout` or `sys.stderr` while tasks are captured; each thread gets at its own place."""

    def __init__(self, own: TextIO, stream: Stream) -> None:
        self.own = own
        self._stream: Stream = stream

    def write(self, text: str) -> int:
        sink = entered_log()
        if sink is None:
            return self.own.write(text)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        sink.take(self._stream, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        return entered_log() is None and self.own.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


def _captured(record: logging.LogRecord) -> Sink | None:
    """The sink of the task that a record belongs to; none for Servo's own records, which are the worker's."""
    return None if record.name.partition(".")[0] == "servo" else entered_log()


class _ToCapture(logging.Handler):
    """A handler of the root logger that gives each thread's records to its task."""

    def emit(self, record: logging.LogRecord) -> None:
        sink = _captured(record)
        if sink is None:
            self._as_without_us(record)
        elif record.name.partition(".")[0] != _NOISY or record.levelno >= logging.WARNING:
            sink.log.write(formatted(record), level=record.levelname, partition=sink.partition)

    def _as_without_us(self, record: logging.LogRecord) -> None:
        """Write warnings to stderr, as Python does where there is no handler: ours stops it from doing so."""
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not self._has_others(record):
            last.handle(record)

    def _has_others(self, record: logging.LogRecord) -> bool:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


class _Others(logging.Filter):
    """Keeps records of tasks, and records below the level of before, from the other handlers."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        return _captured(record) is None and (record.levelno >= self._level or _has_own_level(record.name))


def _has_own_level(name: str) -> bool:
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None and logger.parent is not None:
        if logger.level != logging.NOTSET:
            return True
        logger = logger.parent
    return False


class _Hooks:
    """What stands in for the process's own streams and handlers, from the first capture to the last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0
        self._undo: list[Callable[[], None]] = []

    def add(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._undo = [self._hook_stream("stdout"), self._hook_stream("stderr"), self._hook_logging()]

    def remove(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                for undo in self._undo:
                    undo()

    def _hook_stream(self, name: Literal["stdout", "stderr"]) -> Callable[[], None]:
        own = getattr(sys, name)
        ours = _Output(own, name)
        setattr(sys, name, cast(TextIO, ours))

        def undo() -> None:
            if getattr(sys, name) is ours:  # else somebody has put another there since, who knows why
                setattr(sys, name, own)

        return undo

    def _hook_logging(self) -> Callable[[], None]:
        root = logging.getLogger()
        level, ours = root.level, _ToCapture()
        others = _Others(level)
        filtered = list(root.handlers)
        for handler in filtered:
            handler.addFilter(others)
        root.addHandler(ours)
        lowered = min(level, logging.INFO)  # in a task's log people look for what they said, not only for warnings
        root.setLevel(lowered)

        def undo() -> None:
            root.removeHandler(ours)
            for handler in filtered:
                handler.removeFilter(others)
            if root.level == lowered:
                root.setLevel(level)

        return undo


_hooks = _Hooks()

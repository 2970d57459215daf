"""JSON logs: one object a line, with the run, asset and task that it is about.

A record says what it is about by `extra={"run": …}`, or by being made inside `about(run=…)`: so everything that is
logged while a task is computed names its run and its asset.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

from servo.events.fact import timestamp_text
from servo.runtime.settings import Settings

__all__ = ["VARIABLE", "about", "log_as_json", "wants_json"]

VARIABLE = "SERVO_LOG"  # "json": also of commands that were not asked for JSON
_FIELDS = ("run", "asset", "partition", "task", "attempt")
_subject: ContextVar[dict[str, Any] | None] = ContextVar("servo_log_subject", default=None)


@contextmanager
def about(**subject: Any) -> Iterator[None]:
    """Name the run, asset, partition, task or attempt that records of this block are about."""
    token = _subject.set({**(_subject.get() or {}), **subject})
    try:
        yield
    finally:
        _subject.reset(token)


def wants_json(*, as_json: bool) -> bool:
    return as_json or os.environ.get(VARIABLE, "").strip().lower() == "json"


def log_as_json(settings: Settings, *, stream: TextIO | None = None) -> None:
    """Log what Servo logs in this process to stderr as JSON, from INFO on."""
    os.environ[VARIABLE] = "json"  # for the workers that are started from here
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonLines(settings))
    logger = logging.getLogger("servo")
    for before in list(logger.handlers):
        logger.removeHandler(before)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _JsonLines(logging.Formatter):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._scope = {"tenant": settings.tenant, "workspace": settings.workspace}

    def format(self, record: logging.LogRecord) -> str:
        subject = _subject.get() or {}
        line: dict[str, Any] = {
            "time": timestamp_text(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "action": getattr(record, "action", None),
            "message": record.getMessage(),
            **{name: getattr(record, name, subject.get(name)) for name in _FIELDS},
            **self._scope,
            "logger": record.name,
            "process": record.process,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Escaped throughout: a line break in what somebody else has said must not look like a line of ours.
        return json.dumps({name: value for name, value in line.items() if value is not None}, default=str)

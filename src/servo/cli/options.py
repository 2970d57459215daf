"""What the commands share: the `--json` option, and the service that they call."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from servo.runtime.service import Service

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    """Add `--json`, which the command takes as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Answer as JSON, and errors on stderr likewise.")(
        command
    )


@contextmanager
def service(*, as_json: bool) -> Iterator[Service]:
    """The service of the project in the current folder."""
    from servo.cli.opening import about_here
    from servo.runtime.service import Service
    from servo.runtime.settings import load_settings
    from servo.runtime.wiring import open_workspace

    show_warnings(as_json=as_json)
    about_here()
    with open_workspace(load_settings()) as project:
        yield Service(project)


def show_warnings(*, as_json: bool, timed: bool = False) -> None:
    """Warnings of Servo's own code go to stderr, a line each; `timed`: with the time in UTC, for what runs long."""
    logger = logging.getLogger("servo")
    if not logger.handlers:
        handler = logging.StreamHandler()
        plain = _Timed("%(asctime)s %(message)s") if timed else logging.Formatter("servo: warning: %(message)s")
        handler.setFormatter(_AsJson() if as_json else plain)
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)
        logger.propagate = False


class _Timed(logging.Formatter):
    """A line with the time in UTC before it."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 (logging's)
        return timed_at(datetime.fromtimestamp(record.created, UTC))


def timed_at(moment: datetime) -> str:
    """A time as it stands before a line of what runs long."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


class _AsJson(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({"warning": {"message": record.getMessage()}}, ensure_ascii=False)


class _Moment(click.ParamType[datetime]):
    """A time as people write it, and as Servo does: 2025-01-15, 2025-01-15T06:00, with Z or an offset; else UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value).strip())
        except ValueError:
            self.fail(f"{value!r} is not a time: write 2025-01-15T06:00:00Z or 2025-01-15.", param, ctx)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


MOMENT = _Moment()


def given(**options: Any) -> dict[str, Any]:
    """The options that were given; those left out take the defaults of the request."""
    return {name: value for name, value in options.items() if value is not None}

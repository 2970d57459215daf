"""What `servo schedule` and `servo sensor` share: how they are changed, and how times and states are said."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime

import click

from servo.answers.automations import Changed
from servo.answers.values import moment
from servo.cli.opening import services
from servo.cli.output import COLOURS, aside, duration, echo_json, note, plain_struct
from servo.cli.services import Services
from servo.operations.operation import Change
from servo.ui.marks import DIM, Line, Span
from servo.ui.proof import ago

STATUS_COLOURS = {
    "TRIGGERED": "green",
    "NO_DATA": DIM,
    "SKIPPED": "yellow",
    "SKIPPED_STALE_CURSOR": "yellow",
    "FAILED": "red",
}
NOT_DEPLOYED = "new: declared here and not deployed yet; `servo up` or `servo tick` deploys it"


def change(
    request: Change[Changed],
    noun: str,
    words: str | Callable[[Changed], str],
    *,
    as_json: bool,
    key: str | None = None,
    create: bool = True,
    then: str | None = None,
    drives: str | None = None,
) -> None:
    """Have a schedule or a sensor changed, and say what was done to it, or that it was so already.

    `create`: also where there is no ledger yet. `then`: a verb to go on with. `drives`: what happens only while
    `servo up` or `servo tick` is there.
    """
    with services(as_json=as_json, create=create) as here:
        done = here.do(request, key=key)
        if as_json:
            document = plain_struct(done)
            echo_json({f"{noun}_id": document.pop("id"), **document})
            return
        already = " already" if done.duplicate else ""
        said = words if isinstance(words, str) else words(done)
        click.echo(f"✓ {done.name} {said}{already}, version {done.version}")
        if then is not None:
            note(f"servo {noun} {then} {done.name}")
        if drives is not None and "driver" not in here.at_work():
            aside(f"nothing is at work here: {drives} when `servo up` is, or with `servo tick`")


def created(done: Changed) -> str:
    return "was created" if done.duplicate else "is created"


def nobody_works(here: Services, what: str) -> None:
    """Say that nothing is planned or computed here, where it is so."""
    if not here.works():
        aside(f"nothing is at work here: {what} when `servo up` does, or with `servo tick --work`")


# ── cells ────────────────────────────────────────────────────────────────────────────────────────────────────────


def when(at: datetime | None, now: datetime, *, terminal: bool = True) -> Line:
    """A time on the terminal: how long ago, or how long it takes; in a pipe the time itself."""
    if at is None:
        return []
    return [Span(ago(at, now) if terminal else moment(at.replace(microsecond=0)))]


def stamped(moment: datetime | None, now: datetime) -> str:
    """A time in a line: in UTC, and how long ago that is."""
    return "never" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%SZ} ({ago(moment, now)})"


def late(seconds: float) -> str:
    """How late it was, where that is worth a word."""
    return "" if seconds < 1 or math.isnan(seconds) else duration(seconds)


def status(name: str | None) -> Line:
    """What came of a tick or an evaluation."""
    return [] if name is None else [Span(name, STATUS_COLOURS.get(name))]


def run_status(name: str | None) -> Line:
    return [] if name is None else [Span(name, COLOURS.get(name))]

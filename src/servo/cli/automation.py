"""What `servo schedule` and `servo sensor` share: names that complete, options that steer, and how times are said."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from servo.cli.opening import actor, services
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import plain_struct
from servo.cli.progress import aside
from servo.operations.schedules.requests import ListSchedules
from servo.operations.sensors.requests import ListSensors
from servo.ui.marks import DIM, Line, Span

if TYPE_CHECKING:
    from servo.answers.automation import Changed
    from servo.cli.services import Services
    from servo.runtime.wiring import Project

SHORT = len("run_") + 12  # of an id, on a terminal: enough to be the only one, and every command takes it

STATUS_COLOURS = {
    "TRIGGERED": "green",
    "NO_DATA": DIM,
    "SKIPPED": "yellow",
    "SKIPPED_STALE_CURSOR": "yellow",
    "FAILED": "red",
}


# ── arguments and options ────────────────────────────────────────────────────────────────────────────────────────


def _complete_schedules(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    found: list[CompletionItem] = []
    with suppress(Exception):  # whatever is wrong, the command will say it better
        with services() as here:
            ones = here.listed(ListSchedules()).items
        found = [CompletionItem(one.name, help=f"{one.cron} {one.timezone}") for one in ones]
    return [item for item in found if item.value.startswith(incomplete)]


def _complete_sensors(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    found: list[CompletionItem] = []
    with suppress(Exception):  # as above
        with services() as here:
            ones = here.listed(ListSensors()).items
        found = [CompletionItem(one.name, help=one.kind) for one in ones]
    return [item for item in found if item.value.startswith(incomplete)]


named_schedule = click.argument("named", metavar="SCHEDULE", shell_complete=_complete_schedules)
named_sensor = click.argument("named", metavar="SENSOR", shell_complete=_complete_sensors)
one_schedule = click.argument("named", metavar="[SCHEDULE]", required=False, shell_complete=_complete_schedules)
expecting = click.option(
    "--expected-version", type=int, metavar="N", help="Only if `show` still has this version; else exit 4."
)
reasoned = click.option("--reason", metavar="WHY", help="Is recorded with it.")
limited = click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many, newest first."
)


def steering(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of whatever changes one."""
    for option in (json_option, reasoned, expecting):
        command = option(command)
    return command


def pairs(_: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """`name=text`, as often as one likes."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r:.80} is not name=text", param=parameter)
        found[name] = text
    return found


def deployed(opened: Project) -> None:
    """What the folder declares takes effect before anything is done to it."""
    from servo.runtime.cataloguing import deployed_catalog

    deployed_catalog(opened, actor=actor())


def require_known(opened: Project, named: str) -> str:
    """The name of the sensor that is meant; one that neither the ledger nor the folder knows is refused.

    That is before anything is deployed, or even a ledger made.
    """
    from servo.errors import LedgerNotFound
    from servo.planning.deployed_state import DeployedState
    from servo.runtime.definitions_in_force import as_in_folder
    from servo.runtime.deployed_state import look

    with opened.looking() as looking:
        try:
            before = DeployedState(position=0) if looking.unbegun else look(looking)
        except LedgerNotFound:
            before = DeployedState(position=0)
        return as_in_folder(looking, before).state.sensor(named).name


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────


def say_changed(done: Changed, key: str, words: str, *, as_json: bool) -> None:
    """What was done to it, or that it was so already."""
    if as_json:
        document = plain_struct(done)
        echo_json({key: document.pop("id"), **document})
        return
    already = " already" if done.duplicate else ""
    click.echo(f"✓ {done.name} {words}{already}, version {done.version}")


def when(moment: datetime | None, now: datetime) -> Line:
    """A time on the terminal: how long ago, or how long it takes."""
    from servo.ui.proof import ago

    return [] if moment is None else [Span(ago(moment, now))]


def stamped(moment: datetime | None, now: datetime) -> str:
    """A time in a line: in UTC, and how long ago that is."""
    from servo.ui.proof import ago

    return "never" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%SZ} ({ago(moment, now)})"


def late(seconds: float) -> str:
    """How late it was, where that is worth a word."""
    from servo.cli.states import duration

    return "" if seconds < 1 or math.isnan(seconds) else duration(seconds)


def status(name: str) -> Line:
    return [Span(name, STATUS_COLOURS.get(name))]


def run_status(name: str | None) -> Line:
    from servo.cli.states import COLOURS

    return [] if name is None else [Span(name, COLOURS.get(name))]


def nobody_drives(here: Services, what: str) -> None:
    """Say that nothing ticks and nothing is polled here, where it is so."""
    if "driver" not in here.at_work():
        aside(f"nothing is at work here: {what} when `servo up` is, or with `servo tick`")


def nobody_works(here: Services, what: str) -> None:
    """Say that nothing is planned or computed here, where it is so."""
    if not here.at_work() >= {"control", "worker"}:
        aside(f"nothing is at work here: {what} when `servo up` does, or with `servo tick --work`")

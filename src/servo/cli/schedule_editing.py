"""`servo schedule create`, `update`, `delete`, `pause` and `resume`."""

from __future__ import annotations

from typing import get_args

import click

from servo.answers.automation import Changed
from servo.cli.automation import (
    expecting,
    named_schedule,
    nobody_drives,
    pairs,
    say_changed,
    steering,
)
from servo.cli.completing import complete_assets
from servo.cli.opening import services
from servo.cli.options import given, json_option
from servo.cli.output import note
from servo.operations.operation import default_of
from servo.operations.schedules.requests import (
    CreateSchedule,
    DeleteSchedule,
    Overlap,
    PauseSchedule,
    ResumeSchedule,
    UpdateSchedule,
)

_KEY = "schedule_id"
_OVERLAPS = get_args(Overlap)

_select = click.option(
    "--select",
    multiple=True,
    metavar="SELECTION",
    shell_complete=complete_assets,
    help="The assets that it computes, such as +revenue. May be given several times.",
)


def _default(name: str) -> str:
    return f"[default: {default_of(CreateSchedule, name)}]"


_timezone = click.option(
    "--timezone", metavar="ZONE", help=f"An IANA name, such as Europe/Berlin. {_default('timezone')}"
)
_partitions = click.option(
    "--partitions",
    metavar="P",
    help="Which partitions of what is selected. [default: latest, the window that just ended]",
)
_catchup = click.option(
    "--catchup-window",
    type=int,
    metavar="MINUTES",
    help=f"How long a missed tick is made up. {_default('catchup_window_minutes')}",
)
_most = click.option(
    "--max-catchup",
    type=int,
    metavar="N",
    help=f"Missed ticks that one pass makes up. {_default('max_catchup_ticks')}",
)
_overlap = click.option(
    "--overlap",
    type=click.Choice(_OVERLAPS),
    help=f"What a tick does while the last run goes on: start another, skip, or wait for it. {_default('overlap')}",
)


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--cron", required=True, metavar="CRON", help="Minute hour day month weekday, such as '0 6 * * mon-fri'.")
@_select
@_timezone
@_partitions
@_catchup
@_most
@_overlap
@click.option("--tag", "tags", multiple=True, metavar="K=V", callback=pairs, help="Of its runs. May be given often.")
@click.option("--paused", is_flag=True, help="It does not fire before it is resumed.")
@click.option("--request-id", metavar="ID", help="The same id again is the same schedule, not another.")
@json_option
def create(
    *,
    name: str,
    cron: str,
    select: tuple[str, ...],
    timezone: str | None,
    partitions: str | None,
    catchup_window: int | None,
    max_catchup: int | None,
    overlap: str | None,
    tags: dict[str, str],
    paused: bool,
    request_id: str | None,
    as_json: bool,
) -> None:
    """Make a schedule that no code declares. It fires from now on, never for the past.

    \b
    servo schedule create nightly --cron '0 6 * * *' --timezone Europe/Berlin --select +revenue
    servo schedule next nightly
    """
    if not select:
        raise click.UsageError("A schedule computes something: give --select, such as +revenue.")
    request = CreateSchedule(
        name=name,
        cron=cron,
        select=select,
        tags=tags,
        enabled=not paused,
        **given(
            timezone=timezone,
            partitions=partitions,
            catchup_window_minutes=catchup_window,
            max_catchup_ticks=max_catchup,
            overlap=overlap,
        ),
    )
    with services(as_json=as_json, create=True) as here:
        done = here.do(request, key=request_id)
        say_changed(done, _KEY, "is created" if not done.duplicate else "was created", as_json=as_json)
        if not as_json:
            note(f"servo schedule next {done.name}")
            nobody_drives(here, "it fires")


@click.command()
@named_schedule
@click.option("--name", metavar="NAME", help="Another name.")
@click.option("--cron", metavar="CRON", help="Another time. It holds from now on.")
@_select
@_timezone
@_partitions
@_catchup
@_most
@_overlap
@click.option("--tag", "tags", multiple=True, metavar="K=V", callback=pairs, help="These tags instead of those it has.")
@expecting
@json_option
def update(
    *,
    named: str,
    name: str | None,
    cron: str | None,
    select: tuple[str, ...],
    timezone: str | None,
    partitions: str | None,
    catchup_window: int | None,
    max_catchup: int | None,
    overlap: str | None,
    tags: dict[str, str],
    expected_version: int | None,
    as_json: bool,
) -> None:
    """Change what is given about a schedule, and nothing else. What has ticked already stays as it was."""
    edit = given(
        name=name,
        cron=cron,
        select=select or None,
        timezone=timezone,
        partitions=partitions,
        catchup_window_minutes=catchup_window,
        max_catchup_ticks=max_catchup,
        overlap=overlap,
        tags=tags or None,
    )
    if not edit:
        raise click.UsageError("Nothing is to be changed: give an option, such as --cron.")
    with services(as_json=as_json) as here:
        done = here.do(UpdateSchedule(schedule=named, expected_state_version=expected_version, **edit))
        what = f"has a new {' and '.join(done.changed)}".replace("_", " ") if done.changed else "is so"
        say_changed(done, _KEY, what, as_json=as_json)


@click.command()
@named_schedule
@steering
def delete(named: str, *, expected_version: int | None, reason: str | None, as_json: bool) -> None:
    """Delete a schedule. Its ticks and runs stay in the ledger as they are."""
    with services(as_json=as_json) as here:
        done = here.do(DeleteSchedule(schedule=named, expected_state_version=expected_version, reason=reason))
        say_changed(done, _KEY, "is deleted", as_json=as_json)


@click.command()
@named_schedule
@steering
def pause(named: str, *, expected_version: int | None, reason: str | None, as_json: bool) -> None:
    """Let a schedule fire no more. Its ticks are recorded as skipped, and are not made up later."""
    done = _switch(named, on=False, expected_version=expected_version, reason=reason, as_json=as_json)
    if not as_json:
        note(f"servo schedule resume {done.name}")


@click.command()
@named_schedule
@steering
def resume(named: str, *, expected_version: int | None, reason: str | None, as_json: bool) -> None:
    """Let a paused schedule fire again, from its next tick on."""
    _switch(named, on=True, expected_version=expected_version, reason=reason, as_json=as_json)


def _switch(named: str, *, on: bool, expected_version: int | None, reason: str | None, as_json: bool) -> Changed:
    with services(as_json=as_json, create=True) as here:
        kind = ResumeSchedule if on else PauseSchedule
        done = here.do(kind(schedule=named, expected_state_version=expected_version, reason=reason))
        say_changed(done, _KEY, "is resumed" if on else "is paused", as_json=as_json)
        if on and not as_json:
            nobody_drives(here, "it fires")
    return done

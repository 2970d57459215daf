"""`servo schedule create`, `update`, `delete`, `pause` and `resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from servo.cli.automation import (
    expecting,
    named_schedule,
    nobody_drives,
    pairs,
    say_changed,
    steering,
)
from servo.cli.completing import complete_assets
from servo.cli.opening import actor, services
from servo.cli.options import json_option
from servo.cli.output import note

if TYPE_CHECKING:
    from servo.answers.automation import Changed

_KEY = "schedule_id"
_OVERLAPS = ("allow", "skip", "queue")

_select = click.option(
    "--select",
    multiple=True,
    metavar="SELECTION",
    shell_complete=complete_assets,
    help="The assets that it computes, such as +revenue. May be given several times.",
)
_timezone = click.option("--timezone", metavar="ZONE", help="An IANA name, such as Europe/Berlin. [default: UTC]")
_partitions = click.option(
    "--partitions",
    metavar="P",
    help="Which partitions of what is selected. [default: latest, the window that just ended]",
)
_catchup = click.option(
    "--catchup-window", type=int, metavar="MINUTES", help="How long a missed tick is made up. [default: 1440]"
)
_most = click.option("--max-catchup", type=int, metavar="N", help="Missed ticks that one pass makes up. [default: 10]")
_overlap = click.option(
    "--overlap",
    type=click.Choice(_OVERLAPS),
    help="What a tick does while the last run goes on: start another, skip, or wait for it. [default: allow]",
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
    asked = {
        "name": name,
        "cron": cron,
        "select": select,
        "timezone": "UTC" if timezone is None else timezone,
        "partitions": partitions,
        "catchup_window_minutes": 1440 if catchup_window is None else catchup_window,
        "max_catchup_ticks": 10 if max_catchup is None else max_catchup,
        "overlap": overlap or "allow",
        "tags": tags,
        "enabled": not paused,
    }
    with services(as_json=as_json, create=True) as here:
        done = here.create_schedule(asked, request_id=request_id, actor=actor())
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
    edit = {
        "name": name,
        "cron": cron,
        "select": select or None,
        "timezone": timezone,
        "partitions": partitions,
        "catchup_window_minutes": catchup_window,
        "max_catchup_ticks": max_catchup,
        "overlap": overlap,
        "tags": tags or None,
    }
    if all(value is None for value in edit.values()):
        raise click.UsageError("Nothing is to be changed: give an option, such as --cron.")
    with services(as_json=as_json) as here:
        done = here.update_schedule(named, edit, expected_version=expected_version, actor=actor())
        what = f"has a new {' and '.join(done.changed)}".replace("_", " ") if done.changed else "is so"
        say_changed(done, _KEY, what, as_json=as_json)


@click.command()
@named_schedule
@steering
def delete(named: str, *, expected_version: int | None, reason: str | None, as_json: bool) -> None:
    """Delete a schedule. Its ticks and runs stay in the ledger as they are."""
    with services(as_json=as_json) as here:
        done = here.delete(named, sensor=False, expected_version=expected_version, reason=reason, actor=actor())
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
        done = here.switch(named, on=on, sensor=False, expected_version=expected_version, reason=reason, actor=actor())
        say_changed(done, _KEY, "is resumed" if on else "is paused", as_json=as_json)
        if on and not as_json:
            nobody_drives(here, "it fires")
    return done

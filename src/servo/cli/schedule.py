"""What starts by the clock: list, make, edit, pause and trigger schedules, and see what they will do.

A SCHEDULE is its name, its id, or as much of the id's beginning as no other has. They tick while `servo up` is
there, or whenever `servo tick` is called.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

import click
from click.shell_completion import CompletionItem

from servo.answers.automations import Changed
from servo.cli.automation import (
    changed,
    created,
    show_forecast,
    show_schedule,
    show_schedules,
    show_ticked,
    show_ticks,
)
from servo.cli.opening import Services
from servo.cli.options import MOMENT, Answer, command, complete_assets, completer, given, limited, once, pairs, steering
from servo.cli.output import plain_struct
from servo.operations.automations.requests import (
    CreateSchedule,
    DeleteSchedule,
    ForecastSchedules,
    GetSchedule,
    ListSchedules,
    ListTicks,
    Overlap,
    PauseSchedule,
    ResumeSchedule,
    TriggerSchedule,
    UpdateSchedule,
)
from servo.operations.operation import default_of

_STATUSES = ("TRIGGERED", "SKIPPED", "FAILED")

_complete = completer(
    lambda here: (
        CompletionItem(one.name, help=f"{one.cron} {one.timezone}") for one in here.listed(ListSchedules()).items
    )
)
_named = click.argument("named", metavar="SCHEDULE", shell_complete=_complete)


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────


@command("list", reading=True)
def list_schedules(here: Services) -> Answer:
    """List schedules by name: when they fire next, and what came of the last tick."""
    schedules = here.listed(ListSchedules()).items
    return Answer({"schedules": schedules}, lambda: show_schedules(schedules, here.clock()))


@command(reading=True)
@_named
def show(here: Services, named: str) -> Answer:
    """Show one schedule: what it says, who made it, when it fires next and its last tick."""
    schedule = here.ask(GetSchedule(schedule=named))
    return Answer(schedule, lambda: show_schedule(schedule, here.clock()))


@command(reading=True)
@_named
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only ticks that came to this.")
@click.option("--before", metavar="EVENT", help="Only those before this one: the `event_id` of the last one seen.")
@limited()
def ticks(here: Services, named: str, status: str | None, before: str | None, limit: int) -> Answer:
    """List its ticks, newest first: what came of each, how late it was, and its run."""
    page = here.listed(ListTicks(**given(schedule=named, status=status, before=before)), limit=limit)
    return Answer({**page.more, "ticks": page.items}, lambda: show_ticks(page.items, limit, here.clock()))


@command("next")
@click.argument("named", metavar="[SCHEDULE]", required=False, shell_complete=_complete)
@click.option("--days", type=float, default=7, show_default=True, metavar="N", help="How far to look ahead.")
@click.option(
    "--from",
    "since",
    type=MOMENT,
    metavar="TIME",
    help="Not from now on, but from then (UTC unless it says otherwise).",
)
@click.option("--limit", type=click.IntRange(1, 1000), default=200, show_default=True, help="At most so many ticks.")
def next_ticks(here: Services, named: str | None, days: float, since: datetime | None, limit: int) -> Answer:
    """Show what would fire in the days to come, and which partitions each tick would fill; write nothing.

    Times are shown in the schedule's timezone and in UTC. Where the clocks change, a remark says what that does.
    """
    begin = None if since is None else since.isoformat()
    ahead = here.ask(ForecastSchedules(schedule=named, days=days, since=begin, limit=limit))
    document = plain_struct(ahead)
    for one in document["schedules"]:
        del one["by_stretch"]  # which is for the picture
    return Answer(document, lambda: show_forecast(ahead))


@command(create=True)
@_named
@click.option(
    "--at",
    type=MOMENT,
    metavar="TIME",
    help="As if it were due then (UTC unless it says otherwise); now, if left out.",
)
@once("tick, not a second one")
def trigger(here: Services, *, named: str, at: datetime | None, request_id: str | None) -> Answer:
    """Let a schedule tick now, whether it is paused or not. This never moves its clock.

    Exits with 1 where the tick failed.
    """
    done = here.do(TriggerSchedule(schedule=named, at=None if at is None else at.isoformat()), key=request_id)
    return Answer(done, lambda: show_ticked(here, done), 1 if done.status == "FAILED" else 0)


# ── editing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _default(name: str) -> str:
    return f"[default: {default_of(CreateSchedule, name)}]"


def _defined(function: Any) -> Any:
    """Add the options that `create` and `update` share, by the names of their fields."""
    for option in (
        click.option(
            "--overlap",
            type=click.Choice(get_args(Overlap)),
            help="What a tick does while the last run goes on: start another, skip, or wait for it."
            f" {_default('overlap')}",
        ),
        click.option(
            "--max-catchup",
            "max_catchup_ticks",
            type=int,
            metavar="N",
            help=f"Missed ticks that one pass makes up. {_default('max_catchup_ticks')}",
        ),
        click.option(
            "--catchup-window",
            "catchup_window_minutes",
            type=int,
            metavar="MINUTES",
            help=f"How long a missed tick is made up. {_default('catchup_window_minutes')}",
        ),
        click.option(
            "--partitions",
            metavar="P",
            help="Which partitions of what is selected. [default: latest, the window that just ended]",
        ),
        click.option("--timezone", metavar="ZONE", help=f"An IANA name, such as Europe/Berlin. {_default('timezone')}"),
        click.option(
            "--select",
            multiple=True,
            metavar="SELECTION",
            shell_complete=complete_assets,
            help="The assets that it computes, such as +revenue. May be given several times.",
        ),
    ):
        function = option(function)
    return function


@command(create=True)
@click.argument("name", metavar="NAME")
@click.option("--cron", required=True, metavar="CRON", help="Minute hour day month weekday, such as '0 6 * * mon-fri'.")
@_defined
@click.option("--tag", "tags", multiple=True, metavar="K=V", callback=pairs, help="Of its runs. May be given often.")
@click.option("--paused", is_flag=True, help="It does not fire before it is resumed.")
@once("schedule, not another")
def create(here: Services, *, paused: bool, request_id: str | None, **fields: Any) -> Answer:
    """Make a schedule that no code declares. It fires from now on, never for the past.

    \b
    servo schedule create nightly --cron '0 6 * * *' --timezone Europe/Berlin --select +revenue
    servo schedule next nightly
    """
    if not fields["select"]:
        raise click.UsageError("A schedule computes something: give --select, such as +revenue.")
    request = CreateSchedule(enabled=not paused, **given(**fields))
    return changed(here, request, "schedule", created, key=request_id, then="next", drives="it fires")


@command()
@_named
@click.option("--name", metavar="NAME", help="Another name.")
@click.option("--cron", metavar="CRON", help="Another time. It holds from now on.")
@_defined
@click.option("--tag", "tags", multiple=True, metavar="K=V", callback=pairs, help="These tags instead of those it has.")
@steering("show", reason=False)
def update(here: Services, *, named: str, expected_state_version: int | None, **fields: Any) -> Answer:
    """Change what is given about a schedule, and nothing else. What has ticked already stays as it was."""
    edit = given(**fields)
    if not edit:
        raise click.UsageError("Nothing is to be changed: give an option, such as --cron.")

    def words(done: Changed) -> str:
        return f"has a new {' and '.join(done.changed)}".replace("_", " ") if done.changed else "is so"

    request = UpdateSchedule(schedule=named, expected_state_version=expected_state_version, **edit)
    return changed(here, request, "schedule", words)


@command()
@_named
@steering("show")
def delete(here: Services, named: str, **steer: Any) -> Answer:
    """Delete a schedule. Its ticks and runs stay in the ledger as they are."""
    return changed(here, DeleteSchedule(schedule=named, **steer), "schedule", "is deleted")


@command(create=True)
@_named
@steering("show")
def pause(here: Services, named: str, **steer: Any) -> Answer:
    """Let a schedule fire no more. Its ticks are recorded as skipped, and are not made up later."""
    return changed(here, PauseSchedule(schedule=named, **steer), "schedule", "is paused", then="resume")


@command(create=True)
@_named
@steering("show")
def resume(here: Services, named: str, **steer: Any) -> Answer:
    """Let a paused schedule fire again, from its next tick on."""
    return changed(here, ResumeSchedule(schedule=named, **steer), "schedule", "is resumed", drives="it fires")

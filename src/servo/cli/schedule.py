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
from servo.cli.automation import change, created, nobody_works
from servo.cli.opening import services
from servo.cli.options import (
    MOMENT,
    complete_assets,
    completer,
    given,
    json_option,
    limited,
    once,
    pairs,
    steering,
)
from servo.cli.output import echo_json, plain_struct
from servo.cli.schedule_tables import show_forecast, show_list, show_one, show_ticked, show_ticks
from servo.operations.operation import default_of
from servo.operations.schedules.requests import (
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

_STATUSES = ("TRIGGERED", "SKIPPED", "FAILED")

_complete = completer(
    lambda here: (
        CompletionItem(one.name, help=f"{one.cron} {one.timezone}") for one in here.listed(ListSchedules()).items
    )
)
_named = click.argument("named", metavar="SCHEDULE", shell_complete=_complete)


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command("list")
@json_option
def list_schedules(as_json: bool) -> None:
    """List schedules by name: when they fire next, and what came of the last tick."""
    with services(as_json=as_json, reading=True) as here:
        found = here.listed(ListSchedules()).items
        if as_json:
            echo_json({"schedules": found})
        else:
            show_list(found, here.clock())


@click.command()
@_named
@json_option
def show(named: str, as_json: bool) -> None:
    """Show one schedule: what it says, who made it, when it fires next and its last tick."""
    with services(as_json=as_json, reading=True) as here:
        found = here.ask(GetSchedule(schedule=named))
        if as_json:
            echo_json(found)
        else:
            show_one(found, here.clock())


@click.command()
@_named
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only ticks that came to this.")
@click.option("--before", metavar="EVENT", help="Only those before this one: the `event_id` of the last one seen.")
@limited()
@json_option
def ticks(named: str, status: str | None, before: str | None, limit: int, as_json: bool) -> None:
    """List its ticks, newest first: what came of each, how late it was, and its run."""
    with services(as_json=as_json, reading=True) as here:
        found = here.listed(ListTicks(**given(schedule=named, status=status, before=before)), limit=limit)
        if as_json:
            echo_json({**found.more, "ticks": found.items})
        else:
            show_ticks(found.items, limit, here.clock())


@click.command("next")
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
@json_option
def next_ticks(named: str | None, days: float, since: datetime | None, limit: int, as_json: bool) -> None:
    """Show what would fire in the days to come, and which partitions each tick would fill; write nothing.

    Times are shown in the schedule's timezone and in UTC. Where the clocks change, a remark says what that does.
    """
    with services(as_json=as_json) as here:
        begin = None if since is None else since.isoformat()
        ahead = here.ask(ForecastSchedules(schedule=named, days=days, since=begin, limit=limit))
    if as_json:
        document = plain_struct(ahead)
        for one in document["schedules"]:
            del one["by_stretch"]  # which is for the picture
        echo_json(document)
    else:
        show_forecast(ahead)


@click.command()
@_named
@click.option(
    "--at",
    type=MOMENT,
    metavar="TIME",
    help="As if it were due then (UTC unless it says otherwise); now, if left out.",
)
@once("tick, not a second one")
@json_option
@click.pass_context
def trigger(ctx: click.Context, *, named: str, at: datetime | None, request_id: str | None, as_json: bool) -> None:
    """Let a schedule tick now, whether it is paused or not. This never moves its clock.

    Exits with 1 where the tick failed.
    """
    with services(as_json=as_json, create=True) as here:
        moment = None if at is None else at.isoformat()
        done = here.do(TriggerSchedule(schedule=named, at=moment), key=request_id)
        if as_json:
            echo_json(done)
        else:
            show_ticked(done)
            if done.run_id is not None:
                nobody_works(here, "its run begins")
    ctx.exit(1 if done.status == "FAILED" else 0)


# ── editing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _default(name: str) -> str:
    return f"[default: {default_of(CreateSchedule, name)}]"


def _defined(command: Any) -> Any:
    """What `create` and `update` take alike, by the names of their fields."""
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
        command = option(command)
    return command


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--cron", required=True, metavar="CRON", help="Minute hour day month weekday, such as '0 6 * * mon-fri'.")
@_defined
@click.option("--tag", "tags", multiple=True, metavar="K=V", callback=pairs, help="Of its runs. May be given often.")
@click.option("--paused", is_flag=True, help="It does not fire before it is resumed.")
@once("schedule, not another")
@json_option
def create(*, paused: bool, request_id: str | None, as_json: bool, **fields: Any) -> None:
    """Make a schedule that no code declares. It fires from now on, never for the past.

    \b
    servo schedule create nightly --cron '0 6 * * *' --timezone Europe/Berlin --select +revenue
    servo schedule next nightly
    """
    if not fields["select"]:
        raise click.UsageError("A schedule computes something: give --select, such as +revenue.")
    request = CreateSchedule(enabled=not paused, **given(**fields))
    change(request, "schedule", created, key=request_id, as_json=as_json, then="next", drives="it fires")


@click.command()
@_named
@click.option("--name", metavar="NAME", help="Another name.")
@click.option("--cron", metavar="CRON", help="Another time. It holds from now on.")
@_defined
@click.option("--tag", "tags", multiple=True, metavar="K=V", callback=pairs, help="These tags instead of those it has.")
@steering("show", reason=False)
def update(*, named: str, expected_state_version: int | None, as_json: bool, **fields: Any) -> None:
    """Change what is given about a schedule, and nothing else. What has ticked already stays as it was."""
    edit = given(**fields)
    if not edit:
        raise click.UsageError("Nothing is to be changed: give an option, such as --cron.")

    def words(done: Changed) -> str:
        return f"has a new {' and '.join(done.changed)}".replace("_", " ") if done.changed else "is so"

    request = UpdateSchedule(schedule=named, expected_state_version=expected_state_version, **edit)
    change(request, "schedule", words, as_json=as_json, create=False)


@click.command()
@_named
@steering("show")
def delete(named: str, *, as_json: bool, **steer: Any) -> None:
    """Delete a schedule. Its ticks and runs stay in the ledger as they are."""
    change(DeleteSchedule(schedule=named, **steer), "schedule", "is deleted", as_json=as_json, create=False)


@click.command()
@_named
@steering("show")
def pause(named: str, *, as_json: bool, **steer: Any) -> None:
    """Let a schedule fire no more. Its ticks are recorded as skipped, and are not made up later."""
    change(PauseSchedule(schedule=named, **steer), "schedule", "is paused", as_json=as_json, then="resume")


@click.command()
@_named
@steering("show")
def resume(named: str, *, as_json: bool, **steer: Any) -> None:
    """Let a paused schedule fire again, from its next tick on."""
    change(ResumeSchedule(schedule=named, **steer), "schedule", "is resumed", as_json=as_json, drives="it fires")

"""`servo schedule …`."""

from __future__ import annotations

from datetime import datetime

import click

from servo.cli.automation import (
    limited,
    named_schedule,
    nobody_works,
    one_schedule,
)
from servo.cli.opening import read_ahead, services
from servo.cli.options import MOMENT, given, json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import plain_struct
from servo.cli.schedule_editing import create, delete, pause, resume, update
from servo.operations.schedules.requests import (
    ForecastSchedules,
    GetSchedule,
    ListSchedules,
    ListTicks,
    TriggerSchedule,
)

_STATUSES = ("TRIGGERED", "SKIPPED", "FAILED")


@click.group()
def schedule() -> None:
    """What starts by the clock: list, make, edit, pause and trigger schedules, and see what they will do.

    A SCHEDULE is its name, its id, or as much of the id's beginning as no other has. They tick while `servo up` is
    there, or whenever `servo tick` is called.
    """


for _command in (create, update, delete, pause, resume):
    schedule.add_command(_command)


@schedule.command(name="list")
@json_option
def list_schedules(as_json: bool) -> None:
    """List schedules by name: when they fire next, and what came of the last tick."""
    read_ahead()
    from servo.cli.schedule_tables import show_list

    with services(as_json=as_json) as here:
        found = here.listed(ListSchedules()).items
        if as_json:
            echo_json({"schedules": [plain_struct(one) for one in found]})
        else:
            show_list(found, here.clock())


@schedule.command()
@named_schedule
@json_option
def show(named: str, as_json: bool) -> None:
    """Show one schedule: what it says, who made it, when it fires next and its last tick."""
    read_ahead()
    from servo.cli.schedule_tables import show_one

    with services(as_json=as_json) as here:
        found = here.ask(GetSchedule(schedule=named))
        if as_json:
            echo_json(plain_struct(found))
        else:
            show_one(found, here.clock())


@schedule.command()
@named_schedule
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only ticks that came to this.")
@click.option("--before", metavar="EVENT", help="Only those before this one: the `event_id` of the last one seen.")
@limited
@json_option
def ticks(named: str, status: str | None, before: str | None, limit: int, as_json: bool) -> None:
    """List its ticks, newest first: what came of each, how late it was, and its run."""
    read_ahead()
    from servo.cli.schedule_tables import show_ticks

    with services(as_json=as_json) as here:
        found = here.listed(ListTicks(**given(schedule=named, status=status, before=before)), limit=limit)
        if as_json:
            echo_json({**found.more, "ticks": [plain_struct(tick) for tick in found.items]})
        else:
            show_ticks(found.items, limit, here.clock())


@schedule.command(name="next")
@one_schedule
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
    from servo.cli.schedule_tables import show_forecast

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


@schedule.command()
@named_schedule
@click.option(
    "--at",
    type=MOMENT,
    metavar="TIME",
    help="As if it were due then (UTC unless it says otherwise); now, if left out.",
)
@click.option("--request-id", metavar="ID", help="The same id again is the same tick, not a second one.")
@json_option
@click.pass_context
def trigger(ctx: click.Context, *, named: str, at: datetime | None, request_id: str | None, as_json: bool) -> None:
    """Let a schedule tick now, whether it is paused or not. This never moves its clock.

    Exits with 1 where the tick failed.
    """
    from servo.cli.schedule_tables import show_ticked

    with services(as_json=as_json, create=True) as here:
        moment = None if at is None else at.isoformat()
        done = here.do(TriggerSchedule(schedule=named, at=moment), key=request_id)
        if as_json:
            echo_json(plain_struct(done))
        else:
            show_ticked(done)
            if done.run_id is not None:
                nobody_works(here, "its run begins")
    ctx.exit(1 if done.status == "FAILED" else 0)

"""`servo sensor …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from servo.cli.automation import (
    limited,
    named_sensor,
    nobody_drives,
    reasoned,
    say_changed,
    steering,
)
from servo.cli.opening import read_ahead, services
from servo.cli.options import given, json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, plain_struct
from servo.cli.sensor_evaluating import evaluate, send
from servo.cli.sensor_making import create, delete
from servo.cli.values import text
from servo.operations.sensors.requests import (
    GetSensor,
    ListEvaluations,
    ListSensors,
    PauseSensor,
    ResetCursor,
    ResumeSensor,
)

if TYPE_CHECKING:
    from servo.answers.automation import Changed

_KEY = "sensor_id"
_STATUSES = ("TRIGGERED", "NO_DATA", "SKIPPED", "SKIPPED_STALE_CURSOR", "FAILED")


@click.group()
def sensor() -> None:
    """What starts when something happened: list, pause, evaluate and set back sensors, and send them messages.

    A SENSOR is its name, its id, or as much of the id's beginning as no other has. Poll sensors are evaluated while
    `servo up` is there, or whenever `servo tick` is called; messages to push sensors at once.
    """


for _command in (create, delete, send, evaluate):
    sensor.add_command(_command)


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────


@sensor.command(name="list")
@json_option
def list_sensors(as_json: bool) -> None:
    """List sensors by name: of which kind, and what they found last."""
    read_ahead()
    from servo.cli.sensor_tables import show_list

    with services(as_json=as_json) as here:
        found = here.listed(ListSensors()).items
        if as_json:
            echo_json({"sensors": [plain_struct(one) for one in found]})
        else:
            show_list(found, here.clock())


@sensor.command()
@named_sensor
@json_option
def show(named: str, as_json: bool) -> None:
    """Show one sensor: what it looks at, its cursor, and its last evaluation."""
    read_ahead()
    from servo.cli.sensor_tables import show_one

    with services(as_json=as_json) as here:
        found = here.ask(GetSensor(sensor=named))
        if as_json:
            echo_json(plain_struct(found))
        else:
            show_one(found, here.clock())


@sensor.command()
@named_sensor
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only those that came to this.")
@click.option("--trigger", type=click.Choice(["push", "poll", "manual"]), help="Only those that came about so.")
@click.option("--before", metavar="EVENT", help="Only those before this one: the `event_id` of the last one seen.")
@limited
@json_option
def evals(
    named: str, *, status: str | None, trigger: str | None, before: str | None, limit: int, as_json: bool
) -> None:
    """List its evaluations, newest first, with what became of each run that was asked for.

    `started`: a run of its own. `duplicate`: a run that was there already. `conflict`: the run key is another run's, so
    nothing was started. `dropped`: the evaluation came to nothing.
    """
    read_ahead()
    from servo.cli.sensor_tables import show_evals

    with services(as_json=as_json) as here:
        request = ListEvaluations(**given(sensor=named, status=status, trigger=trigger, before=before))
        found = here.listed(request, limit=limit)
        if as_json:
            echo_json({**found.more, "evals": [plain_struct(each) for each in found.items]})
        else:
            show_evals(found.items, limit, here.clock())


# ── switching ────────────────────────────────────────────────────────────────────────────────────────────────────


@sensor.command()
@named_sensor
@steering
def pause(named: str, *, expected_version: int | None, reason: str | None, as_json: bool) -> None:
    """Evaluate a sensor no more. Messages are kept as skipped, and can be evaluated later by hand."""
    done = _switch(named, on=False, expected_version=expected_version, reason=reason, as_json=as_json)
    if not as_json:
        note(f"servo sensor resume {done.name}")


@sensor.command()
@named_sensor
@steering
def resume(named: str, *, expected_version: int | None, reason: str | None, as_json: bool) -> None:
    """Evaluate a paused sensor again; a poll sensor goes on from its cursor."""
    _switch(named, on=True, expected_version=expected_version, reason=reason, as_json=as_json)


def _switch(named: str, *, on: bool, expected_version: int | None, reason: str | None, as_json: bool) -> Changed:
    with services(as_json=as_json, create=True) as here:
        kind = ResumeSensor if on else PauseSensor
        done = here.do(kind(sensor=named, expected_state_version=expected_version, reason=reason))
        say_changed(done, _KEY, "is resumed" if on else "is paused", as_json=as_json)
        if on and not as_json:
            nobody_drives(here, "it is evaluated")
    return done


@sensor.command(name="reset-cursor")
@named_sensor
@click.option("--to", "cursor", metavar="TEXT", help="Go on from here; from the beginning, if left out.")
@click.option(
    "--expected-state-version", type=int, metavar="N", help="Only if `show` still has this state version; else exit 4."
)
@reasoned
@json_option
def reset_cursor(
    named: str, *, cursor: str | None, expected_state_version: int | None, reason: str | None, as_json: bool
) -> None:
    """Set the cursor of a poll sensor. What it asks for again under the same run key is the same run, not another."""
    with services(as_json=as_json, create=True) as here:
        done = here.do(
            ResetCursor(sensor=named, cursor=cursor, expected_state_version=expected_state_version, reason=reason)
        )
    if as_json:
        echo_json(plain_struct(done))
        return
    place = "the beginning" if cursor is None else f"{text(cursor)!r:.200}"
    click.echo(f"✓ {done.name} goes on from {place}, state version {done.state_version}")
    if done.cursor_before is not None:
        note(f"it was at {text(done.cursor_before)!r:.200}")

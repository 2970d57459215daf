"""What starts when something happened: list, pause, evaluate and set back sensors, and send them messages.

A SENSOR is its name, its id, or as much of the id's beginning as no other has. Poll sensors are evaluated while
`servo up` is there, or whenever `servo tick` is called; messages to push sensors at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from servo.answers.automations import Accepted
from servo.answers.values import text
from servo.cli.automation import change, created, nobody_works
from servo.cli.opening import services
from servo.cli.options import completer, given, json_option, limited, once, pairs, reasoned, steering
from servo.cli.output import echo_json, note
from servo.cli.sensor_tables import show_accepted, show_evals, show_list, show_one
from servo.cli.services import Services
from servo.operations.sensors.requests import (
    CreateSensor,
    DeleteSensor,
    EvaluateSensor,
    GetSensor,
    ListEvaluations,
    ListSensors,
    PauseSensor,
    ResetCursor,
    ResumeSensor,
)

_STATUSES = ("TRIGGERED", "NO_DATA", "SKIPPED", "SKIPPED_STALE_CURSOR", "FAILED")

_complete = completer(
    lambda here: (CompletionItem(one.name, help=one.kind) for one in here.listed(ListSensors()).items)
)
_named = click.argument("named", metavar="SENSOR", shell_complete=_complete)


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command("list")
@json_option
def list_sensors(as_json: bool) -> None:
    """List sensors by name: of which kind, and what they found last."""
    with services(as_json=as_json, reading=True) as here:
        found = here.listed(ListSensors()).items
        if as_json:
            echo_json({"sensors": found})
        else:
            show_list(found, here.clock())


@click.command()
@_named
@json_option
def show(named: str, as_json: bool) -> None:
    """Show one sensor: what it looks at, its cursor, and its last evaluation."""
    with services(as_json=as_json, reading=True) as here:
        found = here.ask(GetSensor(sensor=named))
        if as_json:
            echo_json(found)
        else:
            show_one(found, here.clock())


@click.command()
@_named
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only those that came to this.")
@click.option("--trigger", type=click.Choice(["push", "poll", "manual"]), help="Only those that came about so.")
@click.option("--before", metavar="EVENT", help="Only those before this one: the `event_id` of the last one seen.")
@limited()
@json_option
def evals(
    named: str, *, status: str | None, trigger: str | None, before: str | None, limit: int, as_json: bool
) -> None:
    """List its evaluations, newest first, with what became of each run that was asked for.

    `started`: a run of its own. `duplicate`: a run that was there already. `conflict`: the run key is another run's, so
    nothing was started. `dropped`: the evaluation came to nothing.
    """
    with services(as_json=as_json, reading=True) as here:
        request = ListEvaluations(**given(sensor=named, status=status, trigger=trigger, before=before))
        found = here.listed(request, limit=limit)
        if as_json:
            echo_json({**found.more, "evals": found.items})
        else:
            show_evals(found.items, limit, here.clock())


# ── switching ────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@_named
@steering("show")
def pause(named: str, *, as_json: bool, **steer: Any) -> None:
    """Evaluate a sensor no more. Messages are kept as skipped, and can be evaluated later by hand."""
    change(PauseSensor(sensor=named, **steer), "sensor", "is paused", as_json=as_json, then="resume")


@click.command()
@_named
@steering("show")
def resume(named: str, *, as_json: bool, **steer: Any) -> None:
    """Evaluate a paused sensor again; a poll sensor goes on from its cursor."""
    change(ResumeSensor(sensor=named, **steer), "sensor", "is resumed", as_json=as_json, drives="it is evaluated")


@click.command("reset-cursor")
@_named
@click.option("--to", "cursor", metavar="TEXT", help="Go on from here; from the beginning, if left out.")
@click.option(
    "--expected-state-version", type=int, metavar="N", help="Only if `show` still has this state version; else exit 4."
)
@reasoned()
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
        echo_json(done)
        return
    place = "the beginning" if cursor is None else f"{text(cursor)!r:.200}"
    click.echo(f"✓ {done.name} goes on from {place}, state version {done.state_version}")
    if done.cursor_before is not None:
        note(f"it was at {text(done.cursor_before)!r:.200}")


# ── making ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("name")
@click.option("--files", metavar="PATTERN", help="For each new file, such as 'landing/{date}/*.json'.")
@click.option("--asset", metavar="ASSET", help="For partitions of this asset that become current.")
@click.option("--runs", metavar="STATUS", help="For runs that end so: FAILED, SUCCEEDED or CANCELLED.")
@click.option("--messages", is_flag=True, help="For each message that is sent to it.")
@click.option("--select", required=True, metavar="SELECTION", help="What to run then.")
@click.option(
    "--partitions", metavar="TEMPLATE", help="Which partitions, such as '{date}': what was found says the rest."
)
@click.option(
    "--min-interval",
    "min_interval_seconds",
    type=click.IntRange(min=1),
    metavar="SECONDS",
    help="Look no more often than that.",
)
@click.option("--paused", is_flag=True, help="Not before it is resumed.")
@once("sensor")
@json_option
def create(
    *,
    files: str | None,
    asset: str | None,
    runs: str | None,
    messages: bool,
    paused: bool,
    request_id: str | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Make a sensor that no code declares.

    \b
    servo sensor create landed --files 'landing/{date}/*.json' --select orders+ --partitions '{date}'
    servo sensor create told --messages --select orders --partitions '{day}'
    """
    watches: list[dict[str, Any] | None] = [
        *([{"kind": "new_files", "pattern": files}] if files is not None else []),
        *([{"kind": "new_partitions", "asset": asset}] if asset is not None else []),
        *([{"kind": "run_ended", "status": [runs.upper()]}] if runs is not None else []),
        *([None] if messages else []),
    ]
    if len(watches) != 1:
        raise click.UsageError("Say what it looks at: one of --files, --asset, --runs and --messages.")
    request = CreateSensor(watch=watches[0], enabled=not paused, **fields)
    then = "send" if messages else "evals"
    change(request, "sensor", created, key=request_id, as_json=as_json, then=then, drives="it is asked")


@click.command()
@_named
@steering("show")
def delete(named: str, *, as_json: bool, **steer: Any) -> None:
    """Take away a sensor that no code declares. What it asked for stays."""
    change(DeleteSensor(sensor=named, **steer), "sensor", "is deleted", as_json=as_json, create=False)


# ── asking it here and now ───────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@_named
@click.option("--data", metavar="TEXT", help="What the message says.")
@click.option("--file", "path", type=click.Path(path_type=Path), metavar="F", help="A file that holds it; - is stdin.")
@click.option("--message-id", metavar="ID", help="The same id is the same message. One is made up if left out.")
@click.option("--attribute", "attributes", multiple=True, metavar="K=V", callback=pairs, help="May be given often.")
@json_option
@click.pass_context
def send(
    ctx: click.Context,
    *,
    named: str,
    data: str | None,
    path: Path | None,
    message_id: str | None,
    attributes: dict[str, str],
    as_json: bool,
) -> None:
    """Send a message to a push sensor, as Pub/Sub or a CloudEvent would; it is durable when this returns.

    Exits with 1 where the sensor failed on it.

    \b
    servo sensor send uploads --data '{"day": "2025-01-15"}' --message-id 4711
    """
    if data is None and path is None:
        raise click.UsageError("A message says something: give --data or --file.")
    body = _body(data, path)
    with services(as_json=as_json, create=True) as here:
        done = here.send(named, body or b"", message_id=message_id, attributes=attributes)
        _say(here, done, as_json=as_json)
    ctx.exit(1 if done.status == "FAILED" else 0)


@click.command()
@_named
@click.option("--data", metavar="TEXT", help="A sample message, for a push sensor.")
@click.option("--file", "path", type=click.Path(path_type=Path), metavar="F", help="A file that holds it; - is stdin.")
@click.option("--message-id", metavar="ID", help="Evaluate the message of this id, which was skipped or failed.")
@click.option("--attribute", "attributes", multiple=True, metavar="K=V", callback=pairs, help="May be given often.")
@once("evaluation, not a second one")
@click.option("--dry-run", is_flag=True, help="Show what it would ask for; write nothing.")
@json_option
@click.pass_context
def evaluate(
    ctx: click.Context,
    *,
    named: str,
    data: str | None,
    path: Path | None,
    message_id: str | None,
    attributes: dict[str, str],
    request_id: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Evaluate a sensor now, by hand; this moves no cursor. Exits with 1 where it failed.

    A push sensor is given a sample (--data), or a message that was skipped or failed before (--message-id).

    \b
    servo sensor evaluate landing --dry-run
    servo sensor evaluate uploads --message-id 4711
    """
    body = _body(data, path)
    if message_id is not None and body is not None:
        raise click.UsageError("A message is either a sample or one that came before: give --data or --message-id.")
    with services(as_json=as_json, create=True) as here:
        request = EvaluateSensor(
            sensor=named,
            data=None if body is None else body.decode(errors="surrogateescape"),
            attributes=attributes,
            message_id=message_id,
            dry_run=dry_run,
        )
        done = here.do(request, key=request_id)
        _say(here, done, as_json=as_json, dry_run=dry_run)
    ctx.exit(1 if done.status == "FAILED" else 0)


def _body(data: str | None, path: Path | None) -> bytes | None:
    if data is not None and path is not None:
        raise click.UsageError("A message says one thing: give --data or --file, not both.")
    if path is None:
        return None if data is None else data.encode(errors="surrogateescape")
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as problem:
        raise click.UsageError(f"{path} cannot be read: {problem.strerror or problem}.") from None


def _say(here: Services, done: Accepted, *, as_json: bool, dry_run: bool = False) -> None:
    if as_json:
        echo_json(done)
        return
    show_accepted(here, done, dry_run=dry_run)
    if done.started and not dry_run:
        nobody_works(here, f"{'its run begins' if len(done.run_ids) == 1 else 'its runs begin'}")

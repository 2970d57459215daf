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
from servo.cli.automation import changed, created, show_accepted, show_evals, show_sensor, show_sensors
from servo.cli.opening import Services
from servo.cli.options import Answer, command, completer, given, limited, once, pairs, reasoned, steering
from servo.cli.output import note
from servo.operations.automations.requests import (
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


@command("list", reading=True)
def list_sensors(here: Services) -> Answer:
    """List sensors by name: of which kind, and what they found last."""
    sensors = here.listed(ListSensors()).items
    return Answer({"sensors": sensors}, lambda: show_sensors(sensors, here.clock()))


@command(reading=True)
@_named
def show(here: Services, named: str) -> Answer:
    """Show one sensor: what it looks at, its cursor, and its last evaluation."""
    sensor = here.ask(GetSensor(sensor=named))
    return Answer(sensor, lambda: show_sensor(sensor, here.clock()))


@command(reading=True)
@_named
@click.option("--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only those that came to this.")
@click.option("--trigger", type=click.Choice(["push", "poll", "manual"]), help="Only those that came about so.")
@click.option("--before", metavar="EVENT", help="Only those before this one: the `event_id` of the last one seen.")
@limited()
def evals(
    here: Services, named: str, *, status: str | None, trigger: str | None, before: str | None, limit: int
) -> Answer:
    """List its evaluations, newest first, with what became of each run that was asked for.

    `started`: a run of its own. `duplicate`: a run that was there already. `conflict`: the run key is another run's, so
    nothing was started. `dropped`: the evaluation came to nothing.
    """
    page = here.listed(
        ListEvaluations(**given(sensor=named, status=status, trigger=trigger, before=before)), limit=limit
    )
    return Answer({**page.more, "evals": page.items}, lambda: show_evals(page.items, limit, here.clock()))


# ── switching ────────────────────────────────────────────────────────────────────────────────────────────────────


@command(create=True)
@_named
@steering("show")
def pause(here: Services, named: str, **steer: Any) -> Answer:
    """Evaluate a sensor no more. Messages are kept as skipped, and can be evaluated later by hand."""
    return changed(here, PauseSensor(sensor=named, **steer), "sensor", "is paused", then="resume")


@command(create=True)
@_named
@steering("show")
def resume(here: Services, named: str, **steer: Any) -> Answer:
    """Evaluate a paused sensor again; a poll sensor goes on from its cursor."""
    return changed(here, ResumeSensor(sensor=named, **steer), "sensor", "is resumed", drives="it is evaluated")


@command("reset-cursor", create=True)
@_named
@click.option("--to", "cursor", metavar="TEXT", help="Go on from here; from the beginning, if left out.")
@click.option(
    "--expected-state-version", type=int, metavar="N", help="Only if `show` still has this state version; else exit 4."
)
@reasoned()
def reset_cursor(here: Services, *, named: str, cursor: str | None, **steer: Any) -> Answer:
    """Set the cursor of a poll sensor. What it asks for again under the same run key is the same run, not another."""
    done = here.do(ResetCursor(sensor=named, cursor=cursor, **steer))

    def confirm() -> None:
        place = "the beginning" if cursor is None else f"{text(cursor)!r:.200}"
        click.echo(f"✓ {done.name} goes on from {place}, state version {done.state_version}")
        if done.cursor_before is not None:
            note(f"it was at {text(done.cursor_before)!r:.200}")

    return Answer(done, confirm)


# ── making ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@command(create=True)
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
def create(
    here: Services,
    *,
    files: str | None,
    asset: str | None,
    runs: str | None,
    messages: bool,
    paused: bool,
    request_id: str | None,
    **fields: Any,
) -> Answer:
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
    return changed(here, request, "sensor", created, key=request_id, then=then, drives="it is asked")


@command()
@_named
@steering("show")
def delete(here: Services, named: str, **steer: Any) -> Answer:
    """Take away a sensor that no code declares. What it asked for stays."""
    return changed(here, DeleteSensor(sensor=named, **steer), "sensor", "is deleted")


# ── evaluating now ───────────────────────────────────────────────────────────────────────────────────────────────────


@command(create=True)
@_named
@click.option("--data", metavar="TEXT", help="What the message says.")
@click.option("--file", "path", type=click.Path(path_type=Path), metavar="F", help="A file that holds it; - is stdin.")
@click.option("--message-id", metavar="ID", help="The same id is the same message. One is made up if left out.")
@click.option("--attribute", "attributes", multiple=True, metavar="K=V", callback=pairs, help="May be given often.")
def send(
    here: Services,
    *,
    named: str,
    data: str | None,
    path: Path | None,
    message_id: str | None,
    attributes: dict[str, str],
) -> Answer:
    """Send a message to a push sensor, as Pub/Sub or a CloudEvent would; it is durable when this returns.

    Exits with 1 where the sensor failed on it.

    \b
    servo sensor send uploads --data '{"day": "2025-01-15"}' --message-id 4711
    """
    if data is None and path is None:
        raise click.UsageError("A message says something: give --data or --file.")
    done = here.send(named, _body(data, path) or b"", message_id=message_id, attributes=attributes)
    return _accepted(here, done)


@command(create=True)
@_named
@click.option("--data", metavar="TEXT", help="A sample message, for a push sensor.")
@click.option("--file", "path", type=click.Path(path_type=Path), metavar="F", help="A file that holds it; - is stdin.")
@click.option("--message-id", metavar="ID", help="Evaluate the message of this id, which was skipped or failed.")
@click.option("--attribute", "attributes", multiple=True, metavar="K=V", callback=pairs, help="May be given often.")
@once("evaluation, not a second one")
@click.option("--dry-run", is_flag=True, help="Show what it would ask for; write nothing.")
def evaluate(
    here: Services, *, named: str, data: str | None, path: Path | None, request_id: str | None, **fields: Any
) -> Answer:
    """Evaluate a sensor now, by hand; this moves no cursor. Exits with 1 where it failed.

    A push sensor is given a sample (--data), or a message that was skipped or failed before (--message-id).

    \b
    servo sensor evaluate landing --dry-run
    servo sensor evaluate uploads --message-id 4711
    """
    body = _body(data, path)
    if fields["message_id"] is not None and body is not None:
        raise click.UsageError("A message is either a sample or one that came before: give --data or --message-id.")
    sample = None if body is None else body.decode(errors="surrogateescape")
    done = here.do(EvaluateSensor(sensor=named, data=sample, **fields), key=request_id)
    return _accepted(here, done, dry_run=fields["dry_run"])


def _body(data: str | None, path: Path | None) -> bytes | None:
    if data is not None and path is not None:
        raise click.UsageError("A message says one thing: give --data or --file, not both.")
    if path is None:
        return None if data is None else data.encode(errors="surrogateescape")
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as problem:
        raise click.UsageError(f"{path} cannot be read: {problem.strerror or problem}.") from None


def _accepted(here: Services, done: Accepted, *, dry_run: bool = False) -> Answer:
    return Answer(done, lambda: show_accepted(here, done, dry_run=dry_run), 1 if done.status == "FAILED" else 0)

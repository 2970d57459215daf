"""`servo sensor send` and `evaluate`: asking a sensor here and now."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servo.cli.automation import deployed, named_sensor, nobody_works, pairs, require_known
from servo.cli.opening import actor, services
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import plain_struct
from servo.operations.sensors.requests import EvaluateSensor

if TYPE_CHECKING:
    from servo.answers.sensors import Accepted
    from servo.assets.messages import Message
    from servo.cli.services import Services
    from servo.runtime.automation.sensing import Sensing
    from servo.runtime.wiring import Project


@click.command()
@named_sensor
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
        done = here.send(named, body or b"", message_id=message_id, attributes=attributes, actor=actor())
        _say(here, done, as_json=as_json)
    ctx.exit(1 if done.status == "FAILED" else 0)


@click.command()
@named_sensor
@click.option("--data", metavar="TEXT", help="A sample message, for a push sensor.")
@click.option("--file", "path", type=click.Path(path_type=Path), metavar="F", help="A file that holds it; - is stdin.")
@click.option("--message-id", metavar="ID", help="Evaluate the message of this id, which was skipped or failed.")
@click.option("--attribute", "attributes", multiple=True, metavar="K=V", callback=pairs, help="May be given often.")
@click.option("--request-id", metavar="ID", help="The same id again is the same evaluation, not a second one.")
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


def message_of(opened: Project, message_id: str | None, body: bytes | None, attributes: dict[str, str]) -> Message:
    from servo.assets.messages import Message
    from servo.runtime.automation.envelopes import require_acceptable

    named = opened.mint() if message_id is None else message_id
    message = Message(id=named, data=body or b"", attributes=attributes, published_at=opened.clock())
    require_acceptable(message)  # before the folder's definitions take effect
    return message


@contextmanager
def sensing(opened: Project, named: str) -> Iterator[tuple[str, Sensing]]:
    """The name of the sensor, with the folder's definitions in force, and what evaluates it."""
    from servo.runtime.automation.sensing import Sensing
    from servo.runtime.evaluation.evaluating import Evaluators

    name = require_known(opened, named)
    deployed(opened)
    evaluators = Evaluators(opened.settings)
    try:
        yield name, Sensing(opened, evaluators)
    finally:
        evaluators.close()


def _say(here: Services, done: Accepted, *, as_json: bool, dry_run: bool = False) -> None:
    from servo.cli.sensor_tables import show_accepted

    if as_json:
        echo_json(plain_struct(done))
        return
    show_accepted(here, done, dry_run=dry_run)
    if done.started and not dry_run:
        nobody_works(here, f"{'its run begins' if len(done.run_ids) == 1 else 'its runs begin'}")

"""`servo sensor create` and `delete`."""

from __future__ import annotations

from typing import Any

import click

from servo.cli.automation import named_sensor, nobody_drives, say_changed, steering
from servo.cli.opening import services
from servo.cli.options import json_option
from servo.cli.output import note
from servo.operations.sensors.requests import CreateSensor, DeleteSensor

_KEY = "sensor_id"


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
@click.option("--min-interval", type=click.IntRange(min=1), metavar="SECONDS", help="Look no more often than that.")
@click.option("--paused", is_flag=True, help="Not before it is resumed.")
@click.option("--request-id", metavar="ID", help="The same id again is the same sensor.")
@json_option
def create(
    *,
    name: str,
    files: str | None,
    asset: str | None,
    runs: str | None,
    messages: bool,
    select: str,
    partitions: str | None,
    min_interval: int | None,
    paused: bool,
    request_id: str | None,
    as_json: bool,
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
    request = CreateSensor(
        name=name,
        select=select,
        watch=watches[0],
        partitions=partitions,
        min_interval_seconds=min_interval,
        enabled=not paused,
    )
    with services(as_json=as_json, create=True) as here:
        done = here.do(request, key=request_id)
        say_changed(done, _KEY, "is created" if not done.duplicate else "was created", as_json=as_json)
        if not as_json:
            note(f"servo sensor {'send' if messages else 'evals'} {done.name}")
            nobody_drives(here, "it is asked")


@click.command()
@named_sensor
@steering
def delete(named: str, *, expected_version: int | None, reason: str | None, as_json: bool) -> None:
    """Take away a sensor that no code declares. What it asked for stays."""
    with services(as_json=as_json) as here:
        done = here.do(DeleteSensor(sensor=named, expected_state_version=expected_version, reason=reason))
        say_changed(done, _KEY, "is deleted", as_json=as_json)

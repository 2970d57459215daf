"""`servo deploy`."""

from __future__ import annotations

import click

from servo.cli.opening import actor, project
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.states import counted


@click.command()
@json_option
def deploy(as_json: bool) -> None:
    """Make the folder's definitions take effect: assets, schedules and sensors, by one event.

    Commands that ask for something do this by themselves, and so does `servo up` when files change. It is for what
    only has to be there, such as a schedule that a pipeline rolls out. Exits with 2 where the definitions are wrong.
    """
    from servo.assets.loading import load
    from servo.runtime.deploying import deploy as take_effect

    with project(as_json=as_json, create=True) as opened:
        definitions = load(opened.settings)
        done = take_effect(opened, definitions, actor=actor())
    counts = {
        "assets": len(definitions.assets),
        "schedules": len(definitions.schedules),
        "sensors": len(definitions.sensors),
    }
    if as_json:
        known = done.catalog
        said = {"deployment_id": known.deployment_id, "number": known.number, "event_id": done.event_id}
        echo_json({"changed": done.changed, **said, **counts, "added": list(done.added), "removed": list(done.removed)})
        return
    what = ", ".join(counted(count, name[:-1]) for name, count in counts.items() if count)
    mark = click.style("✓", fg="green")
    click.echo(f"{mark} {what}: {f'deployment {done.catalog.number}' if done.changed else 'deployed already'}")
    for sign, keys in (("+", done.added), ("-", done.removed)):
        for key in keys:
            click.echo(f"  {sign} {key}")

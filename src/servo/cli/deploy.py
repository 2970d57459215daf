"""`servo deploy`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from servo.cli.opening import actor, project
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.states import counted
from servo.cli.values import text

if TYPE_CHECKING:
    from servo.planning.history_changes import HistoryChange


@click.command()
@json_option
def deploy(as_json: bool) -> None:
    """Make the folder's definitions take effect: assets, schedules and sensors, by one event.

    Commands that ask for something do this by themselves, and so does `servo up` when files change. It is for what
    only has to be there, such as a schedule that a pipeline rolls out. Exits with 2 where the definitions are wrong.
    """
    from servo.assets.loading import load
    from servo.runtime.deploying import deploy as take_effect
    from servo.runtime.documents import history_change_shown

    with project(as_json=as_json, create=True) as opened:
        definitions = load(opened.settings)
        done = take_effect(opened, definitions, actor=actor(), tell=(lambda _: None) if as_json else _tell)
    counts = {
        "assets": len(definitions.assets),
        "schedules": len(definitions.schedules),
        "sensors": len(definitions.sensors),
    }
    if as_json:
        known = done.catalog
        said = {"deployment_id": known.deployment_id, "number": known.number, "event_id": done.event_id}
        changes = {
            "added": list(done.added),
            "removed": list(done.removed),
            "changes": [history_change_shown(change) for change in done.changes],
        }
        echo_json({"changed": done.changed, **said, **counts, **changes})
        return
    what = ", ".join(counted(count, name[:-1]) for name, count in counts.items() if count)
    mark = click.style("✓", fg="green")
    click.echo(f"{mark} {what}: {f'deployment {done.catalog.number}' if done.changed else 'deployed already'}")


def _tell(changes: Sequence[HistoryChange]) -> None:
    """What it is about to do to the history of assets."""
    for change in changes:
        click.echo(f"  {text(change.sentence())}")

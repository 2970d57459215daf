"""`servo check` and `servo deploy`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from servo.answers.values import text
from servo.assets.loading import Definitions, examine, load
from servo.assets.spec import Problem
from servo.cli.opening import about_here, actor, project, show_warnings
from servo.cli.options import json_option
from servo.cli.output import echo_json, note, plain_struct
from servo.clock import system_clock
from servo.controllers.scheduling import unfillable
from servo.errors import ServoError
from servo.planning.deployment import preview
from servo.planning.history import HistoryChange
from servo.runtime.deploying import deploy as take_effect
from servo.runtime.deploying import deployed_state
from servo.runtime.settings import Settings, load_settings
from servo.runtime.wiring import open_workspace
from servo.ui.marks import counted

_USAGE = 2


@click.command()
@json_option
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Load the project's definitions and say what is wrong with them, with file and line.

    Looks at names, upstreams, cycles, partitions and mappings, schedules and sensors. Imports the project's modules;
    starts no Spark, needs no ledger and writes nothing. Exits with 2 if anything is wrong.
    """
    show_warnings(as_json=as_json)
    about_here()
    settings = load_settings()
    definitions, problems = examine(settings)
    if definitions is not None and not problems:
        problems = list(unfillable(definitions, system_clock()))
    counts = {
        "assets": 0 if definitions is None else len(definitions.assets),
        "schedules": 0 if definitions is None else len(definitions.schedules),
        "sensors": 0 if definitions is None else len(definitions.sensors),
    }
    changes = [] if definitions is None or problems else _changes(settings, definitions)
    if as_json:
        told = [_plain(problem) for problem in problems]
        history = {"changes": [_history_change(change) for change in changes]} if changes else {}
        echo_json({"ok": not problems, **counts, "problems": told, **history})
    elif problems:
        for problem in problems:
            click.echo(f"servo: {text(str(problem.error()))}", err=True)
    else:
        found = [f"{count:,} {name[:-1] if count == 1 else name}" for name, count in counts.items() if count]
        click.echo(f"{click.style('✓', fg='green')} {', '.join(found)}: nothing is wrong")
        for change in changes:
            note(f"deploying it: {text(change.sentence())}")
    ctx.exit(_USAGE if problems else 0)


def _changes(settings: Settings, definitions: Definitions) -> Sequence[HistoryChange]:
    """What deploying these definitions would do to history; nothing where no ledger is there to have any."""
    with suppress(ServoError), open_workspace(settings) as opened:
        return preview(definitions, deployed_state(opened)).changes()
    return ()


def _plain(problem: Problem) -> dict[str, Any]:
    source = problem.source
    return {
        "file": None if source is None else source.file,
        "line": None if source is None else source.line,
        "message": problem.message,
        "hint": problem.hint,
    }


@click.command()
@json_option
def deploy(as_json: bool) -> None:
    """Make the folder's definitions take effect: assets, schedules and sensors, by one event.

    Commands that ask for something do this by themselves, and so does `servo up` when files change. It is for what
    only has to be there, such as a schedule that a pipeline rolls out. Exits with 2 where the definitions are wrong.
    """
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
            "changes": [_history_change(change) for change in done.changes],
        }
        echo_json({"changed": done.changed, **said, **counts, **changes})
        return
    what = ", ".join(counted(count, name[:-1]) for name, count in counts.items() if count)
    mark = click.style("✓", fg="green")
    click.echo(f"{mark} {what}: {f'deployment {done.catalog.number}' if done.changed else 'deployed already'}")


def _history_change(change: HistoryChange) -> dict[str, Any]:
    shown: dict[str, Any] = plain_struct(change)
    return shown | {"sentence": change.sentence()}


def _tell(changes: Sequence[HistoryChange]) -> None:
    """What it is about to do to the history of assets."""
    for change in changes:
        click.echo(f"  {text(change.sentence())}")

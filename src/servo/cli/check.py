"""`servo check`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from servo.cli.opening import about_here
from servo.cli.options import json_option, show_warnings
from servo.cli.output import as_json as echo_json
from servo.cli.output import note
from servo.cli.values import text
from servo.clock import system_clock
from servo.errors import ServoError

if TYPE_CHECKING:
    from servo.assets.loading import Definitions
    from servo.assets.spec import Problem
    from servo.planning.history_changes import HistoryChange
    from servo.runtime.settings import Settings

_USAGE = 2


@click.command()
@json_option
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Load the project's definitions and say what is wrong with them, with file and line.

    Looks at names, upstreams, cycles, partitions and mappings, schedules and sensors. Imports the project's modules;
    starts no Spark, needs no ledger and writes nothing. Exits with 2 if anything is wrong.
    """
    from servo.assets.loading import examine
    from servo.controllers.filling import unfillable
    from servo.runtime.documents import history_change_shown
    from servo.runtime.settings import load_settings

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
        history = {"changes": [history_change_shown(change) for change in changes]} if changes else {}
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
    from servo.runtime.deployed_state import look
    from servo.runtime.deploying import preview
    from servo.runtime.wiring import open_workspace

    with suppress(ServoError), open_workspace(settings) as opened:
        return preview(definitions, look(opened)).changes()
    return ()


def _plain(problem: Problem) -> dict[str, Any]:
    source = problem.source
    return {
        "file": None if source is None else source.file,
        "line": None if source is None else source.line,
        "message": problem.message,
        "hint": problem.hint,
    }

"""`servo check` and `servo deploy`: the definitions of a project."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from servo.answers.values import text
from servo.assets.loading import Definitions, examine, load
from servo.assets.spec import Problem
from servo.cli.opening import about_here, actor, project, show_warnings
from servo.cli.options import Answer, command, json_option
from servo.cli.output import echo_json, note, plain_struct
from servo.clock import system_clock
from servo.controllers.scheduling import unfillable
from servo.errors import ServoError
from servo.planning.deployment import preview
from servo.planning.history import HistoryChange
from servo.runtime.deploying import deploy as take_effect
from servo.runtime.deploying import deployed_state
from servo.runtime.settings import Settings, load_settings
from servo.runtime.wiring import Project, open_workspace
from servo.ui.marks import counted

_USAGE = 2


@click.command()
@json_option
def check(as_json: bool) -> int:
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
    counts = _counts(definitions)
    changes = [] if definitions is None or problems else _changes(settings, definitions)
    if as_json:
        history = {"changes": [_history_change(change) for change in changes]} if changes else {}
        echo_json({"ok": not problems, **counts, "problems": [_plain(problem) for problem in problems], **history})
    elif problems:
        for problem in problems:
            click.echo(f"servo: {text(str(problem.error()))}", err=True)
    else:
        click.echo(f"{click.style('✓', fg='green')} {_in_words(counts)}: nothing is wrong")
        for change in changes:
            note(f"deploying it: {text(change.sentence())}")
    return _USAGE if problems else 0


def _counts(definitions: Definitions | None) -> dict[str, int]:
    names = ("assets", "schedules", "sensors")
    return {name: 0 if definitions is None else len(getattr(definitions, name)) for name in names}


def _in_words(counts: dict[str, int]) -> str:
    return ", ".join(counted(count, name[:-1]) for name, count in counts.items() if count)


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


@command(opening=project, create=True)
def deploy(opened: Project, as_json: bool) -> Answer:
    """Make the folder's definitions take effect: assets, schedules and sensors, by one event.

    Commands that ask for something do this by themselves, and so does `servo up` when files change. It is for what
    only has to be there, such as a schedule that a pipeline rolls out. Exits with 2 where the definitions are wrong.
    """
    definitions = load(opened.settings)
    done = take_effect(opened, definitions, actor=actor(), tell=(lambda _: None) if as_json else _show_changes)
    counts = _counts(definitions)
    document = {
        "changed": done.changed,
        "deployment_id": done.catalog.deployment_id,
        "number": done.catalog.number,
        "event_id": done.event_id,
        **counts,
        "added": list(done.added),
        "removed": list(done.removed),
        "changes": [_history_change(change) for change in done.changes],
    }
    state = f"deployment {done.catalog.number}" if done.changed else "deployed already"
    words = f"{click.style('✓', fg='green')} {_in_words(counts)}: {state}"
    return Answer(document, lambda: click.echo(words))


def _history_change(change: HistoryChange) -> dict[str, Any]:
    shown: dict[str, Any] = plain_struct(change)
    return shown | {"sentence": change.sentence()}


def _show_changes(changes: Sequence[HistoryChange]) -> None:
    """What it is about to do to the history of assets."""
    for change in changes:
        click.echo(f"  {text(change.sentence())}")


# ── a new project ────────────────────────────────────────────────────────────────────────────────────────────────

"""`servo init`, `servo check` and `servo deploy`: the definitions of a project."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
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
from servo.errors import Conflict, InvalidInput, ServoError
from servo.planning.deployment import preview
from servo.planning.history import HistoryChange
from servo.runtime.deploying import deploy as take_effect
from servo.runtime.deploying import deployed_state
from servo.runtime.settings import Settings, load_settings
from servo.runtime.wiring import Project, open_workspace
from servo.ui.marks import counted

_USAGE = 2
_TEMPLATES = Path(__file__).parent / "templates"
_SUFFIX = ".template"
# Under another name in the package, where it would hide files from whoever builds it.
_RENAMED = {"gitignore": ".gitignore"}
_NAMESPACE = re.compile(r"[a-z][a-z0-9_]*")


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


@click.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="The namespace of its assets; by default, after the folder.")
@json_option
def init(folder: Path, name: str | None, as_json: bool) -> None:
    """Begin a project in FOLDER (the current one): a few assets, their tests and a README.

    It runs as it stands, on data that it makes up. Nothing that is there is overwritten.
    """
    namespace = _namespace(folder, name)
    files = _files(namespace)
    _require_room(folder, list(files))
    try:
        for place, content in files.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            with (folder / place).open("x", encoding="utf-8") as file:
                file.write(content)
    except FileExistsError as there:
        raise _taken(Path(there.filename)) from None
    except OSError as problem:
        raise InvalidInput(f"cannot write to {folder}: {problem.strerror}", hint="give another folder") from None
    if as_json:
        echo_json({"folder": str(folder.absolute()), "namespace": namespace, "files": sorted(map(str, files))})
        return
    click.echo(f"✓ a project in {folder.absolute()}: {', '.join(sorted(map(str, files)))}")
    _what_next(folder)


def _namespace(folder: Path, name: str | None) -> str:
    """The name if it can be a namespace; else one that is like the folder's name."""
    if name is not None:
        if not _NAMESPACE.fullmatch(name):
            raise InvalidInput(
                f"{name!r:.80} cannot be a namespace", hint="use lower-case letters, digits and _, a letter first"
            )
        return name
    like = re.sub(r"[^a-z0-9]+", "_", folder.absolute().resolve().name.lower()).strip("_")
    return like if _NAMESPACE.fullmatch(like) else "project"


def _files(namespace: str) -> dict[Path, str]:
    """What a project begins with, by place in its folder."""
    files = {}
    for template in sorted(_TEMPLATES.rglob(f"*{_SUFFIX}")):
        place = template.relative_to(_TEMPLATES)
        name = place.name.removesuffix(_SUFFIX)
        content = template.read_text(encoding="utf-8").replace("{{namespace}}", namespace)
        files[place.with_name(_RENAMED.get(name, name))] = content
    return files


def _require_room(folder: Path, places: list[Path]) -> None:
    """All or nothing: look before anything is written."""
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder", hint="give another name")
    for place in places:
        if (folder / place).exists():
            raise _taken(folder / place)
    if not folder.is_dir():
        return
    source = load_settings(folder, {}).source
    if source is not None and source.parent == folder.absolute():
        raise Conflict(f"{source} holds settings of a project already", hint="give another folder")


def _taken(file: Path) -> Conflict:
    return Conflict(
        f"{file} is there already, and nothing is overwritten", hint="give another folder: `servo init FOLDER`"
    )


def _what_next(folder: Path) -> None:
    note("Try next")
    here = os.path.relpath(folder)
    commands = [
        ("servo check", "do the definitions fit together?"),
        ("servo plan +month_report --partitions 2025-01", "what would run"),
        ("servo materialize +month_report --partitions 2025-01", "run it"),
        ("servo read month_report 2025-01", "the result"),
    ]
    if here != ".":
        click.echo(f"  cd {here}")
    for line, what in commands:
        click.echo(f"  {line:<54} # {what}")

"""`servo init`: a project that runs as it stands. Its help loads neither definitions nor what runs them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from servo.cli.opening import settings
from servo.cli.options import json_option
from servo.cli.output import echo_json, note
from servo.errors import Conflict, InvalidInput

_TEMPLATES = Path(__file__).parent / "templates"
_SUFFIX = ".template"
# Under another name in the package, where it would hide files from whoever builds it.
_RENAMED = {"gitignore": ".gitignore"}
_NAMESPACE = re.compile(r"[a-z][a-z0-9_]*")


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
    source = settings(folder, {}).source
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

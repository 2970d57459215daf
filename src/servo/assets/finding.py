"""Which of a project's files declare assets."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from servo.errors import InvalidSettings

__all__ = ["Target", "file_of", "targets"]

_NAMES = ("definitions", "assets")
_FOLDERS = (".", "src")
_DECLARES = re.compile(r"@(\w+\.)?(asset|schedule|sensor)\b|\b(asset|Schedule|sensor|on)\(")
_BY_FILE = "servo_project_"  # how modules are called whose own name is no name, or somebody else's


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A module to import."""

    module: str
    file: Path
    name_is_free: bool  # to be imported by; else by its file


def targets(root: Path, definitions: str | None) -> list[Target]:
    """The modules that the setting names, or else those that are usually called so, or else all that declare something.

    A script that only asks a server speaks of Servo, too, and is not to be run by whoever looks for assets.
    """
    if definitions is not None:
        named = [one.strip() for one in definitions.split(",") if one.strip()]
        return [target for one in named for target in _named(root, one)]
    usual = [
        target
        for name in _NAMES
        for folder in _FOLDERS
        for path in (root / folder / f"{name}.py", root / folder / name)
        if path.is_file() or _holds_code(path)
        for target in _below(path, root / folder)
    ]
    return usual or [_target(path, root) for path in sorted(root.glob("*.py")) if _declares(path)]


def _named(root: Path, one: str) -> list[Target]:
    """A module name, a file or a folder."""
    for base in (root, root / "src"):
        for path in (base / one, base.joinpath(*one.split(".")), base.joinpath(*one.split(".")).with_suffix(".py")):
            if (path.is_file() and path.suffix == ".py") or _holds_code(path):
                own = base if path.resolve().is_relative_to(base.resolve()) else path.resolve().parent
                return list(_below(path.resolve(), own))
    hint = "name a module, a file or a folder below the project's folder"
    raise InvalidSettings(f"definitions: there is no {one!r:.80} in {root}", hint=hint)


def _below(path: Path, base: Path) -> Iterator[Target]:
    """The module of a file; those of a folder, its own first."""
    if path.is_file():
        yield _target(path, base)
        return
    for file in sorted(path.rglob("*.py"), key=lambda one: (one.parent, one.name != "__init__.py", one.name)):
        hidden = (part.startswith((".", "__pycache__")) for part in file.relative_to(path).parts)
        if not any(hidden) and file.name != "__main__.py":
            yield _target(file, base)


def _target(file: Path, base: Path) -> Target:
    parts = list(file.resolve().relative_to(base.resolve()).with_suffix("").parts)
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    module = ".".join(parts)
    is_name = all(part.isidentifier() for part in parts)
    taken = sys.modules.get(parts[0])
    if is_name and (taken is None or _is_in(taken, base)):
        return Target(module=module, file=file.resolve(), name_is_free=True)
    return Target(module=f"{_BY_FILE}{module}", file=file.resolve(), name_is_free=False)


def file_of(module: str, root: Path) -> Path | None:
    """The file of a module that is imported by its file, given what it is called; None for others."""
    if not module.startswith(_BY_FILE):
        return None
    parts = module.removeprefix(_BY_FILE).split(".")
    places = [root.joinpath(folder, *parts) for folder in _FOLDERS]
    files = [file for place in places for file in (place.with_name(f"{place.name}.py"), place / "__init__.py")]
    return next((file.resolve() for file in files if file.is_file()), None)


def _is_in(module: object, base: Path) -> bool:
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return any(isinstance(place, str) and Path(place).is_relative_to(base.resolve()) for place in places)


def _holds_code(path: Path) -> bool:
    return path.is_dir() and any(path.rglob("*.py"))


def _declares(path: Path) -> bool:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "servo" in text and _DECLARES.search(text) is not None

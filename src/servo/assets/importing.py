"""A project's own modules: which of its files declare assets, and how they are imported: by their names, as their files
are now, and without writing anything."""

from __future__ import annotations

import importlib
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any

import msgspec

from servo.errors import InvalidSettings

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


# Code that is not the project's, even where the environment lies inside the project's folder.
LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(Path(__file__).parent.parent)}
)
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_loaded: set[str] = set()  # names of the modules of the last time, which the next one forgets
_roots: set[Path] = set()  # folders of the projects that were loaded
_times_forgotten = 0
_by_file: dict[str, Path] = {}  # modules that are not found by their names
# Held by whoever forgets modules and imports them again: all threads share one table of modules.
IMPORTING = RLock()


@contextmanager
def importable(root: Path) -> Iterator[None]:
    """The project's modules can be imported by their names. Functions that import late need this while they run."""
    folders = [str(root), *([str(root / "src")] if (root / "src").is_dir() else [])]
    path, bytecode = list(sys.path), sys.dont_write_bytecode
    sys.path[:0] = folders
    sys.dont_write_bytecode = True
    try:
        # What a module prints while it is imported must not mix with an answer.
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.path[:] = path
        sys.dont_write_bytecode = bytecode


def import_named(name: str, root: Path) -> ModuleType:
    """The project's module of that name, also where its definitions were not loaded in this process."""
    file = _by_file.get(name) or file_of(name, root)
    return importlib.import_module(name) if file is None else import_file(name, file)


def import_file(name: str, file: Path) -> ModuleType:
    """The module of a file whose name is no identifier, or that of an installed module."""
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    _by_file[name] = file
    return module


def forget() -> None:
    """Forget the modules of the last time: a file may have changed, and another project may use the same names.

    Also those that functions have imported since, while they ran.
    """
    global _times_forgotten  # noqa: PLW0603 (of the process, like the table of modules)
    _times_forgotten += 1
    for root in list(_roots):
        own_modules(root)
    _roots.clear()
    for name in _loaded:
        sys.modules.pop(name, None)
    _loaded.clear()
    importlib.invalidate_caches()
    linecache.checkcache()


def code_generation() -> str:
    """What tells the project's modules of now from those before they were forgotten, in this process and in others."""
    return f"{os.getpid()}.{_times_forgotten}"


def own_modules(root: Path) -> dict[str, ModuleType]:
    """The project's modules that are imported now; `forget` will forget them."""
    modules = {name: module for name, module in list(sys.modules.items()) if _is_of(module, root)}
    _loaded.update(modules)
    _roots.add(root)
    return modules


def _is_of(module: Any, root: Path) -> bool:
    """Whether a module is the project's own; a folder without `__init__.py` has a place and no file."""
    file = getattr(module, "__file__", None)
    places = [file] if isinstance(file, str) else list(getattr(module, "__path__", ()))
    return any(is_within(place, root) for place in places)


def is_within(file: str, root: Path) -> bool:
    return file.startswith(f"{root}/") and not file.startswith(LIBRARIES)


def is_project_file(file: str, root: Path) -> bool:
    """Whether a file is the project's own code: below its folder, and in no environment that lies there too."""
    return is_within(file, root) and not any(part in _INSTALLED for part in Path(file).parts)

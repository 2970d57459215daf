"""Importing a project's own modules: by their names, as their files are now, and without writing anything."""

from __future__ import annotations

import importlib
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any

from servo.assets.finding import file_of

__all__ = [
    "IMPORTING",
    "LIBRARIES",
    "code_generation",
    "forget",
    "import_file",
    "import_named",
    "importable",
    "is_project_file",
    "is_within",
    "own_modules",
]

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

"""The Python files of a project: where its modules are, and which statements of a file bind which name."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from servo.assets.importing import is_project_file
from servo.assets.source_names import Bindings, Reference, binds

__all__ = ["ModuleFile", "ProjectFiles"]

_MAIN = ("__name__ == '__main__'", "'__main__' == __name__")


class ModuleFile(NamedTuple):
    """A file of the project, as it is run where it is imported."""

    body: list[ast.stmt]
    bound: dict[str, list[ast.stmt]]  # the statements that bind each name, but those that only import
    bindings: Bindings
    text: str | None = None  # of a file that is not Python that can be read


class ProjectFiles:
    """Reads files of one project, each once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules: dict[str, ModuleFile] = {}

    def read(self, file: str) -> ModuleFile:
        """What a file says."""
        if file not in self._modules:
            self._modules[file] = _parsed(file)
        return self._modules[file]

    @property
    def names(self) -> set[str]:
        """The files that were read."""
        return set(self._modules)

    def is_project(self, file: str) -> bool:
        """Whether a file is the project's own."""
        return is_project_file(file, self._root)

    def label(self, file: str) -> str:
        """A file's path in the project."""
        return file.removeprefix(f"{self._root}/")

    def located(self, file: str, target: Reference) -> str | None:
        """The file or folder of the module that an import in a file names; None for modules of others."""
        name = target.module or ""
        if target.level:
            base = Path(file).parents[target.level - 1]
            if name:
                return self._below(base, name)
            package = base / "__init__.py"
            return str(package if package.is_file() else base)
        loaded = sys.modules.get(name)
        if loaded is not None:
            return self._place_of(loaded)
        for folder in (self._root, self._root / "src"):
            if (found := self._below(folder, name)) is not None:
                return found
        return None

    def is_foreign(self, file: str, name: str) -> bool:
        """Whether a name of a file is imported, and only from modules of others."""
        targets = self.read(file).bindings.imports.get(name, [])
        return bool(targets) and all(self.located(file, one) is None for one in targets)

    def submodule(self, file: str, name: str) -> str | None:
        """The file or folder of a module of a package, which is a folder or its `__init__.py`."""
        place = Path(file)
        if file.endswith(".py"):
            return self._below(place.parent, name) if place.name == "__init__.py" else None
        return self._below(place, name)

    def _place_of(self, module: ModuleType) -> str | None:
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            return file if file.endswith(".py") and self.is_project(file) else None
        return next((one for one in getattr(module, "__path__", ()) if self.is_project(one)), None)

    def _below(self, folder: Path, name: str) -> str | None:
        place = folder.joinpath(*name.split("."))
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if file.is_file():
                return str(file) if self.is_project(str(file)) else None
        return str(place) if place.is_dir() and self.is_project(str(place)) else None


def _parsed(file: str) -> ModuleFile:
    text = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ModuleFile([], {}, binds(()), text)
    body = list(_imported(tree.body))
    bound: dict[str, list[ast.stmt]] = {}
    for statement in body:
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            for name in binds([statement]).names:
                bound.setdefault(name, []).append(statement)
    return ModuleFile(body, bound, binds(body))


def _imported(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """What is run where a file is imported: of `if __name__ == "__main__"` that is what comes after `else`."""
    for statement in body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) in _MAIN:
            yield from _imported(statement.orelse)
        else:
            yield statement

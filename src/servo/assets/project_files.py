"""The Python files of a project: where its modules are, which statements bind which name, and which expressions are
Servo's."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from servo.assets.importing import is_project_file
from servo.assets.source_names import Bindings, Reference, binds, parameters

_MAIN = ("__name__ == '__main__'", "'__main__' == __name__")
_SERVO = "servo"
_PARTIAL = "partial"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


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


class ServoNames:
    """Follows names through a project's files to Servo's."""

    def __init__(self, files: ProjectFiles) -> None:
        self._files = files
        self._known: dict[tuple[str, tuple[str, ...], bool], bool] = {}

    def is_servo(self, file: str, node: ast.AST, *, wraps: bool = False) -> bool:
        """Whether an expression is one of Servo's functions, or what one of them has made.

        A function of the project that returns what Servo makes counts as one of Servo's, unless it gives Servo
        something else than the function that it was given; with `wraps`, also then.
        """
        if not file:
            return False
        if isinstance(node, ast.Call):
            called = node.func
            if node.args and getattr(called, "attr", getattr(called, "id", None)) == _PARTIAL:
                return self.is_servo(file, node.args[0], wraps=wraps)
            return self.is_servo(file, called, wraps=wraps)
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Call):
            return self.is_servo(file, node, wraps=wraps)
        return isinstance(node, ast.Name) and self._means(file, (node.id, *path), wraps=wraps)

    def is_declaration(self, file: str, statement: ast.stmt) -> bool:
        """Whether a statement does nothing but declare something with Servo, or make a name for doing so."""
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr):
            return statement.value is not None and self.is_servo(file, statement.value)
        return isinstance(statement, _FUNCTIONS) and self._is_factory(file, statement, (), wraps=False)

    def _means(self, file: str, path: tuple[str, ...], *, wraps: bool) -> bool:
        key = (file, path, wraps)
        if key not in self._known:
            self._known[key] = False  # for names that lead back to themselves
            self._known[key] = self._looked_up(file, path, wraps=wraps)
        return self._known[key]

    def _looked_up(self, file: str, path: tuple[str, ...], *, wraps: bool) -> bool:
        if not path:
            return False
        name, rest = path[0], path[1:]
        if file.endswith(".py"):
            module = self._files.read(file)
            for target in module.bindings.imports.get(name, []):
                located = self._files.located(file, target)
                if located is None:
                    if target.level == 0 and (target.module or "").partition(".")[0] == _SERVO:
                        return True
                elif self._means(located, (*target.path, *rest), wraps=wraps):
                    return True
            if name in module.bound:
                return all(self._makes(file, one, wraps=wraps) for one in module.bound[name])
            for star in module.bindings.stars:
                located = self._files.located(file, star)
                if located is None:
                    if star.module == _SERVO and name in sys.modules[_SERVO].__all__:
                        return True
                elif self._means(located, path, wraps=wraps):
                    return True
        below = self._files.submodule(file, name)
        return below is not None and self._means(below, rest, wraps=wraps)

    def _makes(self, file: str, statement: ast.stmt, *, wraps: bool) -> bool:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            return statement.value is not None and self.is_servo(file, statement.value, wraps=wraps)
        if isinstance(statement, ast.ClassDef):  # whose objects are decorators
            called = [one for one in statement.body if isinstance(one, _FUNCTIONS) and one.name == "__call__"]
            return bool(called) and self._is_factory(file, called[0], (), wraps=wraps)
        return isinstance(statement, _FUNCTIONS) and self._is_factory(file, statement, (), wraps=wraps)

    def _is_factory(
        self,
        file: str,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        outer: tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...],
        *,
        wraps: bool,
    ) -> bool:
        """Whether all that a function returns is what Servo makes, or a function that returns it."""
        around = (*outer, function)
        given = set().union(*(parameters(one) for one in around))
        inside = list(_own_nodes(function))
        given -= {one.id for one in inside if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
        defined = {one.name: one for one in inside if isinstance(one, _FUNCTIONS)}
        returned = [one.value for one in inside if isinstance(one, ast.Return)]

        def is_made(value: ast.expr | None) -> bool:
            if isinstance(value, ast.Name) and value.id in defined:
                return self._is_factory(file, defined[value.id], around, wraps=wraps)
            if isinstance(value, ast.Lambda):
                return is_passed(value.body, given | parameters(value))
            return value is not None and is_passed(value, given)

        def is_passed(value: ast.expr, given: set[str]) -> bool:
            return self.is_servo(file, value, wraps=wraps) and (wraps or _hands_on(value, given))

        return bool(returned) and all(map(is_made, returned))


def _hands_on(value: ast.expr, given: set[str]) -> bool:
    """Whether calls have no other function than one that was given: `asset(**options)(function)`."""
    while isinstance(value, ast.Call):
        functions = value.args
        if functions and getattr(value.func, "attr", getattr(value.func, "id", None)) == _PARTIAL:
            functions = functions[1:]
        if any(not isinstance(one, ast.Constant) and getattr(one, "id", None) not in given for one in functions):
            return False
        value = value.func
    return True


def _own_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function's body, but those of functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*_FUNCTIONS, ast.Lambda, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)

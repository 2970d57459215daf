"""What a function reaches: every function, class and constant of the project that it uses, directly or not.

Names are looked up in the text of the project's files, from the names that the function itself uses: its module's,
those of modules that it imports, wherever it imports them, and what it closes over. A name that a file assigns counts
by the statements that assign or change it, and by the functions of the file that do, not by its value, so that a
version is the same on every machine and day.

Of installed packages and other code outside the project's folder, what is imported counts, and not what it says.

Not followed: names that are made up while the program runs
(`getattr(module, name)` reaches the whole module, `eval` nothing); what one module writes into another; files that
are read.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from servo.assets.changed_names import changed, changed_by_calls
from servo.assets.code_walk import CodeWalk
from servo.assets.importing import is_project_file
from servo.assets.normal_form import Keeps, normal_form
from servo.assets.source_names import Bindings, Reference, binds, references
from servo.canonical import sha256_hex

__all__ = ["Reach", "Symbol"]

_EVERYTHING = "*"
_SERVO = "servo"
_MAIN = ("__name__ == '__main__'", "'__main__' == __name__")


class Symbol(NamedTuple):
    """A name at the top of a file of the project; `*` is all of the file."""

    file: str
    name: str


class _Foreign(NamedTuple):
    """What an import of a module of others stands for: `pyspark.sql.functions.sum`."""

    name: str


class _Module(NamedTuple):
    """A file of the project: which statements bind or change each name, and what is imported under which."""

    statements: dict[str, list[ast.stmt]]
    bound: dict[str, list[ast.stmt]]  # those of `statements` that bind the name; the others only change its value
    bindings: Bindings
    text: str | None = None  # of a file that is not Python that can be read


class _Found(NamedTuple):
    digest: str
    uses: list[Symbol]


class _Used(NamedTuple):
    """The project's names that a piece of code uses, and for its names that are imported from others what they mean.

    An import of others is part of whatever uses it, not a name of its own: so a function that moves to another file
    with its imports stays the same code.
    """

    symbols: list[Symbol]
    foreign: list[list[str]]


class Reach:
    """Looks up what functions of one project reach. Files are read once: make a new one after files have changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules: dict[str, _Module] = {}
        self._found: dict[Symbol, _Found] = {}
        self.files: set[str] = set()  # that anything reached is in

    def of(self, functions: Mapping[str, Callable[..., Any]], named: Iterable[str] = ()) -> dict[str, str]:
        """The digest of each thing that functions reach, by file and name (`helpers.py:clean`); their own under the
        labels that they are given. And of what names such as `module:function` mean."""
        walk = CodeWalk(self)
        for label, function in functions.items():
            walk.begin(function, label)
        for text in named:
            module, _, name = text.partition(":")
            found = self._follow("", Reference(tuple(name.split(".")), module), ())
            walk.symbols += [one for one in found if isinstance(one, Symbol)]
        return walk.digests()

    def code_of(self, function: Callable[..., Any]) -> str:
        """The hash of a function and of all that it reaches."""
        return sha256_hex({"v": 2, "reached": self.of({"": function})})

    # ── symbols ──────────────────────────────────────────────────────────────────────────────────────────────────

    def found(self, symbol: Symbol) -> _Found:
        """What a name says, and which names it uses in turn."""
        if symbol not in self._found:
            self._found[symbol] = self._looked_up(symbol)
        return self._found[symbol]

    def _looked_up(self, symbol: Symbol) -> _Found:
        module = self._module(symbol.file)
        if module.text is not None:
            return _Found(sha256_hex(module.text), [])
        used = _Used([], [])
        if symbol.name == _EVERYTHING:
            names = sorted({*module.bindings.names, *module.statements})
            for name in names:
                self._sort(self._resolve(symbol.file, (name,), ()), name, used)
            for star in module.bindings.stars:
                self._sort(self._follow(symbol.file, star, ()), _EVERYTHING, used)
        else:
            names = [symbol.name]
        nodes = list({id(one): one for name in names for one in self._statements(symbol.file, name)}.values())
        for node in nodes:
            more = self.used(symbol.file, node)
            used.symbols.extend(more.symbols)
            used.foreign.extend(more.foreign)
        said: list[Any] = [normal_form(node, self.is_kept(symbol.file)) for node in nodes]
        return _Found(sha256_hex([said, _distinct(used.foreign)]), list(dict.fromkeys(used.symbols)))

    def used(self, file: str, node: ast.AST, closed: Iterable[str] = ()) -> _Used:
        """What the names of a piece of a file mean, but those that it closes over."""
        used = _Used([], [])
        for reference in references(node, self.is_kept(file)):
            if reference.module is None and reference.path and reference.path[0] in closed:
                continue
            if reference.module is None:
                found = self._resolve(file, reference.path, ())
            else:
                found = self._follow(file, reference, ())
            self._sort(found, ".".join([reference.module or "", *reference.path]), used)
        return used._replace(foreign=_distinct(used.foreign))

    def _sort(self, found: Iterable[Symbol | _Foreign], name: str, used: _Used) -> None:
        for one in found:
            if isinstance(one, Symbol):
                used.symbols.append(one)
            else:
                used.foreign.append([name, one.name])

    def is_kept(self, file: str) -> Keeps:
        """Tells the decorators of a file from Servo's own: what those declare is in the version as values."""
        return lambda one: not self._is_servo(file, one)

    def _is_servo(self, file: str, decorator: ast.expr) -> bool:
        """Whether a decorator is one of Servo's: `@asset`, `@servo.asset(…)`."""
        base: ast.AST = decorator
        while isinstance(base, ast.Call | ast.Attribute):
            base = base.func if isinstance(base, ast.Call) else base.value
        if not isinstance(base, ast.Name) or not file:
            return False
        targets = self._module(file).bindings.imports.get(base.id, [])
        return any(one.level == 0 and (one.module or "").partition(".")[0] == _SERVO for one in targets)

    # ── names ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _resolve(self, file: str, path: tuple[str, ...], seen: tuple[Symbol, ...]) -> Iterator[Symbol | _Foreign]:
        """What a dotted name means in a file (or in a folder, which is a package without a file)."""
        if not path:
            if file.endswith(".py"):
                yield Symbol(file, _EVERYTHING)
            return
        name, rest = path[0], path[1:]
        here = Symbol(file, name)
        below = self._submodule(file, name)
        if here in seen:  # such as `from . import tools` in `__init__.py`
            if below is not None:
                yield from self._resolve(below, rest, seen)
            return
        module = self._module(file) if file.endswith(".py") else None
        is_bound = module is not None and (name in module.bindings.names or name in module.statements)
        if module is not None and is_bound:
            if self._statements(file, name):
                yield here
            for target in module.bindings.imports.get(name, []):
                yield from self._follow(file, target._replace(path=(*target.path, *rest)), (*seen, here))
        elif below is not None:
            yield from self._resolve(below, rest, (*seen, here))
            return
        if module is None:
            return
        if module.text is not None:
            yield Symbol(file, _EVERYTHING)
            return
        found = list(self._from_stars(file, path, (*seen, here)))
        if is_bound:
            yield from (one for one in found if isinstance(one, Symbol))
        elif found:
            yield from found
        elif seen and "__getattr__" in module.statements:
            yield Symbol(file, "__getattr__")

    def _from_stars(self, file: str, path: tuple[str, ...], seen: tuple[Symbol, ...]) -> Iterator[Symbol | _Foreign]:
        """What a name may mean by `from … import *`; of modules of others, any of them may have it."""
        for star in self._module(file).bindings.stars:
            if self._located(file, star.module or "", star.level) is None:
                yield _Foreign(f"{_dotted(star)}.*")
            else:
                yield from self._follow(file, star._replace(path=path), seen)

    def _statements(self, file: str, name: str) -> list[ast.stmt]:
        """The statements of a file that a name depends on."""
        module = self._module(file)
        targets = module.bindings.imports.get(name, [])
        # What is done to a module of others, such as `logging.basicConfig()`, is not about the name.
        foreign = targets and all(self._located(file, one.module or "", one.level) is None for one in targets)
        return (module.bound if foreign else module.statements).get(name, [])

    def _follow(self, file: str, target: Reference, seen: tuple[Symbol, ...]) -> Iterator[Symbol | _Foreign]:
        """What an import in a file means."""
        located = self._located(file, target.module or "", target.level)
        if located is None:
            yield _Foreign(_dotted(target))
        else:
            yield from self._resolve(located, target.path, seen)

    def _located(self, file: str, name: str, level: int) -> str | None:
        """The file or folder of a module of the project; None for those of others."""
        if level:
            base = Path(file).parents[level - 1]
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

    def _place_of(self, module: ModuleType) -> str | None:
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            return file if file.endswith(".py") and is_project_file(file, self._root) else None
        return next((one for one in getattr(module, "__path__", ()) if is_project_file(one, self._root)), None)

    def _below(self, folder: Path, name: str) -> str | None:
        place = folder.joinpath(*name.split("."))
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if file.is_file():
                return str(file) if is_project_file(str(file), self._root) else None
        return str(place) if place.is_dir() and is_project_file(str(place), self._root) else None

    def _submodule(self, file: str, name: str) -> str | None:
        place = Path(file)
        if file.endswith(".py"):
            return self._below(place.parent, name) if place.name == "__init__.py" else None
        return self._below(place, name)

    # ── files ────────────────────────────────────────────────────────────────────────────────────────────────────

    def is_project(self, file: str) -> bool:
        return is_project_file(file, self._root)

    def label(self, file: str) -> str:
        return file.removeprefix(f"{self._root}/")

    def whole(self, file: str) -> Symbol:
        """The symbol of all of a file."""
        return Symbol(file, _EVERYTHING)

    def symbol_of(self, file: str, qualname: str) -> Symbol | None:
        """The symbol that a function or class of a file is part of; None where it was made inside a function."""
        name = qualname.partition(".")[0]
        if "<" in qualname or not self.is_project(file) or name not in self._module(file).statements:
            return None
        return Symbol(file, name)

    def _module(self, file: str) -> _Module:
        if file not in self._modules:
            self._modules[file] = _parsed(file)
            self.files.add(file)
        return self._modules[file]


# ── reading files ────────────────────────────────────────────────────────────────────────────────────────────────


def _parsed(file: str) -> _Module:
    text = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return _Module({}, {}, binds(()), text)
    statements: dict[str, list[ast.stmt]] = {}
    bound: dict[str, list[ast.stmt]] = {}
    body = list(_imported(tree.body))
    bindings = binds(body)
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        names = binds([statement]).names
        for name in sorted(names):
            bound.setdefault(name, []).append(statement)
        for name in sorted({*names, *changed(statement)}):
            statements.setdefault(name, []).append(statement)
    for name, statement in changed_by_calls(body, bindings.imports):
        if all(one is not statement for one in statements.setdefault(name, [])):
            statements[name].append(statement)
    return _Module(statements, bound, bindings)


def _dotted(target: Reference) -> str:
    """An import as one name, the same for `import a.b` and `from a import b`."""
    return ".".join(one for one in ("." * target.level + (target.module or ""), *target.path) if one)


def _distinct(pairs: list[list[str]]) -> list[list[str]]:
    return sorted(map(list, {tuple(one) for one in pairs}))


def _imported(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """What is run where a file is imported: of `if __name__ == "__main__"` that is what comes after `else`."""
    for statement in body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) in _MAIN:
            yield from _imported(statement.orelse)
        else:
            yield statement

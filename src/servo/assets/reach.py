"""What a function reaches: every function, class and constant of the project that it uses, directly or not; and the
code version of an asset by the second formula, which covers all of that.

Names are looked up in the text of the project's files, from the names that the function itself uses: its module's,
those of modules that it imports, wherever it imports them, and what it closes over. A name that a file assigns counts
by the statements that assign or change it, and by the functions of the file that do, not by its value, so that a
version is the same on every machine and day.

Of installed packages and other code outside the project's folder, what is imported counts, and not what it says.

Not followed: names that are made up while the program runs
(`getattr(module, name)` reaches the whole module, `eval` nothing); what one module writes into another; files that
are read.

The version is a hash of digests, one for each function, class and constant. The digests are kept with it, so that a
later version can be told apart by name: "code changed: helpers.clean in helpers.py".
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from servo.assets.changed_names import Facts, changes
from servo.assets.code_walk import CodeWalk
from servo.assets.decorator import Asset, declared_json
from servo.assets.project_files import ProjectFiles, ServoNames
from servo.assets.source_names import Keeps, Reference, normal_form, references
from servo.assets.spec import Source
from servo.canonical import sha256_hex
from servo.partitions.mappings import Custom

_EVERYTHING = "*"
_FORMULA = 2
_VERSION_DIGITS = 12
_DIGEST_DIGITS = 8  # of each name that is recorded: told apart from its own former ones alone
_OWN = "@function"  # the asset's own function, which is the same where it is moved or renamed
_DECLARED = "@asset"  # partitions, inputs and checks as declared
_CHECK = "@check "


class Symbol(NamedTuple):
    """A name at the top of a file of the project; `*` is all of the file."""

    file: str
    name: str


class _Foreign(NamedTuple):
    """What an import of a module of others stands for: `pyspark.sql.functions.sum`."""

    name: str


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
        self.files = ProjectFiles(root)  # that anything reached is in
        self._servo = ServoNames(self.files)
        self._changed: dict[str, dict[str, list[ast.stmt]]] = {}
        self._found: dict[Symbol, _Found] = {}

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
        module = self.files.read(symbol.file)
        if module.text is not None:
            return _Found(sha256_hex(module.text), [])
        used = _Used([], [])
        if symbol.name == _EVERYTHING:
            names = [
                name
                for name in sorted({*module.bindings.names, *self._changing(symbol.file)})
                if not self._is_declared(symbol.file, name)
            ]
            for name in names:
                self._sort(self._resolve(symbol.file, (name,), ()), name, used)
            for star in module.bindings.stars:
                self._sort(self._follow(symbol.file, star, ()), _EVERYTHING, used)
        else:
            names = [symbol.name]
        nodes = list({id(one): one for name in names for one in self._statements(symbol.file, name)}.values())
        keeps = self.keeps(symbol.file)
        for node in nodes:
            more = self.used(symbol.file, node, keeps)
            used.symbols.extend(more.symbols)
            used.foreign.extend(more.foreign)
        said: list[Any] = [normal_form(node, keeps) for node in nodes]
        return _Found(sha256_hex([said, _distinct(used.foreign)]), list(dict.fromkeys(used.symbols)))

    def used(self, file: str, node: ast.AST, keeps: Keeps, closed: Iterable[str] = ()) -> _Used:
        """What the names of a piece of a file mean, but those that it closes over and those of left out decorators."""
        used = _Used([], [])
        for reference in references(node, keeps):
            if reference.module is None and reference.path and reference.path[0] in closed:
                continue
            if reference.module is None:
                found = self._resolve(file, reference.path, ())
            else:
                found = self._follow(file, reference, ())
            self._sort(found, ".".join([reference.module or "", *reference.path]), used)
        return used._replace(foreign=_distinct(used.foreign))

    def _is_declared(self, file: str, name: str) -> bool:
        """Whether a name stands for a declaration, such as a dimension, and for nothing else."""
        bound = self.files.read(file).bound.get(name, [])
        return bool(bound) and all(self._servo.is_declaration(file, one) for one in bound)

    def _sort(self, found: Iterable[Symbol | _Foreign], name: str, used: _Used) -> None:
        for one in found:
            if isinstance(one, Symbol):
                used.symbols.append(one)
            else:
                used.foreign.append([name, one.name])

    def keeps(self, file: str, *, held: bool = False) -> Keeps:
        """Tells the decorators of a file from Servo's own. With `held` for a function that is there as a value: then a
        decorator that gives Servo another function is left out too, since what was made of it is a value as well."""
        return lambda one: not self._servo.is_servo(file, one, wraps=held)

    # ── names ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _resolve(self, file: str, path: tuple[str, ...], seen: tuple[Symbol, ...]) -> Iterator[Symbol | _Foreign]:
        """What a dotted name means in a file (or in a folder, which is a package without a file)."""
        if not path:
            if file.endswith(".py"):
                yield Symbol(file, _EVERYTHING)
            return
        name, rest = path[0], path[1:]
        here = Symbol(file, name)
        below = self.files.submodule(file, name)
        if here in seen:  # such as `from . import tools` in `__init__.py`
            if below is not None:
                yield from self._resolve(below, rest, seen)
            return
        module = self.files.read(file) if file.endswith(".py") else None
        is_bound = module is not None and (name in module.bindings.names or name in self._changing(file))
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
        elif seen and "__getattr__" in module.bound:
            yield Symbol(file, "__getattr__")

    def _from_stars(self, file: str, path: tuple[str, ...], seen: tuple[Symbol, ...]) -> Iterator[Symbol | _Foreign]:
        """What a name may mean by `from … import *`; of modules of others, any of them may have it."""
        for star in self.files.read(file).bindings.stars:
            if self.files.located(file, star) is None:
                yield _Foreign(f"{_dotted(star)}.*")
            else:
                yield from self._follow(file, star._replace(path=path), seen)

    def _statements(self, file: str, name: str) -> list[ast.stmt]:
        """The statements of a file that a name depends on: those that bind it and those that change its value."""
        bound = self.files.read(file).bound.get(name, [])
        # What is done to a module of others, such as `logging.basicConfig()`, is not about the name.
        if self.files.is_foreign(file, name):
            return bound
        return [*bound, *self._changing(file).get(name, [])]

    def _changing(self, file: str) -> dict[str, list[ast.stmt]]:
        """The statements of a file that change each name without binding it."""
        if file not in self._changed:
            module = self.files.read(file)
            found: dict[str, list[ast.stmt]] = {}
            facts = Facts(
                bindings=module.bindings,
                is_servo=lambda node: self._servo.is_servo(file, node),
                is_foreign=lambda name: self.files.is_foreign(file, name),
            )
            for name, statement in changes(module.body, facts):
                if all(one is not statement for one in (*module.bound.get(name, ()), *found.get(name, ()))):
                    found.setdefault(name, []).append(statement)
            self._changed[file] = found
        return self._changed[file]

    def _follow(self, file: str, target: Reference, seen: tuple[Symbol, ...]) -> Iterator[Symbol | _Foreign]:
        """What an import in a file means."""
        located = self.files.located(file, target)
        if located is None:
            yield _Foreign(_dotted(target))
        else:
            yield from self._resolve(located, target.path, seen)

    def whole(self, file: str) -> Symbol:
        """The symbol of all of a file."""
        return Symbol(file, _EVERYTHING)

    def symbol_of(self, file: str, qualname: str) -> Symbol | None:
        """The symbol that a function or class of a file is part of; None where it was made inside a function."""
        name = qualname.partition(".")[0]
        if "<" in qualname or not self.files.is_project(file) or name not in self.files.read(file).bound:
            return None
        return Symbol(file, name)


def _dotted(target: Reference) -> str:
    """An import as one name, the same for `import a.b` and `from a import b`."""
    return ".".join(one for one in ("." * target.level + (target.module or ""), *target.path) if one)


def _distinct(pairs: list[list[str]]) -> list[list[str]]:
    return sorted(map(list, {tuple(one) for one in pairs}))


# ── code versions ────────────────────────────────────────────────────────────────────────────────────────────────


def reached_by(asset: Asset, reach: Reach) -> dict[str, str]:
    """The digest of everything that makes an asset's output what it is, by name."""
    spec = asset.spec
    functions: dict[str, Callable[..., Any]] = {_OWN: asset.function}
    functions |= {f"{_CHECK}{one.name}": one.function for one in spec.checks if one.function is not None}
    mappings = [one.mapping for one in spec.dependencies if isinstance(one.mapping, Custom)]
    declared = declared_json(spec.partitions, spec.dependencies, spec.checks, batch=spec.batch)
    return reach.of(functions, [name for one in mappings for name in one.functions]) | {_DECLARED: sha256_hex(declared)}


def version_of(reached: Mapping[str, str]) -> str:
    """The code version that digests make together."""
    return sha256_hex({"v": _FORMULA, "reached": dict(reached)})[:_VERSION_DIGITS]


def recorded(reached: Mapping[str, str], source: Source, root: Path) -> dict[str, str]:
    """The digests in the short form that a deployment keeps, the function's own under its file."""
    own = f"{source.file.removeprefix(f'{root}/')}:{_OWN}"
    return {own if name == _OWN else name: digest[:_DIGEST_DIGITS] for name, digest in reached.items()}


def changed_code(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs between two versions of an asset, in words; nothing where either has no record of what it covers."""
    if not before or not now:
        return []
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    own = {name for name in names if name.endswith(f":{_OWN}")}
    if own and len({digest for name, digest in (*before.items(), *now.items()) if name in own}) == 1:
        names = [name for name in names if name not in own]  # the same in another file
    return list(dict.fromkeys(_words(name, before, now) for name in names))


def _words(name: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    if name == _DECLARED:
        return "its declaration (partitions, inputs or checks)"
    if name.startswith(_CHECK):
        return f"the check {name.removeprefix(_CHECK)}"
    file, _, symbol = name.rpartition(":")
    if symbol == _OWN:
        return f"its function in {file}"
    module = file.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    what = module if symbol == "*" else f"{module}.{symbol}"
    change = " is new" if name not in before else " is gone" if name not in now else ""
    return f"{what} in {file}{change}"

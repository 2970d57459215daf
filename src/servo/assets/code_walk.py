"""A walk from functions, as they are in memory, to all that they close over and to the names that they use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from servo.assets.code_version import class_nodes, closed_over, source_nodes
from servo.assets.source_names import Keeps, normal_form
from servo.assets.values import Part, Values
from servo.canonical import sha256_hex

if TYPE_CHECKING:
    import ast

    from servo.assets.reach import Reach, Symbol

_ANNOTATE = "__annotate"  # functions that newer versions of Python make of annotations


class CodeWalk:
    """One walk from some functions through all that they reach."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._values = Values(self)
        self._labels: dict[int, str] = {}  # the functions that the walk begins at, by id
        self._begun: dict[str, int] = {}
        self.symbols: list[Symbol] = []

    def begin(self, function: Callable[..., Any], label: str) -> None:
        """Start at a function, or at anything that can be called, and give its digest the label."""
        written: Any = function
        wrappers: list[Any] = []
        while (inner := _wrapped_by(written)) is not None and all(inner is not one for one in wrappers):
            wrappers.append(written)
            written = inner
        if isinstance(written, FunctionType):  # the one that a person wrote
            self._labels[id(written)] = label
            self._begun[label] = self._values.add(self._function(written, None))
        else:
            self._begun[label] = self._values.add(written)
        for one in wrappers:
            self._values.add(one)

    def digests(self) -> dict[str, str]:
        """The digest of each thing that was reached, by file and name, or by its label."""
        by_number = self._values.digests()
        reached = {
            name: sha256_hex(sorted({by_number[one] for one in numbers}))
            for name, numbers in self._values.named.items()
        }
        reached |= {label: by_number[number] for label, number in self._begun.items()}
        waiting = list(self.symbols)
        seen: set[Symbol] = set()
        while waiting:
            symbol = waiting.pop()
            if symbol not in seen:
                seen.add(symbol)
                found = self._reach.found(symbol)
                reached[f"{self._reach.files.label(symbol.file)}:{symbol.name}"] = found.digest
                waiting += found.uses
        return dict(sorted(reached.items()))

    # ── what is met on the way ───────────────────────────────────────────────────────────────────────────────────

    def part(self, value: Any) -> Part | None:
        """What a function, class, module or wrapper of a function says; None for all other values."""
        if id(value) in self._labels:
            return Part(f"the function of {self._labels[id(value)]}")
        kind = type(value)  # not `isinstance`, which asks the value: some stand in for others
        if issubclass(kind, FunctionType):
            return self._met(value)
        if issubclass(kind, MethodType):
            return Part("method", [value.__func__, value.__self__])
        if issubclass(kind, ModuleType):
            return self._module(value)
        if issubclass(kind, type):
            return self._class(value)
        wrapped = None if self.is_own(kind) else _wrapped_by(value)
        return None if wrapped is None else Part("wrapper", [wrapped, kind])

    def is_own(self, kind: type) -> bool:
        """Whether a class is the project's."""
        file = _file_of(kind)
        return file is not None and self._reach.files.is_project(file)

    def _met(self, function: FunctionType) -> Part:
        """A function that something holds: by its name if that is all that there is to it."""
        code = function.__code__
        wrapped = _wrapped_by(function)
        also = [] if wrapped is None else [wrapped]
        # By its code: a wrapper has the name of what it wraps, and the name of a project's module may vary.
        if not self._reach.files.is_project(code.co_filename):
            inside = [one for _, one in closed_over(function) if isinstance(one, FunctionType | MethodType)]
            return Part(f"{function.__module__}:{code.co_qualname}", [*also, *inside])
        name = f"{self._reach.files.label(code.co_filename)}:{code.co_qualname}"
        symbol = self._reach.symbol_of(code.co_filename, code.co_qualname)
        if symbol is not None and not function.__closure__ and not _is_replaced(function):
            self.symbols.append(symbol)
            return Part(name, also)
        made = self._function(function, name)
        return made._replace(held=[*made.held, *also])

    def _function(self, function: FunctionType, name: str | None) -> Part:
        """What a function says, with what it closes over and its defaults."""
        code = function.__code__
        nodes = source_nodes(code)
        cells = dict(closed_over(function))
        file = code.co_filename if self._reach.files.is_project(code.co_filename) else ""
        keeps = self._reach.keeps(file, held=True)
        said: list[Any] = [normal_form(one, keeps, nameless=True) for one in nodes] or [_compiled(code)]
        if file:
            said += [self._use(file, one, keeps, cells) for one in nodes]
        held = [*cells.values(), function.__defaults__ or (), function.__kwdefaults__ or {}]
        return Part(repr([name, said, list(cells)]), held, name=name)

    def _use(self, file: str, node: ast.AST, keeps: Keeps, closed: Iterable[str] = ()) -> list[list[str]]:
        used = self._reach.used(file, node, keeps, closed)
        self.symbols += used.symbols
        return used.foreign

    def _module(self, module: ModuleType) -> Part:
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and self._reach.files.is_project(file):
            self.symbols.append(self._reach.whole(file))
            return Part(self._reach.files.label(file))
        return Part(module.__name__)

    def _class(self, kind: type) -> Part:
        if not self.is_own(kind):
            return Part(f"{kind.__module__}.{kind.__qualname__}")
        file = str(_file_of(kind))
        name = f"{self._reach.files.label(file)}:{kind.__qualname__}"
        symbol = self._reach.symbol_of(file, kind.__qualname__)
        if symbol is not None:
            self.symbols.append(symbol)
            return Part(name)
        # Made inside a function: by its text, its bases, methods and values.
        nodes = class_nodes(file, kind.__name__)
        keeps = self._reach.keeps(file)
        said = [[normal_form(one, keeps), self._use(file, one, keeps)] for one in nodes]
        held = [Part(repr(key), [one]) for key, one in sorted(vars(kind).items()) if _is_held(key, one)]
        return Part(repr([name, said]), [*kind.__bases__, *held], name=name)


def _is_replaced(function: FunctionType) -> bool:
    """Whether a decorator has put something else in the place of a function at the top of a file."""
    held = vars(sys.modules[function.__module__]) if function.__module__ in sys.modules else {}
    return held.get(function.__code__.co_qualname, function) is not function


def _is_held(key: str, value: Any) -> bool:
    return not key.startswith("__") or (callable(value) and not key.startswith(_ANNOTATE))


def _wrapped_by(value: Any) -> Any | None:
    """The function that another function or object stands in for; None where there is none.

    Not asked of the object itself: some answer for any attribute.
    """
    if issubclass(type(value), type) or not callable(value):
        return None
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    wrapped = held.get("__wrapped__") if isinstance(held, dict) else None
    return wrapped if callable(wrapped) and wrapped is not value else None


def _compiled(code: CodeType) -> list[Any]:
    """What is known of a function whose text is not to be found."""
    plain = [one for one in code.co_consts if one is None or type(one) in (bool, int, str, float, bytes)]
    return [code.co_names, code.co_varnames, plain]


def _file_of(kind: type) -> str | None:
    module = kind.__module__
    file = getattr(sys.modules.get(module), "__file__", None) if isinstance(module, str) else None
    return file if isinstance(file, str) else None

"""Which names of a file its statements may change without assigning them, also through the functions that they call.

Whether a call changes what it is given cannot be told from its text. So a statement that is run with the file counts
for a name whose value it hands to a call, gives another name, or calls a method of. Functions count by what they
change themselves, and as statements do where they are run with the file.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

from servo.assets.source_names import Bindings, binds, parameters

_Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# Inside functions, other methods count as reading: `CLIENT.get()` is called where the function is.
_CHANGING = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "pop", "popitem", "popleft",
    "register", "remove", "reverse", "setdefault", "sort", "update",
})  # fmt: skip
_SETTING = frozenset({"delattr", "setattr"})
# Functions of Python's own that change nothing that they are given.
_READING = frozenset({
    "abs", "all", "any", "bool", "bytes", "dict", "dir", "enumerate", "float", "format", "frozenset", "hasattr",
    "hash", "id", "int", "isinstance", "issubclass", "len", "list", "max", "min", "print", "range", "repr",
    "reversed", "round", "set", "sorted", "str", "sum", "tuple", "type", "zip",
})  # fmt: skip
_LOGGERS = frozenset({"getChild", "getLogger", "get_logger"})


class Facts(NamedTuple):
    """What else is known of a file's names."""

    bindings: Bindings
    is_servo: Callable[[ast.expr], bool]  # of an expression: made by Servo, which changes nothing
    is_foreign: Callable[[str], bool]  # of a name: imported from modules of others


class _Kind(Enum):
    """What a name stands for, as far as its value can be changed."""

    FIXED = 1  # text, numbers, loggers and declarations of Servo: nothing that code could depend on changes
    IMPORTED = 2
    FUNCTION = 3
    CLASS = 4
    VALUE = 5


def changes(body: list[ast.stmt], facts: Facts) -> Iterator[tuple[str, ast.stmt]]:
    """The names whose values the statements of a file may change, each with a statement that does, or that it depends
    on for that: a function that changes it, and statements that use such a function or define a subclass."""
    file = _File(body, facts)
    for statement in body:
        yield from ((name, statement) for name in sorted(file.changed_by(statement)))


class _File:
    """What the functions of a file change."""

    def __init__(self, body: list[ast.stmt], facts: Facts) -> None:
        self._facts = facts
        self._names = binds(body).names
        self._kinds = _kinds(body, facts)
        self._inside = {id(one): _definitions(one) for one in body}
        self._at_once = {id(one): list(self._run_at_once(one)) for one in body}
        definitions = [one for some in self._inside.values() for one in some]
        self._bases = _bases(definitions)
        self._instances = dict(_instances(body, {one.name: one for one in definitions}, facts))
        uses: dict[str, set[str]] = {}
        for one in definitions:
            uses.setdefault(one.name, set()).update(_names(ast.walk(one)))
        run = _reachable(set().union(*(_names(nodes) for nodes in self._at_once.values())), uses)
        self._changes: dict[str, set[str]] = {}
        for one in definitions:
            self._changes.setdefault(one.name, set()).update(self._changed_inside(one, run=one.name in run))
        self._by_calls = _closed(self._changes, uses)

    def changed_by(self, statement: ast.stmt) -> set[str]:
        """The names whose values may depend on a statement that does not bind them."""
        at_once, inside = self._at_once[id(statement)], self._inside[id(statement)]
        found = {name for node in at_once for name in self._touched(node)}
        found |= {name for one in inside for name in self._changes[one.name]}
        for used in _names(at_once):
            found |= self._by_calls.get(used, set())
        for one in inside:
            found |= {name for decorator in one.decorator_list for name in _called_on(decorator) if self._is_own(name)}
            found |= self._bases.get(one.name, set())
        return found

    def _is_own(self, name: str) -> bool:
        return name in self._names and name not in self._facts.bindings.imports

    def _kind(self, name: str) -> _Kind:
        return self._kinds.get(name, _Kind.IMPORTED)

    # ── statements that are run with the file ────────────────────────────────────────────────────────────────────

    def _run_at_once(self, statement: ast.stmt) -> Iterator[ast.AST]:
        """The nodes of a statement that are run where it stands: all but the bodies of functions, and Servo's
        decorators, which run nothing of the project's."""
        waiting: list[ast.AST] = [statement]
        while waiting:
            node = waiting.pop()
            yield node
            decorators = [one for one in getattr(node, "decorator_list", ()) if not self._facts.is_servo(one)]
            if isinstance(node, _FUNCTIONS):
                waiting += [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]
                waiting += decorators
            elif isinstance(node, ast.ClassDef):
                waiting += [*node.bases, *(one.value for one in node.keywords), *node.body, *decorators]
            else:
                waiting += ast.iter_child_nodes(node)

    def _touched(self, node: ast.AST) -> Iterator[str]:
        """The names whose values a node itself may change where it is run."""
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield from _base(node)
        elif isinstance(node, ast.Attribute) and node.attr in _CHANGING:  # called, or handed on as in `map(M.add, …)`
            yield from (name for name in _base(node) if self._kind(name) is not _Kind.FIXED)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute | ast.Subscript):
                yield from (name for name in _base(called) if self._kind(name) is not _Kind.FIXED)
        elif isinstance(node, ast.Call):
            yield from self._touched_by_call(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            yield from self._aliased(node.value)
        elif isinstance(node, ast.For | ast.AsyncFor):
            yield from self._aliased(node.iter)

    def _touched_by_call(self, call: ast.Call) -> Iterator[str]:
        called = call.func
        if self._facts.is_servo(called):
            return
        if isinstance(called, ast.Attribute):
            yield from (name for name in _base(called) if self._kind(name) in (_Kind.VALUE, _Kind.CLASS))
        simple = called.id if isinstance(called, ast.Name) else None
        if simple in _READING and simple not in self._names:
            return
        for given in (*call.args, *(one.value for one in call.keywords if one.arg is not None)):
            yield from self._aliased(given)
            if simple in _SETTING and isinstance(given, ast.Name):
                yield given.id

    def _aliased(self, value: ast.expr | None) -> Iterator[str]:
        """The names whose values an expression hands on as they are, by themselves or in a collection."""
        if isinstance(value, ast.Name):
            if self._kind(value.id) in (_Kind.VALUE, _Kind.CLASS):
                yield value.id
            return
        waiting: list[ast.AST | None] = [value]
        while waiting:
            node = waiting.pop()
            match node:
                case ast.Name() if self._kind(node.id) is _Kind.VALUE:
                    yield node.id
                case ast.List() | ast.Tuple() | ast.Set():
                    waiting += node.elts
                case ast.Dict() | ast.BoolOp():
                    waiting += node.values
                case ast.IfExp():
                    waiting += [node.body, node.orelse]

    # ── functions ────────────────────────────────────────────────────────────────────────────────────────────────

    def _changed_inside(self, definition: _Definition, *, run: bool) -> Iterator[str]:
        """The names of the file that a function or the methods of a class assign or change; if they are run with the
        file, also those that they may change."""
        declared = any(map(self._facts.is_servo, definition.decorator_list))  # and not run before the asset is
        waiting: list[tuple[ast.AST, frozenset[str]]] = [(definition, frozenset())]
        while waiting:
            node, local = waiting.pop()
            found: set[str] = set()
            if isinstance(node, ast.Global):
                yield from node.names
            elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
                found.update(_base(node))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = set(_base(node.func))
                if node.func.attr in _CHANGING:
                    found |= of
                if not declared:
                    found |= {name for name in of if self._is_changing(name, node.func.attr)}
            elif isinstance(node, _FUNCTIONS):
                bound = binds([node.body] if isinstance(node, ast.Lambda) else node.body)
                local |= (bound.names | parameters(node)) - bound.outside
            if run:
                found |= self._touched_by_run(node, local)
            yield from (found - local) & self._names
            waiting += [(one, local) for one in ast.iter_child_nodes(node)]

    def _touched_by_run(self, node: ast.AST, local: frozenset[str]) -> set[str]:
        """The names that a node in a function may change that is run with the file. What such functions give to
        modules of others counts as read: it is most often a schema or an option."""
        if isinstance(node, ast.Call):
            called = next(_base(node.func), "")
            if called not in local and self._facts.is_foreign(called):
                return set()
        return {name for name in self._touched(node) if self._kind(name) is _Kind.VALUE}

    def _is_changing(self, name: str, method: str) -> bool:
        """Whether a method of an object of the project's, which a name at the top of the file stands for, may change
        the object."""
        if name not in self._instances:
            return False
        kind = self._instances[name]
        return kind is None or method not in _reading_methods(kind)


# ── what names stand for ─────────────────────────────────────────────────────────────────────────────────────────


def _kinds(body: list[ast.stmt], facts: Facts) -> dict[str, _Kind]:
    found: dict[str, _Kind] = {}
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        if isinstance(statement, ast.ClassDef):
            kind = _Kind.CLASS
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            kind = _Kind.FUNCTION
        else:
            value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
            kind = _Kind.FIXED if value is not None and _is_fixed(value, facts) else _Kind.VALUE
        for name in binds([statement]).names:
            found[name] = kind if found.get(name, kind) is kind else _Kind.VALUE
    return found


def _is_fixed(value: ast.expr, facts: Facts) -> bool:
    """Whether nothing that code could depend on changes in a value."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Constant() | ast.JoinedStr():
                pass
            case ast.UnaryOp():
                waiting.append(node.operand)
            case ast.BinOp():
                waiting += [node.left, node.right]
            case ast.Tuple():
                waiting += node.elts
            case ast.Call() if getattr(node.func, "attr", getattr(node.func, "id", None)) in _LOGGERS:
                pass
            case _ if facts.is_servo(node):
                pass
            case _:
                return False
    return True


def _instances(
    body: list[ast.stmt], definitions: Mapping[str, _Definition], facts: Facts
) -> Iterator[tuple[str, ast.ClassDef | None]]:
    """The names at the top of a file that stand for objects of the project's classes, with the class if the file has
    it."""
    for statement in body:
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        if not isinstance(value, ast.Call) or facts.is_servo(value):
            continue
        called = next(_base(value.func), "")
        kind = definitions.get(called)
        if kind is not None or (called in facts.bindings.imports and not facts.is_foreign(called)):
            for name in binds([statement]).names:
                yield name, kind if isinstance(kind, ast.ClassDef) and isinstance(value.func, ast.Name) else None


def _reading_methods(kind: ast.ClassDef) -> set[str]:
    """The methods of a class that surely do not change the object: they use it for no more than its attributes and
    methods of the same sort."""
    methods = {one.name: one for one in kind.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    reading = {name for name, one in methods.items() if one.args.args and not one.decorator_list}
    while True:
        less = {name for name in reading if _only_reads(methods[name], reading)}
        if less == reading:
            return reading
        reading = less


def _only_reads(method: ast.FunctionDef | ast.AsyncFunctionDef, reading: set[str]) -> bool:
    own = method.args.args[0].arg
    plain = {id(one.value) for one in ast.walk(method) if isinstance(one, ast.Attribute)}
    for node in ast.walk(method):
        if isinstance(node, ast.Name) and node.id == own and id(node) not in plain:
            return False  # handed on, or given another name
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if own in _base(node):
                return False
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and own in _base(node.func):
            is_method = isinstance(node.func.value, ast.Name)
            if not is_method or node.func.attr not in reading:
                return False
        handed = node.args if isinstance(node, ast.Call) else [node.value] if isinstance(node, ast.Assign) else []
        if any(own in _base(one) for one in handed):
            return False
    return True


def _bases(definitions: Iterable[_Definition]) -> dict[str, set[str]]:
    """The classes that each class of a file derives from, directly or not: a class may know all of its subclasses."""
    direct = {
        one.name: {name for base in one.bases for name in _base(base)}
        for one in definitions
        if isinstance(one, ast.ClassDef)
    }
    return {name: _reachable(bases, direct) for name, bases in direct.items()}


# ── trees and graphs ─────────────────────────────────────────────────────────────────────────────────────────────


def _definitions(statement: ast.stmt) -> list[_Definition]:
    """The functions and classes that a statement defines in the file's own scope."""
    found: list[_Definition] = []
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _DEFINITIONS):
            found.append(node)
        else:
            waiting += ast.iter_child_nodes(node)
    return found


def _reachable(begin: Iterable[str], edges: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(begin)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += edges.get(name, ())
    return found


def _closed(changes: Mapping[str, set[str]], uses: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """What functions change with what the functions that they use change."""
    found = {name: set(some) for name, some in changes.items()}
    grows = any(found.values())
    while grows:
        grows = False
        for name, known in found.items():
            more = set().union(*(found[one] for one in uses[name] if one in found)) - known
            known.update(more)
            grows = grows or bool(more)
    return found


def _called_on(decorator: ast.expr) -> Iterator[str]:
    """`NAMES` of `@NAMES.register` and of `@NAMES.register("x")`."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(called, ast.Attribute):
        yield from _base(called)


def _base(target: ast.AST) -> Iterator[str]:
    """The name that a target begins with: `NAMES` of `NAMES.held["x"]`."""
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    if isinstance(target, ast.Name):
        yield target.id


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    return {one.id for one in nodes if isinstance(one, ast.Name)}

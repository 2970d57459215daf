"""Which names of a file its statements change without assigning them, also through the functions that they call."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from servo.assets.source_names import binds, parameters

__all__ = ["changes"]

_Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Inside functions, other methods count as reading: `LOG.info()` changes nothing that code could depend on.
_CHANGING = frozenset(
    (
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "extendleft",
        "insert",
        "pop",
        "popitem",
        "popleft",
        "register",
        "remove",
        "reverse",
        "setdefault",
        "sort",
        "update",
    )
)


def changes(body: list[ast.stmt], imported: Iterable[str]) -> Iterator[tuple[str, ast.stmt]]:
    """The names whose values the statements of a file change, each with a statement that does."""
    for statement in body:
        yield from ((name, statement) for name in _changed(statement))
    yield from _changed_by_calls(body, imported)


def _changed(statement: ast.stmt) -> Iterator[str]:
    """The names whose values a statement changes itself: `NAMES["x"] = 1`, `NAMES.append(1)`."""
    for node in _run_at_once(statement):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            target: ast.AST = node.value.func
        else:
            target = node
            if not isinstance(node, ast.Attribute | ast.Subscript) or isinstance(node.ctx, ast.Load):
                continue
        if isinstance(target, ast.Attribute | ast.Subscript):
            yield from _base(target)


def _changed_by_calls(body: list[ast.stmt], imported: Iterable[str]) -> Iterator[tuple[str, ast.stmt]]:
    """The names that functions of a file change, each with the statements that it depends on for that: those with the
    functions, and those that are run with the file and use such a function, as a decorator or by a call. And the
    objects of the file whose methods are decorators, with what is decorated."""
    names = binds(body).names
    inside = {id(one): _definitions(one) for one in body}
    changes: dict[str, set[str]] = {}
    uses: dict[str, set[str]] = {}
    for definition in (one for some in inside.values() for one in some):
        changes.setdefault(definition.name, set()).update(_changed_inside(definition, names))
        uses.setdefault(definition.name, set()).update(_names(ast.walk(definition)))
    by_calls = _closed(changes, uses)
    own = names - set(imported)
    for statement in body:
        found = {name for one in inside[id(statement)] for name in changes[one.name]}
        at_once = list(_run_at_once(statement))
        for used in _names(at_once):
            found |= by_calls.get(used, set())
        for one in inside[id(statement)]:
            found |= {name for decorator in one.decorator_list for name in _called_on(decorator)} & own
        yield from ((name, statement) for name in sorted(found))


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


def _run_at_once(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement that are run where it stands: all but the bodies of functions."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]
            waiting += getattr(node, "decorator_list", [])
        else:
            waiting += ast.iter_child_nodes(node)


def _changed_inside(definition: _Definition, names: set[str]) -> Iterator[str]:
    """The names of the file that a function or the methods of a class assign or change."""
    waiting: list[tuple[ast.AST, frozenset[str]]] = [(definition, frozenset())]
    while waiting:
        node, local = waiting.pop()
        if isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield from names & (set(_base(node)) - local)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
                yield from names & (set(_base(node.func)) - local)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            bound = binds([node.body] if isinstance(node, ast.Lambda) else node.body)
            local |= (bound.names | parameters(node)) - bound.outside
        waiting += [(one, local) for one in ast.iter_child_nodes(node)]


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
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    if isinstance(target, ast.Name):
        yield target.id


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    return {one.id for one in nodes if isinstance(one, ast.Name)}

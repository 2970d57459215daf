"""The names that a piece of Python code uses and does not bind itself, found in its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from servo.assets.normal_form import Keeps, read_annotations

__all__ = ["Bindings", "Reference", "binds", "parameters", "references"]

_IMPORTERS = frozenset({"import_module", "__import__"})
_NAMESPACE = frozenset({"globals"})  # whoever asks for it can reach everything in the module

_Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Reference(NamedTuple):
    """A dotted name. It begins in the module of the code, or in `module` where that is imported (`level` as in
    `from ..x import y`). An empty path means the whole module."""

    path: tuple[str, ...]
    module: str | None = None
    level: int = 0


class Bindings(NamedTuple):
    """The names that some statements bind, with what those of them stand for that are imported."""

    names: set[str]
    imports: dict[str, list[Reference]]
    outside: set[str]  # declared `global` or `nonlocal`
    stars: list[Reference]


class _Scope(NamedTuple):
    bindings: Bindings
    is_class: bool = False


_Scopes: TypeAlias = tuple[_Scope, ...]
_Part: TypeAlias = tuple[ast.AST, _Scopes]


def references(node: ast.AST, keeps: Keeps) -> list[Reference]:
    """The names that the code needs from its module or from imports, sorted.

    Annotations are left out, but those of a class's own fields and those that a decorator may read; decorators are
    left out unless `keeps` keeps them.
    """
    found: set[Reference] = set()
    waiting: list[_Part] = [(node, ())]
    while waiting:  # chains of calls are nested too deeply for a function that calls itself
        waiting += _parts(*waiting.pop(), found, keeps)
    return sorted(found, key=lambda one: (one.module or "", one.level, one.path))


def binds(nodes: Iterable[ast.AST]) -> Bindings:
    """What statements bind in the scope that they stand in."""
    found = Bindings(set(), {}, set(), [])
    waiting = list(nodes)
    while waiting:
        waiting += _bind(waiting.pop(), found)
    return found


# ── what is bound ────────────────────────────────────────────────────────────────────────────────────────────────


def _bind(node: ast.AST, found: Bindings) -> Iterable[ast.AST]:
    """Add what a node itself binds; the nodes inside it that bind in the same scope."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            found.names.add(node.name)
            return ()
        case ast.Lambda():
            return ()
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            # Of a comprehension's names, those of `:=` alone are seen outside.
            found.names.update(
                one.target.id
                for one in ast.walk(node)
                if isinstance(one, ast.NamedExpr) and isinstance(one.target, ast.Name)
            )
            return ()
        case ast.Name() if not isinstance(node.ctx, ast.Load):
            found.names.add(node.id)
        case ast.Global() | ast.Nonlocal():
            found.outside.update(node.names)
        case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar() if node.name is not None:
            found.names.add(node.name)
        case ast.MatchMapping() if node.rest is not None:
            found.names.add(node.rest)
        case ast.Import() | ast.ImportFrom():
            for name, target in _imported(node):
                if name == "*":
                    found.stars.append(target)
                else:
                    found.names.add(name)
                    found.imports.setdefault(name, []).append(target)
    return ast.iter_child_nodes(node)


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Reference]]:
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            path = () if alias.name == "*" else (alias.name,)
            yield alias.asname or alias.name, Reference(path, node.module or "", node.level)
        elif alias.asname is not None:
            yield alias.asname, Reference((), alias.name)
        else:
            first = alias.name.partition(".")[0]
            yield first, Reference((), first)


def parameters(function: _Function) -> set[str]:
    """The names of a function's parameters."""
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return {one.arg for one in named if one is not None}


# ── what is used ─────────────────────────────────────────────────────────────────────────────────────────────────


def _parts(node: ast.AST, scopes: _Scopes, found: set[Reference], keeps: Keeps) -> list[_Part]:
    """Add what a node itself refers to; the nodes inside it, each with its scopes."""
    match node:
        case ast.Name() | ast.Attribute():
            return _dotted(node, scopes, found)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            outer: list[ast.AST] = [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]
            if not isinstance(node, ast.Lambda):
                outer += [one for one in read_annotations(node, keeps) if one is not None]
                outer += [one for one in node.decorator_list if keeps(one)]
            body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
            inside = binds(body)
            inside.names.update(parameters(node))
            return [*_all(outer, scopes), *_all(body, (*scopes, _Scope(inside)))]
        case ast.ClassDef():
            outer = [*node.decorator_list, *node.bases, *(one.value for one in node.keywords)]
            own = (*scopes, _Scope(binds(node.body), is_class=True))
            return [*_all(outer, scopes), *_all(node.body, own)]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return _in_comprehension(node, scopes)
        case ast.AnnAssign():
            is_field = bool(scopes) and scopes[-1].is_class
            parts = [node.target, node.value, node.annotation if is_field else None]
            return _all((one for one in parts if one is not None), scopes)
        case ast.Call() if (module := _by_name(node)) is not None:
            found.add(Reference((), module))
    return _all(ast.iter_child_nodes(node), scopes)


def _all(nodes: Iterable[ast.AST], scopes: _Scopes) -> list[_Part]:
    return [(node, scopes) for node in nodes]


def _in_comprehension(node: _Comprehension, scopes: _Scopes) -> list[_Part]:
    first, *others = node.generators
    inside = (*scopes, _Scope(binds(one.target for one in node.generators)))
    results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    within = [*first.ifs, *(part for one in others for part in (one.iter, *one.ifs)), *results]
    return [(first.iter, scopes), *_all(within, inside)]


def _dotted(node: ast.Name | ast.Attribute, scopes: _Scopes, found: set[Reference]) -> list[_Part]:
    attributes: list[str] = []
    base: ast.AST = node
    while isinstance(base, ast.Attribute):
        attributes.append(base.attr)
        base = base.value
    if not isinstance(base, ast.Name):
        return [(base, scopes)]
    path = tuple(reversed(attributes))
    for scope in reversed(scopes):
        if scope.is_class and scope is not scopes[-1]:
            continue  # a class's names are not seen in its methods
        if base.id in scope.bindings.outside or base.id not in scope.bindings.names:
            continue
        found.update(target._replace(path=(*target.path, *path)) for target in scope.bindings.imports.get(base.id, ()))
        if not scope.is_class:  # there, `LIMIT = LIMIT` reads the name from outside
            return []
    found.add(Reference(()) if base.id in _NAMESPACE else Reference((base.id, *path)))
    return []


def _by_name(call: ast.Call) -> str | None:
    """The module that `importlib.import_module("name")` imports."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
    first = call.args[0] if call.args else None
    if called in _IMPORTERS and isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return None

"""A piece of Python code by its syntax tree: its normal form, and the names that it uses and does not bind itself."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

Keeps: TypeAlias = Callable[[ast.expr], bool]

_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Fields that do not change what is computed, or that only some versions of Python fill in.
_LEFT_OUT = frozenset({"returns", "ctx", "kind", "type_comment", "type_params"})
# Decorators of Python's own that do not look at annotations.
_BLIND = frozenset({
    "abstractmethod", "cache", "cached_property", "classmethod", "contextmanager", "deleter", "lru_cache", "overload",
    "override", "property", "setter", "staticmethod", "wraps",
})  # fmt: skip
_IMPORTERS = frozenset({"import_module", "__import__"})
_NAMESPACE = frozenset({"globals"})  # whoever asks for it can reach everything in the module


# ── normal forms ─────────────────────────────────────────────────────────────────────────────────────────────────


class _Step(NamedTuple):
    """A node that is still to be written; `in_class` for a statement of a class."""

    node: ast.AST
    in_class: bool = False
    nameless: bool = False


def normal_form(node: ast.AST, keeps: Keeps, *, nameless: bool = False) -> str:
    """The text of a statement or expression, with those of its decorators that `keeps` keeps; `nameless` without the
    name of the function that it defines. Our own form, since that of `ast.dump` changes between versions of Python."""
    said: list[str] = []
    waiting: list[str | _Step] = [_Step(node, nameless=nameless)]
    while waiting:  # chains of calls are nested too deeply for a function that calls itself
        one = waiting.pop()
        if isinstance(one, str):
            said.append(one)
        else:
            waiting += reversed(list(_step_parts(one, keeps)))
    return " ".join(said)


def read_annotations(node: ast.FunctionDef | ast.AsyncFunctionDef, keeps: Keeps) -> list[ast.expr | None]:
    """The annotations of a function that may decide what is computed: that of each parameter and of the result where a
    decorator may read them, else none."""
    kept = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list if keeps(one))
    if all(getattr(one, "attr", getattr(one, "id", None)) in _BLIND for one in kept):
        return []
    given = node.args
    parameters = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return [*(one.annotation for one in parameters if one is not None), node.returns]


def _step_parts(step: _Step, keeps: Keeps) -> Iterator[str | _Step]:
    """What a node says: text, and the nodes inside it."""
    node = step.node
    if isinstance(node, ast.Constant):
        yield f"{type(node.value).__name__} {node.value!r}"
        return
    if isinstance(node, ast.AnnAssign) and not step.in_class and node.value is not None:
        yield from ("(Assign", "[", _Step(node.target), "]", _Step(node.value), ")")
        return
    yield "(FunctionDef" if step.nameless else f"({type(node).__name__}"
    for name, value in ast.iter_fields(node):
        if name in _LEFT_OUT or (step.nameless and name == "name"):
            continue
        if name == "annotation" and not (step.in_class and isinstance(node, ast.AnnAssign)):
            continue
        yield from _field(node, name, value, keeps)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for read in read_annotations(node, keeps):
            yield "->" if read is None else _Step(read)
    yield ")"


def _field(node: ast.AST, name: str, value: Any, keeps: Keeps) -> Iterator[str | _Step]:
    if isinstance(value, ast.AST):
        yield _Step(value)
    elif isinstance(value, list):
        inside = isinstance(node, ast.ClassDef) and name == "body"
        yield "["
        for one in _statements(node, name, value, keeps):
            if inside or not is_bare_annotation(one):
                yield _Step(one, in_class=inside) if isinstance(one, ast.AST) else repr(one)
        yield "]"
    else:
        yield repr(value)


def _statements(node: ast.AST, name: str, value: list[Any], keeps: Keeps) -> list[Any]:
    if name == "decorator_list":
        return [one for one in value if keeps(one)]
    return value[1:] if name == "body" and has_docstring(node) else value


def has_docstring(node: ast.AST) -> bool:
    first = node.body[0] if isinstance(node, _DOCUMENTED) else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def is_bare_annotation(node: Any) -> bool:
    return isinstance(node, ast.AnnAssign) and node.value is None


_Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────


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

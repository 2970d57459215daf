"""Code as text that says what it does and not what it looks like: the part of a code version that is one statement.

Comments, formatting, docstrings and the annotations of parameters and variables are left out. Decorators are part of
it, and so are annotations that other code may read: those of a class's fields, which make the schema of a dataclass,
and those of a function with a decorator, such as `pandas_udf` or `register` of `functools.singledispatch`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Keeps", "normal_form", "read_annotations"]

Keeps: TypeAlias = Callable[[ast.expr], bool]

_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Fields that do not change what is computed, or that only some versions of Python fill in.
_LEFT_OUT = frozenset({"returns", "ctx", "kind", "type_comment", "type_params"})
# Decorators of Python's own that do not look at annotations.
_BLIND = frozenset(
    (
        "abstractmethod",
        "cache",
        "cached_property",
        "classmethod",
        "contextmanager",
        "deleter",
        "lru_cache",
        "overload",
        "override",
        "property",
        "setter",
        "staticmethod",
        "wraps",
    )
)


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
            waiting += reversed(list(_parts(one, keeps)))
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


def _parts(step: _Step, keeps: Keeps) -> Iterator[str | _Step]:
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
            if inside or not _is_bare_annotation(one):
                yield _Step(one, in_class=inside) if isinstance(one, ast.AST) else repr(one)
        yield "]"
    else:
        yield repr(value)


def _statements(node: ast.AST, name: str, value: list[Any], keeps: Keeps) -> list[Any]:
    if name == "decorator_list":
        return [one for one in value if keeps(one)]
    if name == "body" and isinstance(node, _DOCUMENTED) and _is_text(node.body[0]):
        return value[1:]
    return value


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_bare_annotation(node: Any) -> bool:
    return isinstance(node, ast.AnnAssign) and node.value is None

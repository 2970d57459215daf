"""Code as text that says what it does and not what it looks like: the part of a code version that is one statement.

Comments, formatting, docstrings and the annotations of parameters and variables are left out. Decorators are part of
it, and so are the annotations of a class's fields, which make the schema of a dataclass.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["Keeps", "normal_form"]

Keeps: TypeAlias = Callable[[ast.expr], bool]

_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Fields that do not change what is computed, or that only some versions of Python fill in.
_LEFT_OUT = frozenset({"returns", "ctx", "kind", "type_comment", "type_params"})


def normal_form(node: ast.AST, keeps: Keeps, *, nameless: bool = False) -> str:
    """The text of a statement or expression, with those of its decorators that `keeps` keeps; `nameless` without the
    name of the function that it defines. Our own form, since that of `ast.dump` changes between versions of Python."""
    try:
        return repr(_form(node, keeps, in_class=False, nameless=nameless))
    except RecursionError:  # such as a chain of hundreds of calls: then formatting counts
        return "\n".join(_nodes(node))


def _form(node: ast.AST, keeps: Keeps, *, in_class: bool, nameless: bool = False) -> Any:
    if isinstance(node, ast.Constant):
        return [type(node.value).__name__, repr(node.value)]
    if isinstance(node, ast.AnnAssign) and not in_class and node.value is not None:
        return ["Assign", [_form(node.target, keeps, in_class=False)], _form(node.value, keeps, in_class=False)]
    parts: list[Any] = ["FunctionDef" if nameless else type(node).__name__]
    is_class = isinstance(node, ast.ClassDef)
    for name, value in ast.iter_fields(node):
        if name in _LEFT_OUT or (nameless and name == "name"):
            continue
        if name == "annotation" and not (in_class and isinstance(node, ast.AnnAssign)):
            continue
        if isinstance(value, list):
            inside = is_class and name == "body"
            kept = [one for one in _statements(node, name, value, keeps) if inside or not _is_bare_annotation(one)]
            parts.append([_form(one, keeps, in_class=inside) if isinstance(one, ast.AST) else one for one in kept])
        elif isinstance(value, ast.AST):
            parts.append(_form(value, keeps, in_class=False))
        else:
            parts.append(value)
    return parts


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


def _nodes(node: ast.AST) -> list[str]:
    """What a tree says, node by node and with where each begins, without a function that calls itself."""
    found = []
    for one in ast.walk(node):
        plain = [value for _, value in ast.iter_fields(one) if not isinstance(value, ast.AST | list)]
        found.append(f"{type(one).__name__} {getattr(one, 'col_offset', 0)} {plain!r}")
    return found

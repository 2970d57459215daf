"""Versions of code by the first formula: what one function says, whatever it looks like.

Two functions have the same version if they have the same syntax tree once docstrings, annotations, decorators and the
function's own name are taken away; comments and formatting are in no syntax tree. What a function closes over, and the
defaults of its parameters, are part of it: a factory that makes ten assets from one text gives them ten versions.

Functions that it calls are not followed, nor are a module's constants looked up: the second formula, in
`servo.assets.reach`, does that where a project is loaded. Ledgers hold versions of the first, so it stays as it is:
it tells that an asset's function is the one that an earlier Servo deployed, and it is what schedules and sensors have.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from servo.assets.source_names import has_docstring, is_bare_annotation
from servo.canonical import sha256_hex
from servo.errors import InvalidInput

_DIGITS = 12
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# Fields that do not change what is computed, or that only some versions of Python fill in.
_LEFT_OUT = frozenset({"annotation", "returns", "decorator_list", "ctx", "kind", "type_comment", "type_params"})
_DEPTH = 3  # how far values are looked into, and functions that are closed over


def code_version(function: Callable[..., Any], declared: dict[str, Any]) -> str:
    """The version of an asset: of its function and of what was declared beside it (JSON)."""
    return sha256_hex({"v": 1, "code": code_of(function), "declared": declared})[:_DIGITS]


def code_of(function: Callable[..., Any]) -> str:
    """The hash of what a function says."""
    return sha256_hex(_code(function, 0))


def _code(function: Callable[..., Any], depth: int) -> Any:
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType):
        plain = getattr(type(plain), "__call__", plain)  # noqa: B004 (wanted is the method, not whether there is one)
        if not isinstance(plain, FunctionType):
            raise InvalidInput(f"{function!r:.80} has no source to derive a code version from", hint=_REMEDY)
    closed = {name: _value(one, depth) for name, one in closed_over(plain)}
    defaults = [_value(one, depth) for one in plain.__defaults__ or ()]
    named = {name: _value(one, depth) for name, one in (plain.__kwdefaults__ or {}).items()}
    return {"tree": _text(_node(plain.__code__)), "closed": closed, "defaults": [defaults, named]}


def closed_over(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The names that a function closes over, with their values; without those that nothing was assigned to yet."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue


_REMEDY = 'give its version yourself: code_version="1"'


# ── finding the source ───────────────────────────────────────────────────────────────────────────────────────────


def source_nodes(code: CodeType) -> list[ast.AST]:
    """The syntax tree of a function, found by where it begins. Of lambdas on one line that cannot be told apart, all
    that it may be; nothing where there is no text."""
    named = _candidates(code)
    if len(named) > 1:  # lambdas on one line
        positions = set(code.co_positions())
        exact = [node for node in named if _span(node) in positions]
        named = exact if len(exact) == 1 else [node for node in named if _compiles_to(node, code)] or named
    return named


def class_nodes(file: str, name: str) -> list[ast.ClassDef]:
    """The classes of a name that a file defines, wherever it does."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name]


def _candidates(code: CodeType) -> list[ast.AST]:
    lines = linecache.getlines(code.co_filename)
    found = _functions("".join(lines)).get(code.co_firstlineno, ()) if lines else ()
    return [node for node in found if getattr(node, "name", "<lambda>") == code.co_name]


def _span(node: ast.AST) -> tuple[int | None, int | None, int | None, int | None]:
    """Where the body of a lambda stands, in the order of `co_positions`."""
    body: Any = getattr(node, "body", node)
    return body.lineno, body.end_lineno, body.col_offset, body.end_col_offset


def _node(code: CodeType) -> ast.AST:
    named = _candidates(code)
    if len(named) > 1:  # lambdas on one line
        named = [node for node in named if _compiles_to(node, code)]
    if not named or len({_text(node) for node in named}) > 1:
        what = "is one of several on its line" if named else "is not there to be read"
        raise InvalidInput(f"the source of {code.co_name} {what}", hint=_REMEDY)
    return named[0]


@lru_cache(maxsize=64)
def _functions(source: str) -> dict[int, list[ast.AST]]:
    """Every function of a module by its first line, which is that of its first decorator."""
    found: dict[int, list[ast.AST]] = {}
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return found
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
            found.setdefault(first, []).append(node)
    return found


def _compiles_to(node: ast.AST, code: CodeType) -> bool:
    assert isinstance(node, ast.expr)
    module = compile(ast.Expression(node), code.co_filename, "eval")
    made = next(one for one in module.co_consts if isinstance(one, CodeType))
    return (made.co_code, made.co_names, made.co_varnames) == (code.co_code, code.co_names, code.co_varnames) and [
        one for one in made.co_consts if not isinstance(one, CodeType)
    ] == [one for one in code.co_consts if not isinstance(one, CodeType)]


# ── what it says ─────────────────────────────────────────────────────────────────────────────────────────────────


def _tree(node: ast.AST, *, outermost: bool = True) -> Any:
    """A syntax tree as JSON. Our own form, since that of `ast.dump` changes between versions of Python."""
    if isinstance(node, ast.Constant):
        return [type(node.value).__name__, repr(node.value)]
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return ["Assign", [_tree(node.target, outermost=False)], _tree(node.value, outermost=False)]
    parts: list[Any] = ["FunctionDef" if outermost else type(node).__name__]
    for name, value in ast.iter_fields(node):
        if name in _LEFT_OUT or (outermost and name == "name"):
            continue
        if name == "body" and has_docstring(node):
            value = value[1:]  # noqa: PLW2901 (the same, without what says nothing to the machine)
        if isinstance(value, list):
            said = [one for one in value if not is_bare_annotation(one)]
            parts.append([_tree(one, outermost=False) if isinstance(one, ast.AST) else one for one in said])
        elif isinstance(value, ast.AST):
            parts.append(_tree(value, outermost=False))
        else:
            parts.append(value)
    return parts


def _text(node: ast.AST) -> str:
    """As text, since long chains of calls are nested deeper than canonical JSON allows."""
    try:
        return repr(_tree(node))
    except RecursionError:
        raise InvalidInput("the function is too deeply nested to derive a code version from", hint=_REMEDY) from None


def _value(value: Any, depth: int) -> Any:
    """A value that a function closes over, as JSON; of what is no plain value, only the kind."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind in (float, complex, bytes):
        return [kind.__name__, repr(value)]
    if depth < _DEPTH:
        if kind in (list, tuple):
            return [kind.__name__, [_value(one, depth + 1) for one in value]]
        if kind in (set, frozenset):
            return [kind.__name__, sorted(repr(_value(one, depth + 1)) for one in value)]
        if kind is dict:
            return [kind.__name__, list(_entries(value, depth))]
        if kind is FunctionType:
            try:
                return _code(value, depth + 1)
            except InvalidInput:
                return [kind.__name__, value.__qualname__]
    return [f"{kind.__module__}.{kind.__qualname__}"]


def _entries(value: dict[Any, Any], depth: int) -> Iterator[list[Any]]:
    for key, one in value.items():
        yield [_value(key, depth + 1), _value(one, depth + 1)]

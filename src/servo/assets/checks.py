"""What must be true of an asset's output, as data: `servo.check`. The executor says how each is computed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec

from servo.assets.code_version import code_of
from servo.errors import InvalidInput

__all__ = ["Check", "accepted_values", "function", "not_null", "range", "row_count", "sql", "unique"]

_STATEMENT = re.compile(r"\s*(SELECT|WITH|FROM)\b", re.IGNORECASE)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check. If it is blocking and fails, the output is not published; otherwise the failure is recorded.

    `parameters` is JSON. Values of columns in it are written by `literal` and read back by `value_of`.
    """

    kind: str  # row_count, not_null, unique, range, accepted_values, sql, function
    name: str
    columns: tuple[str, ...] = ()
    parameters: dict[str, Any] = {}
    blocking: bool = False
    function: Callable[..., Any] | None = None  # of a function check, where the project's code is loaded

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "columns": list(self.columns),
            "parameters": self.parameters,
            "blocking": self.blocking,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Check:
        return cls(**{**data, "columns": tuple(data["columns"])})


def row_count(
    min: int | None = None,  # noqa: A002 (how people say it)
    max: int | None = None,  # noqa: A002
    *,
    name: str | None = None,
    blocking: bool = False,
) -> Check:
    """The number of rows lies between two numbers, both included."""
    for bound in (min, max):
        if bound is not None and (type(bound) is not int or bound < 0):
            raise InvalidInput(f"check.row_count: {bound!r:.80} is not a number of rows", hint="give 0 or more")
    return _check("row_count", (), _bounds("row_count", min, max), name, blocking)


def not_null(*columns: str, name: str | None = None, blocking: bool = False) -> Check:
    """None of these columns is null in any row."""
    return _check("not_null", columns, {}, name, blocking, columns_needed=True)


def unique(*columns: str, name: str | None = None, blocking: bool = False) -> Check:
    """No two rows of a partition have the same values in these columns."""
    return _check("unique", columns, {}, name, blocking, columns_needed=True)


def range(  # noqa: A001 (how people say it)
    column: str,
    *,
    min: Any = None,  # noqa: A002
    max: Any = None,  # noqa: A002
    name: str | None = None,
    blocking: bool = False,
) -> Check:
    """Every value of a column that is not null lies between two values, both included."""
    return _check("range", (column,), _bounds("range", min, max), name, blocking, columns_needed=True)


def accepted_values(column: str, values: Iterable[Any], *, name: str | None = None, blocking: bool = False) -> Check:
    """Every value of a column that is not null is one of these."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput(f"check.accepted_values: {values!r:.80} is not a list", hint='write ["eu", "us"]')
    accepted = [literal(value) for value in (sorted(values) if isinstance(values, set | frozenset) else values)]
    if not accepted:
        raise InvalidInput("check.accepted_values accepts nothing", hint="give at least one value")
    return _check("accepted_values", (column,), {"values": accepted}, name, blocking, columns_needed=True)


def sql(text: str, *, name: str | None = None, blocking: bool = False) -> Check:
    """Either an expression that is true of every row, or a SELECT from `{data}` that counts the rows that are wrong."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput("check.sql says nothing", hint='write check.sql("amount >= 0")')
    if not _STATEMENT.match(text):
        return _check("sql", (), {"expression": text.strip()}, name or f"sql({_short(text)})", blocking)
    if "{data}" not in text:
        hint = 'write "SELECT count(*) FROM {data} WHERE amount < 0"'
        raise InvalidInput("check.sql selects from something else than {data}", hint=hint)
    return _check("sql", (), {"statement": text.strip()}, name or f"sql({_short(text)})", blocking)


def function(check: Callable[..., Any], *, name: str | None = None, blocking: bool = False) -> Check:
    """A function of the DataFrame that returns whether all is well."""
    if not callable(check):
        raise InvalidInput(f"check.function: {check!r:.80} is not a function", hint="pass the function itself")
    called = name or getattr(check, "__name__", type(check).__name__).strip("<>")
    declared = _check("function", (), {"code": code_of(check)}, called, blocking)
    return msgspec.structs.replace(declared, function=check)


# ── values of columns, as JSON ───────────────────────────────────────────────────────────────────────────────────


def literal(value: Any) -> Any:
    """A value as JSON without floats: what JSON has no type for is a dict of one entry."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": repr(value)}
        case Decimal():
            return {"decimal": str(value)}
        case datetime():
            if value.tzinfo is None:
                raise InvalidInput(f"a check: {value.isoformat()} has no timezone", hint="give an aware datetime")
            return {"timestamp": value.astimezone(UTC).isoformat()}
        case date():
            return {"date": value.isoformat()}
    hint = "use a text, a number, a boolean, a date or a datetime"
    raise InvalidInput(f"a check cannot compare with {value!r:.80}", hint=hint)


def value_of(data: Any) -> Any:
    """The value that `literal` wrote."""
    match data:
        case {"float": text}:
            return float(text)
        case {"decimal": text}:
            return Decimal(text)
        case {"timestamp": text}:
            return datetime.fromisoformat(text)
        case {"date": text}:
            return date.fromisoformat(text)
    return data


# ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _check(
    kind: str,
    columns: tuple[str, ...],
    parameters: dict[str, Any],
    name: str | None,
    blocking: bool,
    *,
    columns_needed: bool = False,
) -> Check:
    wrong = next((column for column in columns if not isinstance(column, str) or not column), None)
    if wrong is not None or (columns_needed and not columns):
        what = "names no column" if not columns else f"{wrong!r:.80} is not the name of a column"
        raise InvalidInput(f"check.{kind}: {what}", hint=f'write check.{kind}("order_id")')
    called = name or (f"{kind}({', '.join(columns)})" if columns else kind)
    return Check(kind=kind, name=called, columns=columns, parameters=parameters, blocking=bool(blocking))


def _bounds(kind: str, least: Any, most: Any) -> dict[str, Any]:
    if least is None and most is None:
        raise InvalidInput(f"check.{kind} has no bound", hint="give min=, max= or both")
    try:
        empty = least is not None and most is not None and least > most
    except TypeError:
        raise InvalidInput(f"check.{kind}: {least!r} and {most!r} cannot be compared") from None
    if empty:
        raise InvalidInput(f"check.{kind}: nothing lies between {least!r} and {most!r}", hint="swap min and max")
    return {name: literal(bound) for name, bound in (("min", least), ("max", most)) if bound is not None}


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:59] + "…"

"""Values of rows, as JSON and as text."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any


def moment(value: datetime) -> str:
    """UTC in ISO 8601. A time without a zone stays without one."""
    if value.tzinfo is None:
        return value.isoformat()
    return value.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


def plain(value: Any) -> Any:
    """The value as JSON has it: times and decimals as text, bytes as hex, no NaN."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case datetime():
            return moment(value)
        case date() | time():
            return value.isoformat()
        case timedelta() | Decimal():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case dict():
            return {_key(key): plain(one) for key, one in value.items()}
        case list() | tuple() | set():
            return [plain(one) for one in value]
    return str(value)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else text(key)


def text(value: Any) -> str:
    """The value as people read it, on one line."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return _on_one_line(value)
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return "{" + ", ".join(f"{text(key)}: {_nested(one)}" for key, one in value.items()) + "}"
        case list() | tuple() | set():
            return "[" + ", ".join(_nested(one) for one in value) + "]"
    return _on_one_line(str(plain(value)))


def _nested(value: Any) -> str:
    return "null" if value is None else text(value)


def _on_one_line(value: str) -> str:
    """Control characters written out: they could move the cursor, colour the screen or break the row."""
    if value.isprintable():
        return value
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in value)

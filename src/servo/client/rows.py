"""Answers that are rows of a table and no struct: their times are times, and all else is as JSON has it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

__all__ = ["Row", "with_times"]

Row = dict[str, Any]

_OTHER_TIMES = ("deadline",)  # all others are called `…_at`
_WHOSE = ("tags", "payload", "metadata", "partitions_json")  # what is in there is not ours to read


def with_times(value: Any) -> Any:
    """The same with its times as times."""
    if isinstance(value, list):
        return [with_times(one) for one in value]
    if isinstance(value, dict):
        return {
            name: one if name in _WHOSE and isinstance(one, dict) else _field(name, one) for name, one in value.items()
        }
    return value


def _field(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return with_times(value)
    if not (name.endswith("_at") or name in _OTHER_TIMES) or not value.endswith("Z"):
        return value
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return value

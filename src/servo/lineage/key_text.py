"""Partition keys as people read them, told by the key alone: a report knows no definitions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from servo.events.envelope import timestamp_text
from servo.partitions import PartitionKey

__all__ = ["key_text", "values_of"]


def values_of(key: str) -> dict[str, str | None]:
    """The dimensions of a key, in plain text."""
    return {name: _text(value) for name, value in PartitionKey.parse(key).values.items()}


def key_text(key: str) -> str:
    """`date=2025-01-15, region=eu`; nothing for the only partition of an asset."""
    return ", ".join(f"{name}={'null' if value is None else value}" for name, value in values_of(key).items())


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return timestamp_text(value) if isinstance(value, datetime) else str(value)

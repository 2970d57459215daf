"""The settings in force here, for processes that are started from here."""

from __future__ import annotations

from typing import Any

from servo.runtime.settings import VARIABLES, Settings

__all__ = ["variables_of"]


def variables_of(settings: Settings) -> dict[str, str]:
    """The settings as environment variables, wherever they came from: relative paths mean another folder there."""
    values = {name: _value(settings, key) for name, key in VARIABLES.items()}
    return {name: str(value) for name, value in values.items() if value is not None}


def _value(settings: Settings, key: str) -> Any:
    table, _, field = key.rpartition(".")
    return getattr(getattr(settings, table) if table else settings, field)

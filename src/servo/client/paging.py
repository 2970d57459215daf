"""Pages of lists: one, or all of them as one iterator."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

__all__ = ["Page", "Watermark"]

T = TypeVar("T")


class Watermark(msgspec.Struct, frozen=True, kw_only=True):
    """The state that an answer is about: all events up to this one."""

    position: int
    event_id: str | None = None
    occurred_at: datetime | None = None


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Some items of a list, of one state; `next_cursor` is where to go on. `more`: what the list says beside them."""

    items: list[T]
    watermark: Watermark | None = None
    next_cursor: str | None = None
    more: dict[str, Any] = {}

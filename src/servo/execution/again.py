"""What came of computing a partition again, as data. This file knows no Spark."""

from __future__ import annotations

import msgspec

__all__ = ["Again", "RowsApart"]


class RowsApart(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that only one of the two has: how many, and a few of them by column."""

    count: int
    examples: list[dict[str, str | None]]


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """What came of computing it again. What is None was not compared: it is equal, or one of the two is not there."""

    content_hash: str | None = None
    rows: int | None = None
    failure: str | None = None
    columns_gone: list[str] = []
    columns_new: list[str] = []
    columns_changed: list[str] = []
    only_then: RowsApart | None = None
    only_now: RowsApart | None = None
    not_compared: str | None = None

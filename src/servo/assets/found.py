"""What watches find: one value for each thing that is new."""

from __future__ import annotations

from datetime import datetime

import msgspec

__all__ = ["EndedRun", "FoundFile", "FoundPartitions", "FoundRow", "Item"]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """Something new. `key` is the same text whenever the same thing is found; `values` are for templates."""

    key: str
    values: dict[str, str] = {}


class FoundFile(Item, frozen=True, kw_only=True):
    """A version of a file. `path` is written as the pattern is: from the project's folder, or absolute, or s3://…"""

    path: str
    size: int
    modified: datetime


class FoundPartitions(Item, frozen=True, kw_only=True):
    """Partitions of one asset that became current together, by one event."""

    asset_key: str
    keys: tuple[str, ...]  # canonical
    labels: tuple[str, ...]  # what people type for them
    run_id: str | None  # None: by hand, or by going back to what was there before
    position: int
    at: datetime


class EndedRun(Item, frozen=True, kw_only=True):
    """A run that has ended, and who had asked for it."""

    run_id: str
    status: str
    assets: tuple[str, ...]
    source_kind: str
    source_id: str | None
    reason: str | None
    position: int
    at: datetime


class FoundRow(Item, frozen=True, kw_only=True):
    """A row of a table: `values` has the columns that were asked for, as texts; what is NULL is left out."""

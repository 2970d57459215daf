"""Rows of assets, and the materializations that they are from."""

from __future__ import annotations

from typing import Any

import msgspec


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A materialization that rows are from."""

    partition_key: str
    materialization_id: str
    content_hash: str | None


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of an asset as JSON has them, and exactly which materializations they are from.

    `total_rows` is None where a limit left some unread.
    """

    asset_key: str
    columns: list[str]
    rows: list[list[Any]]
    total_rows: int | None
    materializations: list[Held]

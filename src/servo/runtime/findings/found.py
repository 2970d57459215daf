"""What one look of a watch gives."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from servo.assets.found import Item

__all__ = ["LIMIT", "Found"]

LIMIT = 1_000
"""How many things one look gives at most, but for rows that are alike: those are never torn apart."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What is new, oldest first, and the cursor from which to look the next time."""

    items: Sequence[Item] = ()
    cursor: str
    more: bool = False  # whether there is more at once: the next look need not wait for something to happen

"""What a client can do with backfills beyond the table of operations."""

from __future__ import annotations

from collections.abc import Callable

from servo.answers.backfills import BackfillTree
from servo.client import operations
from servo.client.runs import until as look_until

__all__ = ["Backfills"]


class Backfills(operations.Backfills):
    """`client.backfills`. One is named by its name or id."""

    def wait(
        self, backfill: str, *, timeout: float | None = None, tell: Callable[[BackfillTree], None] | None = None
    ) -> BackfillTree:
        """Its tree when all of it is over, however it went; TimeoutError where it is not by then."""
        found: BackfillTree = look_until(
            lambda: self.tree(backfill, fresh=True), lambda tree: bool(tree.over), backfill, timeout, tell
        )
        return found

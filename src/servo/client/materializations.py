"""Materializations of a server."""

from __future__ import annotations

from collections.abc import Sequence

from servo.answers.materializations import Rollback
from servo.client import operations
from servo.operations.materializations.requests import RollBack

__all__ = ["Materializations"]


class Materializations(operations.Materializations):
    """`client.materializations`."""

    def rollback(
        self,
        asset: str,
        partitions: str | Sequence[str] = (),
        *,
        reason: str,
        to: str | None = None,
        idempotency_key: str | None = None,
    ) -> Rollback:
        """Make earlier ones current again: the one before each, or what `to` says."""
        return self._change(RollBack, locals())

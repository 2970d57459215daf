"""Backfills of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from servo.answers.backfills import Backfilled, BackfillTree, BackfillView, ChunkView, Steered
from servo.client.asking import Noun, given
from servo.client.rows import Row
from servo.client.runs import until as look_until
from servo.client.transport import path_of

__all__ = ["Backfills"]


class Backfills(Noun):
    """`client.backfills`. One is named by its name or id."""

    def create(self, assets: str | Sequence[str], *, idempotency_key: str | None = None, **asked: Any) -> Backfilled:
        """Ask for a backfill: `partitions`, `start` and `end`, `filter`, `chunk_size`, `include_upstream`, `name`, …"""
        body = {"assets": _several(assets), **asked}
        return self._ask.change("POST", path_of("backfills"), Backfilled, body, key=idempotency_key)

    def preview(self, assets: str | Sequence[str], **asked: Any) -> Row:
        """What `create` would come to; nothing is written."""
        found: Row = self._ask.plain(path_of("backfills", "preview"), {"assets": _several(assets), **asked})
        return found

    def list(
        self,
        *,
        status: str | None = None,
        asset: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int | None = None,
        **reading: Any,
    ) -> Iterator[BackfillTree]:
        """Backfills with their trees, newest first; without what failed in them, for which `tree` looks."""
        query = given(status=status, asset=asset, since=since, until=until, limit=limit)
        return self._ask.all(path_of("backfills"), BackfillTree, query | reading)

    def get(self, backfill: str, **reading: Any) -> BackfillView:
        return self._ask.one(path_of("backfills", backfill), BackfillView, reading)

    def tree(self, backfill: str, **reading: Any) -> BackfillTree:
        """With all jobs of its tree, and what failed first."""
        return self._ask.one(path_of("backfills", backfill, "tree"), BackfillTree, reading)

    def chunks(self, backfill: str, *, limit: int | None = None, **reading: Any) -> Iterator[ChunkView]:
        """The chunks that were planned, by their number."""
        return self._ask.all(path_of("backfills", backfill, "chunks"), ChunkView, given(limit=limit) | reading)

    def pause(self, backfill: str, **asked: Any) -> Steered:
        """Start no more chunks. Takes `reason`, `expected_state_version` and `idempotency_key`, as the next two do."""
        return self._steer(backfill, "pause", **asked)

    def resume(self, backfill: str, **asked: Any) -> Steered:
        return self._steer(backfill, "resume", **asked)

    def cancel(self, backfill: str, **asked: Any) -> Steered:
        return self._steer(backfill, "cancel", **asked)

    def retry_failed(self, backfill: str, *, idempotency_key: str | None = None) -> Backfilled:
        """Compute again exactly what failed in one that has ended, as a new backfill."""
        path = path_of("backfills", backfill, "retry-failed")
        return self._ask.change("POST", path, Backfilled, {}, key=idempotency_key)

    def wait(
        self, backfill: str, *, timeout: float | None = None, tell: Callable[[BackfillTree], None] | None = None
    ) -> BackfillTree:
        """Its tree when all of it is over, however it went; TimeoutError where it is not by then."""
        found: BackfillTree = look_until(
            lambda: self.tree(backfill, fresh=True), lambda tree: bool(tree.over), backfill, timeout, tell
        )
        return found

    def _steer(
        self,
        backfill: str,
        how: str,
        *,
        reason: str | None = None,
        expected_state_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Steered:
        body = given(reason=reason, expected_state_version=expected_state_version)
        return self._ask.change("POST", path_of("backfills", backfill, how), Steered, body, key=idempotency_key)


def _several(assets: str | Sequence[str]) -> list[str]:
    return [assets] if isinstance(assets, str) else list(assets)

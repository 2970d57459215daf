"""What commands have a server do (`servo.cli.doing` has it done here). Who did it is the token's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from servo.cli.doing import Doing
from servo.client import Client
from servo.clock import system_clock

if TYPE_CHECKING:
    from servo.answers.backfills import Backfilled
    from servo.answers.runs import Requested
    from servo.answers.sensors import Accepted

__all__ = ["RemoteDoing"]


class RemoteDoing(Doing):
    """A part of `servo.cli.remote.Remote`."""

    _client: Client

    def before_waiting(self) -> Callable[[], None]:
        return lambda: None  # whoever works there does it

    # ── runs and backfills ───────────────────────────────────────────────────────────────────────────────────────

    def request_due(self, selection: Sequence[str], partitions: str | None, **wishes: Any) -> Requested | None:
        return self._client.runs.create_due(
            selection,
            partitions,
            priority=wishes["priority"],
            tags=wishes["tags"],
            accept_schema=wishes["accept_schema"],
            idempotency_key=wishes["request_id"],
        )

    def preview_backfill(self, asked: dict[str, Any]) -> dict[str, Any]:
        return self._client.backfills.preview(**_said(asked))

    def create_backfill(
        self, asked: dict[str, Any], *, request_id: str | None, before: Callable[[], None], actor: str
    ) -> Backfilled:
        before()
        return self._client.backfills.create(**_said(asked), idempotency_key=request_id)

    # ── partitions and lineage ───────────────────────────────────────────────────────────────────────────────────

    def rollback(
        self, asset: str, partitions: Sequence[str], *, to: str | None, reason: str, actor: str
    ) -> dict[str, Any]:
        done = self._client.materializations.rollback(asset, partitions, to=to, reason=reason)
        return {name: done[name] for name in ("event_id", "rollback_id", "asset", "partitions")}

    def invalidate(
        self,
        asset: str,
        partitions: Sequence[str],
        *,
        reason: str,
        itself: bool,
        request_id: str | None,
        actor: str,
    ) -> dict[str, Any]:
        done = self._client.lineage.invalidate(
            asset, partitions, reason=reason, itself=itself, idempotency_key=request_id
        )
        ours = ("invalidation_id", "event_id", "duplicate", "asset_key", "partition_keys", "reason", "total")
        return {name: done[name] for name in (*ours, "invalidated")}

    def rematerialize(
        self,
        asset: str,
        partitions: Sequence[str],
        *,
        itself: bool,
        priority: int,
        request_id: str | None,
        before: Callable[[], None],
        actor: str,
    ) -> Backfilled | None:
        before()
        return self._client.lineage.rematerialize(
            asset, partitions, itself=itself, priority=priority, idempotency_key=request_id
        )

    # ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────

    def send(
        self, named: str, data: bytes, *, message_id: str | None, attributes: dict[str, str], actor: str
    ) -> Accepted:
        return self._client.sensors.send(
            named, data, message_id=message_id, attributes=attributes, published_at=system_clock()
        )


def _said(asked: dict[str, Any]) -> dict[str, Any]:
    """What was given, without what was left out."""
    return {name: value for name, value in asked.items() if value is not None}

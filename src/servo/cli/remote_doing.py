"""What commands have a server do (`servo.cli.doing` has it done here). Who did it is the token's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from servo.cli.doing import Doing
from servo.client import Client
from servo.clock import system_clock

if TYPE_CHECKING:
    from servo.answers.sensors import Accepted

__all__ = ["RemoteDoing"]


class RemoteDoing(Doing):
    """A part of `servo.cli.remote.Remote`."""

    _client: Client

    def before_waiting(self) -> Callable[[], None]:
        return lambda: None  # whoever works there does it

    # ── partitions ───────────────────────────────────────────────────────────────────────────────────────────────

    def mark(self, asset: str, partitions: Sequence[str], *, as_what: str, reason: str, actor: str) -> dict[str, Any]:
        done = self._client.partitions.mark(asset, partitions, mark=as_what, reason=reason)
        return {name: done[name] for name in ("event_id", "mark_id", "asset_key", "mark", "partitions", "described")}

    def accept_code(self, asset: str, versions: Sequence[str], *, reason: str, actor: str) -> dict[str, Any]:
        done = self._client.assets.accept_code(asset, versions, reason=reason)
        ours = ("declaration_id", "asset_key", "code_version", "equal_to", "reason", "partitions", "changes")
        return {name: done[name] for name in (*ours, "event_id")}

    def change_values(self, dimension: str, *, added: Sequence[str], removed: Sequence[str], actor: str) -> str:
        return str(self._client.partitions.change_values(dimension, added=added, removed=removed)["event_id"])

    # ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────

    def send(
        self, named: str, data: bytes, *, message_id: str | None, attributes: dict[str, str], actor: str
    ) -> Accepted:
        return self._client.sensors.send(
            named, data, message_id=message_id, attributes=attributes, published_at=system_clock()
        )

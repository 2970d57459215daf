"""What commands have a server do (`servo.cli.doing` has it done here). Who did it is the token's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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

    # ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────

    def send(
        self, named: str, data: bytes, *, message_id: str | None, attributes: dict[str, str], actor: str
    ) -> Accepted:
        return self._client.sensors.send(
            named, data, message_id=message_id, attributes=attributes, published_at=system_clock()
        )

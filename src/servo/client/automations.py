"""What a client can do with sensors beyond the table of operations."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from secrets import token_hex

from servo import decoders
from servo.answers.sensors import Accepted
from servo.client import operations
from servo.client.transport import path_of

__all__ = ["Sensors"]


class Sensors(operations.Sensors):
    """`client.sensors`. One is named by its name or id."""

    def send(
        self,
        sensor: str,
        data: str | bytes,
        *,
        message_id: str | None = None,
        attributes: Mapping[str, str] | None = None,
        published_at: datetime | None = None,
    ) -> Accepted:
        """Send a message to a push sensor; it is durable when this returns. The same id is the same message."""
        sent = data.encode() if isinstance(data, str) else data
        message = {
            "messageId": token_hex(16) if message_id is None else message_id,
            "data": b64encode(sent).decode(),
            "attributes": dict(attributes or {}),
            **({} if published_at is None else {"publishTime": published_at.isoformat()}),
        }
        said = self._ask.plain(path_of("sensors", sensor, "messages"), {"message": message})
        self._ask.remember(said["accepted_event_id"])
        new = [] if said["duplicate"] else said["run_ids"]
        return decoders.convert({"started": new, **said, "event_id": said["accepted_event_id"]}, Accepted)

"""Messages, as push sensors get them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from servo import decoders
from servo.errors import InvalidInput

__all__ = ["Message"]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody sent, under an id: the same id is the same message, however often it comes."""

    id: str
    data: bytes = b""
    attributes: dict[str, str] = {}
    published_at: datetime | None = None

    def text(self) -> str:
        """What was sent, as text."""
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            hint = "read message.data, which is as it was sent"
            raise InvalidInput(f"message {self.id!r:.80} is not a text in UTF-8", hint=hint) from None

    def json(self) -> Any:
        """What was sent, as the value that its JSON says."""
        try:
            return decoders.decode(self.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            hint = "read message.text(), or message.data, which is as it was sent"
            raise InvalidInput(f"message {self.id!r:.80} is not JSON: {problem}", hint=hint) from None

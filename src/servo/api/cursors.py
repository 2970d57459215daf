"""Where a list goes on: after which item, by what the list is sorted by. Opaque, and nobody's to make up.

A cursor is a place in the sorted list and not a number of items: whatever is added or removed meanwhile, nothing comes
twice and nothing that stays is left out. It is sealed with the tenant's secret together with the list and the filters
it belongs to, so that one of another list, or one that somebody wrote, is refused.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from hashlib import sha256
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from servo import decoders
from servo.api.problems import Refused
from servo.runtime.secrets import Secret

__all__ = ["Cursors"]

P = TypeVar("P")

_SEAL_BYTES = 16


class Cursors:
    """The cursors of one list with its filters."""

    def __init__(self, secret: Secret, *belongs_to: Any) -> None:
        self._secret = secret.value
        self._list = msgspec.json.encode(belongs_to)

    def text(self, place: Any) -> str:
        said = msgspec.json.encode(place)
        return urlsafe_b64encode(self._seal(said) + said).rstrip(b"=").decode()

    def place(self, text: str | None, kind: type[P]) -> P | None:
        """The place that a cursor means; None for no cursor: the beginning."""
        if text is None:
            return None
        try:
            whole = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
            seal, said = whole[:_SEAL_BYTES], whole[_SEAL_BYTES:]
            if hmac.compare_digest(seal, self._seal(said)):
                return decoders.decode(said, kind)
        except (NotBase64, UnicodeEncodeError, ValueError, msgspec.DecodeError):
            pass
        raise Refused(
            HTTPStatus.BAD_REQUEST,
            "invalid-input",
            f"cursor: {text!r:.60} is none of this list with these filters",
            hint="pass next_cursor of the page before, and the same filters",
            field="cursor",
            close=False,
        )

    def _seal(self, said: bytes) -> bytes:
        return hmac.digest(self._secret, b"servo.cursor\0" + self._list + b"\0" + said, sha256)[:_SEAL_BYTES]

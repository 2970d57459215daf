"""Idempotency keys of HTTP requests: the header, or `client_request_id` in the body.

What was done under a key is in the ledger, not here: see `servo.runtime.performer`.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request
from msgspec import Meta

from servo.api.problems import Refused

__all__ = ["HEADER", "Keyed", "key_of", "require_key"]

HEADER = "Idempotency-Key"
LONGEST = 200


class Keyed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body that may carry the key of its request; a header wins over it."""

    client_request_id: (
        Annotated[
            str,
            Meta(description="As the header Idempotency-Key, which wins.", min_length=1, max_length=LONGEST),
        ]
        | None
    ) = None


def key_of(request: Request[Any, Any, Any], body: Keyed) -> str | None:
    """The key of a request, if it has one."""
    given = request.headers.getall(HEADER, [])
    if len(given) > 1:
        raise _refused(f"{HEADER} is given {len(given)} times.")
    key = given[0].strip() if given else body.client_request_id
    if key is None:
        return None
    if not 1 <= len(key) <= LONGEST or not key.isprintable() or not key.isascii():
        raise _refused(f"{key!r:.80} cannot be an idempotency key.", f"give 1 to {LONGEST} printable ASCII characters")
    return key


def require_key(request: Request[Any, Any, Any], body: Keyed) -> str:
    """The key of a request that creates something."""
    key = key_of(request, body)
    if key is None:
        detail = f"Whoever creates something gives an {HEADER}, so that asking again is safe."
        raise _refused(detail, "send a UUID as the header, or as client_request_id", code="idempotency-key-required")
    return key


def _refused(detail: str, hint: str | None = None, *, code: str = "invalid-input") -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, code, detail, hint=hint, field=HEADER, close=False)

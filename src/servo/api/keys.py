"""Idempotency keys: the same key is the same request, on whichever server and after whatever crash.

Nothing of it is kept here. Where something is made, a key becomes the request id of it, from which ids and run keys
follow, so the ledger itself knows what was asked for under it, and the first answer is made from that. Where something
is switched or decided, the ledger records the request beside what it causes: see `servo.api.once`.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request
from msgspec import Meta

from servo import canonical
from servo.api.problems import Refused

__all__ = ["HEADER", "Keyed", "fingerprint_of", "key_of", "require_key"]

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


# Optional fields that earlier versions did not have: left out, a request is the one that it was then.
_ADDED_LATER = ("unfreeze",)


def fingerprint_of(what: str, body: msgspec.Struct) -> str:
    """What is asked for, without the key: the same fields with the same values, however they are written."""
    said = msgspec.to_builtins(body)
    said.pop("client_request_id", None)
    for name in _ADDED_LATER:
        if said.get(name) is None:
            said.pop(name, None)
    return canonical.sha256_hex({"what": what, "body": said})


def _refused(detail: str, hint: str | None = None, *, code: str = "invalid-input") -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, code, detail, hint=hint, field=HEADER, close=False)

"""What a route says of itself: who may call it, what it takes and what it answers. Guards and OpenAPI read it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Literal

import msgspec

__all__ = ["OPERATION", "PUBLIC", "ROLE", "Operation", "Role", "Shape", "operation"]

Role = Literal["public", "viewer", "operator", "approver", "admin"]
Shape = Literal["one", "page", "accepted", "plain", "stream", "html"]

ROLE, PUBLIC, OPERATION = "role", "public", "operation"


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One route, for whoever describes it.

    `shape`: how the answer is wrapped. `one` and `page` have a watermark; `accepted` names the event that was recorded;
    `plain` is the answer as it is.
    """

    answers: Any = dict[str, Any]
    shape: Shape = "one"
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    body_required: bool = True
    keyed: Literal["", "optional", "required"] = ""
    example: dict[str, Any] | None = None  # of the body
    refusals: tuple[HTTPStatus, ...] = ()
    media_type: str = "application/json"
    may_be_nothing: bool = False  # of a mutation: where there is nothing to do, its ids are null


def operation(role: Role, **said: Any) -> dict[str, Any]:
    """The `opt` of a handler: the role that it takes, and what is said of it."""
    if role == "public":
        return {PUBLIC: True, OPERATION: Operation(**said)}
    return {ROLE: role, OPERATION: Operation(**said)}

"""What the routes that switch something take alike: the version it must be at, and why."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from servo.api.keys import Keyed

__all__ = ["Reasoned", "Steering", "fields_of", "without_key"]

S = TypeVar("S", bound=msgspec.Struct)

_LONGEST = 4_000

Reason = Annotated[str, Meta(description="Is recorded with it.", max_length=_LONGEST)] | None
Version = (
    Annotated[
        int, Meta(description="Only if it is still at this version; else 409 with `expected` and `actual`.", ge=0)
    ]
    | None
)


class Reasoned(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Reason = None


class Steering(Reasoned, frozen=True, kw_only=True, forbid_unknown_fields=True):
    expected_state_version: Version = None


def fields_of(body: msgspec.Struct, *names: str) -> dict[str, Any]:
    """These fields of a body by name; without names, all but the key."""
    wanted = names or tuple(name for name in body.__struct_fields__ if name != "client_request_id")
    return {name: getattr(body, name) for name in wanted}


def without_key(body: Keyed, kind: type[S]) -> S:
    """A body as the request that a service takes."""
    return kind(**fields_of(body, *kind.__struct_fields__))

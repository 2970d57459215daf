"""Why something is switched, as routes take it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from servo.api.keys import Keyed

__all__ = ["Reason", "Reasoned"]

_LONGEST = 4_000

Reason = Annotated[str, Meta(description="Is recorded with it.", max_length=_LONGEST)] | None


class Reasoned(Keyed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Reason = None

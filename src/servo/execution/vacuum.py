"""What may go: staging that no attempt works on any more, and materializations that nobody needs."""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime, timedelta

import msgspec

from servo.execution.protocol import Found, Storage

__all__ = ["Removed", "vacuum"]


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """Something that vacuum removed, or would."""

    found: Found
    bytes: int
    reason: str


def vacuum(
    storage: Storage,
    *,
    referenced: Container[str],
    released: Container[str] = (),
    working: Container[str] = (),
    now: datetime,
    grace: timedelta,
    dry_run: bool,
) -> list[Removed]:
    """Remove what is older than `grace` and what nothing speaks for; or, with `dry_run`, only say what that is.

    `referenced`: the materialization ids that any event points to. `released`: those of them that retention lets go,
    whatever their age. `working`: the runs that are not over, whose staging stays however old it is.
    """

    def reason(found: Found) -> str | None:
        if found.partition_id is not None and found.name in released:
            return "retention lets it go"
        if found.made_at > now - grace:
            return None  # its event may be on its way
        if found.partition_id is None:
            return None if found.run_id in working else f"left behind by {found.run_id}"
        return None if found.name in referenced else "no event points to it"

    swept = storage.remove_condemned(lambda found: reason(found) is not None, dry_run=dry_run)
    return [Removed(found=found, bytes=size, reason=reason(found) or "") for found, size in swept]

"""When a cron fires after a given moment: for schedules, which look at the next few; partitions count them all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache

from servo.partitions.cron import parsed_cron, simulated
from servo.partitions.windows import LocalTime, local_time, moment_of, seconds_of

__all__ = ["firing"]

_AFTERMATH = 3 * 3600  # seconds in which a change may still matter: hours with a fixed time in them end by then


def firing(cron: str, timezone: str, after: datetime) -> Iterator[datetime]:
    """The moments after `after` at which a cron fires in a zone, oldest first, in UTC.

    As Debian's cron does it on the days when clocks change. Raises InvalidPartition for a cron or zone that does not
    read.
    """
    cron, local = _sound(cron), local_time(timezone)
    start = moment_of(_unambiguous(local, seconds_of(after))).astimezone(local.zone)
    for tick in simulated(cron, start):
        moment = tick.astimezone(UTC)
        if moment > after:
            yield moment


def _unambiguous(local: LocalTime, seconds: int) -> int:
    """The moment itself, or one before the clocks were changed, where that was lately.

    From inside of a repeated hour nobody can tell whether a fixed time in it was there before.
    """
    changes = local.changes(seconds + 1)
    if changes:
        length = abs(changes[-1].before - changes[-1].after)
        if seconds <= changes[-1].at + length + _AFTERMATH:
            return changes[-1].at - length - 1
    return seconds


@lru_cache(maxsize=4096)
def _sound(cron: str) -> str:
    parsed_cron(cron)
    return cron

"""Windows of time, and what zones do to local days: midnights, and the moments at which the clocks change.

Inside the room a moment is a whole number of seconds since 1970 in UTC, and a day is `date.toordinal()`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from threading import Lock
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from servo.errors import InvalidPartition

DAY = 86_400
EPOCH_DAY = date(1970, 1, 1).toordinal()
# What zones do after the rules of today end (2037) is daylight saving alone: no day is left out any more.
_LAST_SKIP = date(2038, 1, 1).toordinal()

_ZONE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")
_NO_ZONE = re.compile(r"(?i)(localtime|posixrules|factory)$|(right|posix)/")  # of this machine alone, or of no place
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NAIVE = datetime(1970, 1, 1)  # noqa: DTZ001 (wall time, which has no zone by nature)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Window:
    """The half-open stretch of time [start, end) that a partition is about, in UTC."""

    start: datetime
    end: datetime

    def __contains__(self, moment: datetime) -> bool:
        return self.start <= moment < self.end

    def __str__(self) -> str:
        return f"[{self.start.isoformat()}, {self.end.isoformat()})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The moment at which a zone's offset from UTC changes; offsets in seconds."""

    at: int
    before: int
    after: int


def seconds_of(moment: datetime) -> int:
    """Whole seconds since 1970; a moment inside a second counts as its beginning."""
    if moment.utcoffset() is None:
        raise InvalidPartition(f"{moment.isoformat()} has no timezone", hint="pass an aware datetime")
    return (moment - _EPOCH) // _SECOND


def moment_of(seconds: int) -> datetime:
    """The aware moment in UTC."""
    return _EPOCH + timedelta(seconds=seconds)


@lru_cache(maxsize=1024)
def local_time(name: str) -> LocalTime:
    """The one LocalTime of a zone; a name that is no IANA zone is refused with the closest that is."""
    try:
        if not _ZONE_NAME.fullmatch(name) or _NO_ZONE.match(name):
            raise ValueError(name)
        return LocalTime(name, ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        close = get_close_matches(name, sorted(zone for zone in available_timezones() if not _NO_ZONE.match(zone)), n=1)
        hint = f"did you mean {close[0]}?" if close else "use an IANA name, such as Europe/Berlin"
        raise InvalidPartition(f"{name!r:.100} is not a timezone", hint=hint) from None


class LocalTime:
    """Local days of one zone. The changes of its clocks are found once, as far as they were asked for."""

    __slots__ = ("_changes", "_lock", "_moments", "_scanned", "name", "zone")

    def __init__(self, name: str, zone: ZoneInfo) -> None:
        self.name = name
        self.zone = zone
        self._changes: list[Change] = []
        self._moments: list[int] = []
        self._scanned = -2 * DAY  # so that a change on the first day is seen from before it
        self._lock = Lock()

    def offset(self, seconds: int) -> int:
        """Seconds that the zone is ahead of UTC at a moment."""
        return _in_seconds(moment_of(seconds).astimezone(self.zone).utcoffset())

    def day(self, seconds: int) -> int:
        """The local day that the calendar on the wall shows."""
        return (seconds + self.offset(seconds)) // DAY + EPOCH_DAY

    def midnight(self, day: int) -> int:
        """The first moment of a local day; of a day that the zone left out, the moment at which it was skipped."""
        return self.first_moment((day - EPOCH_DAY) * DAY)

    def first_moment(self, wall: int) -> int:
        """When a wall clock first shows `wall` (seconds since 1970 as if in UTC), or jumps over it."""
        early, late = self.moments(wall)
        if early <= late:
            return early
        # In the gap: of the two offsets each names a moment on the other side of the jump, `late` before it.
        return self._change_between(late, early, self.offset(late))

    def moments(self, wall: int) -> tuple[int, int]:
        """The moments of a wall time: equal as a rule, ascending if it comes twice, descending if it is skipped."""
        if self.name == "UTC":
            return wall, wall
        naive = _EPOCH_NAIVE + timedelta(seconds=wall)
        early = _in_seconds(naive.replace(tzinfo=self.zone).utcoffset())
        late = _in_seconds(naive.replace(tzinfo=self.zone, fold=1).utcoffset())
        return wall - early, wall - late

    def day_at(self, seconds: int) -> int:
        """The last day whose first moment is not after `seconds`: also right where clocks change at midnight."""
        day = self.day(seconds)
        while self.midnight(day) > seconds:
            day -= 1
        while self.midnight(day + 1) <= seconds:
            day += 1
        return day

    def changes(self, until: int) -> list[Change]:
        """Every change since 1970 and before `until`, oldest first."""
        if self.name == "UTC":
            return []
        if until > self._scanned:
            with self._lock:
                self._scan(until)
        return self._changes[: bisect_right(self._moments, until - 1)]

    def skipped_days(self, low: int, high: int) -> list[int]:
        """Days in [low, high) that the zone left out when it moved across the date line."""
        high = min(high, _LAST_SKIP)
        if low >= high:
            return []
        found = []
        for change in self.changes((high - EPOCH_DAY + 2) * DAY):
            if change.after - change.before >= DAY:
                first = (change.at + change.before) // DAY + EPOCH_DAY
                found += [
                    day
                    for day in range(first, first + 3)
                    if low <= day < high and self.midnight(day) == self.midnight(day + 1)
                ]
        return found

    def _change_between(self, low: int, high: int, before: int) -> int:
        """The first moment after `low` and up to `high` at which the offset is no longer `before`."""
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.offset(middle) == before else (low, middle)
        return high

    def _scan(self, until: int) -> None:
        position, zone = self._scanned, self.zone
        before = self.offset(position)
        found: list[Change] = []
        # One look a day: no zone changes its clocks twice within one.
        while position < until:
            position += DAY
            after = _in_seconds(datetime.fromtimestamp(position, zone).utcoffset())
            if after != before:
                changed = self._change_between(position - DAY, position, before)
                found.append(Change(at=changed, before=before, after=after))
                before = after
        # New lists, swapped in at the end: readers take no lock.
        self._changes = self._changes + found
        self._moments = [change.at for change in self._changes]
        self._scanned = position


def _in_seconds(offset: timedelta | None) -> int:
    return 0 if offset is None else offset // _SECOND

"""Grids of cron ticks: the n-th tick and back, by counting whole local days instead of enumerating.

A day on which the zone's clocks stand still has its ticks by a closed form. Around each change of the clocks one step
of cronsim says where the ticks go on, so that the grid is cronsim's own to the letter (Debian's semantics: a fixed
time that is skipped fires right after the gap, one that comes twice fires once, wildcards fire in real time).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import UTC, date
from functools import lru_cache
from threading import Lock

from servo.errors import InvalidPartition
from servo.partitions.cron import parsed_cron, simulated
from servo.partitions.windows import DAY, EPOCH_DAY, Change, LocalTime, local_time, moment_of, seconds_of

__all__ = ["TickGrid", "tick_grid"]

# Counting reaches from the beginning, so that there must be an end to how far anybody can ask.
_LAST_YEAR = 2199
_LAST_DAY = date(_LAST_YEAR, 12, 31).toordinal() - EPOCH_DAY
_STRETCH = 366  # local days that are counted at a time


@lru_cache(maxsize=1024)
def tick_grid(cron: str, timezone: str) -> TickGrid:
    """The one grid of a cron in a zone; it grows as far as it is asked."""
    return TickGrid(cron, local_time(timezone))


class TickGrid:
    """The ticks of a cron since 1970-01-01, local time, numbered from 0."""

    __slots__ = ("_blocks", "_counts", "_every_day", "_expression", "_local", "_lock", "_offsets", "_slots", "_starts")

    def __init__(self, cron: str, local: LocalTime) -> None:
        self._expression = parsed_cron(cron)
        self._local = local
        expression = self._expression
        self._slots = [
            hour * 3600 + minute * 60 for hour in sorted(expression.hours) for minute in sorted(expression.minutes)
        ]
        self._every_day = expression.parts[3] == expression.parts[4] == expression.parts[5] == "*"
        # _counts[i]: ticks before local day i (days since 1970). A block of irregular days counts on its first day.
        self._counts = [0]
        self._blocks: dict[int, tuple[int, list[int]]] = {}
        # From which day on which offset holds; read for regular days only.
        self._starts: list[int] = [0]
        self._offsets: list[int] = [local.offset(0)]
        self._lock = Lock()

    def before(self, seconds: int) -> int:
        """How many ticks come before a moment: the number of the first tick at or after it."""
        day = (seconds + self._local.offset(seconds)) // DAY
        if day < 0:
            return 0
        day = min(day, _LAST_DAY)
        self._reach(day)
        block = self._blocks.get(day)
        if block is not None:
            first, ticks = block
            return self._counts[first] + bisect_left(ticks, seconds)
        count = self._counts[day]
        if self._counts[day + 1] == count:
            return count
        return count + bisect_left(self._slots, seconds - self._midnight(day))

    def at(self, seconds: int) -> int:
        """The number of the last tick at or before a moment; -1 if there is none."""
        return self.before(seconds + 1) - 1

    def tick(self, number: int) -> int:
        """The moment of a tick."""
        if number < 0:
            raise InvalidPartition("the grid has no windows before 1970", hint="begin at 1970-01-02 or later")
        if self._counts[-1] <= number and self.nearest(number) != number:
            raise InvalidPartition(f"the grid ends with the year {_LAST_YEAR}", hint="use an earlier time")
        day = bisect_right(self._counts, number) - 1
        block = self._blocks.get(day)
        if block is not None:
            first, ticks = block
            return ticks[number - self._counts[first]]
        return self._midnight(day) + self._slots[number - self._counts[day]]

    def nearest(self, number: int) -> int:
        """The number itself, or the first or last that there is."""
        while self._counts[-1] <= number and len(self._counts) <= _LAST_DAY:
            self._reach(len(self._counts) - 1 + _STRETCH)
        return max(0, min(number, self._counts[-1] - 1))

    def _midnight(self, day: int) -> int:
        return day * DAY - self._offsets[bisect_right(self._starts, day) - 1]

    def _reach(self, day: int) -> None:
        """Count on until the end of local day `day`."""
        if day + 1 < len(self._counts):
            return
        with self._lock:
            if day + 1 >= len(self._counts):
                self._count(min(day + _STRETCH, _LAST_DAY))

    def _count(self, until: int) -> None:
        counts, full = self._counts, len(self._slots)
        changes = self._local.changes((until + 3) * DAY)
        # Those before the first uncounted day are in blocks already.
        position = bisect_left([_last_day(change) for change in changes], len(counts) - 1)
        while len(counts) <= until + 1:
            day = len(counts) - 1
            if position < len(changes) and _first_day(changes[position]) <= day:
                position = self._block(day, changes, position)
                continue
            counts.append(counts[-1] + (full if self._every_day or self._matches(day) else 0))

    def _block(self, first: int, changes: list[Change], position: int) -> int:
        """Write down every tick of the days around a change, and of any change so near that the days touch."""
        opening = changes[position]
        ticks = self._regular(first, _last_day(opening), opening.before, -(2**62), opening.at)
        last = first
        while True:
            change = changes[position]
            position += 1
            following = self._next(ticks, change.at)
            last = max(last, _last_day(change))
            near = position < len(changes) and _first_day(changes[position]) <= last + 1
            end = changes[position].at if near else 2**62
            if near:
                last = max(last, _last_day(changes[position]))
            if following is not None and following < end:
                if (following + change.after) // DAY <= last:
                    ticks.append(following)
                ticks += self._regular(first, last, change.after, following, end)
            if not near:
                break
        for day in range(first, last + 1):
            self._blocks[day] = (first, ticks)
        self._counts.extend([self._counts[-1] + len(ticks)] * (last - first + 1))
        self._starts.append(last + 1)
        self._offsets.append(change.after)
        return position

    def _next(self, ticks: list[int], change: int) -> int | None:
        """The first tick after the clocks changed, as cronsim goes on from the last one before."""
        start = ticks[-1] if ticks else change - 2 * DAY
        moment = moment_of(start).astimezone(self._local.zone)
        ahead = simulated(" ".join(self._expression.parts[1:]), moment)
        for tick in ahead:
            seconds = seconds_of(tick.astimezone(UTC))
            if seconds >= change:
                return seconds
        return None

    def _regular(self, first: int, last: int, offset: int, after: int, before: int) -> list[int]:
        """The ticks of the closed form on some days, strictly between two moments."""
        found = []
        for day in range(first, last + 1):
            if self._every_day or self._matches(day):
                midnight = day * DAY - offset
                found += [midnight + slot for slot in self._slots if after < midnight + slot < before]
        return found

    def _matches(self, day: int) -> bool:
        given = date.fromordinal(day + EPOCH_DAY)
        return given.month in self._expression.months and self._expression.match_day(given)


def _first_day(change: Change) -> int:
    return (change.at + min(change.before, change.after)) // DAY - 1


def _last_day(change: Change) -> int:
    return (change.at + max(change.before, change.after)) // DAY + 1

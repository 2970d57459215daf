"""Cron expressions: how they are read, what is refused in one that is written now, and when they fire.

Five fields as Debian's cron reads them, by cronsim, and beyond that: names for common ones (`@daily`), `L`, `LW`, `5L`
and `fri#2` in the fields of days, and ranges of weekdays or months that run over the end (`fri-sun`, `nov-mar`).

Schedules look at the next few moments (`firing`). Partitions count them all: a grid gives the n-th tick and back by
counting whole local days instead of enumerating. A day on which the zone's clocks stand still has its ticks by a closed
form. Around each change of the clocks one step of cronsim says where the ticks go on, so that the grid is cronsim's own
to the letter (Debian's semantics: a fixed time that is skipped fires right after the gap, one that comes twice fires
once, wildcards fire in real time).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from servo.errors import InvalidPartition
from servo.partitions.windows import DAY, EPOCH_DAY, Change, LocalTime, local_time, moment_of, seconds_of

if TYPE_CHECKING:
    from cronsim import CronSim

_LONGEST = 1_000  # characters
_BEFORE = datetime(1969, 12, 1)  # noqa: DTZ001 (only a place for cronsim to start reading from)
_HINT = "write minute hour day month weekday, such as 0 6 * * mon-fri"

_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
NAMES = "@hourly, @daily, @weekly, @monthly or @yearly"
_AFTERMATH = 3 * 3600  # seconds in which a change may still matter: hours with a fixed time in them end by then
# Counting reaches from the beginning, so that there must be an end to it.
_LAST_YEAR = 2199
_LAST_DAY = date(_LAST_YEAR, 12, 31).toordinal() - EPOCH_DAY
_STRETCH = 366  # local days that are counted at a time


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()  # of its values, from `low` on
    circular: bool = False  # whether a range may run over the end


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day", 1, 31),
    _Field(
        "month",
        1,
        12,
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
        circular=True,
    ),
    _Field("weekday", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"), True),  # 0 and 7 are Sunday
)
# In the words of cronsim, which names the field that it cannot read.
_BY_CRONSIM = {"minute": "minute", "hour": "hour", "day-of-month": "day", "month": "month", "day-of-week": "weekday"}
_RANGE = re.compile(r"([a-z0-9]+)-([a-z0-9]+)(?:/([0-9]{1,4}))?")
_STEP = re.compile(r"(.*)/([0-9]{1,4})")


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def in_fields(cron: str) -> str:
    """A cron by its five fields, where it is one that has a name; else as it is."""
    return _NAMED.get(cron.strip().lower(), cron)


def parsed_cron(cron: str) -> CronSim:
    """A cron that was read, or an error that says what is wrong with it."""
    if len(cron) > _LONGEST or len(cron.split()) != len(_FIELDS):
        raise InvalidPartition(
            f"{cron!r:.100} is not a cron of five fields", hint=f"write minute hour day month weekday, or {NAMES}"
        )
    if next(simulated(cron, _BEFORE), None) is None:
        raise InvalidPartition(f"the cron {cron!r:.100} never fires", hint="check its day and month")
    return simulated(cron, _BEFORE)


@lru_cache(maxsize=4096)
def require_cron(cron: str) -> None:
    """Refuse a cron that does not read or never fires, and one that reads and cannot be meant.

    Only for a cron that is written now: what was recorded before is read by `parsed_cron` as it always was.
    """
    parsed_cron(cron)
    for field, text in zip(_FIELDS, cron.lower().split(), strict=True):
        for term in text.split(","):
            problem = _nonsense(field, term)
            if problem is not None:
                what, hint = problem
                raise InvalidPartition(f"{cron!r:.100} cannot be meant: {what}", hint=hint)


def _nonsense(field: _Field, term: str) -> tuple[str, str] | None:
    """Why a term that cronsim reads cannot be meant, and what to write."""
    stepped = _STEP.fullmatch(term)
    if stepped is None:
        return None
    base, step = stepped[1], int(stepped[2])
    if base in ("l", "lw"):
        return f"{base.upper()} is one day, and has no step /{step}", f"write {base.upper()}"
    ends = _RANGE.fullmatch(base)
    if ends is not None and _value(field, ends[1]) == _value(field, ends[2]):
        return f"{base} is one {field.name}, and has no step /{step}", f"write {ends[1]}, or {ends[1]}/{step}"
    # A day of */100 is the first one, and a known way to write that the weekday must match as well.
    size = field.high - field.low + 1
    if field.name in ("minute", "hour") and step > size:
        hint = f"write a step up to {size}; what fires less often is said by the next field"
        return f"the step /{step} is longer than the {size} {field.name}s that there are", hint
    return None


def day_rule(cron: str) -> str | None:
    """A remark on a cron with both a day and a weekday, where one begins with `*`: both must match."""
    _, _, day, _, weekday = cron.split()
    if "*" in (day, weekday) or not (day.startswith("*") or weekday.startswith("*")):
        return None
    star = f"its day {day}" if day.startswith("*") else f"its weekday {weekday}"
    return f"fires where day and weekday both match, since {star} begins with *"


def simulated(cron: str, start: datetime) -> CronSim:
    """The moments of a cron after a start."""
    # The one place that loads cronsim: most projects have no grid of ticks, and it costs them 15 ms.
    from cronsim import CronSim, CronSimError  # noqa: PLC0415

    try:
        return CronSim(_spelled_out(cron), start)
    except (CronSimError, AssertionError, ValueError) as error:
        detail = f": {str(error).lower()}" if str(error) else ""
        raise InvalidPartition(f"{cron!r:.100} is not a cron{detail}", hint=_remedy(cron, str(error))) from None


@lru_cache(maxsize=4096)
def _spelled_out(cron: str) -> str:
    """A cron with the values of the ranges that run over the end of a week or a year."""
    texts = cron.split()
    if len(texts) != len(_FIELDS):
        return cron
    return " ".join(
        ",".join(_over_the_end(field, term) for term in text.split(",")) if field.circular else text
        for field, text in zip(_FIELDS, texts, strict=True)
    )


def _over_the_end(field: _Field, term: str) -> str:
    ends = _RANGE.fullmatch(term.lower())
    if ends is None:
        return term
    first, last, step = _value(field, ends[1]), _value(field, ends[2]), int(ends[3] or 1)
    if first is None or last is None or not step or first <= last:
        return term
    high = field.high
    if field.name == "weekday":
        first, high = first % 7, 6
    values = range(first, last + 1) if first <= last else [*range(first, high + 1), *range(field.low, last + 1)]
    return ",".join(map(str, values[::step]))


def _value(field: _Field, text: str) -> int | None:
    """The number that a value of a field is known by; None if it has no such value."""
    if text in field.names:
        return field.names.index(text) + field.low
    if not text.isascii() or not text.isdigit() or len(text) > 4:
        return None
    return int(text) if field.low <= int(text) <= field.high else None


def _remedy(cron: str, problem: str) -> str:
    """What to write instead of a field that cronsim does not read."""
    named = next((ours for theirs, ours in _BY_CRONSIM.items() if problem == f"Bad {theirs}"), None)
    texts = cron.lower().split()
    if named is None or len(texts) != len(_FIELDS):
        return _HINT
    field, text = next((field, text) for field, text in zip(_FIELDS, texts, strict=True) if field.name == named)
    for term in text.split(","):
        ends = _RANGE.fullmatch(term)
        first, last = (_value(field, ends[1]), _value(field, ends[2])) if ends is not None else (None, None)
        if first is not None and last is not None and first > last:
            return f"a range of {field.name}s goes upwards: write {first}-{field.high},{field.low}-{last}"
    if "?" in text:
        return "write * for any"
    if field.name == "weekday" and "l" in text:
        return "write 5L for the last Friday of a month; its last day is L in the field of the day"
    if field.name == "day" and ("w" in text or "l" in text):
        return "write L for the last day of a month, or LW for its last day from Monday to Friday"
    names = f", or {field.names[0]} to {field.names[-1]}" if field.names else ""
    return f"a {field.name} is {field.low} to {field.high}{names}"


# ── the next few moments ─────────────────────────────────────────────────────────────────────────────────────────────


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


# ── all of them, counted ─────────────────────────────────────────────────────────────────────────────────────────────


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

"""Dimensions of whole local days: daily, weekly, monthly."""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, ClassVar, TypeAlias

from servo.errors import InvalidPartition
from servo.partitions.definitions import OPEN, Dimension, named
from servo.partitions.windows import EPOCH_DAY, LocalTime, local_time, seconds_of

DayLike: TypeAlias = date | str

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DATES = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")
_LAST_YEAR = 9989
# Windows need a day after their last one, so the calendar's very end cannot be used.
_LAST_DAY = date(9990, 1, 1).toordinal()


class TimeDimension(Dimension):
    """A dimension whose partitions are windows that follow one another without a gap."""

    __slots__ = ()
    timed: ClassVar[bool] = True
    start: date
    end: date | None
    timezone: str | None

    @abstractmethod
    def start_of(self, ordinal: int, local: LocalTime) -> int:
        """When the window begins, in seconds; it ends where the next one begins."""

    @abstractmethod
    def at(self, seconds: int, local: LocalTime) -> int:
        """The window that a moment is in."""

    @abstractmethod
    def clamped(self, ordinal: int) -> int:
        """The nearest ordinal for which there can be a window at all."""

    def local(self, other: TimeDimension | None = None) -> LocalTime:
        """Where the days begin: in the definition's zone, or else in that of the other side, or else in UTC."""
        return local_time(self.timezone or (other.timezone if other is not None else None) or "UTC")

    def span(self, ordinal: int) -> tuple[int, int]:
        local = self.local()
        return self.start_of(ordinal, local), self.start_of(ordinal + 1, local)

    def ended(self, now: datetime) -> tuple[int, int]:
        low, high = self.bounds()
        return low, max(low, min(high, self.at(seconds_of(now), self.local())))

    def begun(self, now: datetime) -> tuple[int, int]:
        low, high = self.bounds()
        return low, max(low, min(high, self.at(seconds_of(now), self.local()) + 1))

    def too_early(self, value: Any) -> InvalidPartition:
        """The error of a value before the first window."""
        first = self.label(self.bounds()[0])
        return InvalidPartition(f"{self.name}={self.show(value)} is before the start", hint=f"the first is {first}")

    def too_late(self, value: Any) -> InvalidPartition:
        """The error of a value after the last window."""
        low, high = self.bounds()
        hint = f"the last is {self.label(high - 1)}" if low < high else "the definition has no partition at all"
        return InvalidPartition(f"{self.name}={self.show(value)} is after the end", hint=hint)

    def to_json(self) -> dict[str, Any]:
        # As they stand in keys: a date, or a moment in UTC.
        fields = {"start": self._plain(self.start), "timezone": self.timezone}
        fields["end"] = None if self.end is None else self._plain(self.end)
        return {"kind": self.kind, "name": self.name} | {
            name: value for name, value in fields.items() if value is not None
        }

    @abstractmethod
    def _plain(self, moment: Any) -> str: ...

    def _set(self, name: str, timezone: str | None, start: date, end: date | None) -> None:
        for field, value in (("name", name), ("timezone", timezone), ("start", start), ("end", end)):
            object.__setattr__(self, field, value)
        if end is not None and end <= start:
            raise InvalidPartition(f"{name}: it ends before it starts", hint="the end is the first partition not there")


@dataclass(frozen=True, slots=True, init=False)
class Calendar(TimeDimension):
    """Windows of whole local days. Without a timezone it is a plain calendar, on any side's clock."""

    name: str
    start: date
    end: date | None
    timezone: str | None

    def __init__(self, name: str, start: DayLike, end: DayLike | None = None, timezone: str | None = None) -> None:
        named(name)
        if timezone is not None:
            local_time(timezone)
        first = _day(name, "start", start)
        self._set(name, timezone, first, None if end is None else _day(name, "end", end))

    @abstractmethod
    def first_day(self, ordinal: int) -> int:
        """The window's first local day."""

    @abstractmethod
    def holding(self, day: int) -> int:
        """The window that a local day is in."""

    @property
    def column(self) -> str:
        return "date"

    def bounds(self) -> tuple[int, int]:
        low = self._from(self.start)
        return low, OPEN if self.end is None else max(low, self._from(self.end))

    def _from(self, day: date) -> int:
        """The first window that begins on the day or later."""
        return self.holding(day.toordinal() - 1) + 1

    def value(self, ordinal: int) -> date:
        return date.fromordinal(self.first_day(ordinal))

    def text(self, ordinal: int) -> str:
        return f"{self.name}=d:{date.fromordinal(self.first_day(ordinal)).isoformat()}"

    def locate(self, value: Any) -> int | None:
        if type(value) is not date:
            return None
        day = value.toordinal()
        found = self.holding(day)
        return found if self.first_day(found) == day else None

    def written(self, text: Any) -> int:
        return TimeDimension.written(self, date.fromisoformat(text))

    def read(self, text: str) -> tuple[int, int]:
        try:
            first, after = days_of(text)
        except ValueError:
            shown = self.label(self.bounds()[0])
            raise InvalidPartition(f"{self.name}={text[:60]} is not a date", hint=f"write it as {shown}") from None
        if after - first == 1:
            found = TimeDimension.written(self, date.fromordinal(first))
            return found, found + 1
        return self.holding(first - 1) + 1, self.holding(after - 1) + 1

    def show(self, value: Any) -> str:
        return value.isoformat() if isinstance(value, date) else str(value)

    def refusal(self, value: Any) -> InvalidPartition:
        if type(value) is not date:
            shown = self.label(self.bounds()[0])
            return InvalidPartition(f"{self.name}={value!s:.60} is not a date", hint=f"pass one, such as {shown}")
        low = self.bounds()[0]
        place = self.holding(value.toordinal())
        if self.first_day(place) != value.toordinal():
            nearest = self.label(place)
            message = f"{self.name}={value.isoformat()} is not the beginning of a {self.kind} partition"
            return InvalidPartition(message, hint=f"it is in {nearest}")
        return self.too_early(value) if place < low else self.too_late(value)

    def start_of(self, ordinal: int, local: LocalTime) -> int:
        return local.midnight(self.first_day(ordinal))

    def at(self, seconds: int, local: LocalTime) -> int:
        return self.holding(local.day_at(seconds))

    def clamped(self, ordinal: int) -> int:
        return min(max(ordinal, self.holding(EPOCH_DAY) - 1), self.holding(_LAST_DAY))

    def _plain(self, moment: date) -> str:
        return moment.isoformat()


@dataclass(frozen=True, slots=True, init=False)
class Daily(Calendar):
    """One partition for each local day from `start` until before `end`."""

    kind = "daily"

    def first_day(self, ordinal: int) -> int:
        return ordinal

    def holding(self, day: int) -> int:
        return day


@dataclass(frozen=True, slots=True, init=False)
class Weekly(Calendar):
    """One partition for each week that begins on or after `start`; its value is its first day."""

    kind = "weekly"

    week_start: str

    def __init__(
        self,
        name: str,
        start: DayLike,
        end: DayLike | None = None,
        timezone: str | None = None,
        week_start: str = "monday",
    ) -> None:
        if str(week_start).lower() not in WEEKDAYS:
            raise InvalidPartition(f"{name}: {week_start!r:.60} is not a weekday", hint=f"use {', '.join(WEEKDAYS)}")
        object.__setattr__(self, "week_start", week_start.lower())
        Calendar.__init__(self, name, start, end, timezone)

    def first_day(self, ordinal: int) -> int:
        return ordinal * 7 + 1 + WEEKDAYS.index(self.week_start)

    def holding(self, day: int) -> int:
        # Day 1 of the calendar is a Monday.
        return (day - 1 - WEEKDAYS.index(self.week_start)) // 7

    def to_json(self) -> dict[str, Any]:
        return {**TimeDimension.to_json(self), "week_start": self.week_start}


@dataclass(frozen=True, slots=True, init=False)
class Monthly(Calendar):
    """One partition for each month that begins on or after `start`; its value is its first day."""

    kind = "monthly"

    def first_day(self, ordinal: int) -> int:
        year, month = divmod(ordinal, 12)
        return date(year, month + 1, 1).toordinal()

    def holding(self, day: int) -> int:
        given = date.fromordinal(day)
        return given.year * 12 + given.month - 1

    def show(self, value: Any) -> str:
        return value.isoformat()[:7] if isinstance(value, date) and value.day == 1 else Calendar.show(self, value)


def days_of(text: str, last_year: int = _LAST_YEAR) -> tuple[int, int]:
    """The days [first, after) that `2025`, `2025-01` or `2025-01-15` means; raises ValueError for anything else."""
    match = DATES.fullmatch(text.strip())
    if match is None or not 1970 <= int(match[1]) <= last_year:
        raise ValueError(text)
    year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
    first = date(year, month, day).toordinal()
    if match[3] is not None:
        return first, first + 1
    after = date(year + month // 12, month % 12 + 1, 1) if match[2] is not None else date(year + 1, 1, 1)
    return first, after.toordinal()


def _day(name: str, what: str, given: DayLike) -> date:
    """A date that is given as one or as text, `2025-01` and `2025` meaning their first day."""
    if isinstance(given, str):
        match = DATES.fullmatch(given.strip())
        try:
            if match is None:
                raise ValueError(given)
            found = date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
        except ValueError:
            raise InvalidPartition(f"{name}: its {what} {given!r:.60} is not a date", hint="write 2025-01-31") from None
    elif type(given) is date:
        found = given
    else:
        raise InvalidPartition(f"{name}: its {what} {given!r:.60} is not a date", hint="pass a date or a text")
    if not 1970 <= found.year <= _LAST_YEAR:
        raise InvalidPartition(f"{name}: its {what} {found.isoformat()} is out of range", hint="begin at 1970-01-01")
    return found

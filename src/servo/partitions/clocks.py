"""Dimensions of moments: from one tick of a cron to the next. An hourly definition is a cron at each full hour."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, ClassVar, TypeAlias

from servo.errors import InvalidPartition
from servo.partitions.calendars import DATES, TimeDimension, days_of
from servo.partitions.cron import TickGrid, require_cron, tick_grid
from servo.partitions.definitions import OPEN, named
from servo.partitions.keys import timestamp_text
from servo.partitions.windows import DAY, EPOCH_DAY, LocalTime, local_time, moment_of, seconds_of

MomentLike: TypeAlias = datetime | date | str

_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}(?::[0-9]{2}(?::[0-9]{2}(?:\.0{1,6})?)?)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_LAST_YEAR = 2199  # grids end there


class Clock(TimeDimension):
    """Windows from tick to tick of a cron in a zone."""

    __slots__ = ()
    cron: str
    start: datetime
    end: datetime | None
    timezone: str
    _bounds: list[tuple[int, int]]

    @property
    def grid(self) -> TickGrid:
        """The ticks, shared by every definition of the same cron and zone."""
        return tick_grid(self.cron, self.timezone)

    @property
    def column(self) -> str:
        return "timestamp"

    def bounds(self) -> tuple[int, int]:
        if not self._bounds:
            grid = self.grid
            low = grid.before(seconds_of(self.start))
            high = OPEN if self.end is None else max(low, grid.before(seconds_of(self.end)))
            self._bounds.append((low, high))
        return self._bounds[0]

    def value(self, ordinal: int) -> datetime:
        return moment_of(self.grid.tick(ordinal))

    def text(self, ordinal: int) -> str:
        return f"{self.name}=t:{timestamp_text(self.value(ordinal))}"

    def locate(self, value: Any) -> int | None:
        if not isinstance(value, datetime) or value.utcoffset() is None or value.microsecond:
            return None
        return self._on_grid(seconds_of(value))

    def _on_grid(self, seconds: int) -> int | None:
        grid = self.grid
        place = grid.at(seconds)
        return place if place >= 0 and grid.tick(place) == seconds else None

    def written(self, text: Any) -> int:
        return super().written(datetime.fromisoformat(text))

    def read(self, text: str) -> tuple[int, int]:
        text = text.strip()
        try:
            if DATES.fullmatch(text):  # every tick of a local year, month or day
                first, after = (self.local().midnight(day) for day in days_of(text, _LAST_YEAR))
                return self.grid.before(first), self.grid.before(after)
            given = datetime.fromisoformat(text)
            if not _MOMENT.fullmatch(text) or given.year < 1970:
                raise ValueError(text)
        except ValueError:
            shown = self.label(self.bounds()[0])
            raise InvalidPartition(f"{self.name}={text[:60]} is not a time", hint=f"write it as {shown}") from None
        found = self._placed(text, given)
        return found, found + 1

    def _placed(self, text: str, given: datetime) -> int:
        if given.utcoffset() is not None:
            return super().written(given)
        wall = seconds_of(given.replace(tzinfo=UTC))
        early, late = self.local().moments(wall)
        if early > late:
            after = self.label(max(self.grid.before(self.local().first_moment(wall)), self.bounds()[0]))
            message = f"{self.name}={text} does not exist in {self.timezone}: the clocks jump over it"
            raise InvalidPartition(message, hint=f"the next is {after}")
        places = [place for place in (self._on_grid(early), self._on_grid(late)) if place is not None]
        if early < late and len(places) == 2:
            message = f"{self.name}={text} comes twice in {self.timezone}"
            raise InvalidPartition(message, hint=f"write {self.label(places[0])} or {self.label(places[1])}")
        if not places:
            raise self.refusal(moment_of(early))
        return places[0]

    def show(self, value: Any) -> str:
        if not isinstance(value, datetime):
            return str(value)
        if self.timezone == "UTC":
            text = value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="auto")
            return (text[:-3] if text.endswith(":00") else text) + "Z"
        local = value.astimezone(self.local().zone)
        return local.isoformat(timespec="seconds" if local.second else "minutes")

    def refusal(self, value: Any) -> InvalidPartition:
        if not isinstance(value, datetime) or value.utcoffset() is None:
            shown = self.label(self.bounds()[0])
            hint = f"pass an aware datetime or a text, such as {shown}"
            return InvalidPartition(f"{self.name}={value!s:.60} is not a time", hint=hint)
        low, high = self.bounds()
        place = self.grid.at(seconds_of(value))
        if place < low:
            return self.too_early(value)
        if place >= high:
            return self.too_late(value)
        message = f"{self.name}={self.show(value)} is not the beginning of a partition of {self.cron!r}"
        return InvalidPartition(message, hint=f"it is in {self.label(place)}")

    def start_of(self, ordinal: int, local: LocalTime) -> int:  # noqa: ARG002 (a clock has its own zone)
        return self.grid.tick(ordinal)

    def at(self, seconds: int, local: LocalTime) -> int:  # noqa: ARG002 (a clock has its own zone)
        return self.grid.at(seconds)

    def clamped(self, ordinal: int) -> int:
        return self.grid.nearest(ordinal)

    def _prepare(self, name: str, start: MomentLike, end: MomentLike | None, timezone: str) -> None:
        named(name)
        local = local_time(timezone)
        first = _moment(name, "start", start, local)
        self._set(name, timezone, first, None if end is None else _moment(name, "end", end, local))
        object.__setattr__(self, "_bounds", [])

    def _plain(self, moment: datetime) -> str:
        return timestamp_text(moment)


@dataclass(frozen=True, slots=True, init=False)
class Hourly(Clock):
    """One partition for each full hour that the clocks of the zone show: 23 or 25 on the days they change."""

    kind = "hourly"
    cron: ClassVar[str] = "0 * * * *"  # type: ignore[misc]  # of a cron it is a field

    name: str
    start: datetime
    end: datetime | None
    timezone: str
    _bounds: list[tuple[int, int]] = field(compare=False, repr=False)

    def __init__(
        self, name: str, start: MomentLike, end: MomentLike | None = None, timezone: str | None = None
    ) -> None:
        self._prepare(name, start, end, timezone or "UTC")


@dataclass(frozen=True, slots=True, init=False)
class Cron(Clock):
    """One partition from each tick of a cron to the next, from the first tick at or after `start`."""

    kind = "cron"

    name: str
    cron: str
    start: datetime
    end: datetime | None
    timezone: str
    _bounds: list[tuple[int, int]] = field(compare=False, repr=False)

    def __init__(
        self, name: str, cron: str, start: MomentLike, end: MomentLike | None = None, timezone: str | None = "UTC"
    ) -> None:
        if not isinstance(cron, str):
            raise InvalidPartition(f"{name}: {cron!r:.60} is not a cron", hint="pass a text of five fields")
        require_cron(cron)
        self._define(name, cron, start, end, timezone or "UTC")

    @classmethod
    def restored(cls, **arguments: Any) -> Cron:
        made = cls.__new__(cls)
        made._define(**{"end": None, **arguments})
        return made

    def _define(self, name: str, cron: str, start: MomentLike, end: MomentLike | None, timezone: str) -> None:
        object.__setattr__(self, "cron", " ".join(cron.split()))
        self._prepare(name, start, end, timezone)
        tick_grid(self.cron, self.timezone)

    def to_json(self) -> dict[str, Any]:
        return {**TimeDimension.to_json(self), "cron": self.cron}


def _moment(name: str, what: str, given: MomentLike, local: LocalTime) -> datetime:
    """A moment that is given as one, as a text or as a date, in the definition's zone unless it says another."""
    try:
        if isinstance(given, str):
            text = given.strip()
            text += "-01-01" if len(text) == 4 else "-01" if len(text) == 7 else ""
            given = datetime.fromisoformat(text)
        if type(given) is date:
            found = local.midnight(given.toordinal())
        elif not isinstance(given, datetime):
            raise ValueError(given)
        elif given.utcoffset() is None:
            days = given.toordinal() - EPOCH_DAY
            wall = days * DAY + given.hour * 3600 + given.minute * 60 + given.second
            found = local.first_moment(wall)
        else:
            found = seconds_of(given)
    except ValueError:
        hint = "write 2025-01-31 or 2025-01-31T06:00"
        raise InvalidPartition(f"{name}: its {what} {given!r:.60} is not a time", hint=hint) from None
    if not 0 <= found < seconds_of(datetime(2199, 1, 1, tzinfo=UTC)):
        hint = "keys begin at 1970-01-01T00:00Z, and grids end with 2198"
        raise InvalidPartition(f"{name}: its {what} {moment_of(found).isoformat()} is out of range", hint=hint)
    return moment_of(found)

"""Cron expressions: how they are read, and what is refused where somebody writes one.

Five fields as Debian's cron reads them, by cronsim, and beyond that: names for common ones (`@daily`), `L`, `LW`, `5L`
and `fri#2` in the fields of days, and ranges of weekdays or months that run over the end (`fri-sun`, `nov-mar`).
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from servo.errors import InvalidPartition

if TYPE_CHECKING:
    from cronsim import CronSim

__all__ = ["NAMES", "day_rule", "in_fields", "parsed_cron", "require_cron", "simulated"]

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

    Only for what somebody writes now: what was recorded before is read by `parsed_cron` as it always was.
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
    """What is to be said of a cron with both a day and a weekday, where one begins with `*`: both must match."""
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

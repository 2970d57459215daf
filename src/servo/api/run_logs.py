"""Where a log goes on: after which moment, and how many of that moment were told already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from servo.answers.runs import Record

__all__ = ["LogPlace", "records_after"]


class LogPlace(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    time: datetime
    number: int


def records_after(records: Iterable[Record], place: LogPlace | None) -> Iterator[tuple[LogPlace, Record]]:
    """What comes after a place, each with its own."""
    time: datetime | None = None
    number = 0
    for record in records:
        number = number + 1 if record.time == time else 1
        time = record.time
        here = LogPlace(time=time, number=number)
        if place is None or (here.time, here.number) > (place.time, place.number):
            yield here, record

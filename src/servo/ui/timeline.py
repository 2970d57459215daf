"""When things are due, as one line for each: time from left to right, one symbol for each stretch of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from servo.ui.marks import DIM, Line, Span, cells

__all__ = ["timeline"]

_NONE, _ONE = "·", "●"
_MOST = 9  # that a digit can say
_LONGEST_NAME = 24


def timeline(rows: Mapping[str, Sequence[int]], since: datetime, until: datetime, columns: int) -> list[Line]:
    """How many in each stretch of the time: a dot is none, a disc one, a digit so many, # ten and more."""
    widest = min(_LONGEST_NAME, max((cells(name) for name in rows), default=0))
    room = columns - widest - 2
    size = max((len(counts) for counts in rows.values()), default=0)
    if size == 0 or room < size:
        return []
    lines: list[Line] = [[Span(" " * (widest + 2)), Span(_scale(since, until, size), DIM)]]
    for name, counts in rows.items():
        shown = name if cells(name) <= widest else name[: widest - 1] + "…"
        line: Line = [Span(shown + " " * (widest - cells(shown) + 2))]
        for count in counts:
            symbol = _NONE if count == 0 else _ONE if count == 1 else str(count) if count <= _MOST else "#"
            colour = DIM if count == 0 else "cyan"
            if line[-1].colour == colour:
                line[-1] = Span(line[-1].text + symbol, colour)
            else:
                line.append(Span(symbol, colour))
        lines.append(line)
    return lines


def _scale(since: datetime, until: datetime, size: int) -> str:
    """Days at the stretches in which they begin, as far as there is room."""
    text = ""
    day = since.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    length = until - since
    while day < until:
        place = int((day - since) / length * size)
        label = f"{day:%d %b}" if length > timedelta(days=31) else f"{day:%a %d}"
        if place >= len(text) + (1 if text else 0) and place + len(label) <= size:
            text += " " * (place - len(text)) + label
        day += timedelta(days=1)
    return text

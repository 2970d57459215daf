"""Partitions and ticks as pictures: a heat map of an asset, a strip, a timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from servo.answers.partitions import KINDS, Grid, GridRow
from servo.ui.marks import DIM, MARKS, Line, Span, cells, legend, width, worst, wrapped

_WIDE_COUNT = 1_000


def heatmap(grid: Grid, columns: int) -> list[Line]:
    """The lines of a picture that is no wider than so many columns, as long as its cells fit at all."""
    if not grid.rows:
        return []
    label = max(cells(row.label) for row in grid.rows)
    across = max(len(row.cells) for row in grid.rows)
    cell = _cell_width(grid, (columns - label - 2) // max(across, 1))
    lines = [_header(grid.columns, label, cell)] if grid.columns else []
    used = 0
    for row in grid.rows:
        line: Line = [Span(row.label + " " * (label - cells(row.label) + 2), DIM)]
        line += [_drawn(one, cell) for one in row.cells]
        lines.append(line)
        used = max(used, width(line))
    for line, row in zip(lines[-len(grid.rows) :], grid.rows, strict=True):
        tail = _told(row, columns - used - 2)
        if tail:
            line.extend([Span(" " * (used - width(line) + 2)), *tail])
    shown = [kind for kind in reversed(KINDS) if any(row.counts.get(kind) for row in grid.rows)]
    lines.append([])
    lines += wrapped(legend(shown), columns)
    return lines


def _cell_width(grid: Grid, room: int) -> int:
    """Columns of a cell: two where that fits; as many as its numbers need where cells are counted."""
    numbers = [_text(cell) for row in grid.rows for cell in row.cells if cell]
    needed = max((len(text) for text in numbers), default=1) + 1
    if grid.folded:
        return max(1, min(max(needed, 2), max(room, 1)))
    return 2 if room >= 2 else 1


def _header(names: list[str], label: int, cell: int) -> Line:
    """The names of the columns: those that fit above their cells, the others left out evenly."""
    longest = max(map(len, names))
    every = max(1, -(-(longest + 1) // cell))
    text = " " * (label + 2)
    for number, name in enumerate(names):
        if number % every:
            continue
        # Numbers stand above their cells on the right, as in a calendar.
        begin = label + 2 + number * cell
        end = begin + cell - 1 if cell > 1 else begin + 1
        at = max(end - len(name), begin) if len(name) <= cell else begin
        text = text.ljust(at) + name
    return [Span(text.rstrip(), DIM)]


def _drawn(cell: Mapping[str, int] | None, room: int) -> Span:
    if cell is None or not cell:
        return Span(" " * room)
    kind = worst(cell, KINDS)
    assert kind is not None
    text = _text(cell)
    if len(text) > room - (room > 1):
        text = MARKS[kind].symbol
    return Span(text.rjust(room - (room > 1)) + " " * (room > 1), MARKS[kind].colour)


def _text(cell: Mapping[str, int]) -> str:
    kind = worst(cell, KINDS)
    if kind is None:
        return ""
    symbol = MARKS[kind].symbol
    count, total = cell[kind], sum(cell.values())
    if count == total:
        return symbol
    return f"{_short(count)}{symbol}"


def _short(count: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (_WIDE_COUNT, "k")):
        if count >= size:
            return f"{count // size}{unit}"
    return str(count)


def _told(row: GridRow, room: int) -> Line:
    """What is in a row, in numbers: as much as there is room for, the worst first."""
    line: Line = []
    for kind in KINDS:
        count = row.counts.get(kind)
        if not count:
            continue
        piece = [Span(f"{count:,}", DIM), Span(MARKS[kind].symbol, MARKS[kind].colour), Span(" ")]
        if width(line) + width(piece) > room:
            break
        line += piece
    return line


def strip(cells: Sequence[Mapping[str, int]]) -> Line:
    """Each cell as the worst that is in it."""
    line: Line = []
    for cell in cells:
        kind = worst(cell, KINDS)
        mark = None if kind is None else MARKS[kind]
        symbol, colour = (" ", None) if mark is None else (mark.symbol, mark.colour)
        _append(line, symbol, colour)
    return line


def _append(line: Line, symbol: str, colour: str | None) -> None:
    """Add a symbol to a line; neighbours of one colour are one piece."""
    if line and line[-1].colour == colour:
        line[-1] = Span(line[-1].text + symbol, colour)
    else:
        line.append(Span(symbol, colour))


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
            _append(line, symbol, DIM if count == 0 else "cyan")
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

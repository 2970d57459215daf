"""Lines with colours. What is drawn is made in `servo.ui`; Click drops colours where nobody would see them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence

import click

from servo.cli.output import note, table
from servo.cli.values import text
from servo.ui.marks import DIM, Line, Span, cells, width

_GAP = 2
_NARROWEST = 8


def columns() -> int:
    """How wide the terminal is."""
    return shutil.get_terminal_size().columns


def styled(line: Line) -> str:
    """A line as the terminal takes it. What users wrote may hold anything: control characters are written out."""
    return "".join(
        click.style(
            text(span.text),
            fg=None if span.colour == DIM else span.colour,
            dim=span.colour == DIM or None,
            bold=span.bold or None,
        )
        if span.colour or span.bold
        else text(span.text)
        for span in line
    )


def draw(lines: Iterable[Line]) -> None:
    for line in lines:
        click.echo(styled(line).rstrip())


def coloured_table(names: Sequence[str], rows: Sequence[Sequence[Line]], footer: str = "") -> None:
    """A table whose cells have colours. In a pipe it is whole and tab-separated, like every other."""
    if not sys.stdout.isatty():
        table(names, [["".join(span.text for span in cell) for cell in row] for row in rows])
        return
    # Where there is nothing in a column, there is nothing to be said by it.
    kept = [number for number in range(len(names)) if not rows or any(width(row[number]) for row in rows)]
    names, rows = [names[number] for number in kept], [[row[number] for number in kept] for row in rows]
    widths = [max([cells(name), *(width(row[number]) for row in rows)]) for number, name in enumerate(names)]
    excess = sum(size + _GAP for size in widths) - _GAP - columns()
    while excess > 0 and max(widths) > _NARROWEST:
        widest = widths.index(max(widths))
        widths[widest] -= 1
        excess -= 1
    for row in [[[Span(name, bold=True)] for name in names], *rows]:
        line: Line = []
        begin = 0
        for cell, size in zip(row, widths, strict=True):
            line += [Span(" " * (begin - width(line))), *_fitted(cell, size)]
            begin += size + _GAP
        draw([line])
    if footer:
        note(footer)


def _fitted(cell: Line, size: int) -> Line:
    """A cell that is no wider; what is too long ends in an ellipsis."""
    if width(cell) <= size:
        return cell or [Span("")]
    found: Line = []
    room = size - 1
    for span in cell:
        piece = span.text[: max(room, 0)]
        found.append(Span(piece, span.colour, span.bold))
        room -= len(piece)
        if room <= 0:
            break
    return [*found, Span("…", DIM)]

"""An asset's partitions as one line: oldest on the left, one symbol for each part of its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from servo.answers.grids import KINDS
from servo.ui.marks import MARKS, Line, Span, worst

__all__ = ["strip"]


def strip(cells: Sequence[Mapping[str, int]]) -> Line:
    """Each cell as the worst that is in it; neighbours of one colour are one piece."""
    line: Line = []
    for cell in cells:
        kind = worst(cell, KINDS)
        mark = None if kind is None else MARKS[kind]
        symbol, colour = (" ", None) if mark is None else (mark.symbol, mark.colour)
        if line and line[-1].colour == colour:
            line[-1] = Span(line[-1].text + symbol, colour)
        else:
            line.append(Span(symbol, colour))
    return line

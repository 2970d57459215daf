"""What a partition looks like: a symbol that reads without colours, and a colour that reads at a glance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from unicodedata import combining, east_asian_width


class Mark(NamedTuple):
    symbol: str
    colour: str | None
    words: str


class Span(NamedTuple):
    """A piece of a line. Dim is a colour of its own here: what matters less."""

    text: str
    colour: str | None = None
    bold: bool = False


Line = list[Span]

DIM = "dim"

MARKS: dict[str, Mark] = {
    "materialized": Mark("●", "green", "materialized"),
    "frozen": Mark("■", "blue", "frozen"),
    "stale": Mark("◐", "yellow", "stale"),
    "missing": Mark("·", DIM, "missing"),
    "failed_kept": Mark("✗", "red", "failed, data kept"),
    "failed": Mark("!", "red", "failed, no data"),
    "running": Mark("▶", "cyan", "running"),
    "queued": Mark("○", "cyan", "queued"),
    "waiting_approval": Mark("?", "magenta", "waits for approval"),
}
STATUS_MARKS: dict[str, Mark] = {
    "MATERIALIZED": MARKS["materialized"],
    "STALE": MARKS["stale"],
    "MATERIALIZED_BUT_LAST_ATTEMPT_FAILED": MARKS["failed_kept"],
    "NEVER_MATERIALIZED": MARKS["missing"],
}


def worst(cell: Mapping[str, int], kinds: Iterable[str]) -> str | None:
    """The kind of a cell that people must look at first; None if there is nothing in it."""
    return next((kind for kind in kinds if cell.get(kind)), None)


def legend(kinds: Iterable[str]) -> Line:
    """What the symbols mean: of these kinds."""
    line: Line = []
    for kind in kinds:
        mark = MARKS[kind]
        line += [Span(mark.symbol, mark.colour), Span(f" {mark.words}   ", DIM)]
    return line


def wrapped(line: Line, columns: int) -> list[Line]:
    """A legend in lines that fit."""
    lines: list[Line] = [[]]
    for symbol, words in zip(line[::2], line[1::2], strict=True):
        if width(lines[-1]) + width([symbol]) + len(words.text.rstrip()) > columns:
            lines.append([])
        lines[-1] += [symbol, words]
    return lines


def width(line: Line) -> int:
    """How many columns it takes."""
    return sum(cells(span.text) for span in line)


def cells(text: str) -> int:
    """How many columns a text takes: names of users may be in any script."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)

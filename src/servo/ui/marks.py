"""What is drawn, as lines of pieces with colours; what a partition looks like; trees of lines.

A mark is a symbol that reads without colours, in a colour that reads at a glance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class Node:
    """A line, and those below it."""

    line: Line
    below: list[Node] = field(default_factory=list)


def drawn(node: Node, columns: int) -> Iterator[Line]:
    """The lines of a tree; what is too long for one goes on below, under its own beginning."""
    yield from _folded(node.line, [], [], columns)
    yield from _below(node, "", columns)


def _below(node: Node, before: str, columns: int) -> Iterator[Line]:
    for number, child in enumerate(node.below, start=1):
        last = number == len(node.below)
        own = Span(before + ("└─ " if last else "├─ "), DIM)
        rest = before + ("   " if last else "│  ")
        hanging = Span(rest + ("│ " if child.below else "  "), DIM)
        yield from _folded(child.line, [own], [hanging], columns)
        yield from _below(child, rest, columns)


def _folded(line: Line, first: Line, rest: Line, columns: int) -> Iterator[Line]:
    """A line in pieces that fit, broken between words; a word that is too long stays whole, to be copied."""
    current, room = list(first), columns - width(first)
    empty = True
    for span in line:
        for word in _words(span.text):
            fits = empty or len(word.rstrip()) <= room
            if not fits:
                yield current
                current, room = list(rest), columns - width(rest)
            piece = word if fits else word.lstrip()
            if piece:
                current.append(Span(piece, span.colour, span.bold))
                room -= len(piece)
                empty = False
    yield current


def _words(text: str) -> Iterator[str]:
    """The words of a text, each with the space behind it."""
    begin = 0
    for place in range(1, len(text)):
        if text[place] != " " and text[place - 1] == " ":
            yield text[begin:place]
            begin = place
    if text:
        yield text[begin:]


def counted(number: int, what: str) -> str:
    """`1 partition`, `1,200 partitions`."""
    return f"{number:,} {what}{'s'[: number != 1]}"

"""Trees: a line, and below it what it rests on."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from servo.ui.marks import DIM, Line, Span, width

__all__ = ["Node", "drawn"]


class Node(msgspec.Struct):
    """A line, and those below it."""

    line: Line
    below: list[Node] = []


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

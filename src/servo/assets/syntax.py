"""How selections are written, and read into a tree.

    selection = selection "or" selection | selection "and" selection | "not" selection | term
    term      = [[N] "+"] (what ["@" partitions] | "(" selection ")") ["+" [N]] | [[N] "+"] what "+" [N] "@" partitions
    what      = asset | "*" | "group:" name | "tag:" name ["=" value] | "status:" ("missing" | "failed" | "stale")

`not` binds tighter than `and`, `and` tighter than `or`. `+` before adds what is upstream, `+` after what is downstream,
`N` levels of it or all; partitions flow along through the mappings. Partitions are written as the asset's definition
reads them (`2025-01-15`, `2025-01-01..2025-01-31`, `all`, `latest`). Nothing within single or double quotes is syntax:
`tag:mail="x@y.z"`, `orders@"city=new york"`. Quoted texts side by side are one text, as in a shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from servo.errors import InvalidSelection

_QUOTED = re.compile(r"""(["'])(.*?)\1""", re.DOTALL)
_TOKEN = re.compile(r"""\s*(\(|\)|(?:"[^"]*"|'[^']*'|[^\s()"'])+)""")
_LEVELS = r"(?:\+(?P<{}>\d*))?"
_TERM = re.compile(
    r"(?:(?P<up>\d*)(?P<plus>\+))?(?P<what>[^@]*?)"
    + _LEVELS.format("down")
    + r"(?P<at>@(?P<partitions>.*?)"
    + _LEVELS.format("down_after")
    + ")?",
    re.DOTALL,
)
# `2025-01-01T06:00+0100` ends with an offset from UTC, not with a number of levels.
_TIME_BEFORE_OFFSET = re.compile(r"\d[T ]\d{2}(?::?\d{2}){0,2}$")
_KEYWORDS = ("and", "or", "not")


def parse(text: str) -> Node:
    """The tree of a selection, or an InvalidSelection that points at the place."""
    return _Parser(text).parsed()


class Term(msgspec.Struct, frozen=True):
    what: str
    partitions: str | None
    place: int


class Spread(msgspec.Struct, frozen=True):
    """Something, and so many levels (None: all, 0: none) up and down from it."""

    inner: Node
    up: int | None
    down: int | None


class Not(msgspec.Struct, frozen=True):
    inner: Node


class AllOf(msgspec.Struct, frozen=True):
    parts: list[Node]


class AnyOf(msgspec.Struct, frozen=True):
    parts: list[Node]


Node = Term | Spread | Not | AllOf | AnyOf


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, int]] = []
        place = 0
        while text[place:].strip():
            match = _TOKEN.match(text, place)
            if match is None:
                start = place + len(text[place:]) - len(text[place:].lstrip())
                raise self._wrong("a quote that is not closed", start, "close it, or leave it out")
            self._tokens.append((match[1], match.start(1)))
            place = match.end()
        self._next = 0

    def parsed(self) -> Node:
        if not self._tokens:
            raise InvalidSelection("the selection is empty", hint="name an asset: orders, +orders, group:daily, *")
        node = self._any()
        if self._peek() is not None:
            token, place = self._tokens[self._next]
            what = "a parenthesis that was not opened" if token == ")" else f"{token!r} where and/or was expected"
            raise self._wrong(what, place, "join terms with and, or, and not")
        return node

    def _any(self) -> Node:
        parts = [self._all()]
        while self._take("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else AnyOf(parts)

    def _all(self) -> Node:
        parts = [self._not()]
        while self._take("and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else AllOf(parts)

    def _not(self) -> Node:
        return Not(self._not()) if self._take("not") else self._term()

    def _term(self) -> Node:
        token, place = self._peek(), self._place()
        if token is None or token == ")" or token.lower() in _KEYWORDS:
            found = "the end" if token is None else repr(token)
            raise self._wrong(f"{found} where an asset was expected", place, "name an asset, group:, tag: or status:")
        self._next += 1
        if token == "(":
            return self._group(0, place)
        match = _TERM.fullmatch(_QUOTED.sub(lambda quote: "\0" * len(quote[0]), token))
        assert match is not None  # every part of it may be empty
        up = 0 if match["plus"] is None else _levels(match["up"])
        down, partitions = self._after(token, match, place)
        if token[match.end("plus") :] == "" and match["plus"] and self._is_adjacent("("):
            self._next += 1
            return self._group(up, place)
        what = token[match.start("what") : match.end("what")]
        if not what or partitions == "":
            missing = "no partitions after @" if what else "no asset"
            raise self._wrong(f"{token!r} with {missing}", place, "write orders@2025-01-15, +orders or orders+2")
        term = Term(_unquoted(what), None if partitions is None else _unquoted(partitions), place)
        return term if up == 0 and down == 0 else Spread(term, up, down)

    def _after(self, token: str, match: re.Match[str], place: int) -> tuple[int | None, str | None]:
        """The levels downstream and the partitions that follow what a term names, in either order."""
        levels, after = match["down"], match["down_after"]
        if match["at"] is None:
            return (0 if levels is None else _levels(levels)), None
        start, end = match.span("partitions")
        if after is not None and len(after) == 4 and _TIME_BEFORE_OFFSET.search(token[start:end]):
            end, after = match.end("down_after"), None
        if levels is not None and after is not None:
            raise self._wrong(f"{token!r} with +N twice", place, "say once how many levels: orders@2025-01-15+2")
        levels = after if levels is None else levels
        return (0 if levels is None else _levels(levels)), token[start:end]

    def _group(self, up: int | None, place: int) -> Node:
        inner = self._any()
        if not self._take(")"):
            raise self._wrong("a parenthesis that is not closed", place, "close it")
        down: int | None = 0
        token = self._peek()
        if token is not None and self._is_adjacent(token) and re.fullmatch(r"\+\d*", token):
            self._next += 1
            down = _levels(token[1:])
        return inner if up == 0 and down == 0 else Spread(inner, up, down)

    def _peek(self) -> str | None:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else None

    def _place(self) -> int:
        return self._tokens[self._next][1] if self._next < len(self._tokens) else len(self._text)

    def _take(self, wanted: str) -> bool:
        token = self._peek()
        if token is None or token.lower() != wanted:
            return False
        self._next += 1
        return True

    def _is_adjacent(self, wanted: str) -> bool:
        """Whether this comes next, with no space before it."""
        token, place = self._tokens[self._next - 1]
        return self._peek() == wanted and self._place() == place + len(token)

    def _wrong(self, what: str, place: int, hint: str) -> InvalidSelection:
        shown = self._text if len(self._text) <= 120 else self._text[: place + 20] + "…"
        return InvalidSelection(f"the selection {shown!r} has {what}, at character {place + 1}", hint=hint)


def _levels(digits: str) -> int | None:
    return int(digits[:6]) if digits else None


def _unquoted(text: str) -> str:
    return _QUOTED.sub(r"\2", text)


def quoted(text: str) -> str:
    """A text in quotes, which a selection reads as it is, whatever characters it holds."""
    if '"' not in text:
        return f'"{text}"'
    if "'" not in text:
        return f"'{text}'"
    return "'\"'".join(f'"{part}"' for part in text.split('"'))


def terms(node: Node) -> Iterator[Term]:
    """The terms of a selection, in the order in which they are written."""
    match node:
        case Term():
            yield node
        case Spread(inner=inner) | Not(inner=inner):
            yield from terms(inner)
        case AllOf(parts=parts) | AnyOf(parts=parts):
            for part in parts:
                yield from terms(part)

"""Proof that nothing was changed, removed or inserted: the chain recomputed over the archive and the live part.

Every event's hash covers the hash before it, its position and all its content. Where a link does not hold, the
neighbours tell what happened: which hash would make the next event follow, and at which position an event was
recorded, since a renumbered event still proves its old one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain as concatenated
from itertools import pairwise
from typing import Literal
from zlib import error as InflateError  # noqa: N812

import msgspec

from servo.errors import LedgerCorrupt
from servo.events import GENESIS, RecordedEvent, chain
from servo.ledger.archive import Archive, Progress, batches
from servo.ledger.history import History
from servo.ledger.protocol import Head, Ledger

Kind = Literal["changed", "removed", "inserted", "reordered", "broken-chain", "head-mismatch"]

MOST_PROBLEMS = 100
_FARTHEST = 500  # so many rows inserted or removed in one place are still told apart from broken ones
_BEFORE_ALL = -(1 << 62)
_UNREADABLE = (LedgerCorrupt, InflateError, ValueError, OverflowError)


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it was recorded."""

    position: int
    kind: Kind
    detail: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at, and what is wrong with it; the search ends at MOST_PROBLEMS."""

    events: int
    head: Head
    problems: list[Problem]


class _Lost(msgspec.Struct, frozen=True, kw_only=True):
    """Positions that cannot be read, and the chain hash at the last of them where something else still knows it."""

    first: int
    last: int
    kind: Kind
    detail: str
    chain_hash: str | None = None


_Item = RecordedEvent | _Lost


def verify(history: History, progress: Progress | None = None) -> Verification:
    """Recompute everything. Appends and archiving may go on meanwhile."""
    walk = _Walk(history.ledger.head(), _known_hashes(history))
    source = _Source(history, walk, progress)
    for item, following in pairwise(concatenated(source.items(), (None,))):
        if item is not None:
            walk.take(item, following)
        if walk.is_full:
            break
    else:
        walk.finish()
    problems = [*walk.problems, *source.problems_of_files()]
    if len(problems) < MOST_PROBLEMS:
        problems += _problems_of_leftovers(history)
    return Verification(
        events=walk.events,
        head=walk.head,
        problems=sorted(problems, key=lambda problem: problem.position)[:MOST_PROBLEMS],
    )


def _known_hashes(history: History) -> dict[int, list[tuple[str, str]]]:
    """Chain hashes that are kept elsewhere than with their event: who knows them, and what they are."""
    known: dict[int, list[tuple[str, str]]] = {}
    for segment in () if history.archive is None else history.archive.segments:
        known.setdefault(segment.last, []).append(("the archive's index", segment.chain_hash))
    head = history.ledger.head()
    if head.trimmed_position:
        known.setdefault(head.trimmed_position, []).append(
            ("the ledger's mark of what was archived", head.trimmed_chain_hash)
        )
    return known


class _Source:
    """Everything there is, in the order of positions as stored, with marks where nothing can be read."""

    def __init__(self, history: History, walk: _Walk, progress: Progress | None) -> None:
        self._ledger = history.ledger
        self._archive = history.archive
        self._walk = walk
        self._progress = progress
        self._suspects: list[tuple[int, int, str]] = []

    def items(self) -> Iterator[_Item]:
        position = 0
        while True:
            for item in self._archived(position):
                position = item.last if isinstance(item, _Lost) else max(item.position, position)
                yield item
            before = position
            for item in self._live(position):
                position = item.last if isinstance(item, _Lost) else item.position
                yield item
            if position == before:
                return

    def problems_of_files(self) -> list[Problem]:
        """Files that are not the ones that were written, though every event in them is as it was."""
        named = {problem.position for problem in self._walk.problems}
        return [
            Problem(position=first, kind="changed", detail=f"{damage}, though its events are as recorded")
            for first, last, damage in self._suspects
            if not any(first <= position <= last for position in named)
        ]

    def _archived(self, after: int) -> Iterator[_Item]:
        archive = self._archive
        segments = () if archive is None else archive.segments
        for segment in segments:
            if archive is None or segment.last <= after:
                continue
            damage = archive.damage(segment)
            seen = segment.first - 1
            try:
                for events in archive.stored(segment):
                    yield from events
                    seen = max(seen, events[-1].position)
                    self._report(seen)
            except (LedgerCorrupt, FileNotFoundError) as problem:
                what = damage or (problem.message if isinstance(problem, LedgerCorrupt) else str(problem))
                yield _Lost(
                    first=seen + 1, last=segment.last, kind="removed", detail=what, chain_hash=segment.chain_hash
                )
            else:
                if damage is not None:
                    self._suspects.append((segment.first, segment.last, damage))

    def _live(self, after: int) -> Iterator[_Item]:
        """Live rows after a position, until they end or until some of them have moved to the archive."""
        for events in batches(self._read, after, None):
            if events[0].position > after + 1:
                head = self._ledger.head()
                archived = 0 if self._archive is None else self._archive.last_position
                if archived > after:
                    return
                if head.trimmed_position > after:
                    yield _Lost(
                        first=after + 1,
                        last=head.trimmed_position,
                        kind="removed",
                        detail=_not_in_archive(after + 1, head.trimmed_position),
                        chain_hash=head.trimmed_chain_hash,
                    )
            if events[-1].position > self._walk.head.position:
                self._walk.head = self._ledger.head()  # read after the rows, so it has seen all that were appended
            yield from events
            after = events[-1].position
            self._report(after)

"""Proof that nothing was changed, removed or inserted: the chain recomputed over the archive and the live part.

Here everything there is is read, damaged parts included; `chain.py` goes along it and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain as concatenated
from itertools import pairwise
from zlib import error as NotDeflated

import msgspec

from servo.errors import LedgerCorrupt, LedgerUnavailable
from servo.ledger.archive import Archive, Progress, Segment
from servo.ledger.chain import MOST_PROBLEMS, Item, Lost, Problem, Walk
from servo.ledger.history import History
from servo.ledger.protocol import Head, Ledger

_BATCH = 256  # events may be large, and one query for so many costs nothing
_BEFORE_ALL = -(1 << 62)
_UNREADABLE = (LedgerCorrupt, LedgerUnavailable, NotDeflated, ValueError, OverflowError)


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """How many events were looked at and what is wrong with them; the search ends at MOST_PROBLEMS.

    `not_compared`: why the projections could not be asked what they remember of the ledger.
    """

    events: int
    head: Head
    problems: list[Problem]
    not_compared: str | None = None


def verify(history: History, progress: Progress | None = None) -> Verification:
    """Recompute everything. Others may append and archive meanwhile.

    Raises LedgerCorrupt where there is nothing to walk along: the ledger does not open, the archive's index is damaged.
    """
    scope = None if history.archive is None else history.archive.workspace
    walk = Walk(history.ledger.head(), known=_hashes_kept_elsewhere(history), scope=scope)
    source = _Source(history, walk, progress)
    for item, following in pairwise(concatenated(source.items(), (None,))):
        if item is not None:
            walk.take(item, following)
        if walk.is_full:
            break
    else:
        walk.finish()
    problems = [*walk.problems, *source.problems_of_files(), *_problems_of_leftovers(history)]
    problems.sort(key=lambda problem: problem.position)
    return Verification(events=walk.events, head=walk.head, problems=problems[:MOST_PROBLEMS])


def _hashes_kept_elsewhere(history: History) -> dict[int, list[tuple[str, str]]]:
    """By position, who else keeps the chain hash there, and which."""
    head = history.ledger.head()
    known = {head.trimmed_position: [("the ledger's mark of what was archived", head.trimmed_chain_hash)]}
    for segment in () if history.archive is None else history.archive.segments:
        known.setdefault(segment.last, []).append(("the archive's index", segment.chain_hash))
    return known


def _problems_of_leftovers(history: History) -> list[Problem]:
    """Live rows that the archive holds too: those not trimmed yet must be equal, and no others may be there."""
    ledger, head = history.ledger, history.ledger.head()
    try:
        oldest = ledger.read(_BEFORE_ALL, _BATCH)
    except _UNREADABLE:
        oldest = []  # whichever it is of those that count, a walk meets it
    problems = [
        Problem(
            position=event.position,
            kind="inserted",
            detail=f"event {event.event_id} lies in the ledger, where everything up to"
            f" {head.trimmed_position} was moved to the archive",
        )
        for event in oldest
        if event.position <= head.trimmed_position
    ]
    archive = history.archive
    if archive is None or archive.last_position <= head.trimmed_position:
        return problems
    overlap = _overlap(history, archive, head)
    # If it was trimmed meanwhile, rows were missing for a good reason.
    return problems + overlap if ledger.head().trimmed_position == head.trimmed_position else problems


def _overlap(history: History, archive: Archive, head: Head) -> list[Problem]:
    last = archive.segments[-1]
    end = Head(position=last.last, event_id=last.last_event_id, chain_hash=last.chain_hash)
    walk = Walk(end, position=head.trimmed_position, anchor=head.trimmed_chain_hash)
    position, items = head.trimmed_position, _rows_after(history.ledger, head.trimmed_position)
    while items and position < last.last and not walk.is_full:
        within = [item for item in items if _position(item) <= last.last]
        for item, following in pairwise([*within, None]):
            if item is not None:
                walk.take(item, following)
        position = _position(items[-1])
        items = _rows_after(history.ledger, position)
    walk.finish()
    return walk.problems


def _position(item: Item) -> int:
    return item.last if isinstance(item, Lost) else item.position


def _rows_after(ledger: Ledger, position: int) -> list[Item]:
    """Live rows as they are, those that cannot be read included."""
    try:
        return [*ledger.read(position, _BATCH)]
    except _UNREADABLE:
        return _one_by_one(ledger, position)


def _one_by_one(ledger: Ledger, after: int) -> list[Item]:
    items: list[Item] = []
    for position in range(after, after + _BATCH):
        try:
            rows = ledger.read(position, 1)
        except _UNREADABLE as problem:
            ledger.head()  # raises if it is the ledger that cannot be read, not the row
            detail = f"the event at position {position + 1} cannot be read: {problem}"
            items.append(Lost(first=position + 1, last=position + 1, kind="changed", detail=detail))
            continue
        items += rows
        if not rows or rows[0].position != position + 1:
            break
    return items


class _Source:
    """Everything there is, in the order of positions, with marks where nothing can be read."""

    def __init__(self, history: History, walk: Walk, progress: Progress | None) -> None:
        self._ledger = history.ledger
        self._archive = history.archive
        self._walk = walk
        self._progress = progress
        self._suspects: list[tuple[int, int, str]] = []

    def items(self) -> Iterator[Item]:
        position, before = 0, -1
        while position > before:
            before = position
            for segment in () if self._archive is None else self._archive.segments:
                if self._archive is not None and segment.last > position:
                    yield from self._archived(self._archive, segment, position)
                    position = segment.last
            for item in self._live(position):
                position = max(position, _position(item))
                yield item

    def problems_of_files(self) -> list[Problem]:
        """Files that are not the ones that were written, though every event in them is as it was."""
        named = [problem.position for problem in self._walk.problems]
        return [
            Problem(position=first, kind="changed", detail=f"{damage}, though its events are as recorded")
            for first, last, damage in self._suspects
            if not any(first <= position <= last for position in named)
        ]

    def _archived(self, archive: Archive, segment: Segment, after: int) -> Iterator[Item]:
        damage = archive.damage(segment)
        seen = max(after, segment.first - 1)
        try:
            for events in archive.stored(segment):
                self._catch_up(events[-1].position)
                # Those up to `after` were seen in the ledger, before they moved.
                yield from (event for event in events if event.position > after or after < segment.first)
                seen = max(seen, events[-1].position)
                self._report(seen)
        except LedgerCorrupt as problem:
            detail = f"{damage or problem.message}: positions {seen + 1}–{segment.last} cannot be read"
            yield Lost(first=seen + 1, last=segment.last, kind="removed", detail=detail, chain_hash=segment.chain_hash)
        else:
            if damage is not None:
                self._suspects.append((segment.first, segment.last, damage))

    def _live(self, after: int) -> Iterator[Item]:
        """Live rows until they end, or until the next ones have moved to the archive."""
        has_looked_twice = False
        while True:
            items = _rows_after(self._ledger, after)
            if not items or _position(items[0]) > after + 1:
                # The head first, then the index: what was trimmed by then is in the index by now.
                head = self._ledger.head()
                if self._archive is not None and self._archive.last_position > after:
                    return
                if head.trimmed_position > after:
                    yield _not_in_archive(after + 1, head)
                    after = head.trimmed_position
                    continue
                if not items:
                    self._walk.head = head
                    if head.position <= after or has_looked_twice:
                        return
                    has_looked_twice = True  # the missing ones may have been appended since
                    continue
            self._catch_up(_position(items[-1]))
            yield from items
            after = _position(items[-1])
            has_looked_twice = False
            self._report(after)

    def _catch_up(self, position: int) -> None:
        """Know a head that was asked for after the rows, so that it counts all that were appended."""
        if position > self._walk.head.position:
            self._walk.head = self._ledger.head()

    def _report(self, position: int) -> None:
        if self._progress is not None:
            self._progress(position, max(position, self._walk.head.position))


def _not_in_archive(first: int, head: Head) -> Lost:
    detail = f"positions {first}–{head.trimmed_position} were moved to the archive, and it does not hold them"
    return Lost(
        first=first,
        last=head.trimmed_position,
        kind="removed",
        detail=detail,
        chain_hash=head.trimmed_chain_hash,
    )

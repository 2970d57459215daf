"""A walk along the chain of hashes, and what happened where a link does not hold.

Every event's hash covers the hash before it, its position and all its content. The neighbours of a broken link
tell what happened: which hash makes the next event follow, and at which position an event was recorded, since a
renumbered event still proves its old place.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

import msgspec

from servo.events import GENESIS, RecordedEvent, chain
from servo.ledger.protocol import Head, Workspace

Kind = Literal["changed", "removed", "inserted", "reordered", "broken-chain", "head-mismatch"]

MOST_PROBLEMS = 100
_FARTHEST = 500  # so many rows inserted or removed in one place are still told apart from changed ones


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it was recorded."""

    position: int
    kind: Kind
    detail: str


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """Positions that cannot be read, and the chain hash at the last of them where something else still knows it."""

    first: int
    last: int
    kind: Kind
    detail: str
    chain_hash: str | None = None


Item = RecordedEvent | Lost


def _following(previous: str, event: RecordedEvent) -> str:
    """The chain hash after a stored one; from what is no hash at all, nothing follows."""
    try:
        return chain(previous, event)
    except ValueError:
        return ""


class Walk:
    """Goes along the chain, one event at a time, and says what happened where a link does not hold.

    `_shift` is how far rows stand from where they were recorded, once an earlier one was inserted or removed.
    """

    def __init__(
        self,
        head: Head,
        *,
        known: dict[int, list[tuple[str, str]]] | None = None,
        scope: Workspace | None = None,
        position: int = 0,
        anchor: str = GENESIS,
    ) -> None:
        self.head = head
        self.problems: list[Problem] = []
        self.events = 0
        self._known = known or {}
        self._scope = scope
        self._position = position
        self._shift = 0
        self._anchor: str | None = anchor
        self._is_proven = True
        self._recent = deque([anchor], maxlen=_FARTHEST + 1)
        self._event_id = ""
        self._taken: RecordedEvent | None = None

    @property
    def is_full(self) -> bool:
        return len(self.problems) >= MOST_PROBLEMS

    def take(self, item: Item, following: Item | None) -> None:
        """The next item, and the one after it, which tells what is wrong with this one."""
        if isinstance(item, Lost):
            self._lose(item)
            return
        self.events += 1
        if item is self._taken:
            return
        after = following if isinstance(following, RecordedEvent) else None
        recorded = item.position - self._shift
        if recorded != self._position + 1 and self._fits_next(item):
            self._move_to(item)
            self._link(item, after)
        elif min(recorded, item.position) > self.head.position:
            self._take_beyond_head(item)
        elif recorded <= self._position:
            self._report(item.position, "inserted", f"event {item.event_id} has a position that was there before")
        elif recorded > self._position + 1 and after is not None and after.position == item.position - 1:
            self._report(after.position, "reordered", f"positions {after.position} and {item.position} are exchanged")
            self._taken = after
            self._link(after, item)
            self._link(item, None)
        else:
            if recorded > self._position + 1:
                self._lose_up_to(item.position - 1)
            self._link(item, after)

    def finish(self) -> None:
        """Nothing comes any more: it must end where the head says."""
        if self._shift and self._anchor == self.head.chain_hash:
            return  # whether the head was renumbered with the rows or not, it is the same event
        if self._position < self.head.position:
            self._lose_up_to(self.head.position + self._shift)
        elif self._anchor is not None and self._anchor != self.head.chain_hash and not self.problems:
            self._report(
                self._position, "head-mismatch", "the ledger's head has another chain hash than its last event"
            )

    def _fits_next(self, event: RecordedEvent) -> bool:
        """Whether an event was recorded next, though its row stands elsewhere."""
        return self._anchor is not None and event.chain_hash == _following(
            self._anchor, self._at(event, self._position + 1)
        )

    def _move_to(self, event: RecordedEvent) -> None:
        self._shift = event.position - self._position - 1
        if self._shift:  # otherwise rows that were renumbered earlier end here, which was said where they began
            detail = f"event {event.event_id} was recorded at position {self._position + 1}"
            self._report(event.position, "changed", detail)

    # ── one link ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _link(self, event: RecordedEvent, after: RecordedEvent | None) -> None:
        if self._anchor is None:
            self._accept(event, is_proven=False)
        elif _following(self._anchor, self._at(event, self._position + 1)) == event.chain_hash:
            self._accept(event)
            self._compare(event)
        else:
            self._explain(event, after, self._anchor)

    def _explain(self, event: RecordedEvent, after: RecordedEvent | None, anchor: str) -> None:
        place, name = self._position + 1, f"event {event.event_id}"
        computed = _following(anchor, self._at(event, place))
        if self._drop_inserted(event, after):
            return
        if self._leads_on(event.chain_hash, after, place + 1):
            if self._is_proven:
                what = f"{name} is not what was recorded there, or {place - 1} was rewritten with its hash"
                self._report(event.position, "changed", what)
            else:
                self._report(event.position, "broken-chain", f"{name} or the one before it is not what was recorded")
            self._accept(event, is_sound=False)
        elif self._leads_on(computed, after, place + 1):
            self._report(event.position, "changed", f"the chain hash of {name} was changed, its content was not")
            self._accept(event, chain_hash=computed, is_sound=False)
        elif after is not None and _following(anchor, self._at(after, place)) == after.chain_hash:
            if _following(after.chain_hash, self._at(event, place + 1)) == event.chain_hash:
                detail = f"events {after.event_id} and {event.event_id} are exchanged"
                self._report(event.position, "reordered", detail)
                self._taken = after
                self._accept(after)
                self._accept(event)
            else:
                self._report(event.position, "inserted", f"{name} was put between two that follow from each other")
                self._shift = after.position - place
        elif not self._skip_removed(event, after):
            if after is not None and after.event_id <= event.event_id:
                detail = f"{name} stands before {after.event_id}, which is older"
                self._report(event.position, "reordered", detail)
            else:
                detail = f"{name} does not follow from the one before it, nor the next one from it"
                self._report(event.position, "broken-chain", detail)
            self._accept(event, is_proven=False, is_sound=False)

    def _leads_on(self, chain_hash: str, after: RecordedEvent | None, place: int) -> bool:
        """Whether what comes next at a place follows from a hash; the head stands after the last event."""
        if after is not None and _following(chain_hash, self._at(after, place)) == after.chain_hash:
            return True
        return place == self.head.position + 1 and chain_hash == self.head.chain_hash

    def _drop_inserted(self, event: RecordedEvent, after: RecordedEvent | None) -> bool:
        """Whether some rows just passed were inserted: the event follows from what stood before them, and goes on."""
        is_last = after is None and event.chain_hash == self.head.chain_hash
        for count in range(1, len(self._recent)):
            place = self._position + 1 - count
            if _following(self._recent[-1 - count], self._at(event, place)) == event.chain_hash:
                if not (is_last or self._leads_on(event.chain_hash, after, place + 1)):
                    return False  # recorded there, and now alone in the wrong place
                inserted = range(event.position - count, event.position)
                self.problems = [problem for problem in self.problems if problem.position not in inserted]
                for position in inserted:
                    self._report(position, "inserted", "it was put between two events that follow from each other")
                for _ in inserted:
                    self._recent.pop()
                self._position -= count
                self._shift += count
                self._event_id = ""  # it may be that of an inserted one
                self._accept(event)
                self._compare(event)
                return True
        return False

    def _skip_removed(self, event: RecordedEvent, after: RecordedEvent | None) -> bool:
        """Whether some events are missing and the later ones were renumbered, which their hashes betray."""
        place = self._position + 1
        missing = self.head.position - place
        counts = range(1, min(_FARTHEST, missing) + 1)
        count = next((n for n in counts if self._leads_on(event.chain_hash, after, place + n + 1)), 0)
        if count:
            what = f"{count} events are gone" if count > 1 else "an event is gone"
            detail = f"{what} before {event.event_id}, and the later ones were renumbered"
            self._report(event.position, "removed", detail)
            self._position += count
            self._shift -= count
            self._accept(event, is_proven=False)
        return count > 0

    # ── the state ────────────────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _at(event: RecordedEvent, position: int) -> RecordedEvent:
        return event if event.position == position else msgspec.structs.replace(event, position=position)

    def _accept(
        self,
        event: RecordedEvent,
        *,
        chain_hash: str | None = None,
        is_proven: bool = True,
        is_sound: bool = True,
    ) -> None:
        self._position += 1
        self._anchor = chain_hash or event.chain_hash
        self._recent.append(self._anchor)
        self._is_proven = is_proven
        if is_sound:
            if event.event_id <= self._event_id:
                self._report(event.position, "reordered", f"event {event.event_id} is older than the one before it")
            self._event_id = event.event_id

    def _compare(self, event: RecordedEvent) -> None:
        """What else is known of a place must say the same as the event that links there."""
        place = self._position
        for who, chain_hash in self._known.get(place, ()):
            if chain_hash != event.chain_hash:
                detail = f"{who} has another chain hash than event {event.event_id}"
                self._report(event.position, "head-mismatch", detail)
        if place == self.head.position and not self._shift:
            head = self.head
            moment = head.occurred_at or event.occurred_at
            if (head.event_id, head.chain_hash, moment) != (event.event_id, event.chain_hash, event.occurred_at):
                detail = f"the ledger's head does not say what its last event, {event.event_id}, says"
                self._report(event.position, "head-mismatch", detail)
        if self._scope is not None and (event.tenant_id, event.workspace_id) != (
            self._scope.tenant,
            self._scope.name,
        ):
            detail = f"event {event.event_id} belongs to {event.tenant_id}/{event.workspace_id}"
            self._report(event.position, "changed", detail)

    def _take_beyond_head(self, event: RecordedEvent) -> None:
        if event.chain_hash != self.head.chain_hash or not self._drop_inserted(event, None):
            detail = f"event {event.event_id} lies beyond the ledger's head, which is at {self.head.position}"
            self._report(event.position, "inserted", detail)

    def _lose(self, lost: Lost) -> None:
        self._report(lost.first, lost.kind, lost.detail)
        self._forget(lost.last - self._shift, lost.chain_hash)

    def _lose_up_to(self, last: int) -> None:
        first = self._position + 1 + self._shift
        what = f"positions {first}–{last} are missing" if last > first else f"position {first} is missing"
        self._report(first, "removed", what)
        self._forget(last - self._shift, None)

    def _forget(self, position: int, chain_hash: str | None) -> None:
        self._position = position
        self._anchor = chain_hash
        self._is_proven = True
        self._recent.clear()
        if chain_hash is not None:
            self._recent.append(chain_hash)

    def _report(self, position: int, kind: Kind, detail: str) -> None:
        if not self.is_full:
            self.problems.append(Problem(position=position, kind=kind, detail=detail))

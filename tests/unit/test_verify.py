"""Whatever is done to the rows, it is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from servo.errors import InvalidInput
from servo.events import GENESIS, Proposal, RecordedEvent, chain
from servo.ledger import Condition, Head, MemoryLedger, Receipt
from servo.ledger.history import History
from servo.ledger.verify import MOST_PROBLEMS, verify
from tests.contract.support import WORKSPACE, cancel, mint

COUNT = 30


class Rows:
    """A ledger whose rows and head lie open."""

    def __init__(self, rows: list[RecordedEvent], head: Head) -> None:
        self.rows = rows
        self._head = head

    def read(self, after: int, limit: int = 1000) -> list[RecordedEvent]:
        later = sorted((row for row in self.rows if row.position > after), key=lambda row: row.position)
        return later[:limit]

    def head(self, beyond: int | None = None, timeout: float = 0.0) -> Head:
        return self._head

    def append(self, proposals: Sequence[Proposal], condition: Condition | None = None) -> list[Receipt]:
        raise InvalidInput("read only")

    def position_at(self, event_id: str) -> int:
        raise InvalidInput("not asked for here")

    def trim(self, position: int, forget_keys: str = "") -> None:
        raise InvalidInput("read only")

    def close(self) -> None:
        """Nothing to give up."""


def recorded() -> tuple[list[RecordedEvent], Head]:
    ledger = MemoryLedger(WORKSPACE, mint())
    ledger.append([cancel(f"run_{n}") for n in range(COUNT)])
    return ledger.read(0), ledger.head()


def changed(row: RecordedEvent, **values: Any) -> RecordedEvent:
    return msgspec.structs.replace(row, **values)


def renumbered(rows: list[RecordedEvent]) -> list[RecordedEvent]:
    return [changed(row, position=number) for number, row in enumerate(rows, 1)]


def rechained(rows: list[RecordedEvent], until: int) -> list[RecordedEvent]:
    """The same with the hashes of the first ones made to fit again, as a careful forger would."""
    previous, result = GENESIS, []
    for number, row in enumerate(rows):
        fitted = changed(row, chain_hash=chain(previous, row)) if number < until else row
        previous = fitted.chain_hash
        result.append(fitted)
    return result


index = st.integers(0, COUNT - 1)
tampering = st.lists(
    st.one_of(
        st.tuples(st.just("change"), index, st.sampled_from(["actor", "correlation_id", "event_id", "chain_hash"])),
        st.tuples(st.just("remove"), index, st.integers(1, 4)),
        st.tuples(st.just("insert"), index, index),
        st.tuples(st.just("swap"), index, index),
    ),
    min_size=1,
    max_size=3,
)


def tampered(rows: list[RecordedEvent], steps: list[tuple[str, int, Any]]) -> list[RecordedEvent]:
    rows = list(rows)
    for kind, place, detail in steps:
        at = min(place, len(rows) - 1)
        if kind == "change":
            rows[at] = changed(rows[at], **{detail: "f" * 64})
        elif kind == "remove":
            del rows[at : at + detail]
        elif kind == "insert":
            rows.insert(at, changed(rows[min(detail, len(rows) - 1)], actor="mallory"))
        else:
            other = min(detail, len(rows) - 1)
            rows[at], rows[other] = rows[other], rows[at]
    return rows


@settings(max_examples=300, deadline=None)
@given(steps=tampering, is_renumbered=st.booleans(), rechained_until=st.integers(0, COUNT - 1))
def test_any_tampering_is_found(steps: list[tuple[str, int, Any]], is_renumbered: bool, rechained_until: int) -> None:
    rows, head = recorded()
    result = tampered(rows, steps)
    if is_renumbered:
        result = renumbered(result)
    result = rechained(result, rechained_until)
    assume(sorted(result, key=lambda row: row.position) != rows)
    problems = verify(History(Rows(result, head), None)).problems
    assert problems
    assert len(problems) <= MOST_PROBLEMS


def test_nothing_is_found_where_nothing_was_done() -> None:
    rows, head = recorded()
    verification = verify(History(Rows(rows, head), None))
    assert (verification.events, verification.head, verification.problems) == (COUNT, head, [])


def test_a_proved_event_names_its_neighbour_as_the_other_possibility() -> None:
    """A row rewritten together with its hash cannot be told from a change of the next one: both are named."""
    rows, head = recorded()
    rows[9] = changed(rows[9], actor="mallory")
    (problem,) = verify(History(Rows(rechained(rows, 10), head), None)).problems
    assert (problem.position, problem.kind) == (11, "changed")
    assert "or 10 was rewritten with its hash" in problem.detail


def test_an_event_of_another_time_is_older_than_the_one_before_it() -> None:
    rows, head = recorded()
    forged = rechained([*rows[:-1], changed(rows[-1], event_id=rows[3].event_id)], COUNT)
    last = forged[-1]
    head = msgspec.structs.replace(head, event_id=last.event_id, chain_hash=last.chain_hash)
    (problem,) = verify(History(Rows(forged, head), None)).problems
    assert (problem.position, problem.kind) == (COUNT, "reordered")

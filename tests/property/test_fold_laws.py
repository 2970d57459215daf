"""Laws of the fold: what the rows are depends on what happened, not on how the telling was cut, ordered or repeated."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servo.events import EVENT_CLASSES, RecordedEvent, decode
from servo.fold import TABLES_BY_NAME, Row, State, evolve, fold, merge
from servo.fold.batch import batch
from servo.fold.evolve import key_of
from servo.fold.rows import all_groups
from servo.projections import engine
from tests.support.facts import FACTS, histories, histories_without_ties
from tests.support.projecting import plain, projected
from tests.support.recording import again

laws = settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
CONFLICTS = "run_key_conflicts"


@pytest.fixture(scope="module")
def connection() -> Iterator[engine.Connection]:
    opened = engine.connect()
    opened.execute("SET threads = 1")  # tables of a few rows
    yield opened
    opened.close()


def test_the_strategies_know_every_kind_of_fact() -> None:
    assert set(FACTS) == set(EVENT_CLASSES)


# ── one event ────────────────────────────────────────────────────────────────────────────────────────────────────


@laws
@given(histories())
def test_an_event_never_contradicts_itself(events: list[RecordedEvent]) -> None:
    """One version of a group of columns has one content. All other laws rest on this one."""
    for event in events:
        contents: dict[Any, Any] = {}
        for row in evolve(event, decode(event)):
            for group in all_groups(type(row)):
                version = getattr(row, group.version)
                content = [getattr(row, name) for name in group.columns]
                if version is None:
                    assert not any(content), f"{row.table}.{group.version} is missing"
                else:
                    place = (row.table, key_of(row), group.version, version)
                    assert contents.setdefault(place, content) == content


@laws
@given(histories(), st.randoms(use_true_random=False))
def test_merge_is_commutative_associative_and_idempotent(events: list[RecordedEvent], random: Any) -> None:
    by_row: dict[Any, list[Row]] = {}
    for event in events:
        for row in evolve(event, decode(event)):
            by_row.setdefault((row.table, key_of(row)), []).append(row)
    for rows in by_row.values():
        one, two, three = (random.choice(rows) for _ in range(3))
        assert merge(one, one) == one
        assert merge(one, two) == merge(two, one)
        assert merge(merge(one, two), three) == merge(one, merge(two, three))
        assert merge(merge(one, two), two) == merge(one, two)


# ── how the telling is cut ───────────────────────────────────────────────────────────────────────────────────────


@laws
@given(histories())
def test_any_prefix_is_as_good_a_start_as_none(events: list[RecordedEvent]) -> None:
    whole = fold(events)
    for split in range(len(events) + 1):
        prefix = fold(events[:split])
        before = {name: dict(rows) for name, rows in prefix.items()}  # the rows themselves are frozen
        assert fold(events[split:], prefix) == whole
        assert prefix == before, "the state that was given has changed"


@settings(laws, max_examples=12)
@given(histories())
def test_columns_say_what_rows_say(connection: engine.Connection, events: list[RecordedEvent]) -> None:
    assert plain(projected(connection, [events])) == plain(fold(events))


@settings(laws, max_examples=18)
@given(histories(), st.data())
def test_batches_merge_into_what_rows_say(
    connection: engine.Connection, events: list[RecordedEvent], data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(events)), max_size=4).map(sorted))
    batches = [events[start:end] for start, end in pairwise([0, *cuts, len(events)])]
    assert plain(projected(connection, batches)) == plain(fold(events))


def test_no_events_are_no_rows() -> None:
    assert fold([]) == {}
    assert batch([]).chunks == []


# ── how the telling is ordered and repeated ──────────────────────────────────────────────────────────────────────


@laws
@given(histories(), st.data())
def test_repetitions_change_nothing(events: list[RecordedEvent], data: st.DataObject) -> None:
    repeated = data.draw(st.lists(st.sampled_from(events), max_size=10))
    assert fold(repeated, fold(events)) == fold(events)


@laws
@given(histories(), st.data())
def test_no_order_of_delivery_changes_a_row(events: list[RecordedEvent], data: st.DataObject) -> None:
    """Except for conflicts of run keys: which of two requests came first is what the order of the ledger says."""
    shuffled = data.draw(st.permutations(events))
    assert _without_conflicts(fold(shuffled)) == _without_conflicts(fold(events))


@laws
@given(histories(), st.data())
def test_conflicts_are_stable_when_the_ledger_is_told_again(events: list[RecordedEvent], data: st.DataObject) -> None:
    """Delivery at least once, in the order of the ledger: it may go back and tell a stretch again."""
    end = data.draw(st.integers(1, len(events)))
    start = data.draw(st.integers(0, end))
    told = [*events[:end], *events[start:end], *events[end:]]
    assert fold(told).get(CONFLICTS) == fold(events).get(CONFLICTS)


@laws
@given(histories_without_ties())
def test_a_forgotten_fact_that_is_recorded_again_is_no_news(events: list[RecordedEvent]) -> None:
    """The ledger forgets idempotency keys after a while; a late repetition then gets an id and a position of its own.

    Between things that happened at the very same moment the later id decides, so that those are not asked for here.
    """
    state = fold(events)
    for event in events:
        assert _content(fold([again(event, events)], state)) == _content(state)


def _without_conflicts(state: State) -> State:
    return {name: rows for name, rows in state.items() if name != CONFLICTS}


def _content(state: State) -> dict[str, dict[Any, dict[str, Any]]]:
    return {name: {key: _said(row) for key, row in rows.items()} for name, rows in state.items()}


def _said(row: Row) -> dict[str, Any]:
    table = TABLES_BY_NAME[row.table]
    versions = {group.version for group in all_groups(table)}
    # What an asset was called follows the newest event; who it is, is its id.
    labels = {"asset_key"} if row.table == "partition_status" else set()
    return {name: value for name, value in msgspec.structs.asdict(row).items() if name not in versions | labels}

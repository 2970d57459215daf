"""What every ledger promises, on memory, SQLite and PostgreSQL alike."""

from __future__ import annotations

import random
import threading
import time
from datetime import datetime, timedelta, timezone

import msgspec
import pytest

from servo.errors import AppendConflict, IdempotencyMismatch, InvalidInput, LedgerNotFound
from servo.events import GENESIS, Proposal, decode
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.definitions import Source
from servo.events.fact import Fact
from servo.events.model import RunRequested, TaskFinished
from servo.ids import ulid_offset
from servo.ledger import Condition, Head, Ledger, Receipt, Workspace
from servo.ledger.protocol import holder_of
from tests.contract.support import NOW, Impostor, Store, cancel, cancels, everything, verify, verify_ledger
from tests.support.earlier import request_before

pytest_plugins = ("tests.contract.fixtures",)


# ── append ──────────────────────────────────────────────────────────────────────────────────────────────


def test_an_empty_ledger_has_a_head_before_the_first_event(ledger: Ledger) -> None:
    assert ledger.head() == Head()
    assert ledger.read(0) == []


def test_receipts_come_in_the_order_of_the_proposals(ledger: Ledger) -> None:
    receipts = ledger.append([cancel("b"), cancel("a"), cancel("c")])
    events = everything(ledger)
    assert [event.idempotency_key for event in events] == ["run_cancel:b", "run_cancel:a", "run_cancel:c"]
    assert receipts == [Receipt(event_id=event.event_id, position=event.position) for event in events]
    assert [receipt.position for receipt in receipts] == [1, 2, 3]


def test_every_field_comes_back(ledger: Ledger) -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    proposal = Proposal(
        fact=cancel("naïve/☃/🦆", 'a "quoted"\ttab\nline \\ {json}\\N').fact,
        occurred_at=NOW.astimezone(east),
        actor="token: \\N\tänne\n",
        correlation_id="another subject",
        causation_id="01J00000000000000000000000",
    )
    ledger.append([proposal])
    (event,) = everything(ledger)
    assert decode(event) == proposal.fact
    assert event.occurred_at == NOW
    assert event.occurred_at.utcoffset() == timedelta(0)
    assert (event.tenant_id, event.workspace_id) == ("acme", "main")
    assert (event.event_type, event.event_version) == ("RunCancelRequested", 1)
    assert event.actor == proposal.actor
    assert event.idempotency_key == "run_cancel:naïve/☃/🦆"
    assert event.correlation_id == "another subject"
    assert event.causation_id == "01J00000000000000000000000"
    verify_ledger(ledger)


def test_a_fact_is_about_its_own_subject_unless_told_otherwise(ledger: Ledger) -> None:
    ledger.append([cancel("r"), cancel("s", subject="t")])
    assert [event.correlation_id for event in everything(ledger)] == ["r", "t"]
    assert [event.causation_id for event in everything(ledger)] == [None, None]


def test_an_empty_append_does_nothing(ledger: Ledger) -> None:
    assert ledger.append([]) == []
    assert ledger.head() == Head()


def test_an_empty_append_ignores_a_stale_condition(ledger: Ledger) -> None:
    ledger.append(cancels(2))
    assert ledger.append([], Condition(position=0)) == []


def test_a_batch_of_500(ledger: Ledger) -> None:
    receipts = ledger.append(cancels(500))
    assert [receipt.position for receipt in receipts] == list(range(1, 501))
    assert len(verify_ledger(ledger)) == 500


def test_12000_partitions_in_one_event_come_back(ledger: Ledger) -> None:
    keys = [f"day=d:2025-01-{day:02d},shop=i:{shop}" for day in range(1, 31) for shop in range(400)]
    fact = TaskFinished(
        run_id="run_x",
        task_key="load",
        attempt=1,
        asset_id="018f0000-0000-7000-8000-000000000000",
        asset_key="demo/sales",
        outcome=Outcome.SUCCEEDED,
        partitions=PartitionOutcomes(keys=keys, rows=list(range(12_000)), content_hash="0" * 64),
    )
    ledger.append([cancel("a"), Proposal(fact=fact, occurred_at=NOW, actor="worker"), cancel("b")])
    events = verify_ledger(ledger)
    assert decode(events[1]) == fact
    repeated = ledger.append([Proposal(fact=fact, occurred_at=NOW, actor="worker")])
    assert repeated == [Receipt(event_id=events[1].event_id, position=2, duplicate=True)]


def test_a_time_without_a_timezone_is_refused(ledger: Ledger) -> None:
    naive = datetime(2025, 1, 15, 12)  # noqa: DTZ001 – that is the point
    proposal = Proposal(fact=cancel("r").fact, occurred_at=naive, actor="tester")
    with pytest.raises(InvalidInput, match="without a timezone: 2025-01-15T12:00:00"):
        ledger.append([cancel("before"), proposal])
    assert ledger.head() == Head()


@pytest.mark.parametrize("bad", ["nul\0", "surrogate\ud800"])
@pytest.mark.parametrize("field", ["actor", "correlation_id", "causation_id"])
def test_text_that_a_backend_cannot_hold_is_refused(ledger: Ledger, field: str, bad: str) -> None:
    proposal = msgspec.structs.replace(cancel("r"), **{field: bad})
    with pytest.raises(InvalidInput, match=field.split("_", maxsplit=1)[0]):
        ledger.append([cancel("before"), proposal])
    assert ledger.head() == Head()


@pytest.mark.parametrize("bad", ["nul\0", "surrogate\ud800", "long" * 501, "☃" * 667])
def test_an_idempotency_key_that_a_backend_cannot_hold_is_refused(ledger: Ledger, bad: str) -> None:
    with pytest.raises(InvalidInput, match="idempotency key of RunCancelRequested"):
        ledger.append([cancel("before"), cancel(bad, subject="s")])
    assert ledger.head() == Head()


def test_the_longest_keys_are_held(ledger: Ledger) -> None:
    # Random, because PostgreSQL would compress a repeated letter before it measures.
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    long = "".join(random.Random(1).choices(alphabet, k=2000 - len("run_cancel:")))
    (first,) = ledger.append([cancel(long)])
    assert ledger.append([cancel(long)])[0].event_id == first.event_id


def test_a_nul_in_a_payload_is_held(ledger: Ledger) -> None:
    proposal = cancel("r", "a\0b")
    ledger.append([proposal])
    assert decode(everything(ledger)[0]) == proposal.fact


def test_a_lone_surrogate_in_a_payload_is_refused(ledger: Ledger) -> None:
    with pytest.raises(InvalidInput, match="RunCancelRequested"):
        ledger.append([cancel("before"), cancel("r", "\ud800")])
    assert ledger.head() == Head()


# ── idempotency ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_known_key_is_skipped_with_its_original_id(ledger: Ledger) -> None:
    first, _ = ledger.append([cancel("a"), cancel("b")])
    new, again = ledger.append([cancel("c"), cancel("a")])
    assert again == Receipt(event_id=first.event_id, position=1, duplicate=True)
    assert new.position == 3
    assert not new.duplicate
    assert len(verify_ledger(ledger)) == 3


def test_a_key_twice_in_one_batch_is_recorded_once(ledger: Ledger) -> None:
    first, other, again = ledger.append([cancel("a"), cancel("b"), cancel("a")])
    assert again == Receipt(event_id=first.event_id, position=1, duplicate=True)
    assert other.position == 2
    assert len(verify_ledger(ledger)) == 2


def test_a_duplicate_need_not_agree_on_who_and_when(ledger: Ledger) -> None:
    (first,) = ledger.append([cancel("a")])
    later = Proposal(fact=cancel("a").fact, occurred_at=NOW + timedelta(days=1), actor="somebody else")
    assert ledger.append([later])[0].event_id == first.event_id
    assert everything(ledger)[0].actor == "tester"


def test_the_same_key_with_another_payload_is_refused(ledger: Ledger) -> None:
    ledger.append([cancel("a", "why")])
    before = ledger.head()
    with pytest.raises(IdempotencyMismatch, match="run_cancel:a") as refused:
        ledger.append([cancel("x"), cancel("y"), cancel("a", "why not"), cancel("z")])
    assert refused.value.idempotency_key == "run_cancel:a"
    assert ledger.head() == before
    assert len(verify_ledger(ledger)) == 1


def test_the_same_key_with_another_payload_in_one_batch_is_refused(ledger: Ledger) -> None:
    with pytest.raises(IdempotencyMismatch, match="run_cancel:a"):
        ledger.append([cancel("a", "why"), cancel("b"), cancel("a", "why not")])
    assert ledger.head() == Head()
    assert everything(ledger) == []


def test_the_same_key_of_another_event_type_is_refused(ledger: Ledger) -> None:
    ledger.append([cancel("a", "why")])
    impostor = Proposal(fact=Impostor(run_id="a", reason="why"), occurred_at=NOW, actor="tester")
    with pytest.raises(IdempotencyMismatch, match="run_cancel:a"):
        ledger.append([cancel("b"), impostor])
    assert len(everything(ledger)) == 1


@pytest.mark.parametrize("trimmed", [0, 1])
def test_a_fact_that_an_earlier_version_recorded_is_the_same_fact(ledger: Ledger, trimmed: int) -> None:
    def proposal(fact: Fact) -> Proposal:
        return Proposal(fact=fact, occurred_at=NOW, actor="tester")

    fact = RunRequested(
        run_id="run_1",
        run_key="manual:1",
        request_fingerprint="f",
        asset_selection=["shop/orders"],
        source=Source(kind="manual", id="alice"),
        tags={"team": "sales"},
        retry_of="run_0",
        accept_schema=True,
    )
    (first,) = ledger.append([proposal(request_before(fact))])
    ledger.trim(trimmed)
    (again,) = ledger.append([proposal(fact)])
    assert (again.event_id, again.duplicate) == (first.event_id, True)
    for other in ({"accept_schema": False}, {"queue": "x"}, {"tags": {}}):
        with pytest.raises(IdempotencyMismatch, match="runreq:manual:1"):
            ledger.append([proposal(msgspec.structs.replace(fact, **other))])


def test_a_refused_append_leaves_its_keys_free(ledger: Ledger) -> None:
    ledger.append([cancel("a", "why")])
    with pytest.raises(IdempotencyMismatch):
        ledger.append([cancel("b", "one"), cancel("a", "why not")])
    (receipt,) = ledger.append([cancel("b", "two")])
    assert not receipt.duplicate
    assert len(verify_ledger(ledger)) == 2


# ── conditions ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_condition_on_the_whole_ledger_fails_after_any_event(ledger: Ledger) -> None:
    ledger.append(cancels(3))
    with pytest.raises(AppendConflict) as refused:
        ledger.append([cancel("x"), cancel("y")], Condition(position=2))
    assert (refused.value.expected, refused.value.actual) == (2, 3)
    assert len(everything(ledger)) == 3
    assert ledger.append([cancel("x"), cancel("y")], Condition(position=3))[1].position == 5


def test_a_condition_on_subjects_fails_after_an_event_of_theirs(ledger: Ledger) -> None:
    ledger.append([cancel("a"), cancel("b"), cancel("c")])
    with pytest.raises(AppendConflict, match=r"a, b changed.*position 1.*at 2") as refused:
        ledger.append([cancel("x")], Condition(position=1, subjects=frozenset({"a", "b"})))
    assert (refused.value.expected, refused.value.actual) == (1, 2)
    assert len(everything(ledger)) == 3


def test_a_condition_on_subjects_holds_after_events_of_others(ledger: Ledger) -> None:
    ledger.append([cancel("a"), cancel("b"), cancel("c")])
    (receipt,) = ledger.append([cancel("x")], Condition(position=1, subjects=frozenset({"a", "new"})))
    assert receipt.position == 4


def test_a_condition_on_no_subject_always_holds(ledger: Ledger) -> None:
    ledger.append(cancels(3))
    assert ledger.append([cancel("x")], Condition(position=0, subjects=frozenset()))[0].position == 4


def test_an_append_of_duplicates_alone_ignores_a_stale_condition(ledger: Ledger) -> None:
    first = ledger.append([cancel("a"), cancel("b")], Condition(position=0))
    again = ledger.append([cancel("a"), cancel("b")], Condition(position=0))
    assert [receipt.event_id for receipt in again] == [receipt.event_id for receipt in first]
    assert all(receipt.duplicate for receipt in again)


def test_one_new_event_among_duplicates_makes_the_condition_count(ledger: Ledger) -> None:
    ledger.append([cancel("a"), cancel("b")])
    with pytest.raises(AppendConflict):
        ledger.append([cancel("a"), cancel("c")], Condition(position=0))
    assert len(everything(ledger)) == 2


# ── order ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_chain_starts_at_genesis_and_covers_every_field(ledger: Ledger) -> None:
    ledger.append(cancels(3))
    events = verify_ledger(ledger)
    assert GENESIS not in {event.chain_hash for event in events}
    for changed in (
        {"actor": "else"},
        {"position": 2},
        {"occurred_at": NOW + timedelta(microseconds=1)},
        {"payload": b'{"run_id":"run_1"}'},
        {"workspace_id": "other"},
        {"causation_id": "x"},
    ):
        with pytest.raises(AssertionError):
            verify([msgspec.structs.replace(events[0], **changed), *events[1:]])


def test_ids_grow_even_when_the_clock_goes_back(store: Store) -> None:
    times = iter([NOW + timedelta(seconds=second) for second in (5, 3, 4, 0, 0, -3600, 10)])
    ledger = store.open(clock=lambda: next(times))
    for number in range(5):
        ledger.append([cancel(f"a{number}")])
    ledger.append([cancel("b"), cancel("c")])
    verify_ledger(ledger)


def test_ids_grow_across_machines_whose_clocks_differ(durable_store: Store) -> None:
    ahead = durable_store.open(clock=lambda: NOW + timedelta(hours=1))
    behind = durable_store.open(clock=lambda: NOW)
    for number in range(3):
        ahead.append([cancel(f"ahead{number}")])
        behind.append([cancel(f"behind{number}"), cancel(f"behind{number}x")])
    assert len(verify_ledger(behind)) == 9


def test_read_pages_through_everything_once(ledger: Ledger) -> None:
    for batch in range(5):
        ledger.append(cancels(7, f"b{batch}"))
    for page in (1, 3, 35, 100):
        assert [event.position for event in everything(ledger, page)] == list(range(1, 36))
    assert [event.position for event in ledger.read(10, 4)] == [11, 12, 13, 14]
    assert ledger.read(35) == []
    assert ledger.read(1000) == []


# ── head and waiting ────────────────────────────────────────────────────────────────────────────────────


def test_head_is_the_newest_event(ledger: Ledger) -> None:
    ledger.append(cancels(3))
    last = everything(ledger)[-1]
    assert ledger.head() == Head(position=3, event_id=last.event_id, chain_hash=last.chain_hash, occurred_at=NOW)


def test_head_does_not_wait_when_there_is_something_already(ledger: Ledger) -> None:
    ledger.append(cancels(3))
    started = time.monotonic()
    assert ledger.head(beyond=2, timeout=30).position == 3
    assert time.monotonic() - started < 25


def test_head_times_out_when_nothing_comes(ledger: Ledger) -> None:
    ledger.append(cancels(3))
    started = time.monotonic()
    assert ledger.head(beyond=3, timeout=0.3).position == 3
    assert time.monotonic() - started > 0.29


def test_head_without_time_answers_at_once(ledger: Ledger) -> None:
    assert ledger.head(beyond=7) == Head()


def test_head_is_woken_by_an_append_of_another_thread(ledger: Ledger) -> None:
    ledger.append([cancel("a")])
    woken: list[tuple[int, float]] = []

    def wait() -> None:
        position = ledger.head(beyond=1, timeout=30).position
        woken.append((position, time.monotonic()))

    waiter = threading.Thread(target=wait)
    waiter.start()
    waiter.join(0.3)  # so that it is waiting, not about to look for the first time
    assert waiter.is_alive()
    appended = time.monotonic()
    ledger.append([cancel("b")])
    waiter.join(30)
    ((position, at),) = woken
    assert position == 2
    # Far below the pause after which a PostgreSQL waiter would look again without having been woken.
    assert at - appended < 0.7


def test_head_sleeps_through_appends_up_to_the_position(ledger: Ledger) -> None:
    woken: list[int] = []
    waiter = threading.Thread(target=lambda: woken.append(ledger.head(beyond=2, timeout=30).position))
    waiter.start()
    for number in range(2):
        ledger.append([cancel(f"r{number}")])
        waiter.join(0.1)
        assert waiter.is_alive()
    ledger.append([cancel("last")])
    waiter.join(30)
    assert woken == [3]


# ── position_at ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 2, 3, 8, 33])
def test_position_at_finds_every_id_and_what_lies_between(store: Store, count: int) -> None:
    times = iter([NOW + timedelta(seconds=second) for second in range(count)])
    ledger = store.open(clock=lambda: next(times))
    for number in range(count):
        ledger.append([cancel(f"r{number}")])
    for event in everything(ledger):
        assert ledger.position_at(event.event_id) == event.position
        assert ledger.position_at(ulid_offset(event.event_id, 1)) == event.position
        assert ledger.position_at(ulid_offset(event.event_id, -1)) == event.position - 1
    assert ledger.position_at("0" * 26) == 0
    assert ledger.position_at("7" + "Z" * 25) == count


def test_position_at_of_an_empty_ledger_is_zero(ledger: Ledger) -> None:
    assert ledger.position_at("7" + "Z" * 25) == 0


# ── trim ────────────────────────────────────────────────────────────────────────────────────────────────


def test_trim_forgets_the_oldest_events_and_keeps_the_chain(ledger: Ledger) -> None:
    ledger.append(cancels(10))
    events, before = everything(ledger), ledger.head()
    ledger.trim(4)
    head = ledger.head()
    assert (head.position, head.event_id, head.chain_hash) == (10, before.event_id, before.chain_hash)
    assert (head.trimmed_position, head.trimmed_chain_hash) == (4, events[3].chain_hash)
    assert ledger.read(0) == events[4:]
    assert ledger.read(2, 3) == events[4:7]
    assert ledger.read(6, 2) == events[6:8]
    assert ledger.position_at(events[1].event_id) == 4
    assert ledger.position_at(events[3].event_id) == 4
    assert ledger.position_at(events[4].event_id) == 5
    verify_ledger(ledger)


def test_trim_is_repeatable_and_never_goes_back(ledger: Ledger) -> None:
    ledger.append(cancels(5))
    ledger.trim(3)
    head = ledger.head()
    ledger.trim(3)
    ledger.trim(1)
    assert ledger.head() == head
    ledger.trim(4)
    assert [event.position for event in ledger.read(0)] == [5]


def test_trim_beyond_the_end_is_refused(ledger: Ledger) -> None:
    ledger.append(cancels(3))
    with pytest.raises(InvalidInput, match="cannot trim to 4: the ledger ends at 3"):
        ledger.trim(4)
    assert len(everything(ledger)) == 3


def test_a_trimmed_event_keeps_its_key(ledger: Ledger) -> None:
    long = "why " * 1000  # stored deflated
    first, second, _ = ledger.append([cancel("a", long), cancel("b"), cancel("c")])
    ledger.trim(1)
    ledger.trim(2)
    assert ledger.append([cancel("b"), cancel("a", long)]) == [
        Receipt(event_id=second.event_id, position=2, duplicate=True),
        Receipt(event_id=first.event_id, position=1, duplicate=True),
    ]
    for other in (cancel("a", "why"), cancel("b", "why")):
        with pytest.raises(IdempotencyMismatch, match="run_cancel"):
            ledger.append([cancel("x"), other])
    impostor = Proposal(fact=Impostor(run_id="b"), occurred_at=NOW, actor="tester")
    with pytest.raises(IdempotencyMismatch, match="run_cancel:b"):
        ledger.append([impostor])
    assert ledger.append([cancel("x"), cancel("b")])[0].position == 4
    verify_ledger(ledger)


def test_who_has_a_key_can_be_asked_without_recording_anything(ledger: Ledger) -> None:
    assert holder_of(ledger, cancel("a")) is None
    first, second, _ = ledger.append([cancel("a"), cancel("b", "why " * 1000), cancel("c")])
    for trimmed in (0, 1, 3):
        ledger.trim(trimmed)
        assert holder_of(ledger, cancel("a")) == first.event_id
        assert holder_of(ledger, cancel("b", "in other words")) == second.event_id
        assert holder_of(ledger, cancel("d")) is None
    assert ledger.head().position == 3
    assert ledger.append([cancel("d")])[0].position == 4
    verify_ledger(ledger)


def test_a_forgotten_key_is_free_again(ledger: Ledger) -> None:
    receipts = ledger.append([cancel("a"), cancel("b"), cancel("c"), cancel("d")])
    ledger.trim(3, forget_keys=receipts[0].event_id)
    again, kept, _ = ledger.append([cancel("a", "another payload"), cancel("b"), cancel("c")])
    assert (again.position, again.duplicate) == (5, False)
    assert (kept.position, kept.duplicate) == (2, True)
    ledger.trim(3, forget_keys=receipts[1].event_id)  # nothing more to trim, and yet more to forget
    again, kept = ledger.append([cancel("b", "another payload"), cancel("c")])
    assert (again.position, again.duplicate) == (6, False)
    assert (kept.position, kept.duplicate) == (3, True)
    verify_ledger(ledger)


def test_only_keys_of_trimmed_events_are_forgotten(ledger: Ledger) -> None:
    receipts = ledger.append([cancel("a"), cancel("b")])
    ledger.trim(1, forget_keys=receipts[1].event_id)
    again, live = ledger.append([cancel("a"), cancel("b")])
    assert (again.position, again.duplicate) == (3, False)
    assert (live.position, live.duplicate) == (2, True)


def test_the_keys_of_many_trimmed_events_are_kept(ledger: Ledger) -> None:
    receipts = ledger.append(cancels(1203))
    ledger.trim(1202, forget_keys=receipts[0].event_id)
    again = ledger.append(cancels(1203)[1:])
    assert [receipt.event_id for receipt in again] == [receipt.event_id for receipt in receipts[1:]]


def test_a_ledger_trimmed_to_its_end_goes_on(ledger: Ledger) -> None:
    ledger.append(cancels(3))
    last = everything(ledger)[-1]
    ledger.trim(3)
    assert ledger.read(0) == []
    assert ledger.position_at(last.event_id) == 3
    assert ledger.append([cancel("x")])[0].position == 4
    assert verify_ledger(ledger)[0].event_id > last.event_id


def test_a_condition_older_than_the_trim_still_sees_what_is_left(ledger: Ledger) -> None:
    ledger.append([cancel("a"), cancel("b"), cancel("c")])
    ledger.trim(2)
    with pytest.raises(AppendConflict):
        ledger.append([cancel("x")], Condition(position=0, subjects=frozenset({"c"})))
    with pytest.raises(AppendConflict):
        ledger.append([cancel("x")], Condition(position=0))


def test_a_condition_that_reaches_into_the_trimmed_part_does_not_hold(ledger: Ledger) -> None:
    ledger.append([cancel("a"), cancel("b"), cancel("c"), cancel("d")])
    ledger.trim(3)
    for position in (0, 1, 2):
        with pytest.raises(AppendConflict, match="b changed cannot be told") as refused:
            ledger.append([cancel("x")], Condition(position=position, subjects=frozenset({"b"})))
        assert (refused.value.expected, refused.value.actual) == (position, 3)
    assert ledger.append([cancel("b")], Condition(position=0, subjects=frozenset({"b"})))[0].duplicate
    assert ledger.append([cancel("x")], Condition(position=0, subjects=frozenset()))[0].position == 5
    assert ledger.append([cancel("y")], Condition(position=3, subjects=frozenset({"b"})))[0].position == 6


# ── several ledgers in one store ────────────────────────────────────────────────────────────────────────


def test_workspaces_of_one_store_never_see_each_other(durable_store: Store) -> None:
    one, two, three = (
        durable_store.open(Workspace(tenant, name))
        for tenant, name in [("acme", "one"), ("acme", "two"), ("other", "one")]
    )
    one.append([cancel("a", "one")])
    two.append([cancel("a", "two"), cancel("b", "two")])
    assert three.head() == Head()
    assert two.append([cancel("c")], Condition(position=2))[0].position == 3
    assert one.append([cancel("d")], Condition(position=1, subjects=frozenset({"b"})))[0].position == 2
    two.trim(2)
    assert one.append([cancel("b", "one")])[0].position == 3  # a key that only the other workspace's archive holds
    assert [event.workspace_id for event in verify_ledger(one)] == ["one", "one", "one"]
    assert [event.position for event in verify_ledger(two)] == [3]
    assert one.head(beyond=3, timeout=0.05).position == 3
    assert one.position_at(two.read(0)[0].event_id) <= 2


def test_a_reopened_ledger_has_everything(durable_store: Store) -> None:
    ledger = durable_store.open()
    receipts = ledger.append(cancels(20))
    ledger.trim(5)
    events, head = everything(ledger), ledger.head()
    ledger.close()
    again = durable_store.open(create=False)
    assert again.head() == head
    assert verify_ledger(again) == events
    repeated = again.append([cancel("run_19"), cancel("new"), cancel("run_2")])
    assert repeated[0] == Receipt(event_id=receipts[19].event_id, position=20, duplicate=True)
    assert repeated[1].position == 21
    assert repeated[2] == Receipt(event_id=receipts[2].event_id, position=3, duplicate=True)


def test_two_ledgers_on_one_store_see_each_others_appends(durable_store: Store) -> None:
    one, two = durable_store.open(), durable_store.open()
    one.append([cancel("a")])
    assert two.append([cancel("a")])[0].duplicate
    two.append([cancel("b")])
    assert one.head().position == 2


def test_a_ledger_that_is_not_there_is_not_made_unasked(durable_store: Store) -> None:
    with pytest.raises(LedgerNotFound, match="there is no ledger"):
        durable_store.open(create=False)
    with pytest.raises(LedgerNotFound, match="there is no ledger"):
        durable_store.open(create=False)  # the first refusal left nothing behind


def test_a_workspace_that_is_not_there_is_not_made_unasked(durable_store: Store) -> None:
    durable_store.open()
    with pytest.raises(LedgerNotFound, match="no workspace acme/other"):
        durable_store.open(Workspace("acme", "other"), create=False)


def test_threads_share_a_ledger(store: Store) -> None:
    ledger = store.open()
    problems: list[BaseException] = []

    def work(name: int) -> None:
        try:
            for number in range(10):
                ledger.append([cancel(f"{name}_{number}"), cancel(f"shared_{number}")])
                ledger.read(0, 10)
        except BaseException as problem:  # noqa: BLE001 – a thread would swallow it
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(verify_ledger(ledger)) == 4 * 10 + 10

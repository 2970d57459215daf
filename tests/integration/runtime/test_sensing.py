"""Sensors on a real ledger, asked in real processes: messages, cursors, people, and what goes wrong."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from pathlib import Path

import msgspec
import pytest

from servo.errors import Conflict, InvalidInput, NotFound, SensorNotFound
from servo.events import Proposal
from servo.events.automation import SensorCursorReset, SensorDeleted, SensorPaused, SensorResumed
from servo.events.model import DynamicPartitionsChanged
from tests.support.automatic import START, Automatic, automatic
from tests.support.idle import at_work
from tests.support.workshop import ME

DEFINITIONS = """
from datetime import timedelta
from pathlib import Path
import servo
from servo import Daily, Dynamic, asset

days = Daily("date", start="2025-01-01")

@asset(partitions=days)
def orders(context): ...

@asset(partitions=Dynamic("customer"))
def bills(context): ...

@servo.sensor(kind="push")
def pushed(context):
    said = context.message.json()
    if "boom" in said:
        raise KeyError("day")
    for number, day in enumerate(said.get("days", [])):
        key = said["keys"][number] if "keys" in said else None
        yield servo.RunRequest(key=key, select="orders", partitions=[day], tags=said.get("tags", {}))

@servo.sensor(min_interval=timedelta(seconds=10))
def counting(context):
    count = int(context.cursor or 0) + 1
    context.cursor = str(count)
    yield servo.RunRequest(key=f"n{count}", select="orders", partitions=["2025-01-02"])

@servo.sensor(min_interval=timedelta(seconds=10))
def failing(context):
    context.cursor = "moved"
    raise RuntimeError("no luck")

@servo.sensor
def customers(context):
    names = Path("customers.txt").read_text().split()
    context.add_partitions("customer", names)
    for name in names:
        yield servo.RunRequest(key=name, select="bills", partitions=[f"customer={name}"])

@servo.sensor
def keyless(context):
    yield servo.RunRequest(select="orders", partitions=["2025-01-02"])
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Automatic]:
    with automatic(tmp_path, DEFINITIONS) as found:
        yield found


def days(*given: str, **more: object) -> bytes:
    return msgspec.json.encode({"days": list(given), **more})


def say(shop: Automatic, *facts: object) -> None:
    shop.project.ledger.append([Proposal(fact=fact, occurred_at=shop.project.clock(), actor=ME) for fact in facts])  # type: ignore[arg-type]


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_becomes_a_run(shop: Automatic) -> None:
    done = shop.send("pushed", "m1", days("2025-01-02"))
    (fact,), (asked,) = shop.evaluations, shop.requests
    assert (done.status, done.duplicate, done.run_ids) == ("TRIGGERED", False, [asked.run_id])
    assert fact.idempotency_key == f"sensor_eval:{done.sensor_id}:msg:m1"
    assert asked.run_key == f"sensor:{done.sensor_id}:msg:m1"
    assert (asked.source.kind, asked.source.id, asked.source.detail) == ("sensor", done.sensor_id, "msg:m1")
    assert fact.run_keys == [asked.run_key]
    with at_work(shop):
        shop.until(lambda: shop.runs.progress(asked.run_id).ended, "it ran")


def test_invariant_the_same_message_is_a_no_op(shop: Automatic) -> None:
    with ThreadPoolExecutor(16) as threads:
        sent = list(threads.map(lambda _: shop.send("pushed", "m1", days("2025-01-02")), range(48)))
    assert len(shop.evaluations) == len(shop.requests) == 1
    assert Counter(one.duplicate for one in sent) == {False: 1, True: 47}
    assert len({(one.event_id, *one.run_ids, one.status) for one in sent}) == 1


def test_a_message_that_means_something_else_by_now_gives_its_first_answer(shop: Automatic) -> None:
    first = shop.send("pushed", "m1", days("2025-01-02"))
    again = shop.send("pushed", "m1", days("2025-01-03", "2025-01-04", keys=["a", "b"]))
    assert again.duplicate
    assert (again.event_id, again.run_keys, again.run_ids) == (first.event_id, first.run_keys, first.run_ids)
    assert len(shop.evaluations) == len(shop.requests) == 1


def test_several_requests_have_their_own_keys(shop: Automatic) -> None:
    done = shop.send("pushed", "m1", days("2025-01-02", "2025-01-03", keys=["a", "b"]))
    assert done.run_keys == [f"sensor:{done.sensor_id}:a", f"sensor:{done.sensor_id}:b"]
    failed = shop.send("pushed", "m2", days("2025-01-02", "2025-01-03"))
    assert failed.status == "FAILED"
    assert "no key" in failed.reason
    assert len(shop.requests) == 2


def test_nothing_asked_for_is_no_data(shop: Automatic) -> None:
    assert shop.send("pushed", "m1", days()).status == "NO_DATA"
    assert shop.requests == []


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"boom": 1}', "KeyError: 'day'"),
        (b"not json", "not JSON"),
        (days("2030-01-01T00"), "2030-01-01T00"),
        (days("1999-01-01"), "1999-01-01"),
    ],
)
def test_what_a_sensor_makes_of_a_message_may_fail(shop: Automatic, data: bytes, why: str) -> None:
    done = shop.send("pushed", "m1", data)
    assert done.status == "FAILED"
    assert why in done.reason
    assert "\n" not in done.reason
    assert shop.requests == []
    (fact,) = shop.evaluations
    assert fact.message == {"id": "m1", "data": base64.b64encode(data).decode()}


def test_who_takes_no_messages(shop: Automatic) -> None:
    before = shop.project.ledger.head().position
    with pytest.raises(SensorNotFound):
        shop.send("nobody", "m1")
    with pytest.raises(InvalidInput, match="it polls"):
        shop.send("counting", "m1")
    assert shop.project.ledger.head().position == before


def test_while_paused_a_message_is_kept_and_can_be_evaluated_later_once(shop: Automatic) -> None:
    sensor = shop.sensor("pushed")
    say(shop, SensorPaused(sensor_id=sensor.id, version=2))
    assert shop.send("pushed", "m1", days("2025-01-02"), kind="x").status == "SKIPPED"
    assert shop.requests == []
    say(shop, SensorResumed(sensor_id=sensor.id, version=3))
    again = shop.send("pushed", "m1", days("2025-01-02"), kind="x")
    assert (again.status, again.duplicate) == ("SKIPPED", True)
    by_hand = shop.evaluate("pushed", message_id="m1")
    assert by_hand.run_keys == [f"sensor:{sensor.id}:msg:m1"]
    shop.evaluate("pushed", message_id="m1")
    assert len(shop.requests) == 1
    assert [fact.status for fact in shop.evaluations] == ["SKIPPED", "TRIGGERED", "TRIGGERED"]
    shop.send("pushed", "m2", days("2025-01-03"))
    with pytest.raises(Conflict, match="was answered"):
        shop.evaluate("pushed", message_id="m2")
    with pytest.raises(NotFound):
        shop.evaluate("pushed", message_id="m9")


def test_by_hand_with_a_sample(shop: Automatic) -> None:
    sample = days("2025-01-02").decode()
    trial = shop.evaluate("pushed", data=sample, dry_run=True)
    assert (trial.status, trial.event_id, len(trial.run_keys)) == ("TRIGGERED", None, 1)
    assert shop.evaluations == []
    done = shop.evaluate("pushed", data=sample, request_id="r1")
    again = shop.evaluate("pushed", data=sample, request_id="r1")
    assert done.run_keys == [f"sensor:{done.sensor_id}:manual:r1"]
    assert (again.duplicate, again.event_id) == (True, done.event_id)
    with pytest.raises(InvalidInput, match="nothing to evaluate"):
        shop.evaluate("pushed")


def test_by_hand_a_run_that_is_there_stays_as_it_is(shop: Automatic) -> None:
    """Whoever asks for it again, with other tags, or for something else under its key, gets no error."""

    def asked(number: int, day: str) -> str:
        return json.dumps({"days": [day], "keys": ["k"], "tags": {"number": str(number)}})

    first = shop.evaluate("pushed", data=asked(1, "2025-01-02"), request_id="r1")
    again = shop.evaluate("pushed", data=asked(2, "2025-01-02"), request_id="r2")
    other = shop.evaluate("pushed", data=asked(3, "2025-01-03"), request_id="r3")
    shop.evaluate("pushed", data=asked(4, "2025-01-03"), request_id="r4")
    assert (len(first.started), again.started, again.run_ids) == (1, [], first.run_ids)
    assert other.run_ids == first.run_ids
    assert [asked.tags for asked in shop.requests] == [{"number": "1"}, {"number": "3"}]
    assert [fact.status for fact in shop.evaluations] == ["TRIGGERED"] * 4


# ── cursors ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_poll_moves_the_cursor_and_asks_for_runs_in_one_append(shop: Automatic) -> None:
    done = shop.poll("counting")
    (fact,), (asked,) = shop.evaluations, shop.requests
    assert (fact.expected_state_version, fact.cursor_before, fact.cursor_after) == (0, None, "1")
    assert fact.idempotency_key == f"sensor_eval:{done.sensor_id}:poll:{fact.poll_epoch}:none"
    assert asked.run_key == f"sensor:{done.sensor_id}:n1"
    events = [event for event in shop.events() if event.event_type in ("SensorEvaluated", "RunRequested")]
    assert events[1].position == events[0].position + 1
    sensor = shop.sensor("counting")
    assert (sensor.cursor, sensor.state_version) == ("1", 1)


def test_invariant_the_same_cursor_and_epoch_is_a_no_op(shop: Automatic) -> None:
    watch = shop.looked_at()
    first, again = shop.poll("counting", watch), shop.poll("counting", watch)  # the clock stands still
    assert not first.duplicate
    assert again.duplicate
    assert len(shop.evaluations) == len(shop.requests) == 1


def test_invariant_a_stale_evaluation_is_dropped_with_its_requests(shop: Automatic) -> None:
    watch = shop.looked_at()
    shop.poll("counting")
    shop.later(milliseconds=7)
    late = shop.poll("counting", watch)
    assert (late.status, late.run_ids) == ("SKIPPED_STALE_CURSOR", [])
    assert "version 0" in late.reason
    assert [fact.status for fact in shop.evaluations] == ["TRIGGERED", "SKIPPED_STALE_CURSOR"]
    assert len(shop.requests) == 1
    assert shop.sensor("counting").cursor == "1"


def test_of_evaluators_that_race_on_one_cursor_one_wins(shop: Automatic) -> None:
    watches = [shop.looked_at() for _ in range(8)]
    beats = count()  # a clock that never says the same twice
    shop.project.clock = lambda: START + timedelta(milliseconds=next(beats))

    def race(number: int) -> str:
        return str(shop.poll("counting", watches[number]).status)

    with ThreadPoolExecutor(8) as threads:
        ended = Counter(threads.map(race, range(8)))
    assert ended == {"TRIGGERED": 1, "SKIPPED_STALE_CURSOR": 7}
    assert len(shop.requests) == 1
    assert Counter(fact.status for fact in shop.evaluations) == ended


def test_a_cursor_that_was_reset_meanwhile_wins(shop: Automatic) -> None:
    watch = shop.looked_at()
    say(shop, SensorCursorReset(sensor_id=watch.sensor("counting").id, state_version=1, cursor="40"))
    assert shop.poll("counting", watch).status == "SKIPPED_STALE_CURSOR"
    shop.later(milliseconds=7)
    shop.poll("counting")
    assert shop.sensor("counting").cursor == "41"


def test_paused_or_gone_meanwhile(shop: Automatic) -> None:
    watch = shop.looked_at()
    sensor = watch.sensor("counting")
    say(shop, SensorPaused(sensor_id=sensor.id, version=2))
    assert shop.poll("counting", watch).status == "SKIPPED"
    say(shop, SensorDeleted(sensor_id=sensor.id, version=3))
    shop.later(milliseconds=7)
    assert shop.poll("counting", watch) is None
    assert shop.requests == []


def test_other_writers_do_not_disturb_a_poll(shop: Automatic) -> None:
    watch = shop.looked_at()
    shop.evaluate("counting")  # a person's evaluation is about the same sensor
    shop.later(milliseconds=7)
    assert shop.poll("counting", watch).status == "TRIGGERED"


def test_a_manual_evaluation_moves_no_cursor(shop: Automatic) -> None:
    shop.poll("counting")
    done = shop.evaluate("counting")
    assert done.run_keys == [f"sensor:{done.sensor_id}:n2"]
    assert (shop.sensor("counting").cursor, shop.sensor("counting").state_version) == ("1", 1)


def test_an_error_keeps_the_cursor_and_backs_off(shop: Automatic) -> None:
    waits = []
    for _ in range(4):
        done = shop.poll("failing")
        assert (done.status, done.reason) == ("FAILED", "RuntimeError: no luck (definitions.py:33)")
        sensor = shop.sensor("failing")
        assert (sensor.cursor, sensor.state_version) == (None, 0)
        assert sensor.next_poll is not None
        waits.append((sensor.next_poll - shop.project.clock()).total_seconds())
        shop.later(seconds=waits[-1] - 0.001)
        assert not shop.sensor("failing").pollable(shop.project.clock())
        shop.later(seconds=0.001)
        assert shop.sensor("failing").pollable(shop.project.clock())
    assert waits == [20, 40, 80, 160]


def test_one_evaluation_adds_partitions_and_asks_for_many_runs(shop: Automatic) -> None:
    names = [f"c{number}" for number in range(300)]
    (shop.project.settings.root / "customers.txt").write_text(" ".join(names))
    before = shop.project.ledger.head().position
    done = shop.poll("customers")
    assert len(done.run_ids) == 300
    facts = shop.facts(DynamicPartitionsChanged)
    assert [fact.added for fact in facts] == [names]
    assert shop.project.ledger.head().position == before + 302
    (shop.project.settings.root / "customers.txt").write_text("c1 c2 new")
    shop.later(milliseconds=7)
    again = shop.poll("customers")
    assert [fact.added for fact in shop.facts(DynamicPartitionsChanged)][1:] == [["new"]]
    assert len(again.run_keys) == 3
    assert len(shop.requests) == 301


def test_a_poll_without_a_key_fails_and_says_so(shop: Automatic) -> None:
    done = shop.poll("keyless")
    assert done.status == "FAILED"
    assert "has no key" in done.reason


# ── run keys ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_invariant_the_same_run_key_and_fingerprint_is_the_same_run(shop: Automatic) -> None:
    first = shop.send("pushed", "m1", days("2025-01-02", keys=["k"]))
    again = shop.send("pushed", "m2", days("2025-01-02", keys=["k"]))
    tagged = shop.send("pushed", "m3", days("2025-01-02", keys=["k"], tags={"team": "sales"}))
    assert tagged.run_ids == first.run_ids
    assert first.run_ids == again.run_ids
    assert len(shop.evaluations) == 3
    assert len(shop.requests) == 1


def test_invariant_the_same_run_key_with_another_fingerprint_is_a_recorded_conflict_and_no_run(shop: Automatic) -> None:
    first = shop.send("pushed", "m1", days("2025-01-02", keys=["k"]))
    shop.send("pushed", "m2", days("2025-01-03", keys=["k"]))
    rows = shop.project.reader.query("SELECT * FROM run_key_conflicts", fresh=True, timeout=30.0).dicts()
    assert [(row["run_key"], row["run_id"]) for row in rows] == [(first.run_keys[0], first.run_ids[0])]
    with at_work(shop):
        shop.until(lambda: shop.runs.progress(first.run_ids[0]).ended, "the first ran")
    runs = shop.project.reader.query("SELECT run_id, partitions FROM runs", fresh=True, timeout=30.0).rows
    assert [run_id for run_id, _ in runs] == first.run_ids
    assert "2025-01-02" in runs[0][1]

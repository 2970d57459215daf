"""Which moments are due, and what becomes of them: the clock is the test's, the rules are the real ones."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from servo.controllers.automation_boards import ScheduleBoard
from servo.controllers.scheduling import Filling, NotYet, Skipped, decide, upcoming
from servo.errors import AppendConflict, IdempotencyMismatch, InvalidPartition
from servo.events import Proposal
from servo.events.automation import (
    ScheduleDeleted,
    SchedulePaused,
    ScheduleResumed,
    ScheduleUpdated,
)
from servo.ledger.protocol import Condition
from tests.support.catalogs import catalog, spec
from tests.support.clockwork import ID, Clockwork, run_id_of, schedule, utc

GOLDEN: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors" / "golden.json").read_text())["cron"]


def fires(cron: str, timezone: str, after: str, until: str) -> list[str]:
    found = upcoming(schedule(cron, timezone=timezone), utc(after), utc(until), 1_000)
    return [f"{moment:%Y-%m-%dT%H:%M}" for moment in found]


# ── when ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"{case['cron']} {case['timezone']}")
def test_golden_ticks(case: dict[str, Any]) -> None:
    found = upcoming(
        schedule(case["cron"], timezone=case["timezone"]), utc(case["after"][:-1]), utc(case["until"][:-1]), 1_000
    )
    assert [f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in found] == case["ticks"]


# Each zone's two days of 2025 on which its clocks change: a fixed time in the gap fires right after it, one that comes
# twice fires once, and what fires each hour fires for each real hour.
@pytest.mark.parametrize(
    ("zone", "cron", "days", "expected"),
    [
        ("Europe/Berlin", "30 2 * * *", "2025-03-29 31", "03-30T01:00 03-31T00:30"),
        ("Europe/Berlin", "30 2 * * *", "2025-10-25 27", "10-26T00:30 10-27T01:30"),
        ("America/New_York", "30 2 * * *", "2025-03-08 10", "03-09T07:00 03-10T06:30"),
        ("America/New_York", "30 1 * * *", "2025-11-01 03", "11-02T05:30 11-03T06:30"),
        # Half an hour: 02:00 becomes 02:30 in October, and 02:00 becomes 01:30 in April.
        ("Australia/Lord_Howe", "15 2 * * *", "2025-10-04 06", "10-04T15:30 10-05T15:15"),
        ("Australia/Lord_Howe", "45 1 * * *", "2025-04-04 06", "04-04T14:45 04-05T14:45"),
        # At midnight: the day begins at 01:00 in April, and its last hour comes twice in October.
        ("Africa/Cairo", "0 0 * * *", "2025-04-23 25", "04-23T22:00 04-24T22:00"),
        ("Africa/Cairo", "30 23 * * *", "2025-10-29 31", "10-29T20:30 10-30T20:30"),
    ],
)
def test_days_on_which_the_clocks_change(zone: str, cron: str, days: str, expected: str) -> None:
    first, last = days.split()
    found = fires(cron, zone, f"{first}T12:00", f"{first[:8]}{last}T12:00")
    assert [moment.removeprefix("2025-") for moment in found] == expected.split()


@pytest.mark.parametrize(
    ("zone", "day", "hours"), [("Europe/Berlin", "2025-03-30", 23), ("Europe/Berlin", "2025-10-26", 25)]
)
def test_each_real_hour_of_such_a_day(zone: str, day: str, hours: int) -> None:
    begin = {"2025-03-30": "2025-03-29T22:59", "2025-10-26": "2025-10-25T21:59"}[day]
    end = {"2025-03-30": "2025-03-30T21:59", "2025-10-26": "2025-10-26T22:59"}[day]
    assert len(fires("0 * * * *", zone, begin, end)) == hours


def test_a_leap_day() -> None:
    assert fires("0 6 29 2 *", "UTC", "2024-03-01T00:00", "2033-01-01T00:00") == [
        "2028-02-29T06:00",
        "2032-02-29T06:00",
    ]


def test_the_year_changes_when_it_does_there() -> None:
    assert fires("0 0 1 1 *", "Pacific/Auckland", "2025-06-01T00:00", "2026-06-01T00:00") == ["2025-12-31T11:00"]
    assert fires("59 23 31 12 *", "UTC", "2024-06-01T00:00", "2025-06-01T00:00") == ["2024-12-31T23:59"]


def test_names_sunday_and_the_or_of_days() -> None:
    weekdays = fires("0 6 * * mon-fri", "UTC", "2025-01-03T12:00", "2025-01-06T12:00")
    assert weekdays == ["2025-01-06T06:00"]
    assert fires("0 6 * * 0", "UTC", "2025-01-01T00:00", "2025-01-08T00:00") == ["2025-01-05T06:00"]
    assert fires("0 6 * * 7", "UTC", "2025-01-01T00:00", "2025-01-08T00:00") == ["2025-01-05T06:00"]
    assert fires("0 6 13 * fri", "UTC", "2025-06-01T00:00", "2025-06-14T00:00") == [
        "2025-06-06T06:00",
        "2025-06-13T06:00",
    ]


# ── what is due ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_schedule_created_now_does_not_fire_for_the_past() -> None:
    world = Clockwork("2025-01-10T12:00")
    world.create("0 6 * * *")
    assert world.tick() == []
    assert world.at("2025-01-11T05:59").tick() == []
    assert world.at("2025-01-11T06:00").tick() == ["2025-01-11T06:00"]


def test_it_fills_in_the_window_that_just_ended() -> None:
    world = Clockwork("2025-01-10T12:00")
    world.create("0 0 * * *")
    assert world.at("2025-01-11T00:00").tick() == ["2025-01-11T00:00"]
    (tick,), (asked,) = world.ticks, world.requests
    assert tick.partition_selection == ["date=d:2025-01-10"]
    assert tick.partitions == asked.partitions
    assert tick.asset_selection == asked.asset_selection == ["shop/orders"]


def test_three_days_of_downtime_with_a_cap_and_a_window_of_a_day() -> None:
    world = Clockwork("2025-01-10T00:00")
    world.create("0 */4 * * *", catchup_window_minutes=1440, max_catchup_ticks=3)
    assert world.at("2025-01-10T00:00").tick() == []
    back = "2025-01-13T10:30"
    assert world.at(back).tick() == ["2025-01-12T12:00", "2025-01-12T16:00", "2025-01-12T20:00"]
    assert world.tick() == ["2025-01-13T00:00", "2025-01-13T04:00", "2025-01-13T08:00"]
    assert world.tick() == []
    assert world.at("2025-01-13T12:00").tick() == ["2025-01-13T12:00"]
    first, *others = world.ticks
    assert first.reason == "14 before it were missed: they lie before the catch-up window"
    assert all(tick.reason is None for tick in others)


def test_the_window_moves_on_while_it_catches_up() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *", catchup_window_minutes=180, max_catchup_ticks=1)
    assert world.at("2025-01-02T10:30").tick() == ["2025-01-02T08:00"]
    assert world.at("2025-01-02T12:30").tick() == ["2025-01-02T10:00"]
    assert world.tick() == ["2025-01-02T11:00"]
    assert world.tick() == ["2025-01-02T12:00"]
    assert world.tick() == []


def test_without_a_window_it_is_only_ever_on_time() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *", catchup_window_minutes=0)
    assert world.at("2025-01-01T01:00").tick() == ["2025-01-01T01:00"]
    world.now += timedelta(hours=1, seconds=30)
    assert world.tick() == ["2025-01-01T02:00"]
    assert world.at("2025-01-01T03:20").tick() == []
    assert world.at("2025-01-01T04:00").tick() == ["2025-01-01T04:00"]


def test_the_clock_only_ever_grows() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *")
    assert world.at("2025-01-01T05:00").tick()[-1] == "2025-01-01T05:00"
    assert world.at("2025-01-01T03:00").tick() == []  # the machine's clock was set back
    assert world.at("2025-01-01T06:00").tick() == ["2025-01-01T06:00"]


# ── switched off, edited, gone ───────────────────────────────────────────────────────────────────────────────────


def test_paused_periods_are_recorded_and_not_caught_up() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *")
    world.at("2025-01-01T00:30").record(SchedulePaused(schedule_id=ID, version=2))
    assert world.at("2025-01-01T01:00").tick() == ["2025-01-01T01:00 SKIPPED"]
    assert world.at("2025-01-01T02:00").tick() == ["2025-01-01T02:00 SKIPPED"]
    assert [tick.reason for tick in world.ticks] == ["paused", "paused"]
    world.at("2025-01-01T02:30").record(ScheduleResumed(schedule_id=ID, version=3))
    assert world.tick() == []
    assert world.at("2025-01-01T03:00").tick() == ["2025-01-01T03:00"]
    assert len(world.requests) == 1


def test_nor_is_a_pause_that_nobody_looked_at() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *")
    world.at("2025-01-01T00:30").record(SchedulePaused(schedule_id=ID, version=2))
    world.at("2025-01-01T02:30").record(ScheduleResumed(schedule_id=ID, version=3))
    assert world.at("2025-01-01T03:10").tick() == [
        "2025-01-01T01:00 SKIPPED",
        "2025-01-01T02:00 SKIPPED",
        "2025-01-01T03:00",
    ]


def test_a_cron_that_was_edited_has_no_past() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 6 * * *")
    assert world.at("2025-01-01T06:00").tick() == ["2025-01-01T06:00"]
    edited = schedule("0 5 * * *", version=2, clock_since=utc("2025-01-02T05:30"))
    world.at("2025-01-02T05:30").record(ScheduleUpdated(definition=edited))
    assert world.at("2025-01-02T06:30").tick() == []
    assert world.at("2025-01-03T05:00").tick() == ["2025-01-03T05:00"]


def test_other_edits_keep_what_is_due() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 6 * * *")
    world.at("2025-01-01T06:30").record(ScheduleUpdated(definition=schedule("0 6 * * *", version=2, overlap="skip")))
    assert world.tick() == ["2025-01-01T06:00"]


def test_a_deleted_schedule_is_never_due() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 6 * * *")
    world.record(ScheduleDeleted(schedule_id=ID, version=2))
    assert world.at("2025-01-05T06:00").tick() == []
    assert world.board.next_due() is None


def test_one_that_does_not_read_any_more_says_so_once_a_day() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 6 * * *")
    world.record(ScheduleUpdated(definition=schedule("0 6 * * *", version=2, timezone="Mars/Base")))
    assert world.at("2025-01-02T08:00").tick() == ["2025-01-02T00:00 FAILED"]
    assert world.tick() == []
    assert world.at("2025-01-02T23:59").tick() == []
    assert world.at("2025-01-03T00:01").tick() == ["2025-01-03T00:00 FAILED"]
    assert "Mars/Base" in str(world.ticks[0].reason)
    with pytest.raises(InvalidPartition):
        upcoming(schedule("0 6 * *"), world.now, world.now, 1)


def test_what_cannot_be_asked_for_is_a_failed_tick_that_says_why() -> None:
    world = Clockwork("2025-01-01T00:00", known=catalog(spec("lookup")))
    world.create("0 6 * * *", asset_selection=["shop/orders"])
    assert world.at("2025-01-01T06:00").tick() == ["2025-01-01T06:00 FAILED"]
    assert "shop/orders" in str(world.ticks[0].reason)
    assert world.requests == []
    assert world.at("2025-01-02T06:00").tick() == ["2025-01-02T06:00 FAILED"]


# ── overlap ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_overlap_allow_starts_another() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *")
    assert world.at("2025-01-01T02:00").tick() == ["2025-01-01T01:00", "2025-01-01T02:00"]
    assert len(world.requests) == 2


def test_overlap_skip_names_the_run_that_has_not_ended() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *", overlap="skip")
    assert world.at("2025-01-01T01:00").tick() == ["2025-01-01T01:00"]
    run = world.requests[0].run_id
    assert world.at("2025-01-01T02:00").tick() == ["2025-01-01T02:00 SKIPPED"]
    assert world.ticks[-1].reason == f"{run} has not ended, and overlap is skip"
    world.finish(run)
    assert world.at("2025-01-01T03:00").tick() == ["2025-01-01T03:00"]


def test_overlap_skip_holds_within_a_pass() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *", overlap="skip")
    assert world.at("2025-01-01T03:00").tick() == [
        "2025-01-01T01:00",
        "2025-01-01T02:00 SKIPPED",
        "2025-01-01T03:00 SKIPPED",
    ]


def test_overlap_queue_asks_at_once_and_names_the_queue() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *", overlap="queue")
    world.at("2025-01-01T02:00").tick()
    assert [(request.queue, request.tags) for request in world.requests] == [(f"schedule:{ID}", {})] * 2


# ── functions ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_function_may_skip_and_may_take_its_time() -> None:
    answers: list[Any] = []

    def fill(*_: Any) -> Any:
        if not answers:
            raise NotYet
        raise answers.pop()

    world = Clockwork("2025-01-01T00:00", fill=fill)
    world.create("0 * * * *")
    assert world.at("2025-01-01T01:00").tick() == []
    assert world.at("2025-01-01T01:01").tick() == []
    answers.append(Skipped("a holiday"))
    assert world.at("2025-01-01T01:02").tick() == ["2025-01-01T01:00 SKIPPED"]
    assert world.ticks[0].reason == "a holiday"
    assert world.at("2025-01-01T01:03").tick() == []


# ── several drivers ──────────────────────────────────────────────────────────────────────────────────────────────


def test_of_two_drivers_one_is_first() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *")
    boards = ScheduleBoard(), ScheduleBoard()
    for board in boards:
        world.look(board)
    world.at("2025-01-01T03:00")
    done = [moment for board in (*boards, *boards) for moment in world.tick(board)]
    assert done == ["2025-01-01T01:00", "2025-01-01T02:00", "2025-01-01T03:00"]
    assert len(world.requests) == 3


def test_a_driver_that_has_not_seen_a_pause_is_refused() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *")
    late = ScheduleBoard()
    world.look(late)
    world.at("2025-01-01T00:30").record(SchedulePaused(schedule_id=ID, version=2))
    position, world.now = late.position, utc("2025-01-01T01:00")
    (decision,) = decide(late, world.known, world.now, world.fill, run_id_of)
    with pytest.raises(AppendConflict):
        world.ledger.append(decision.proposals, Condition(position=position, subjects=decision.subjects))
    assert world.tick(late) == ["2025-01-01T01:00 SKIPPED"]


# ── the invariants of the specification, by their names ──────────────────────────────────────────────────────────


def test_invariant_the_same_tick_is_a_no_op() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *")
    world.at("2025-01-01T01:00").tick()
    before = world.ledger.head().position
    facts = [*world.ticks, *world.requests]
    receipts = world.ledger.append([Proposal(fact=fact, occurred_at=world.now, actor="again") for fact in facts])
    assert all(receipt.duplicate for receipt in receipts)
    assert world.ledger.head().position == before
    other = msgspec.structs.replace(world.ticks[0], status="SKIPPED")
    with pytest.raises(IdempotencyMismatch):
        world.record(other)


def test_invariant_tick_run_key_and_run_id_hold_together() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *")
    world.at("2025-01-01T02:00").tick()
    for tick, asked in zip(world.ticks, world.requests, strict=True):
        epoch = f"{tick.scheduled_for.timestamp():.0f}"
        assert tick.tick_id == f"{ID}:{epoch}" == asked.source.detail
        assert tick.run_key == asked.run_key == f"sched:{ID}:{epoch}"
        assert tick.run_id == asked.run_id == run_id_of(asked.run_key)
        assert tick.request_fingerprint == asked.request_fingerprint


def test_invariant_ticks_use_their_snapshot() -> None:
    """What is edited between a tick and its run changes nothing about that run."""
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *")
    world.at("2025-01-01T01:00").tick()
    asked, tick = world.requests[0], world.ticks[0]
    world.record(ScheduleUpdated(definition=schedule("0 * * * *", version=2, asset_selection=["lookup"])))
    assert world.tick() == []
    assert (world.requests, world.ticks) == ([asked], [tick])
    assert (tick.definition_version, tick.asset_selection, asked.asset_selection) == (
        1,
        ["shop/orders"],
        ["shop/orders"],
    )
    lookup = world.known.spec("shop/lookup").partitions
    world.fill = lambda state, _: Filling({"shop/lookup": lookup.everything(world.now)})
    world.at("2025-01-01T02:00").tick()
    assert (world.ticks[1].definition_version, world.ticks[1].asset_selection) == (2, ["shop/lookup"])


def test_invariant_manual_ticks_never_move_the_clock() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *")
    world.at("2025-01-01T00:59").trigger("r1")
    world.at("2025-01-01T05:30").trigger("r2")
    assert world.at("2025-01-01T05:31").tick() == [f"2025-01-01T0{hour}:00" for hour in range(1, 6)]
    manual = [tick for tick in world.ticks if tick.manual]
    assert [tick.tick_id for tick in manual] == [f"{ID}:manual:r1", f"{ID}:manual:r2"]
    assert [tick.run_key for tick in manual] == [f"sched:{ID}:manual:r1", f"sched:{ID}:manual:r2"]


def test_invariant_last_scheduled_for_grows_in_any_order_of_events() -> None:
    world = Clockwork("2025-01-01T00:00")
    world.create("0 * * * *")
    world.at("2025-01-01T03:00").tick()
    events = world.ledger.read(0, 100)
    first, last = ScheduleBoard().take(events), ScheduleBoard()
    ticked = [event for event in events if event.event_type == "ScheduleTicked"]
    others = [event for event in events if event.event_type != "ScheduleTicked"]
    shuffled = [
        msgspec.structs.replace(event, position=position)
        for position, event in enumerate([*others, *reversed(ticked), *ticked], 1)
    ]
    last.take(shuffled)
    assert first.schedules[ID].last == last.schedules[ID].last == utc("2025-01-01T03:00")

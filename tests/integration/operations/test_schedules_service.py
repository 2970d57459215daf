"""Schedules as a service: made, edited, switched and looked at; what is refused leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from servo.answers.automations import Changed
from servo.assets.loading import load
from servo.errors import AppendConflict, Conflict, InvalidInput, ScheduleNotFound, ServoError
from servo.events import Proposal
from servo.events.automation import (
    ScheduleCreated,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleResumed,
    ScheduleTicked,
    ScheduleUpdated,
)
from servo.events.definitions import Source
from servo.events.model import RunRequested
from servo.operations.automations.requests import CreateSchedule
from servo.operations.automations.ticks import remarks
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.deploying import deploy
from tests.support.operating import Schedules
from tests.support.workshop import ME, StillClock, deployed_workshop

NOW = datetime(2026, 3, 27, 12, tzinfo=UTC)
ASSETS = """
import servo
from servo import Daily, Static, asset

days = Daily("date", start="2025-01-01", timezone="Europe/Berlin")

@asset(partitions=days)
def orders(context): ...

@asset(partitions=days * Static("region", ["eu", "us"]))
def revenue(orders): ...

@asset
def whole(context): ...

nightly = servo.Schedule("nightly", cron="30 2 * * *", timezone="Europe/Berlin", select="+revenue")
"""


class Shop:
    """A project at a time that the test sets, and short ways to ask."""

    def __init__(self, project: Project, clock: StillClock) -> None:
        self.project = project
        self.clock = clock
        self.schedules = Schedules(project)

    def create(self, name: str = "weekly", request_id: str | None = None, **asked: Any) -> Changed:
        given = {"cron": "0 6 * * mon", "select": ("orders",), "timezone": "Europe/Berlin"} | asked
        return self.schedules.create(CreateSchedule(name=name, **given), request_id=request_id, actor=ME)

    def update(self, schedule: str, expected_version: int | None = None, **edit: Any) -> Changed:
        return self.schedules.update(schedule, **edit, expected_version=expected_version, actor=ME)

    def tick(self, name: str, at: datetime, **said: Any) -> str:
        """One that somebody recorded, with its run where it triggered."""
        one = self.schedules.find(name)
        tick_id = f"{one.id}:{int(at.timestamp())}"
        run_id = f"run_{'a' * 22}{int(at.timestamp()) % 10_000:04d}"
        status = said.pop("status", "TRIGGERED")
        facts: list[Any] = [
            ScheduleTicked(
                tick_id=tick_id,
                schedule_id=one.id,
                scheduled_for=at,
                definition_version=one.version,
                status=status,
                run_key=f"sched:{tick_id}" if status == "TRIGGERED" else None,
                run_id=run_id if status == "TRIGGERED" else None,
                **said,
            )
        ]
        if status == "TRIGGERED":
            source = Source(kind="schedule", id=one.id, detail=tick_id)
            facts.append(
                RunRequested(
                    run_id=run_id,
                    run_key=f"sched:{tick_id}",
                    request_fingerprint="f" * 64,
                    asset_selection=["shop/orders"],
                    source=source,
                )
            )
        now = self.clock()
        self.project.ledger.append([Proposal(fact=fact, occurred_at=now, actor="schedule:x") for fact in facts])
        return tick_id

    def head(self) -> int:
        return self.project.ledger.head().position

    def events(self) -> list[str]:
        return [event.event_type for event in self.project.history.events(0)]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    clock = StillClock(NOW)
    with deployed_workshop(tmp_path, ASSETS, clock=clock) as made:
        yield Shop(made.project, clock)


# ── making, editing, deleting ────────────────────────────────────────────────────────────────────────────────────


def test_one_that_is_made_is_there_as_it_was_asked_for(shop: Shop) -> None:
    made = shop.create(overlap="skip", catchup_window_minutes=60, max_catchup_ticks=3, tags={"team": "sales"})
    assert (made.version, made.duplicate, made.enabled) == (1, False, True)
    view = shop.schedules.show("weekly")
    assert (view.cron, view.timezone, view.select, view.partitions) == (
        "0 6 * * mon",
        "Europe/Berlin",
        ["orders"],
        "latest",
    )
    assert (view.overlap, view.catchup_window_minutes, view.max_catchup_ticks) == ("skip", 60, 3)
    assert (view.tags, view.declared, view.source, view.version) == ({"team": "sales"}, False, None, 1)
    assert (view.created_at, view.created_by, view.last_tick) == (NOW, ME, None)
    assert view.next_at == datetime(2026, 3, 30, 4, tzinfo=UTC)  # summer time by then
    assert [one.name for one in shop.schedules.list()] == ["nightly", "weekly"]
    assert shop.schedules.show(made.id) == shop.schedules.show(made.id.lower()) == view


def test_asked_again_under_the_same_request_id_it_is_the_same(shop: Shop) -> None:
    first = shop.create(request_id="r-1")
    before = shop.head()
    again = shop.create(request_id="r-1")
    assert (again.id, again.event_id, again.duplicate) == (first.id, first.event_id, True)
    with pytest.raises(Conflict, match="'r-1' was used for another request"):
        shop.create(request_id="r-1", cron="0 7 * * mon")
    # It is that request still when the schedule has been edited, and when it is gone.
    shop.update("weekly", cron="0 8 * * mon")
    assert shop.create(request_id="r-1").duplicate
    shop.schedules.delete("weekly", actor=ME)
    assert shop.create(request_id="r-1").duplicate
    assert shop.head() == before + 2


def test_an_update_changes_what_is_given_and_nothing_else(shop: Shop) -> None:
    shop.create(tags={"team": "sales"})
    shop.clock.now += timedelta(hours=1)
    done = shop.update("weekly", overlap="queue", partitions="2025-01-01..2025-01-07")
    assert (done.version, set(done.changed)) == (2, {"overlap", "partitions"})
    view = shop.schedules.show("weekly")
    assert (view.cron, view.overlap, view.partitions, view.tags) == (
        *("0 6 * * mon", "queue", "2025-01-01..2025-01-07"),
        {"team": "sales"},
    )
    assert (view.clock_since, view.created_at, view.updated_at) == (None, NOW, NOW + timedelta(hours=1))


@pytest.mark.parametrize("edit", [{"cron": "0 7 * * mon"}, {"timezone": "UTC"}])
def test_another_clock_holds_from_now_on(shop: Shop, edit: dict[str, Any]) -> None:
    shop.create()
    shop.clock.now += timedelta(hours=1)
    shop.update("weekly", **edit)
    shop.clock.now += timedelta(hours=1)
    shop.update("weekly", overlap="skip")  # keeps it
    assert shop.schedules.show("weekly").clock_since == NOW + timedelta(hours=1)


def test_an_update_that_changes_nothing_writes_nothing(shop: Shop) -> None:
    shop.create()
    before = shop.head()
    done = shop.update("weekly", cron="0 6 * * mon", timezone="Europe/Berlin", partitions="latest")
    assert (done.version, done.duplicate, done.event_id, shop.head()) == (1, True, None, before)


def test_it_can_be_renamed_to_a_name_that_is_free(shop: Shop) -> None:
    made = shop.create()
    shop.create("other")
    with pytest.raises(Conflict, match="there is a schedule other already"):
        shop.update("weekly", name="other")
    shop.update("weekly", name="mondays")
    assert shop.schedules.find("mondays").id == made.id
    assert shop.create("weekly").id != made.id


def test_one_that_was_deleted_is_gone_and_its_name_is_free(shop: Shop) -> None:
    made = shop.create()
    done = shop.schedules.delete("weekly", reason="no longer needed", actor=ME)
    assert (done.version, done.id) == (2, made.id)
    with pytest.raises(ScheduleNotFound):
        shop.schedules.show("weekly")
    with pytest.raises(ScheduleNotFound):
        shop.schedules.delete(made.id, actor=ME)
    assert shop.create().id != made.id


def test_pausing_and_resuming_are_versions_of_it(shop: Shop) -> None:
    shop.create()
    assert shop.schedules.pause("weekly", reason="holidays", actor=ME).version == 2
    before = shop.head()
    again = shop.schedules.pause("weekly", actor=ME)
    assert (again.version, again.duplicate, again.event_id, shop.head()) == (2, True, None, before)
    # An edit leaves it as it was switched.
    assert shop.update("weekly", cron="0 7 * * mon").enabled is False
    assert shop.schedules.show("weekly").enabled is False
    assert shop.schedules.resume("weekly", actor=ME).version == 4
    assert shop.schedules.show("weekly").enabled is True
    assert shop.events()[-4:] == ["ScheduleCreated", "SchedulePaused", "ScheduleUpdated", "ScheduleResumed"]


def test_what_code_declares_is_switched_by_people_and_edited_in_its_file(shop: Shop) -> None:
    before = shop.head()
    for attempt in (
        lambda: shop.update("nightly", cron="0 3 * * *"),
        lambda: shop.schedules.delete("nightly", actor=ME),
    ):
        with pytest.raises(InvalidInput, match=r"nightly is declared by code at definitions\.py:\d+"):
            attempt()
    with pytest.raises(Conflict, match=r"schedule nightly is declared by code at definitions\.py:\d+"):
        shop.create("nightly")
    assert shop.head() == before
    shop.schedules.pause("nightly", actor=ME)
    assert shop.schedules.show("nightly").enabled is False
    # The same code again leaves it as the person has it.
    deploy(shop.project, load(shop.project.settings), actor=ME)
    assert shop.schedules.show("nightly").enabled is False


def test_a_name_that_the_folder_declares_and_nobody_deployed_yet_is_not_free(shop: Shop) -> None:
    source = shop.project.settings.root / "definitions.py"
    source.write_text(source.read_text() + 'servo.Schedule("fresh", cron="0 1 * * *", select="whole")\n')
    before = shop.head()
    with pytest.raises(Conflict, match=r"fresh is declared by code at definitions\.py:\d+"):
        shop.create("fresh")
    assert shop.head() == before
    assert [one.name for one in shop.schedules.list()] == ["nightly"]
    shown = {one.name: one.deployed for one in Schedules(shop.project, local=True).list()}
    assert shown == {"fresh": False, "nightly": True}


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "four fields": ({"cron": "0 6 * *"}, "not a cron"),
    "six fields": ({"cron": "0 0 6 * * *"}, "not a cron"),
    "minute 99": ({"cron": "99 6 * * *"}, "not a cron"),
    "never fires": ({"cron": "0 6 31 2 *"}, "never fires|not a cron"),
    "empty cron": ({"cron": ""}, "cron is empty"),
    "cron with a null": ({"cron": "0 6 * * \x00"}, "not a cron"),
    "no such zone": ({"timezone": "Europe/Berln"}, "Europe/Berln"),
    "zone that is a path": ({"timezone": "../../etc/passwd"}, "not a timezone"),
    "no such asset": ({"select": ("ordres",)}, "ordres"),
    "no asset": ({"select": ()}, "select is empty"),
    "blank selection": ({"select": ("  ",)}, "selects nothing"),
    "half a selection": ({"select": ("orders and",)}, "orders and|expected|end"),
    "no such partitions": ({"partitions": "yesterday-ish"}, "yesterday-ish"),
    "partitions of what has none": ({"select": ("whole",), "partitions": "2025-01-01"}, "no partitions"),
    "bad overlap": ({"overlap": "maybe"}, "overlap cannot be 'maybe'"),
    "negative window": ({"catchup_window_minutes": -1}, "catchup_window_minutes cannot be -1"),
    "endless window": ({"catchup_window_minutes": 2**63}, "catchup_window_minutes cannot be"),
    "no ticks": ({"max_catchup_ticks": 0}, "max_catchup_ticks cannot be 0"),
    "a tag of Servo": ({"tags": {"servo.queue": "x"}}, "Servo's own"),
    "a tag that is no text": ({"tags": {"team": 1}}, "tags.*Expected `str`"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_meant_is_refused_and_nothing_is_written(shop: Shop, case: str) -> None:
    given, words = BAD[case]
    shop.create("good")
    before = shop.head()
    with pytest.raises(ServoError, match=words) as refused:
        shop.create(**given)
    assert refused.value.exit_code in (2, 3)
    assert "\n" not in refused.value.message
    if given != {"select": ()}:
        with pytest.raises(ServoError, match=words):
            shop.update("good", **given)
    assert shop.head() == before


@pytest.mark.parametrize("request_id", [None, "k-1"])
def test_what_is_refused_begins_no_project(tmp_path: Path, request_id: str | None) -> None:
    (tmp_path / "definitions.py").write_text(ASSETS)
    with open_workspace(load_settings(tmp_path, {}), create=True) as project:
        asked = CreateSchedule(name="weekly", cron="0 6 * *", select=("orders",))
        with pytest.raises(InvalidInput, match="not a cron"):
            Schedules(project).create(asked, request_id=request_id, actor=ME)
        assert project.unbegun


@pytest.mark.parametrize("name", ["", "Nightly", "näch", "a b", "-x", "a" * 64, "x/y", "1st"])
def test_names_are_plain(shop: Shop, name: str) -> None:
    before = shop.head()
    with pytest.raises(InvalidInput):
        shop.create(name)
    assert shop.head() == before


def test_a_name_that_is_taken_and_one_that_is_not_there(shop: Shop) -> None:
    shop.create()
    before = shop.head()
    with pytest.raises(Conflict, match="there is a schedule weekly already"):
        shop.create()
    with pytest.raises(ScheduleNotFound, match="there is no schedule 'weekl'") as missing:
        shop.update("weekl", overlap="skip")
    assert missing.value.hint == "did you mean weekly?"
    for attempt in (shop.schedules.pause, shop.schedules.resume, shop.schedules.delete):
        with pytest.raises(ScheduleNotFound):
            attempt("nobody", actor=ME)
    with pytest.raises(ScheduleNotFound):
        shop.schedules.ticks("nobody")
    assert shop.head() == before


def test_a_version_that_is_not_expected_is_a_conflict(shop: Shop) -> None:
    shop.create()
    shop.update("weekly", overlap="skip")
    before = shop.head()
    attempts: list[Callable[[], Changed]] = [
        lambda: shop.update("weekly", expected_version=1, overlap="allow"),
        lambda: shop.schedules.pause("weekly", expected_version=1, actor=ME),
        lambda: shop.schedules.resume("weekly", expected_version=1, actor=ME),
        lambda: shop.schedules.delete("weekly", expected_version=1, actor=ME),
    ]
    for attempt in attempts:
        with pytest.raises(AppendConflict, match="weekly is at version 2, not at 1 as expected") as refused:
            attempt()
        assert (refused.value.expected, refused.value.actual) == (1, 2)
    assert shop.head() == before
    assert shop.update("weekly", expected_version=2, overlap="allow").version == 3


# ── at the same time ─────────────────────────────────────────────────────────────────────────────────────────────


def at_once(shop: Shop, count: int, what: Callable[[Schedules, int], Changed]) -> list[Changed | Exception]:
    """Each with a connection of its own, all at the same moment."""
    barrier = Barrier(count)

    def attempt(number: int) -> Changed | Exception:
        with open_workspace(shop.project.settings, clock=lambda: NOW) as project:
            schedules = Schedules(project)
            schedules.list()
            barrier.wait()
            try:
                return what(schedules, number)
            except ServoError as problem:
                return problem

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(attempt, range(count)))


def test_of_two_who_give_the_same_name_one_gets_it(shop: Shop) -> None:
    def create(schedules: Schedules, number: int) -> Changed:
        asked = CreateSchedule(name="contended", cron=f"{number} 6 * * *", select=("orders",))
        return schedules.create(asked, actor=ME)

    answers = at_once(shop, 4, create)
    assert sum(isinstance(one, Changed) for one in answers) == 1
    assert all("already" in str(one) for one in answers if isinstance(one, Exception))
    assert shop.events().count("ScheduleCreated") == 1


def test_of_many_with_one_request_id_there_is_one_schedule(shop: Shop) -> None:
    asked = CreateSchedule(name="wanted", cron="0 6 * * *", select=("orders",))
    answers = at_once(shop, 4, lambda schedules, _: schedules.create(asked, request_id="r-9", actor=ME))
    assert all(isinstance(one, Changed) for one in answers), answers
    assert len({one.id for one in answers if isinstance(one, Changed)}) == 1
    assert shop.events().count("ScheduleCreated") == 1


def test_of_two_edits_at_once_none_is_lost_unseen(shop: Shop) -> None:
    shop.create()

    def update(schedules: Schedules, number: int) -> Changed:
        return schedules.update("weekly", cron=f"{number} 6 * * *", expected_version=1, actor=ME)

    answers = at_once(shop, 4, update)
    done = [one for one in answers if isinstance(one, Changed)]
    assert len(done) == 1
    assert all(isinstance(one, AppendConflict) for one in answers if isinstance(one, Exception))
    assert shop.schedules.show("weekly").version == 2


def test_a_tick_in_between_is_no_obstacle(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.create()
    append, left = shop.project.ledger.append, [3]

    def interrupted(proposals: Any, condition: Any = None) -> Any:
        if left[0] and isinstance(
            proposals[0].fact, SchedulePaused | ScheduleUpdated | ScheduleResumed | ScheduleDeleted
        ):
            left[0] -= 1
            monkeypatch.setattr(shop.project.ledger, "append", append)
            shop.tick("weekly", NOW + timedelta(minutes=len(shop.events())))
            monkeypatch.setattr(shop.project.ledger, "append", interrupted)
        return append(proposals, condition)

    monkeypatch.setattr(shop.project.ledger, "append", interrupted)
    assert shop.schedules.pause("weekly", actor=ME).version == 2
    assert left == [0]
    left[0] = 1
    assert shop.update("weekly", overlap="skip").version == 3
    assert shop.events().count("ScheduleTicked") == 4


def test_a_change_in_between_is_a_conflict(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    made = shop.create()
    append = shop.project.ledger.append

    def interrupted(proposals: Any, condition: Any = None) -> Any:
        monkeypatch.setattr(shop.project.ledger, "append", append)
        shop.schedules.pause("weekly", actor="person:other")
        return append(proposals, condition)

    monkeypatch.setattr(shop.project.ledger, "append", interrupted)
    with pytest.raises(AppendConflict, match="weekly is at version 2, not at 1"):
        shop.schedules.delete("weekly", actor=ME)
    assert shop.schedules.find("weekly").id == made.id


# ── ticks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ticks_are_told_newest_first_with_their_runs(shop: Shop) -> None:
    shop.create()
    for hours, said in (
        (1, {}),
        (2, {"status": "SKIPPED", "reason": "paused"}),
        (3, {"status": "FAILED", "reason": "no"}),
    ):
        shop.clock.now = NOW + timedelta(hours=hours, seconds=5)
        shop.tick("weekly", NOW + timedelta(hours=hours), **said)
    failed, skipped, triggered = shop.schedules.ticks("weekly")
    assert [one.status for one in (failed, skipped, triggered)] == ["FAILED", "SKIPPED", "TRIGGERED"]
    assert (skipped.reason, skipped.run_id, skipped.lateness_seconds) == ("paused", None, 5.0)
    assert (triggered.run_status, triggered.scheduled_for) == ("REQUESTED", NOW + timedelta(hours=1))
    assert triggered.run_key == f"sched:{triggered.tick_id}"
    assert shop.schedules.show("weekly").last_tick == failed
    assert shop.schedules.show("weekly").last_scheduled_for == NOW + timedelta(hours=3)
    assert shop.schedules.ticks("weekly", status="SKIPPED") == [skipped]
    assert shop.schedules.ticks("weekly", limit=1) == [failed]
    assert shop.schedules.ticks("weekly", before=failed.event_id) == [skipped, triggered]
    assert shop.schedules.ticks("weekly", since=NOW + timedelta(hours=2), until=NOW + timedelta(hours=3)) == [skipped]
    assert shop.schedules.ticks("nightly") == []
    for bad in ({"status": "MAYBE"}, {"limit": 0}, {"before": "x"}):
        with pytest.raises(InvalidInput):
            shop.schedules.ticks("weekly", **bad)  # type: ignore[arg-type]


# ── what is to come ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_days_to_come_with_their_partitions_and_the_change_of_the_clocks(shop: Shop) -> None:
    before = shop.head()
    ahead = shop.schedules.next(days=3, name="nightly")
    assert [(tick.local_time, tick.scheduled_for) for tick in ahead.ticks] == [
        ("2026-03-28T02:30:00+01:00", datetime(2026, 3, 28, 1, 30, tzinfo=UTC)),
        ("2026-03-29T03:00:00+02:00", datetime(2026, 3, 29, 1, 0, tzinfo=UTC)),
        ("2026-03-30T02:30:00+02:00", datetime(2026, 3, 30, 0, 30, tzinfo=UTC)),
    ]
    assert [tick.remark for tick in ahead.ticks] == [None, "02:30 does not exist, fires at 03:00", None]
    assert [[(fill.asset_key, fill.partitions, fill.count) for fill in tick.fills] for tick in ahead.ticks[:2]] == [
        [("shop/orders", "2026-03-27", 1), ("shop/revenue", "2026-03-27 × eu, us", 2)],
        [("shop/orders", "2026-03-28", 1), ("shop/revenue", "2026-03-28 × eu, us", 2)],
    ]
    assert (ahead.total, ahead.paused, shop.head()) == (3, [], before)
    shop.clock.now = datetime(2026, 10, 24, 12, tzinfo=UTC)
    [twice, after] = shop.schedules.next(days=2, name="nightly").ticks
    assert (twice.remark, twice.local_time) == ("02:30 comes twice, fires the first time", "2026-10-25T02:30:00+02:00")
    assert (after.remark, after.local_time) == (None, "2026-10-26T02:30:00+01:00")


def test_all_schedules_are_told_in_order_but_not_those_that_are_paused(shop: Shop) -> None:
    shop.create("early", cron="0 1 * * *", timezone="UTC", select=("whole",))
    shop.create("off", cron="0 1 * * *", timezone="UTC", enabled=False)
    ahead = shop.schedules.next(days=2)
    assert [tick.name for tick in ahead.ticks] == ["early", "nightly", "early", "nightly"]
    assert [fill.asset_key for fill in ahead.ticks[0].fills] == ["shop/whole"]
    assert {one.name: (one.ticks, sum(one.by_stretch)) for one in ahead.schedules} == {
        "early": (2, 2),
        "nightly": (2, 2),
    }
    named = shop.schedules.next(days=2, name="off")
    assert (named.paused, len(named.ticks)) == (["off"], 2)


def test_a_day_and_a_weekday_that_must_both_match_are_told(shop: Shop) -> None:
    shop.create("both", cron="0 16 */2 * sat", timezone="UTC")
    shop.create("either", cron="0 16 2 * sat", timezone="UTC")
    ahead = shop.schedules.next(days=60)
    assert {one.name: one.remark for one in ahead.schedules if one.remark} == {
        "both": "fires where day and weekday both match, since its day */2 begins with *"
    }
    days = [tick.scheduled_for for tick in ahead.ticks if tick.name == "both"]
    assert days
    assert all(day.day % 2 == 1 and day.weekday() == 5 for day in days)


def test_only_so_many_ticks_are_listed_and_all_are_counted(shop: Shop) -> None:
    shop.create("busy", cron="* * * * *")
    ahead = shop.schedules.next(days=7, name="busy", limit=5)
    assert (len(ahead.ticks), ahead.total) == (5, 7 * 24 * 60)
    for bad in ({"days": 0}, {"days": -1}, {"days": 1e9}, {"days": float("nan")}, {"limit": 0}):
        with pytest.raises(InvalidInput):
            shop.schedules.next(**bad)  # type: ignore[arg-type]


def test_a_tick_that_would_fail_says_why(shop: Shop) -> None:
    shop.create()
    source = shop.project.settings.root / "definitions.py"
    source.write_text(source.read_text().replace("orders", "sales"))
    deploy(shop.project, load(shop.project.settings), actor=ME)
    [tick] = shop.schedules.next(days=7, name="weekly").ticks
    assert tick.problem is not None
    assert "orders" in tick.problem
    assert tick.fills == []


DAY = 86_400


@pytest.mark.parametrize(
    ("cron", "zone", "day", "said"),
    [
        ("30 2 * * *", "Europe/Berlin", "2025-03-30", ["02:30 does not exist, fires at 03:00"]),
        ("30 2 * * *", "Europe/Berlin", "2025-10-26", ["02:30 comes twice, fires the first time"]),
        ("30 2 * * *", "America/New_York", "2025-03-09", ["02:30 does not exist, fires at 03:00"]),
        ("30 1 * * *", "America/New_York", "2025-11-02", ["01:30 comes twice, fires the first time"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2025-10-05", ["02:15 does not exist, fires at 02:30"]),
        ("0 0 * * *", "America/Santiago", "2025-09-07", ["00:00 does not exist, fires at 01:00"]),
        ("0 * * * *", "Europe/Berlin", "2025-10-26", ["02:00 comes twice, fires each time"] * 2),
        ("0 * * * *", "Europe/Berlin", "2025-03-30", ["02:00 does not exist"]),
        ("0 6 * * *", "Europe/Berlin", "2025-03-30", []),
        ("30 2 * * *", "Europe/Berlin", "2025-03-29", []),
        ("30 2 * * *", "UTC", "2025-03-30", []),
    ],
)
def test_what_is_said_where_the_clocks_change(cron: str, zone: str, day: str, said: list[str]) -> None:
    first = int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())
    assert list(remarks(cron, zone, first - DAY // 2, first + DAY).values()) == said


def test_what_people_made_is_not_touched_by_a_deployment(shop: Shop) -> None:
    made = shop.create()
    source = shop.project.settings.root / "definitions.py"
    source.write_text(source.read_text().replace("30 2 * * *", "45 2 * * *"))
    deploy(shop.project, load(shop.project.settings), actor=ME)
    assert shop.schedules.show("weekly").version == 1
    assert shop.schedules.find("weekly").id == made.id
    assert shop.schedules.show("nightly").cron == "45 2 * * *"
    assert "ScheduleDeleted" not in shop.events()
    assert ScheduleCreated.event_type in shop.events()

"""What is left of a request when definitions have changed since, and what is said of the rest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from servo.controllers.decisions import planned_without
from servo.controllers.requests import gone, requested, require_some, retry_selection
from servo.controllers.states import RunState
from servo.errors import AssetNotFound, InvalidPartition, InvalidSelection
from servo.events.columns import Outcome
from servo.events.definitions import Source
from servo.events.model import RunPlanned, RunRequested, TaskFinished
from servo.partitions import UNPARTITIONED, Cron, Daily, Dynamic, Hourly, Monthly, Partitions, Static, Weekly
from servo.planning.stages import apart, no_longer_there
from tests.support.catalogs import asset_id, catalog, spec

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
YEAR = Daily("date", start="2025-01-01")
LATER = Daily("date", start="2025-01-03", end="2025-01-06")


def run(partitions: dict[str, Any]) -> RunState:
    request = RunRequested(
        run_id="r",
        run_key="k",
        request_fingerprint="f",
        source=Source(kind="manual", id="m"),
        asset_selection=list(partitions),
        partitions=partitions,
    )
    return RunState(
        request=request,
        requested_at=NOW,
        requested_by="person:tester",
        position=1,
    )


@pytest.mark.parametrize(
    ("before", "selection", "today", "kept", "lost"),
    [
        (
            YEAR,
            "2025-01-01..2025-01-08",
            LATER,
            "2025-01-03..2025-01-05",
            "2025-01-01..2025-01-02, 2025-01-06..2025-01-08",
        ),
        (YEAR, "2025-01-04", LATER, "2025-01-04", "no partitions"),
        (YEAR, "2025-01-01", LATER, "no partitions", "2025-01-01"),
        (
            Weekly("week", start="2025-01-06"),
            "2025-01-06..2025-01-27",
            Weekly("week", start="2025-01-20"),
            "2025-01-20..2025-01-27",
            "2025-01-06..2025-01-13",
        ),
        (
            Monthly("month", start="2025-01"),
            "2025-01..2025-03",
            Monthly("month", start="2025-03"),
            "2025-03",
            "2025-01..2025-02",
        ),
        (
            Hourly("hour", start="2025-01-01T00:00"),
            "2025-01-01T00:00..2025-01-01T03:00",
            Hourly("hour", start="2025-01-01T02:00"),
            "2025-01-01T02:00Z..2025-01-01T03:00Z",
            "2025-01-01T00:00Z..2025-01-01T01:00Z",
        ),
        (Static("region", ["eu", "us", "asia"]), "eu|asia", Static("region", ["us", "eu"]), "eu", "asia"),
        (Static("size", [1, 2, 3]), "1|3", Static("size", ["1", "2"]), "no partitions", "1, 3"),
        (Dynamic("customer", ["ada", "bob"]), "all", Dynamic("customer", ["bob", "zoe"]), "bob", "ada"),
        (
            YEAR * Static("region", ["eu", "us"]),
            "date=2025-01-01..2025-01-03",
            Static("region", ["us"]) * LATER,
            "us × 2025-01-03",
            None,
        ),
    ],
)
def test_what_a_definition_still_has_and_what_it_has_no_longer(
    before: Any, selection: str, today: Any, kept: str, lost: str | None
) -> None:
    asked = Partitions.of(before).parse_set(selection, NOW)
    left, without = apart(Partitions.of(today), asked.to_json())
    assert left.describe() == kept
    assert lost is None or without.describe() == lost
    assert {*map(str, left), *map(str, without)} == set(map(str, asked))
    assert left.count + without.count == asked.count


def test_ticks_of_a_cron_before_its_start_moved() -> None:
    before = Partitions.of(Cron("tick", "0 */6 * * *", start="2025-01-01"))
    asked = before.everything(datetime(2025, 1, 2, 1, tzinfo=UTC))
    left, without = apart(Partitions.of(Cron("tick", "0 */6 * * *", start="2025-01-01T12:00")), asked.to_json())
    assert [*map(str, without), *map(str, left)] == [*map(str, asked)]
    assert without.count == 2


def test_what_is_not_partitioned_is_there_as_a_whole() -> None:
    left, without = apart(UNPARTITIONED, UNPARTITIONED.everything(NOW).to_json())
    assert (left.count, without.count) == (1, 0)


def test_other_dimensions_are_refused() -> None:
    asked = Partitions.of(YEAR).parse_set("2025-01-01", NOW).to_json()
    with pytest.raises(InvalidPartition, match="does not fit"):
        apart(Partitions.of(Daily("day", start="2025-01-01")), asked)


def test_what_is_gone_is_planned_as_a_task_that_has_failed() -> None:
    known = catalog(spec("raw", LATER, code_version="7"))
    asked = run({"shop/raw": Partitions.of(YEAR).parse_set("2025-01-02..2025-01-04", NOW).to_json()})
    assert requested(asked, known)["shop/raw"].describe() == "2025-01-03..2025-01-04"
    plan, end = planned_without(asked, RunPlanned(run_id="r", tasks=[]), gone(asked, known), known)
    assert isinstance(plan, RunPlanned)
    assert isinstance(end, TaskFinished)
    [task] = plan.tasks
    assert (task.task_key, task.asset_id, task.partition_count) == ("shop/raw#gone", asset_id("shop/raw"), 1)
    assert (end.task_key, end.attempt, end.outcome, end.failed_so_far) == ("shop/raw#gone", 0, Outcome.FAILED, 1)
    assert (end.partitions.keys, end.partitions.error) == (["date=d:2025-01-02"], ["shop/raw no longer has it"])
    assert end.error == "shop/raw no longer has 2025-01-02"


def test_many_that_are_gone_are_several_tasks() -> None:
    known = catalog(spec("raw", LATER))
    lost = no_longer_there(
        "shop/raw", Partitions.of(Daily("date", start="2020-01-01")).parse_set("2020-01-01..2024-01-01", NOW)
    )
    plan, *ends = planned_without(run({}), RunPlanned(run_id="r", tasks=[]), [lost], known)
    assert isinstance(plan, RunPlanned)
    assert [task.task_key for task in plan.tasks] == ["shop/raw#gone1", "shop/raw#gone2"]
    keys = [key for end in ends if isinstance(end, TaskFinished) for key in end.partitions.keys]
    assert keys == [str(key) for key in lost.partitions]


def test_of_a_request_of_which_nothing_is_left_one_line_tells() -> None:
    known = catalog(spec("raw", LATER))
    asked = run({"shop/raw": Partitions.of(YEAR).parse_set("2025-02-01..2025-02-03", NOW).to_json()})
    for look in (require_some, retry_selection):
        with pytest.raises(InvalidSelection, match=r"shop/raw no longer has 2025-02-01\.\.2025-02-03"):
            look(asked, known)
    assert requested(asked, known) == {}


def test_an_asset_that_is_not_there_any_more_is_refused() -> None:
    asked = run({"shop/raw": Partitions.of(YEAR).parse_set("2025-02-01", NOW).to_json()})
    with pytest.raises(AssetNotFound, match="no asset 'shop/raw' is deployed"):
        require_some(asked, catalog(spec("other", LATER)))

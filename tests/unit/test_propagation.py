"""From the partitions that are asked for to all that must be computed with them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from servo.partitions import Daily, Dynamic, Hourly, Monthly, Partitions, PartitionSet, Static
from servo.partitions.mappings import All, ByDimension, Custom, Last, Lookback, Offset
from servo.planning.backfills import Job, propagate
from servo.planning.catalog import Catalog
from tests.support.catalogs import catalog, spec

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
DAYS = Daily("date", start="2025-01-01")
MONTHS = Monthly("month", start="2025-01")
REGIONS = Static("region", ["eu", "us"])
UNLIMITED = 20

CHAIN = catalog(
    spec("raw", DAYS), spec("clean", DAYS, ["raw"]), spec("orders", DAYS, ["clean"]), spec("report", MONTHS, ["orders"])
)
DIAMOND = catalog(
    spec("raw", DAYS), spec("left", DAYS, ["raw"]), spec("right", DAYS, ["raw"]), spec("top", DAYS, ["left", "right"])
)
# raw → top is one step, and three by way of left and middle.
UNEQUAL = catalog(
    spec("raw", DAYS),
    spec("left", DAYS, ["raw"]),
    spec("middle", DAYS, ["left"]),
    spec("top", DAYS, ["raw", "middle"]),
)

FITS_NOT = "the custom mapping does not fit: "


def some(known: Catalog, **texts: str) -> dict[str, PartitionSet]:
    return {f"shop/{name}": known.spec(f"shop/{name}").partitions.parse_set(text, NOW) for name, text in texts.items()}


def names(jobs: list[Job]) -> list[str]:
    return [job.asset_key.removeprefix("shop/") for job in jobs]


def by_name(jobs: list[Job]) -> dict[str, Job]:
    assert len(set(names(jobs))) == len(jobs)
    return dict(zip(names(jobs), jobs, strict=True))


def waits(jobs: list[Job]) -> dict[str, set[str]]:
    return {name: {key.removeprefix("shop/") for key in job.waits_for} for name, job in by_name(jobs).items()}


def levels(jobs: list[Job]) -> dict[str, int]:
    assert [job.level for job in jobs] == sorted(job.level for job in jobs)
    return {name: job.level for name, job in by_name(jobs).items()}


# ── shapes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_propagation_there_is_the_target_alone() -> None:
    [job] = propagate(CHAIN, some(CHAIN, orders="2025-01-01..2025-01-10"), NOW)
    assert (job.asset_key, job.role, job.level, job.distance) == ("shop/orders", "target", 0, 0)
    assert job.partitions.count == 10
    assert not job.waits_for
    assert not job.reads


def test_a_chain_is_computed_from_its_source_on() -> None:
    jobs = propagate(CHAIN, some(CHAIN, report="2025-01"), NOW, upstream_depth=UNLIMITED)
    assert levels(jobs) == {"raw": 0, "clean": 1, "orders": 2, "report": 3}
    assert waits(jobs) == {"raw": set(), "clean": {"raw"}, "orders": {"clean"}, "report": {"orders"}}
    assert [job.partitions.count for job in jobs] == [31, 31, 31, 1]
    assert [job.role for job in jobs] == ["upstream", "upstream", "upstream", "target"]
    assert [job.distance for job in jobs] == [3, 2, 1, 0]
    assert not any(job.warnings for job in jobs)


@pytest.mark.parametrize(
    ("depth", "found"),
    [
        (0, ["report"]),
        (1, ["orders", "report"]),
        (2, ["clean", "orders", "report"]),
        (3, ["raw", "clean", "orders", "report"]),
        (UNLIMITED, ["raw", "clean", "orders", "report"]),
    ],
)
def test_no_further_than_the_depth(depth: int, found: list[str]) -> None:
    assert names(propagate(CHAIN, some(CHAIN, report="2025-01"), NOW, upstream_depth=depth)) == found


def test_an_asset_that_reads_nothing_has_nothing_upstream() -> None:
    [job] = propagate(CHAIN, some(CHAIN, raw="2025-01"), NOW, upstream_depth=UNLIMITED)
    assert (job.role, job.waits_for, job.level) == ("target", (), 0)


def test_in_a_diamond_each_asset_is_there_once_and_siblings_are_level() -> None:
    jobs = propagate(DIAMOND, some(DIAMOND, top="2025-01"), NOW, upstream_depth=UNLIMITED)
    assert levels(jobs) == {"raw": 0, "left": 1, "right": 1, "top": 2}
    assert waits(jobs) == {"raw": set(), "left": {"raw"}, "right": {"raw"}, "top": {"left", "right"}}
    assert [job.partitions.count for job in jobs] == [31] * 4


def test_in_a_diamond_it_gets_what_any_of_its_readers_needs() -> None:
    known = catalog(
        spec("raw", DAYS),
        spec("left", DAYS, {"raw": Offset(-1)}),
        spec("right", DAYS, {"raw": Lookback(3)}),
        spec("top", DAYS, ["left", "right"]),
    )
    jobs = by_name(propagate(known, some(known, top="2025-01-10"), NOW, upstream_depth=UNLIMITED))
    assert jobs["raw"].partitions.describe() == "2025-01-08..2025-01-10"
    assert {(read.asset_key, read.mapping, read.partitions) for read in jobs["raw"].reads} == {
        ("shop/left", "offset", 1),
        ("shop/right", "lookback", 3),
    }


def test_the_order_is_that_of_the_longest_path() -> None:
    jobs = propagate(UNEQUAL, some(UNEQUAL, top="2025-01"), NOW, upstream_depth=UNLIMITED)
    assert levels(jobs) == {"raw": 0, "left": 1, "middle": 2, "top": 3}
    assert waits(jobs)["top"] == {"raw", "middle"}
    assert by_name(jobs)["raw"].distance == 1  # the shortest way there


def test_within_the_depth_is_who_can_be_reached_by_the_shortest_way() -> None:
    """What is near is computed once for all who read it, also for those at the edge."""
    assert names(propagate(UNEQUAL, some(UNEQUAL, top="2025-01"), NOW, upstream_depth=1)) == ["raw", "middle", "top"]
    jobs = propagate(UNEQUAL, some(UNEQUAL, top="2025-01"), NOW, upstream_depth=2)
    assert levels(jobs) == {"raw": 0, "left": 1, "middle": 2, "top": 3}


def test_who_is_near_waits_for_what_it_reads_also_where_that_is_near_by_another_way() -> None:
    known = catalog(
        spec("raw", DAYS), spec("left", DAYS, {"raw": Offset(-5)}), spec("top", DAYS, {"raw": None, "left": None})
    )
    jobs = by_name(propagate(known, some(known, top="2025-01-10"), NOW, upstream_depth=1))
    assert jobs["raw"].partitions.describe() == "2025-01-05, 2025-01-10"
    assert jobs["left"].waits_for == ("shop/raw",)


# ── mappings ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_month_needs_its_days() -> None:
    known = catalog(spec("days", DAYS), spec("months", MONTHS, ["days"]))
    jobs = by_name(propagate(known, some(known, months="2025-02"), NOW, upstream_depth=1))
    assert jobs["days"].partitions.describe() == "2025-02-01..2025-02-28"
    [read] = jobs["days"].reads
    assert (read.asset_key, read.partitions, read.fallback) == ("shop/months", 28, False)


@pytest.mark.parametrize(("day", "hours"), [("2025-03-29", 24), ("2025-03-30", 23), ("2024-10-27", 25)])
def test_a_day_in_berlin_needs_the_hours_that_it_has(day: str, hours: int) -> None:
    zone = "Europe/Berlin"
    known = catalog(
        spec("hours", Hourly("hour", start="2024-10-01T00", timezone=zone)),
        spec("days", Daily("date", start="2024-10-01", timezone=zone), ["hours"]),
    )
    jobs = by_name(propagate(known, some(known, days=day), NOW, upstream_depth=1))
    assert jobs["hours"].partitions.count == hours
    assert jobs["hours"].partitions == known.spec("shop/hours").partitions.parse_set(day, NOW)


def test_from_two_dimensions_to_one_the_other_is_left_out() -> None:
    known = catalog(spec("rates", DAYS), spec("sales", DAYS * REGIONS, ["rates"]))
    jobs = by_name(propagate(known, some(known, sales="date=2025-01-01..2025-01-02,region=eu"), NOW, upstream_depth=1))
    assert jobs["rates"].partitions.describe() == "2025-01-01..2025-01-02"


def test_from_one_dimension_to_two_all_values_of_the_other_are_needed() -> None:
    known = catalog(spec("sales", DAYS * REGIONS), spec("totals", DAYS, ["sales"]))
    jobs = by_name(propagate(known, some(known, totals="2025-01-01"), NOW, upstream_depth=1))
    assert jobs["sales"].partitions.describe() == "2025-01-01 × eu, us"
    assert not jobs["sales"].warnings


def test_values_that_are_added_at_run_time_are_those_of_now() -> None:
    customers = Dynamic("customer", ["ann", "bob"])
    known = catalog(spec("carts", DAYS * customers), spec("totals", DAYS, ["carts"]))
    jobs = by_name(propagate(known, some(known, totals="2025-01-01"), NOW, upstream_depth=1))
    assert jobs["carts"].partitions.describe() == "2025-01-01 × ann, bob"


def test_a_window_that_reaches_before_the_beginning_needs_what_there_is() -> None:
    known = catalog(spec("raw", DAYS), spec("week", DAYS, {"raw": Lookback(7)}))
    jobs = by_name(propagate(known, some(known, week="2025-01-03"), NOW, upstream_depth=1))
    assert jobs["raw"].partitions.describe() == "2025-01-01..2025-01-03"


def test_what_has_not_begun_is_not_computed_though_it_is_read() -> None:
    jobs = by_name(propagate(CHAIN, some(CHAIN, report="2025-06"), NOW, upstream_depth=UNLIMITED))
    assert {name: job.partitions.describe() for name, job in jobs.items()} == {
        "raw": "2025-06-01",
        "clean": "2025-06-01",
        "orders": "2025-06-01",
        "report": "2025-06",
    }


def test_where_nothing_is_read_nothing_is_computed() -> None:
    known = catalog(spec("raw", DAYS), spec("next", DAYS, {"raw": Offset(-1)}))
    assert names(propagate(known, some(known, next="2025-01-01"), NOW, upstream_depth=1)) == ["next"]


# ── where a mapping does not say ─────────────────────────────────────────────────────────────────────────────────


def test_definitions_with_nothing_in_common_take_everything_and_say_so() -> None:
    known = catalog(spec("raw", DAYS), spec("regional", REGIONS, ["raw"]))
    jobs = by_name(propagate(known, some(known, regional="eu"), NOW, upstream_depth=1))
    assert jobs["raw"].partitions == Partitions.of(DAYS).everything(NOW)
    assert jobs["raw"].warnings == (
        (
            "shop/raw and shop/regional: their definitions have no dimension in common;"
            " all 151 partitions of shop/raw are taken"
        ),
    )
    assert [read.fallback for read in jobs["raw"].reads] == [True]
    assert not jobs["regional"].warnings


@pytest.mark.parametrize("mapping", [All(), Last(), ByDimension({"date": All()}), ByDimension({"date": Last()})])
def test_what_somebody_wrote_down_is_no_fallback(mapping: All | Last | ByDimension) -> None:
    known = catalog(spec("raw", DAYS), spec("regional", REGIONS, {"raw": mapping}))
    jobs = by_name(propagate(known, some(known, regional="eu"), NOW, upstream_depth=1))
    assert not jobs["raw"].warnings
    assert not jobs["raw"].reads[0].fallback


def test_an_asset_without_partitions_reads_everything_as_a_matter_of_course() -> None:
    known = catalog(spec("raw", DAYS), spec("whole", None, ["raw"]), spec("next", DAYS, ["whole"]))
    jobs = by_name(propagate(known, some(known, next="2025-01-01"), NOW, upstream_depth=2))
    assert jobs["raw"].partitions.count == 151
    assert jobs["whole"].partitions.count == 1
    assert not any(job.warnings for job in jobs.values())


def broken(asked: PartitionSet, upstream: Partitions) -> PartitionSet:
    """Fits as long as nobody asks for anything."""
    if not asked:
        return upstream.empty()
    raise RuntimeError("the table of holidays is not there")


def of_another(asked: PartitionSet, upstream: Partitions) -> PartitionSet:
    return asked if asked else upstream.empty()


@pytest.mark.parametrize(
    ("function", "why"),
    [(broken, f"{FITS_NOT}tests.unit.test_propagation:broken raised RuntimeError: the table"), (of_another, FITS_NOT)],
)
def test_a_custom_mapping_that_fails_takes_everything_and_says_so(function: object, why: str) -> None:
    known = catalog(spec("raw", DAYS), spec("months", MONTHS, {"raw": Custom(function)}))  # type: ignore[arg-type]
    jobs = by_name(propagate(known, some(known, months="2025-01"), NOW, upstream_depth=1))
    assert jobs["raw"].partitions.count == 151
    assert jobs["raw"].reads[0].fallback
    [warning] = jobs["raw"].warnings
    assert warning.startswith(f"shop/raw and shop/months: {why}")
    assert warning.endswith("; all 151 partitions of shop/raw are taken")


def test_what_fails_is_warned_of_where_everything_is_taken_and_goes_on_from_there() -> None:
    known = catalog(spec("raw", DAYS), spec("clean", DAYS, ["raw"]), spec("months", MONTHS, {"clean": Custom(broken)}))
    jobs = by_name(propagate(known, some(known, months="2025-01"), NOW, upstream_depth=UNLIMITED))
    assert jobs["raw"].partitions.count == jobs["clean"].partitions.count == 151
    assert not jobs["raw"].warnings


# ── only what is missing ─────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_current_is_not_computed_again_and_nothing_upstream_of_it() -> None:
    there = some(CHAIN, clean="2025-01-01..2025-01-20", orders="2025-01-01..2025-01-10", raw="2025-01-01")
    jobs = by_name(
        propagate(
            CHAIN,
            some(CHAIN, report="2025-01"),
            NOW,
            upstream_depth=UNLIMITED,
            current=lambda key: there.get(key, CHAIN.spec(key).partitions.empty()),
        )
    )
    assert jobs["orders"].partitions.describe() == "2025-01-11..2025-01-31"
    assert jobs["clean"].partitions.describe() == "2025-01-21..2025-01-31"
    assert jobs["raw"].partitions.describe() == "2025-01-21..2025-01-31"


def test_propagation_stops_where_nothing_is_needed() -> None:
    everything = {key: CHAIN.spec(key).partitions.everything(NOW) for key in CHAIN.graph.specs}
    asked: list[str] = []

    def current(key: str) -> PartitionSet:
        asked.append(key)
        return everything[key]

    jobs = propagate(CHAIN, some(CHAIN, report="2025-01"), NOW, upstream_depth=UNLIMITED, current=current)
    # What was asked for by name is computed, whether it is there or not.
    assert names(jobs) == ["report"]
    assert asked == ["shop/orders"]


def test_of_what_was_asked_for_only_what_others_need_besides_can_be_current() -> None:
    targets = some(CHAIN, clean="2025-01-01", orders="2025-01-01..2025-01-03")
    there = some(CHAIN, clean="2025-01-01..2025-01-02")
    jobs = by_name(
        propagate(
            CHAIN,
            targets,
            NOW,
            upstream_depth=1,
            current=lambda key: there.get(key, CHAIN.spec(key).partitions.empty()),
        )
    )
    assert jobs["clean"].partitions.describe() == "2025-01-01, 2025-01-03"
    assert jobs["clean"].role == "target"


# ── downstream ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_downstream_is_everything_that_reads_it() -> None:
    jobs = propagate(CHAIN, some(CHAIN, raw="2025-01-30..2025-02-02"), NOW, downstream=True)
    assert levels(jobs) == {"raw": 0, "clean": 1, "orders": 2, "report": 3}
    assert [job.partitions.describe() for job in jobs] == ["2025-01-30..2025-02-02"] * 3 + ["2025-01..2025-02"]
    assert [job.role for job in jobs] == ["target", "downstream", "downstream", "downstream"]
    assert [job.distance for job in jobs] == [0, 1, 2, 3]


def test_downstream_is_made_anew_also_where_it_is_current() -> None:
    def current(asset_key: str) -> PartitionSet:
        return CHAIN.spec(asset_key).partitions.everything(NOW)

    jobs = propagate(CHAIN, some(CHAIN, raw="2025-01-30"), NOW, downstream=True, current=current)
    assert [job.role for job in jobs] == ["target", "downstream", "downstream", "downstream"]


def test_downstream_has_only_what_has_ended() -> None:
    jobs = by_name(propagate(CHAIN, some(CHAIN, raw="2025-05-31..2025-06-01"), NOW, downstream=True))
    assert jobs["raw"].partitions.count == 2  # the day that goes on was asked for
    assert jobs["clean"].partitions.describe() == "2025-05-31"


def test_downstream_through_a_diamond_waits_for_both_sides() -> None:
    jobs = propagate(DIAMOND, some(DIAMOND, raw="2025-01-01"), NOW, downstream=True)
    assert levels(jobs) == {"raw": 0, "left": 1, "right": 1, "top": 2}
    assert waits(jobs)["top"] == {"left", "right"}


def test_downstream_by_a_mapping_that_fails_takes_everything_and_says_so() -> None:
    known = catalog(spec("raw", DAYS), spec("months", MONTHS, {"raw": Custom(broken)}))
    jobs = by_name(propagate(known, some(known, raw="2025-01-01"), NOW, downstream=True))
    assert jobs["months"].partitions.count == 5
    assert jobs["months"].warnings == (
        (
            f"shop/months and shop/raw: {FITS_NOT}tests.unit.test_propagation:broken raised RuntimeError: the table of"
            " holidays is not there;"
            " all 5 partitions of shop/months are taken"
        ),
    )
    nothing_in_common = catalog(spec("raw", DAYS), spec("regional", REGIONS, ["raw"]))
    jobs = by_name(propagate(nothing_in_common, some(nothing_in_common, raw="2025-01-01"), NOW, downstream=True))
    assert "no dimension in common" in jobs["regional"].warnings[0]


def test_both_ways_what_was_only_needed_is_not_spread() -> None:
    """What is computed since a target needs it affects others too; nobody asked for those."""
    known = catalog(
        spec("raw", DAYS), spec("left", DAYS, ["raw"]), spec("right", DAYS, ["raw"]), spec("top", DAYS, ["left"])
    )
    jobs = propagate(known, some(known, left="2025-01-01"), NOW, upstream_depth=UNLIMITED, downstream=True)
    assert {name: job.role for name, job in by_name(jobs).items()} == {
        "raw": "upstream",
        "left": "target",
        "top": "downstream",
    }


def test_both_ways_what_a_target_changes_is_spread_though_another_target_reads_it() -> None:
    known = catalog(spec("a", DAYS), spec("b", DAYS, ["a"]), spec("t", DAYS, ["b"]), spec("x", DAYS, ["b"]))
    targets = some(known, a="2025-01-01", t="2025-02-01")
    jobs = propagate(known, targets, NOW, upstream_depth=1, downstream=True)
    assert {name: job.partitions.describe() for name, job in by_name(jobs).items()} == {
        "a": "2025-01-01",
        "b": "2025-01-01, 2025-02-01",
        "t": "2025-01-01, 2025-02-01",
        "x": "2025-01-01",  # of what t reads alone nothing follows
    }
    assert {name: (job.role, job.distance) for name, job in by_name(jobs).items()} == {
        "a": ("target", 0),
        "b": ("upstream", 1),
        "t": ("target", 0),
        "x": ("downstream", 2),
    }


def test_both_ways_what_others_need_of_a_target_besides_is_not_spread() -> None:
    known = catalog(spec("b", DAYS), spec("t", DAYS, ["b"]), spec("x", DAYS, ["b"]))
    targets = some(known, b="2025-01-01", t="2025-02-01")
    jobs = by_name(propagate(known, targets, NOW, upstream_depth=1, downstream=True))
    assert jobs["b"].partitions.describe() == "2025-01-01, 2025-02-01"
    assert jobs["x"].partitions.describe() == "2025-01-01"


def test_the_nearest_target_counts_also_where_it_is_upstream() -> None:
    jobs = by_name(
        propagate(
            UNEQUAL,
            some(UNEQUAL, left="2025-01-01", top="2025-02-01"),
            NOW,
            upstream_depth=UNLIMITED,
            downstream=True,
        )
    )
    assert {name: job.distance for name, job in jobs.items()} == {"raw": 1, "left": 0, "middle": 1, "top": 0}


# ── several targets ──────────────────────────────────────────────────────────────────────────────────────────────


def test_of_several_targets_one_waits_for_the_other_that_it_reads() -> None:
    jobs = propagate(CHAIN, some(CHAIN, raw="2025-01-01", clean="2025-01-01..2025-01-02"), NOW)
    assert waits(jobs) == {"raw": set(), "clean": {"raw"}}
    assert [job.partitions.count for job in jobs] == [1, 2]  # without propagation exactly what was asked for


def test_with_what_it_needs_a_target_that_another_reads_has_that_too() -> None:
    targets = some(CHAIN, clean="2025-02-01", orders="2025-01-01..2025-01-02")
    jobs = by_name(propagate(CHAIN, targets, NOW, upstream_depth=1))
    assert jobs["clean"].partitions.describe() == "2025-01-01..2025-01-02, 2025-02-01"
    assert (jobs["clean"].role, jobs["clean"].distance) == ("target", 0)
    assert jobs["raw"].partitions == jobs["clean"].partitions
    assert jobs["orders"].partitions.count == 2


def test_targets_of_which_nothing_is_wanted_are_no_jobs() -> None:
    targets = some(CHAIN, orders="2025-01-01") | {"shop/raw": CHAIN.spec("shop/raw").partitions.empty()}
    assert names(propagate(CHAIN, targets, NOW)) == ["orders"]
    assert propagate(CHAIN, {}, NOW, upstream_depth=UNLIMITED, downstream=True) == []


def test_a_hundred_thousand_partitions_over_two_levels_are_not_listed() -> None:
    minutes = Static("minute", range(1440))
    known = catalog(
        spec("raw", DAYS * minutes), spec("clean", DAYS * minutes, ["raw"]), spec("top", DAYS * minutes, ["clean"])
    )
    jobs = propagate(known, some(known, top="date=2025-01-01..2025-03-11"), NOW, upstream_depth=2)
    assert [job.partitions.count for job in jobs] == [100_800] * 3

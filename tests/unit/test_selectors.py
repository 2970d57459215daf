"""Partitions as the event of a backfill holds them, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pytest

from servo import canonical
from servo.errors import InvalidPartition
from servo.partitions import (
    UNPARTITIONED,
    Cron,
    Daily,
    Dynamic,
    Hourly,
    Monthly,
    Partitions,
    PartitionSet,
    Static,
    Weekly,
)
from servo.planning.backfills import described, selected

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
DAYS = Partitions.of(Daily("date", start="2025-01-01"))
BERLIN = Partitions.of(Hourly("hour", start="2024-10-26T00", end="2025-04-01T00", timezone="Europe/Berlin"))
CUSTOMERS = Dynamic("customer", ["ann", "bob", "cid", "dan", "eve"])
DEFINITIONS = {
    "unpartitioned": UNPARTITIONED,
    "daily": DAYS,
    "weekly": Partitions.of(Weekly("week", start="2025-01-06")),
    "monthly": Partitions.of(Monthly("month", start="2024-01")),
    "hourly": Partitions.of(Hourly("hour", start="2025-05-20T00")),
    "hourly over DST": BERLIN,
    "cron": Partitions.of(Cron("run", "0 */6 * * *", start="2025-05-01T00")),
    "static": Partitions.of(Static("region", ["us", "eu", "asia"])),
    "static integers": Partitions.of(Static("shard", [3, 1, 2])),
    "static bools": Partitions.of(Static("live", [True, False])),
    "dynamic": Partitions.of(CUSTOMERS),
    "day and region": Daily("date", start="2025-05-20") * Static("region", ["us", "eu"]),
    "region and day": Static("region", ["us", "eu"]) * Daily("date", start="2025-05-20"),
    "customer and hour": CUSTOMERS * Hourly("hour", start="2025-05-31T00", timezone="Europe/Berlin"),
    "month and customer": Monthly("month", start="2025-01") * CUSTOMERS,
}


def kept(partitions: PartitionSet, **more: str) -> tuple[dict[str, object], dict[str, object]]:
    """A definition and a selector after they were in the ledger."""
    both = partitions.partitions.to_json(), described(partitions, **more)
    definition, selector = (canonical.loads(canonical.dumps(one)) for one in both)
    return definition, selector


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_set_of_every_definition_comes_back_in_its_order(name: str) -> None:
    everything = DEFINITIONS[name].everything(NOW)
    count = everything.count
    keys = list(everything)
    for some in (
        everything,
        everything.slice(0, 1),
        everything.slice(count // 3, count),
        everything.partitions.set_of(islice(keys, 0, None, 2)),
        everything.partitions.set_of(islice(keys, 1, None, 3)),
    ):
        found = selected(*kept(some))
        assert list(found) == list(some)
        # So have chunks of it.
        assert list(found.slice(1, 3)) == list(some.slice(1, 3))


def test_the_hours_of_a_change_of_time_come_back_both_ways() -> None:
    spring = BERLIN.parse_set("2025-03-30", NOW)
    assert spring.count == 23
    assert selected(*kept(spring)) == spring
    autumn = BERLIN.parse_set("2024-10-27", NOW)
    assert autumn.count == 25
    assert selected(*kept(autumn)) == autumn
    second_two_o_clock = autumn.slice(3, 4)
    assert BERLIN.label(autumn.slice(2, 3).first()) != BERLIN.label(second_two_o_clock.first())
    assert selected(*kept(second_two_o_clock)) == second_two_o_clock


def test_dynamic_values_are_those_of_that_day() -> None:
    some = Partitions.of(CUSTOMERS).set_of(["ann", "dan"])
    definition, selector = kept(some)
    assert definition == {"dimensions": [{"kind": "dynamic", "name": "customer"}]}
    assert selected(definition, selector).describe() == "ann, dan"


def test_an_edited_definition_changes_nothing() -> None:
    """The definition is that of the event: what is deployed by now is not even asked."""
    definition, selector = kept(DAYS.parse_set("2025-01-01..2025-01-03", NOW))
    assert definition == {"dimensions": [Daily("date", start="2025-01-01").to_json()]}
    assert selected(definition, selector).describe() == "2025-01-01..2025-01-03"


# ── for people ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_range_says_its_ends() -> None:
    assert described(DAYS.parse_set("2025-01", NOW)) == {
        "range": {"from": "date=d:2025-01-01", "to": "date=d:2025-01-31"},
        "partitions": {"dimensions": ["date"], "parts": [[["2025-01-01", "2025-01-31"]]]},
    }


def test_few_that_are_no_range_are_named() -> None:
    said = described(DAYS.set_of(["2025-01-01", "2025-01-03"]))
    assert said["keys"] == ["date=d:2025-01-01", "date=d:2025-01-03"]
    assert "range" not in said


def test_what_a_filter_chose_says_which() -> None:
    said = described(DAYS.parse_set("2025-01", NOW), chosen_by="missing")
    assert said["filter"] == "missing"
    assert said.keys() == {"filter", "partitions"}
    assert selected(DAYS.to_json(), said).count == 31


def test_nothing_and_what_has_no_partitions_have_nothing_to_name() -> None:
    assert described(DAYS.empty()) == {"partitions": {"dimensions": ["date"], "parts": []}}
    assert described(UNPARTITIONED.everything(NOW)).keys() == {"partitions"}


def test_a_selector_of_something_else_is_refused_in_a_line() -> None:
    with pytest.raises(InvalidPartition, match="does not say which partitions"):
        selected(DAYS.to_json(), {"something": "new"})


# ── size ─────────────────────────────────────────────────────────────────────────────────────────────────────────


HOURS = Partitions.of(Hourly("hour", start="2010-01-01T00")).everything(NOW).slice(0, 100_000)


@pytest.mark.parametrize(
    "many",
    [
        HOURS,
        (Hourly("hour", start="2010-01-01T00") * Static("region", ["eu", "us"])).everything(NOW).slice(1, 100_001),
    ],
    ids=["hours", "hours and regions"],
)
def test_a_hundred_thousand_partitions_in_a_row_are_a_few_hundred_bytes(many: PartitionSet) -> None:
    assert many.count == 100_000
    assert len(canonical.dumps(described(many))) < 400


def test_what_is_scattered_is_packed() -> None:
    """As it is written, each lone hour is 34 bytes; packed, about 4."""
    lone = HOURS.partitions.set_of(islice(HOURS, 0, 8_000, 2))
    assert lone.count == 4_000
    selector = described(lone)
    assert len(canonical.dumps(lone.to_json())) > 34 * 4_000
    assert len(canonical.dumps(selector)) < 5 * 4_000
    assert selected(HOURS.partitions.to_json(), selector) == lone
    named = Partitions.of(Dynamic("customer", [f"customer-{number:06}" for number in range(5_000)]))
    assert selected(named.to_json(), described(named.everything(NOW))).count == 5_000
    assert len(canonical.dumps(described(named.everything(NOW)))) < 25_000

"""Selections: what they select, and how they are refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from servo import Daily, Dynamic, Hourly, Monthly, Static
from servo.assets.graph import Graph
from servo.assets.selection import assets_of, require_sound, select
from servo.assets.syntax import parse, quoted, terms
from servo.errors import AssetNotFound, InvalidPartition, InvalidSelection
from servo.partitions import PartitionSet
from tests.unit.test_graph import spec

NOW = datetime(2025, 3, 10, 12, tzinfo=UTC)
days = Daily("date", start="2025-01-01")
regions = Static("region", ["eu", "us"])
GRAPH = Graph.of(
    [
        spec("config", tags={"tier": "gold"}),
        spec("raw", partitions=days, group="in"),
        spec("orders", "raw", "config", partitions=days, tags={"tier": "silver", "pii": ""}),
        spec("revenue", "orders", partitions=days * regions, group="out"),
        spec("report", "revenue", partitions=Monthly("month", start="2025-01"), group="out"),
        spec("page", "report"),
        spec("tenants", partitions=Dynamic("tenant")),
    ]
)


def missing(key: str, status: str) -> PartitionSet:
    """What is missing: the first three days of orders and of raw; of others nothing."""
    partitions = GRAPH[key].partitions
    if status == "missing" and key in ("shop/orders", "shop/raw"):
        return partitions.parse_set("2025-01-01..2025-01-03", NOW)
    return partitions.empty()


def selected(text: str, partitions: str | None = None) -> dict[str, str]:
    found = select(GRAPH, text, now=NOW, partitions=partitions, statuses=missing)
    return {key.removeprefix("shop/"): wanted.describe() for key, wanted in found.items()}


def same(*texts: str) -> bool:
    answers = [select(GRAPH, text, now=NOW, statuses=missing) for text in texts]
    return all(answer == answers[0] for answer in answers)


def counts(text: str, partitions: str | None = None) -> dict[str, int]:
    found = select(GRAPH, text, now=NOW, partitions=partitions, statuses=missing)
    return {key.removeprefix("shop/"): wanted.count for key, wanted in found.items()}


def terms_of(text: str) -> list[str]:
    return [term.what for term in terms(parse(text))]


def test_partitions_of_one_asset() -> None:
    assert counts("orders@2025-01-15") == {"orders": 1}
    assert counts("shop/orders@2025-01-01..2025-01-31") == {"orders": 31}
    assert counts("orders@all") == {"orders": 68}
    assert counts("orders@latest") == {"orders": 1}
    assert selected("orders@latest") == selected("orders@2025-03-09")
    assert counts("revenue@2025-01-15,region=eu") == {"revenue": 1}
    assert counts("orders", "2025-01-15") == {"orders": 1}
    assert counts("config") == {"config": 1}


def test_partitions_flow_upstream() -> None:
    assert counts("+revenue@2025-01-15,region=eu") == {"raw": 1, "config": 1, "orders": 1, "revenue": 1}
    assert counts("1+revenue@2025-01-15,region=eu") == {"orders": 1, "revenue": 1}
    assert counts("2+report@2025-01") == {"orders": 31, "revenue": 62, "report": 1}
    assert counts("+report", "2025-02") == {"raw": 28, "config": 1, "orders": 28, "revenue": 56, "report": 1}
    assert counts("0+orders@2025-01-15") == {"orders": 1}


def test_partitions_flow_downstream() -> None:
    assert counts("orders@2025-01-15+") == {"orders": 1, "revenue": 2, "report": 1, "page": 1}
    assert counts("orders@2025-01-15+1") == {"orders": 1, "revenue": 2}
    assert counts("raw@2025-01-31..2025-02-01+3") == {"raw": 2, "orders": 2, "revenue": 4, "report": 2}


def test_both_ways() -> None:
    assert counts("1+orders@2025-01-15+1") == {"config": 1, "raw": 1, "orders": 1, "revenue": 2}
    # Up from what is down is not asked for: only the one day of revenue that reads the day of orders.
    assert counts("+orders@2025-01-15+")["raw"] == 1


def test_an_asset_without_partitions_reads_everything() -> None:
    assert counts("+page")["report"] == counts("report@all")["report"]


def test_groups_and_tags() -> None:
    assert counts("group:out", "2025-01") == {"revenue": 62, "report": 1}
    assert counts("tag:tier=gold") == {"config": 1}
    assert counts("tag:pii", "2025-01-01") == {"orders": 1}
    assert counts("tag:tier", "2025-01-01") == {"config": 1, "orders": 1}
    assert set(counts("* and not tenants", "2025-01")) == {"config", "raw", "orders", "revenue", "report", "page"}
    assert counts("not tenants and not config", "2025-01") == counts("* and not tenants and not config", "2025-01")
    assert counts("not raw@2025-01-02 and group:in", "2025-01") == {"raw": 30}


def test_and_or_not() -> None:
    assert counts("orders@2025-01-01..2025-01-10 and orders@2025-01-06..2025-01-20") == {"orders": 5}
    assert counts("orders@2025-01-01 or orders@2025-01-02 or config") == {"config": 1, "orders": 2}
    assert counts("orders@2025-01-01..2025-01-10 and not orders@2025-01-02") == {"orders": 9}
    assert counts("not not orders@2025-01-02") == {"orders": 1}
    assert same(
        "orders@2025-01-01 or raw@2025-01-01 and raw@2025-01-02",
        "orders@2025-01-01 or (raw@2025-01-01 and raw@2025-01-02)",
    )
    assert counts("(orders@2025-01-01 or raw@2025-01-02) and group:in") == {"raw": 1}
    assert counts("orders@2025-01-01 AND raw@2025-01-01") == {}
    assert counts("+(orders@2025-01-15 or report@2025-02)")["raw"] == 29
    assert counts("(raw@2025-01-15)+1") == {"raw": 1, "orders": 1}


def test_status() -> None:
    assert counts("status:missing") == {"raw": 3, "orders": 3}
    assert counts("orders and status:missing") == {"orders": 3}
    assert counts("status:missing and +orders") == {"raw": 3, "orders": 3}
    assert counts("orders@2025-01-02..2025-01-09 and status:missing") == {"orders": 2}
    assert counts("orders@2025-01-02..2025-01-09 and not status:missing") == {"orders": 6}
    assert counts("status:missing@2025-01-02 and group:in") == {"raw": 1}
    assert counts("(orders and status:missing)+1") == {"orders": 3, "revenue": 6}
    assert counts("status:failed") == {}


def test_partitions_hold_for_a_status_too_and_say_nothing_where_there_are_none() -> None:
    assert counts("status:missing", "2025-01-02") == {"raw": 1, "orders": 1}
    assert counts("status:missing@2025-01-03", "2025-01-02") == {"raw": 1, "orders": 1}
    with pytest.raises(InvalidPartition):
        counts("status:missing", "no-day")
    with pytest.raises(InvalidSelection, match="config has no partitions to choose '2025-01-02' of"):
        counts("config", "2025-01-02")
    assert counts("config or orders", "2025-01-02") == {"config": 1, "orders": 1}


def test_statuses_are_asked_for_only_where_they_matter() -> None:
    asked = []

    def statuses(key: str, status: str) -> PartitionSet:
        asked.append(key)
        return missing(key, status)

    select(GRAPH, "status:missing and orders", now=NOW, statuses=statuses)
    assert asked == ["shop/orders"]


def test_quotes_hold_what_would_be_read_otherwise() -> None:
    spaced = Graph.of([spec("a", partitions=Static("city", ["new york", "or (so)"]))])
    assert select(spaced, 'a@"new york"', now=NOW)["shop/a"].count == 1
    assert select(spaced, "a@city='or (so)'", now=NOW)["shop/a"].count == 1


def test_nothing_within_quotes_is_syntax() -> None:
    values = ["x@y.z", "a+1", "+49 30 (0)", "it's", 'say "so"', """both ' and \"""", "and", "k=v", "a:b"]
    tagged = Graph.of([spec(f"a{n}", tags={"mail": value}) for n, value in enumerate(values)])
    for place, value in enumerate(values):
        text = f"tag:mail={quoted(value)}"
        assert list(select(tagged, text, now=NOW)) == [f"shop/a{place}"], text
        assert assets_of(tagged, text) == {f"shop/a{place}"}
        assert terms_of(f"not ({text} and *)") == [f"tag:mail={value}", "*"]
    assert list(select(tagged, """tag:mail='x@'"y.z" or 'a1'""", now=NOW)) == ["shop/a0", "shop/a1"]
    with pytest.raises(InvalidSelection) as refused:
        select(tagged, "tag:mail=x@y.z", now=NOW)
    assert refused.value.hint == 'a value that holds @ is written in quotes: tag:mail="x@y.z"'


def test_levels_are_written_before_or_after_the_partitions() -> None:
    assert same("raw+1@2025-01-03", "raw@2025-01-03+1")
    assert counts("raw+1@2025-01-03") == {"raw": 1, "orders": 1}
    assert same("1+orders+1@2025-01-03", "1+orders@2025-01-03+1")
    assert same("raw+@2025-01-03..2025-01-04", "raw@2025-01-03..2025-01-04+")
    with pytest.raises(InvalidSelection, match=r"with \+N twice, at character 1"):
        selected("raw+1@2025-01-03+2")


def test_an_offset_from_utc_is_no_number_of_levels() -> None:
    hourly = Graph.of([spec("a", partitions=Hourly("hour", start="2025-01-01")), spec("b", "a")])
    for text in ("a@2025-01-01T06:00+0100", "a@2025-01-01T06:00+01:00", "a@2025-01-01T05:00Z"):
        assert {key: one.describe() for key, one in select(hourly, text, now=NOW).items()} == {
            "shop/a": "2025-01-01T05:00Z"
        }, text
    assert list(select(hourly, "a@2025-01-01T06:00+0100+1", now=NOW)) == ["shop/a", "shop/b"]


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["orders", "+orders", "orders+", "group:in", "raw and orders or raw", "not config"])
def test_asks_which_partitions(text: str) -> None:
    with pytest.raises(InvalidSelection, match=r"is partitioned by .* does not say which partitions"):
        select(GRAPH, text, now=NOW, statuses=missing)


def test_names_the_asset_that_was_named_and_the_remedies() -> None:
    with pytest.raises(InvalidSelection, match=r"^shop/revenue is partitioned by date, region") as refused:
        selected("+revenue")
    assert refused.value.hint == "write revenue@2025-01-01, a range revenue@A..B, revenue@latest or revenue@all"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("orders and", 11),
        ("orders raw", 8),
        ("(orders", 1),
        ("orders)", 7),
        ("and orders", 1),
        ("orders or or raw", 11),
        ("orders@", 1),
        ("+", 1),
        ("+ orders", 1),
        ("not", 4),
        ('orders@"x', 8),
        ("config and label:x", 12),
        ("config and status:old", 12),
        ("config and group:ou", 12),
        ("config and tag:tear", 12),
        ("()", 2),
    ],
)
def test_points_at_the_place(text: str, place: int) -> None:
    with pytest.raises(InvalidSelection, match=f"at character {place}(?!\\d)"):
        selected(text)


def test_refuses_what_is_not_there() -> None:
    with pytest.raises(AssetNotFound, match="did you mean orders"):
        selected("+ordres@2025-01-01")
    with pytest.raises(InvalidPartition, match=r"^shop/orders: "):
        selected("orders@2024-12-31")
    with pytest.raises(InvalidPartition, match=r"^shop/config: "):
        selected("config@2025-01-01")
    with pytest.raises(InvalidSelection, match="empty"):
        selected("  ")
    with pytest.raises(InvalidSelection, match="did you mean out"):
        selected("group:oul")
    with pytest.raises(InvalidSelection, match="nothing is known here"):
        select(GRAPH, "status:missing", now=NOW)


def test_soundness_without_partitions() -> None:
    for text in ("+revenue", "orders@nonsense", "status:stale and group:in"):
        require_sound(GRAPH, text)
    with pytest.raises(AssetNotFound):
        require_sound(GRAPH, "+revenu or config")
    with pytest.raises(InvalidSelection):
        require_sound(GRAPH, "orders and")

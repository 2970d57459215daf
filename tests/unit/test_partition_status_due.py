"""What should run now, by example: pure, so that a plan and its run cannot differ."""

from __future__ import annotations

from datetime import UTC, datetime

from servo.partitions import Daily, Monthly, PartitionSet
from servo.planning.due import Present, due
from tests.support.catalogs import catalog, spec

NOW = datetime(2025, 2, 1, tzinfo=UTC)
DAYS = Daily("date", start="2025-01-01", end="2025-02-01")
KNOWN = catalog(
    spec("raw", DAYS),
    spec("orders", DAYS, ["raw"]),
    spec("extra", DAYS, ["orders"]),
    spec("report", Monthly("month", start="2025-01", end="2025-02"), ["orders"]),
)


def some(asset: str, text: str) -> PartitionSet:
    definition = KNOWN.spec(f"shop/{asset}").partitions
    return definition.parse_set(text, NOW) if text else definition.empty()


def present(asset: str, *, missing: str = "", stale: dict[str, str] | None = None, **more: str) -> Present:
    everything = some(asset, "all")
    return Present(
        there=everything - some(asset, missing),
        missing=some(asset, missing),
        stale={code: some(asset, text) for code, text in (stale or {}).items()},
        **{name: some(asset, text) for name, text in more.items()},
    )


def found(selected: dict[str, str], **known: Present) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]:
    as_it_is = {f"shop/{asset}": known.get(asset, present(asset)) for asset in ("raw", "orders", "extra", "report")}
    wanted = {f"shop/{asset}": some(asset, text) for asset, text in selected.items()}
    answer = due(KNOWN, wanted, as_it_is, NOW)
    assert due(KNOWN, dict(reversed(wanted.items())), as_it_is, NOW) == answer
    # Every partition that runs is in exactly one group, and nothing else is.
    for key, partitions in answer.wanted.items():
        groups = [group.partitions for group in answer.groups if group.asset_key == key]
        assert sum(group.count for group in groups) == partitions.count
        assert all(group.issubset(partitions) for group in groups)
    assert list(answer.wanted) == [key for key in KNOWN.graph.specs if key in answer.wanted]
    return (
        [(one.asset_key[5:], one.sentence(), one.partitions.describe()) for one in answer.groups],
        [(one.asset_key[5:], one.why, one.partitions.describe()) for one in answer.held],
    )


EVERYTHING = {"raw": "all", "orders": "all", "extra": "all", "report": "all"}


def test_nothing_is_due_where_all_is_as_it_should_be() -> None:
    assert found(EVERYTHING) == ([], [])


def test_what_is_due_and_what_follows_in_order() -> None:
    runs, held = found(EVERYTHING, raw=present("raw", missing="2025-01-31", stale={"CODE_CHANGED": "2025-01-02"}))
    assert held == []
    assert runs == [
        ("raw", "missing", "2025-01-31"),
        ("raw", "stale: code changed", "2025-01-02"),
        ("orders", "follows shop/raw", "2025-01-02, 2025-01-31"),
        ("extra", "follows shop/orders", "2025-01-02, 2025-01-31"),
        ("report", "follows shop/orders", "2025-01"),
    ]


def test_only_what_is_selected_runs() -> None:
    stale = present("orders", stale={"UPSTREAM_CHANGED": "2025-01-02..2025-01-04"})
    runs, held = found({"orders": "2025-01-03", "report": "all"}, orders=stale)
    assert (runs, held) == (
        [("orders", "stale: upstream changed", "2025-01-03"), ("report", "follows shop/orders", "2025-01")],
        [],
    )


def test_several_reasons_are_one() -> None:
    orders = present("orders", stale={"INVALIDATED": "2025-01-02", "CODE_CHANGED": "2025-01-02..2025-01-03"})
    runs, _ = found(
        {"raw": "all", "orders": "all"}, raw=present("raw", stale={"INVALIDATED": "2025-01-02"}), orders=orders
    )
    assert runs == [
        ("raw", "stale: invalidated", "2025-01-02"),
        ("orders", "stale: invalidated", "2025-01-02"),
        ("orders", "stale: code changed", "2025-01-03"),
    ]


def test_what_has_nothing_to_read_is_held_and_so_is_all_that_reads_it() -> None:
    lacking = present("raw", missing="2025-01-30..2025-01-31")
    orders, report = present("orders", missing="2025-01-30..2025-01-31"), present("report", missing="2025-01")
    runs, held = found({"orders": "all", "report": "all"}, raw=lacking, orders=orders, report=report)
    assert runs == []
    assert held == [
        ("orders", "reads shop/raw 2025-01-30..2025-01-31, which is not there", "2025-01-30..2025-01-31"),
        ("report", "reads shop/orders 2025-01-30..2025-01-31, which is not there", "2025-01"),
    ]


def test_what_reads_a_mark_is_held_and_what_was_marked_is_not_due() -> None:
    raw = present("raw", stale={"INVALIDATED": "2025-01-04"}, marked="2025-01-02..2025-01-03")
    orders = present("orders", missing="2025-01-02..2025-01-03", marked="2025-01-04")
    runs, held = found({"raw": "all", "orders": "all"}, raw=raw, orders=orders)
    assert runs == [("raw", "stale: invalidated", "2025-01-04")], "what follows it was only marked, and is not computed"
    told = "reads shop/raw 2025-01-02..2025-01-03, which were marked as materialized and hold no data"
    assert held == [("orders", told, "2025-01-02..2025-01-03")]
    # Made by the same run, it has data.
    made = present("raw", stale={"INVALIDATED": "2025-01-02..2025-01-03"}, marked="2025-01-02..2025-01-03")
    runs, held = found({"raw": "all", "orders": "all"}, raw=made, orders=orders)
    assert (len(runs), held) == (2, [])


def test_what_is_frozen_is_held_and_what_is_on_its_way_is_not_asked_for_again() -> None:
    raw = present("raw", stale={"INVALIDATED": "2025-01-02..2025-01-04"}, frozen="2025-01-02", on_the_way="2025-01-03")
    runs, held = found({"raw": "all", "orders": "all"}, raw=raw, orders=present("orders", frozen="2025-01-04"))
    assert runs == [("raw", "stale: invalidated", "2025-01-04")]
    assert held == [
        ("raw", "an unfinished run computes it", "2025-01-03"),
        ("raw", "is frozen", "2025-01-02"),
        ("orders", "is frozen", "2025-01-04"),
    ]
    _, held = found(
        {"raw": "all"}, raw=present("raw", missing="2025-01-05..2025-01-07", frozen="2025-01-05..2025-01-06")
    )
    assert held == [("raw", "are frozen", "2025-01-05..2025-01-06")]

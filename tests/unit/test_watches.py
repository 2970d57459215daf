"""Watches as values: what can be declared, what is refused, and which runs are asked for by what was found."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servo import Daily, Dynamic, Monthly, Static, canonical
from servo.assets import patterns
from servo.assets.decorator import Asset, asset
from servo.assets.evaluation import EndedRun, FoundFile, FoundPartitions, FoundRow
from servo.assets.graph import Graph
from servo.assets.loading import load
from servo.assets.selection import select
from servo.assets.watches import BuiltIn, NewFiles, NewPartitions, NewRows, RunEnded, watch_from_json
from servo.errors import InvalidInput, InvalidSelection, ServoError
from servo.partitions import PartitionKey
from servo.planning.catalog import Catalog
from servo.runtime import load_settings

NOW = datetime(2025, 3, 10, 12, tzinfo=UTC)
days = Daily("date", start="2025-01-01")
regions = Static("region", ["eu", "us"])


def _known() -> Catalog:
    @asset(partitions=days)
    def raw(context: Any) -> None: ...

    @asset(partitions=days)
    def orders(raw: Any) -> None: ...

    @asset(partitions=days * regions)
    def revenue(orders: Any) -> None: ...

    @asset(partitions=Monthly("month", start="2025-01"), group="reports")
    def report(orders: Any) -> None: ...

    @asset
    def total(report: Any) -> None: ...

    @asset(partitions=Dynamic("customer"))
    def bills(context: Any) -> None: ...

    @asset(partitions=days)
    def elsewhere(context: Any) -> None: ...

    declared: list[Asset] = [raw, orders, revenue, report, total, bills, elsewhere]
    specs = [one.spec for one in declared]
    graph = Graph.of(specs)
    return Catalog.of(graph.specs.values(), {key: key for key in graph.specs})


KNOWN = _known()


def _file(**values: str) -> FoundFile:
    return FoundFile(key="k", values=values, path="x", size=1, modified=NOW)


def _new(*keys: str, asset_key: str = "default/orders") -> FoundPartitions:
    return FoundPartitions(
        key="7", asset_key=asset_key, keys=keys, labels=keys, run_id=None, position=7, at=NOW, values={}
    )


def _asked(watch: BuiltIn, item: Any, text: str, partitions: str | None = None) -> dict[str, str]:
    """What the requests come to, as `servo materialize` would read them."""
    wanted: dict[str, str] = {}
    for one in watch.requests(item, text, partitions, KNOWN, now=NOW):
        assert one.key == item.key
        for said in one.partitions or (None,):
            for key, some in select(KNOWN.graph, one.select, now=NOW, partitions=said).items():
                wanted[key] = f"{wanted[key]} + {some.describe()}" if key in wanted else some.describe()
    return wanted


# ── declaring ────────────────────────────────────────────────────────────────────────────────────────────────────

WATCHES = [
    NewFiles("landing/{date}/*.json"),
    NewFiles("s3://bucket/{region}/**/part-?.csv", settle=timedelta(milliseconds=1500)),
    NewPartitions("orders"),
    RunEnded(),
    RunEnded(("CANCELLED", "SUCCEEDED"), select="+report"),
    NewRows("sqlite:///shop.db", table="orders", column="id"),
    NewRows("postgresql://reader@db/shop", table="shop.orders", column="at", columns=("region", "at")),
    NewRows("env:SHOP", table="orders", column="id"),
]


@pytest.mark.parametrize("watch", WATCHES, ids=repr)
def test_a_watch_is_plain_data_and_comes_back_as_it_was(watch: BuiltIn) -> None:
    data = watch.to_json()
    assert watch_from_json(canonical.loads(canonical.dumps(data))) == watch
    assert watch.default_min_interval in (timedelta(seconds=1), timedelta(seconds=30))


def test_what_the_ledger_tells_of_is_looked_at_every_second() -> None:
    assert NewPartitions("orders").default_min_interval == RunEnded().default_min_interval == timedelta(seconds=1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NewFiles(""),
        lambda: NewFiles("  x"),
        lambda: NewFiles(3),  # type: ignore[arg-type]
        lambda: NewFiles("landing/../../etc/*"),
        lambda: NewFiles("landing/"),
        lambda: NewFiles("landing/**"),
        lambda: NewFiles("landing/a**/x"),
        lambda: NewFiles("landing/{Date}/x"),
        lambda: NewFiles("landing/{date"),
        lambda: NewFiles("landing/{a}{b}"),
        lambda: NewFiles("landing/{a}*"),
        lambda: NewFiles("landing/*{a}"),
        lambda: NewFiles("landing/{a}-{a}"),
        lambda: NewFiles("s3:///x/*"),
        lambda: NewFiles("s3://key:secret@bucket/*"),
        lambda: NewFiles("x/*\n"),
        lambda: NewFiles("x/*", settle=timedelta(-1)),
        lambda: NewFiles("x/*", settle=5),  # type: ignore[arg-type]
        lambda: NewPartitions(""),
        lambda: NewPartitions("Orders"),
        lambda: NewPartitions(None),  # type: ignore[arg-type]
        lambda: RunEnded("LOST"),
        lambda: RunEnded(()),
        lambda: RunEnded(7),  # type: ignore[arg-type]
        lambda: RunEnded(select="orders and"),
        lambda: RunEnded(select="orders@latest"),
        lambda: RunEnded(select="status:failed"),
        lambda: NewRows("mysql://x/y", table="t", column="c"),
        lambda: NewRows("postgresql://u:secret@h/d", table="t", column="c"),
        lambda: NewRows("postgresql://h/d?password=secret", table="t", column="c"),
        lambda: NewRows("sqlite:///x.db", table="t; DROP TABLE t", column="c"),
        lambda: NewRows("sqlite:///x.db", table="a.b.c", column="c"),
        lambda: NewRows("sqlite:///x.db", table="t", column='c"'),
        lambda: NewRows("sqlite:///x.db", table="t", column=""),
        lambda: NewRows("sqlite:///x.db", table="t", column="c", columns="d"),  # type: ignore[arg-type]
        lambda: NewRows("sqlite:///x.db", table="t", column="c", columns=("1",)),
        lambda: NewRows("env:no-name", table="t", column="c"),
    ],
)
def test_what_cannot_be_watched_is_refused_with_a_hint(make: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        make()
    assert refused.value.hint or isinstance(refused.value, InvalidSelection)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_watch_of_a_newer_servo_is_refused() -> None:
    for data in ({"kind": "new_moon"}, {}, {"kind": "new_files"}, {"kind": "new_files", "pattern": "x/*", "also": 1}):
        with pytest.raises(InvalidInput, match="not a watch"):
            watch_from_json(data)


@pytest.mark.parametrize("watch", [NewFiles("x/*"), NewPartitions("orders"), RunEnded(), WATCHES[5]], ids=repr)
@pytest.mark.parametrize("cursor", ["", "nonsense", "-1", "007", "1.5", "[]", '{"after":1}', '{"seen":"!"}', '{"a":1}'])
def test_a_cursor_of_another_kind_is_refused(watch: BuiltIn, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="not a cursor"):
        watch.require_cursor(cursor)


def test_a_cursor_that_people_write_is_taken() -> None:
    NewPartitions("orders").require_cursor("1204")
    NewFiles("x/*").require_cursor('{"floor":[1700000000000000000,""]}')
    for value in ('{"int":5}', '{"text":"a"}', '{"timestamp":"2025-01-01T00:00:00+00:00"}', '{"date":"2025-01-01"}'):
        WATCHES[5].require_cursor(f'{{"after":{value}}}')
    with pytest.raises(InvalidInput, match="not a cursor"):
        WATCHES[5].require_cursor('{"after":{"timestamp":"yesterday"}}')


# ── patterns ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("part", "name", "kept"),
    [
        ("*.json", "a.json", {}),
        ("*.json", "a.json.tmp", None),
        ("*.json", ".a.json", None),
        (".*", ".a", {}),
        ("a?c", "abc", {}),
        ("a?c", "ac", None),
        ("{date}_{region}.csv", "2025-01-02_eu_west.csv", {"date": "2025-01-02", "region": "eu_west"}),
        ("{date}.csv", ".csv", None),
        ("x{a}.y", "x.y.y", {"a": ".y"}),
        ("*-*-*", "a-b", None),
        ("*-*-*", "a-b-c", {}),
        ("[a].json", "[a].json", {}),
        ("[a].json", "a.json", None),
    ],
)
def test_names_are_matched_as_a_shell_does(part: str, name: str, kept: dict[str, str] | None) -> None:
    assert patterns.match(part, name) == kept


def test_a_name_that_was_found_above_is_the_same_below() -> None:
    known = {"date": "2025-01-02"}
    assert patterns.match("{date}-{n}.csv", "2025-01-02-7.csv", known) == {"n": "7"}
    assert patterns.match("{date}-{n}.csv", "2025-01-03-7.csv", known) is None


@given(st.text("ab*?", min_size=1, max_size=8).filter(lambda text: "**" not in text), st.text("ab", max_size=10))
def test_wildcards_find_what_trying_everything_finds(part: str, name: str) -> None:
    def tried(part: str, name: str) -> bool:
        if not part:
            return not name
        if part[0] == "*":
            return any(tried(part[1:], name[start:]) for start in range(len(name) + 1))
        return bool(name) and part[0] in ("?", name[0]) and tried(part[1:], name[1:])

    assert (patterns.match(part, name) is not None) == tried(part, name)


def test_no_name_takes_long_to_match() -> None:
    assert patterns.match("*a" * 60 + "b", "a" * 250) is None


# ── which runs ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_pattern_captures_is_the_partition() -> None:
    watch = NewFiles("landing/{date}/*.json")
    assert _asked(watch, _file(date="2025-01-02"), "raw+1") == {
        "default/raw": "2025-01-02",
        "default/orders": "2025-01-02",
    }
    watch.require_partitions("raw+", None, KNOWN)


def test_what_is_not_captured_is_there_with_all_its_values() -> None:
    asked = _asked(NewFiles("landing/{date}/*.json"), _file(date="2025-01-02"), "revenue")
    assert asked == {"default/revenue": "2025-01-02 × eu, us"}
    both = _asked(NewFiles("{region}/{date}.json"), _file(date="2025-01-02", region="us"), "revenue")
    assert both == {"default/revenue": "2025-01-02 × us"}


def test_a_new_value_of_a_dynamic_dimension_is_itself_whatever_it_is_called() -> None:
    for value in ("acme", "a,b|c", "all", "1..2"):
        (request,) = NewFiles("{customer}.json").requests(_file(customer=value), "bills", None, KNOWN)
        known = KNOWN.graph["default/bills"].partitions.resolved({"customer": [value, "other"]})
        assert request.partitions is not None
        assert known.parse_set(next(iter(request.partitions)), NOW).describe() == value


@pytest.mark.parametrize("value", ["all", "2025-01", "2025-01-01..2025-01-05", "2025-01-01|2025-01-02", "latest", "x"])
def test_a_file_that_says_no_single_partition_is_passed_over_with_a_warning(
    value: str, caplog: pytest.LogCaptureFixture
) -> None:
    watch = NewFiles("{date}.json")
    assert watch.requests(_file(date=value), "raw", None, KNOWN) == []
    assert "k is passed over: " in caplog.text
    assert len(watch.requests(_file(date="2025-01-02"), "raw", None, KNOWN)) == 1


def test_a_template_says_which_partitions() -> None:
    watch = NewFiles("landing/{day}/{hour}.json")
    assert _asked(watch, _file(day="2025-01-02", hour="07"), "raw", "{day}") == {"default/raw": "2025-01-02"}
    assert _asked(watch, _file(day="02", hour="07"), "raw", "2025-01-{day}..2025-01-05") == {
        "default/raw": "2025-01-02..2025-01-05"
    }
    assert watch.requests(_file(day="2025-01-01..2025-01-31", hour="1"), "raw", "{day}", KNOWN) == []
    for template in ("{month}", "{day", "{day.__class__}", "{0}", "{day!r}"):
        with pytest.raises(InvalidInput):
            watch.require_partitions("raw", template, KNOWN)


@pytest.mark.parametrize(
    ("watch", "text"),
    [
        (NewFiles("landing/{day}/*.json"), "raw"),
        (NewFiles("landing/{date}/*.json"), "raw or bills"),
        (RunEnded(), "orders"),
        (WATCHES[5], "group:reports"),
        (NewPartitions("orders"), "orders+"),
        (NewPartitions("orders"), "+revenue"),
        (NewPartitions("orders"), "elsewhere"),
        (NewPartitions("nothing"), "revenue"),
    ],
)
def test_a_selection_of_which_nobody_knows_the_partitions_is_refused_before_anything_is_found(
    watch: BuiltIn, text: str
) -> None:
    with pytest.raises(ServoError) as refused:
        watch.require_partitions(text, None, KNOWN)
    assert refused.value.hint


def test_what_reads_the_new_partitions_is_asked_for() -> None:
    watch = NewPartitions("orders")
    new = _new("date=d:2025-01-30", "date=d:2025-01-31", "date=d:2025-02-03")
    assert _asked(watch, new, "revenue") == {"default/revenue": "2025-01-30..2025-01-31, 2025-02-03 × eu, us"}
    assert _asked(watch, new, "report") == {"default/report": "2025-01..2025-02"}
    assert _asked(watch, new, "total") == {"default/total": ""}
    # By way of others, and several with partitions of their own, in one request.
    assert _asked(watch, new, "revenue or report+") == {
        "default/revenue": "2025-01-30..2025-01-31, 2025-02-03 × eu, us",
        "default/report": "2025-01..2025-02",
        "default/total": "",
    }
    assert len(watch.requests(new, "revenue or report+", None, KNOWN, now=NOW)) == 1


def test_windows_that_have_not_ended_are_not_asked_for() -> None:
    watch = NewPartitions("orders")
    assert _asked(watch, _new("date=d:2025-03-09"), "report") == {}
    assert _asked(watch, _new("date=d:2025-02-28", "date=d:2025-03-09"), "report") == {"default/report": "2025-02"}


def test_partitions_that_are_no_longer_defined_ask_for_nothing() -> None:
    assert NewPartitions("orders").requests(_new("date=d:1999-01-01"), "total", None, KNOWN, now=NOW) == []


def test_what_says_its_partitions_itself_needs_no_others() -> None:
    watch = NewPartitions("orders")
    assert _asked(watch, _new("date=d:2025-01-30"), "elsewhere@latest") == {"default/elsewhere": "2025-03-09"}


def test_the_end_of_a_run_and_a_row_ask_for_what_has_no_partitions() -> None:
    run = EndedRun(
        key="run_1",
        values={"run_id": "run_1", "status": "FAILED"},
        run_id="run_1",
        status="FAILED",
        assets=(),
        source_kind="manual",
        source_id="alice",
        reason=None,
        position=1,
        at=NOW,
    )
    assert _asked(RunEnded(), run, "total") == {"default/total": ""}
    assert _asked(RunEnded(), run, "raw", "latest") == {"default/raw": "2025-03-09"}
    with pytest.raises(InvalidSelection, match="has partitions"):
        RunEnded().requests(run, "raw", None, KNOWN)
    row = FoundRow(key="5", values={"id": "5", "day": "2025-02-01"})
    watch = NewRows("sqlite:///x.db", table="t", column="id", columns=("day",))
    assert _asked(watch, row, "raw", "{day}") == {"default/raw": "2025-02-01"}
    with pytest.raises(InvalidSelection, match="has partitions"):
        watch.requests(row, "raw", None, KNOWN)


@given(st.sets(st.integers(0, 60), min_size=1, max_size=12))
def test_exactly_what_reads_them_is_asked_for(chosen: set[int]) -> None:
    definition = KNOWN.graph["default/orders"].partitions
    keys = [PartitionKey.of({"date": date(2025, 1, 1) + timedelta(days=day)}) for day in sorted(chosen)]
    new = _new(*map(str, keys))
    wanted = KNOWN.graph["default/revenue"].partitions.empty()
    for one in NewPartitions("orders").requests(new, "revenue", None, KNOWN, now=NOW):
        for text in one.partitions or ():
            wanted = wanted | select(KNOWN.graph, one.select, now=NOW, partitions=text)["default/revenue"]
    mapping = KNOWN.graph.mapping("default/orders", "default/revenue")
    revenue = KNOWN.graph["default/revenue"].partitions
    assert wanted == mapping.downstream(definition.set_of(keys), revenue, NOW) & revenue.everything(NOW)


def test_the_example_of_the_reference_can_be_deployed(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/watches.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "definitions.py").write_text(example)
    loaded = load(load_settings(tmp_path, {}))
    assert set(loaded.sensors) == {"landed", "reports", "failed", "paid", "manual"}
    for one in loaded.sensors.values():
        assert isinstance(one.watch, BuiltIn)
        assert watch_from_json(one.watch.to_json()) == one.watch
        if one.function is None:
            one.watch.require_partitions(one.select or "", one.partitions, loaded)

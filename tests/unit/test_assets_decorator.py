"""`@asset`, `Schedule`, `sensor` and checks: what they make of what is declared, and what they refuse."""

from __future__ import annotations

import inspect
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from servo import Approval, Daily, Dep, Retry, RunRequest, Schedule, Static, asset, check, mapping, sensor
from servo.assets.checks import Check, literal, value_of
from servo.assets.loading import load
from servo.assets.spec import Dependency, collecting
from servo.errors import InvalidDefinition, InvalidInput

days = Daily("date", start="2025-01-01")


def line_of(function: Any) -> int:
    return inspect.getsourcelines(function)[1]


def test_bare() -> None:
    @asset
    def orders(context, raw_orders):
        """Orders, once each."""
        return raw_orders

    spec = orders.spec
    assert (spec.key, spec.namespace, spec.name, spec.display) == (
        "default/orders",
        "default",
        "orders",
        "default.orders",
    )
    assert spec.dependencies == (Dependency(upstream="raw_orders", parameter="raw_orders"),)
    assert (spec.description, spec.batch, spec.retry) == ("Orders, once each.", False, Retry())
    assert spec.partitions.dimensions == ()
    assert (spec.source.file, spec.source.line) == (__file__, line_of(orders.function))
    assert orders(None, 5) == 5  # as a user's test calls it
    assert (orders.__name__, orders.takes_context) == ("orders", True)


def test_everything() -> None:
    unique = check.unique("order_id", blocking=True)

    @asset(
        partitions=days * Static("region", ["eu", "us"]),
        batch=True,
        freshness=timedelta(hours=26),
        checks=[unique],
        retry=Retry(attempts=3),
        approval=Approval("finance", four_eyes=True),
        owners=["ann"],
        tags={"tier": "gold"},
        group="sales",
        description="Said",
        namespace="shop",
        name="orders.daily",
        renamed_from="old",
    )
    def orders():
        """Not said."""

    spec = orders.spec
    assert (spec.key, spec.group, spec.owners, spec.tags) == ("shop/orders.daily", "sales", ("ann",), {"tier": "gold"})
    assert (spec.checks, spec.retry.attempts, spec.approval) == ((unique,), 3, Approval("finance", True))
    assert (spec.freshness, spec.batch, spec.description) == (timedelta(hours=26), True, "Said")
    assert spec.partitions.names == ("date", "region")
    assert spec.renamed_from == "old"


def test_tags_may_be_bare_and_owners_one() -> None:
    @asset(tags=["nightly"], owners="ann", key="shop/x", checks=check.row_count(min=1))
    def orders(): ...

    assert (orders.spec.tags, orders.spec.owners, orders.spec.key) == ({"nightly": ""}, ("ann",), "shop/x")
    assert [one.name for one in orders.spec.checks] == ["row_count"]


def dependencies(deps: Any, function: Any) -> list[tuple[str, str | None, Any]]:
    return [(one.upstream, one.parameter, one.mapping) for one in asset(deps=deps)(function).spec.dependencies]


def test_dependencies() -> None:
    @asset(namespace="raw")
    def events(): ...

    def reads(context, orders, e): ...

    offset = mapping.Offset(-1)
    assert dependencies((), reads) == [("orders", "orders", None), ("e", "e", None)]
    assert dependencies({"orders": offset, "e": Dep(events)}, reads) == [
        ("orders", "orders", offset),
        ("raw/events", "e", None),
    ]
    assert dependencies(["shop/orders", "other", Dep("third", offset)], reads) == [
        ("shop/orders", "orders", None),
        ("e", "e", None),
        ("other", None, None),
        ("third", None, offset),
    ]
    assert dependencies({"e": "raw/events", "gate": None}, reads) == [
        ("orders", "orders", None),
        ("raw/events", "e", None),
        ("gate", None, None),
    ]


class Place(msgspec.Struct):
    root: Path
    definitions: str | None = None
    namespace: str = "shop"


TWINS = """
from servo import asset

@asset(key="web/orders")
def web(): ...

@asset(key="store/orders")
def store(): ...

"""


def test_upstreams_of_one_name_in_two_namespaces_are_both_there(tmp_path: Path) -> None:
    told = '@asset(deps=["web/orders", "store/orders"])\ndef totals(): ...\n'
    (tmp_path / "definitions.py").write_text(TWINS + told)
    assert load(Place(tmp_path)).graph.upstream("shop/totals") == ("web/orders", "store/orders")
    named = '@asset(deps={"web_orders": "web/orders", "orders": "store/orders"})\ndef totals(orders, web_orders): ...\n'
    (tmp_path / "definitions.py").write_text(TWINS + named)
    assert load(Place(tmp_path)).graph.upstream("shop/totals") == ("store/orders", "web/orders")


def test_a_parameter_that_may_be_either_of_two_is_refused(tmp_path: Path) -> None:
    told = '@asset(deps=["web/orders", "store/orders"])\ndef totals(orders): ...\n'
    (tmp_path / "definitions.py").write_text(TWINS + told)
    with pytest.raises(InvalidDefinition) as refused:
        load(Place(tmp_path))
    said = str(refused.value)
    assert "asset totals: the parameter orders may be web/orders or store/orders" in said
    assert 'deps={"web_orders": "web/orders", "store_orders": "store/orders"}' in said
    assert "\n" not in said


def test_an_upstream_that_is_named_twice_alike_is_one() -> None:
    def reads(orders): ...

    def gated(): ...

    assert dependencies(["orders", "orders"], reads) == [("orders", "orders", None)]
    assert dependencies(["gate", "gate"], gated) == [("gate", None, None)]
    with pytest.raises(InvalidDefinition, match="orders is in deps= with several mappings"):
        dependencies([Dep("orders", mapping.Offset(-1)), Dep("orders", mapping.Offset(-2))], reads)


def test_a_default_is_a_value_and_no_upstream() -> None:
    def reads(orders, table="x"): ...

    assert dependencies((), reads) == [("orders", "orders", None)]
    assert dependencies(["table"], reads) == [("orders", "orders", None), ("table", "table", None)]


class _Code:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"partitions": "daily"}, "'daily' is not a partition dimension"),
        ({"deps": [7]}, "7 is not an upstream"),
        ({"deps": {"orders": 7}}, "mapping to orders cannot be 7"),
        ({"deps": {"orders": mapping.Identity}}, r"write Identity\(\)"),
        ({"batch": True}, "batch=True is for partitioned assets"),
        ({"batch": "yes"}, "batch cannot be 'yes'"),
        ({"freshness": 5}, "freshness cannot be 5"),
        ({"freshness": timedelta(0)}, "freshness cannot be"),
        ({"checks": ["order_id"]}, "'order_id' is not a check"),
        ({"checks": [check.not_null("a"), check.not_null("a")]}, r"two checks are called not_null\(a\)"),
        ({"retry": 3}, "retry cannot be 3"),
        ({"approval": "finance"}, "approval cannot be 'finance'"),
        ({"owners": [1]}, "owners cannot be 1"),
        ({"tags": {"a": 1}}, "tag a cannot be 1"),
        ({"group": 1}, "group cannot be 1"),
        ({"code_version": ""}, "code_version is empty"),
        ({"code_version": 2}, "code_version cannot be 2"),
        ({"name": "Orders"}, "not an asset key"),
        ({"key": "a/b", "name": "c"}, "key says it all"),
        ({"name": "a/b", "namespace": "c"}, "the namespace is given twice"),
        ({"freshnes": 5}, "freshnes"),
    ],
)
def test_refuses(declared: dict[str, Any], said: str) -> None:
    def orders(): ...

    with pytest.raises(InvalidDefinition, match=said) as refused:
        asset(**declared)(orders)
    assert refused.value.message.startswith(f"{__file__}:{line_of(orders)}: asset orders: ")


@pytest.mark.parametrize("function", [lambda *args: 0, lambda **options: 0, _Code(), lambda: 0])
def test_refuses_functions_that_name_no_upstreams_or_have_no_name(function: Any) -> None:
    with pytest.raises(InvalidDefinition, match=Path(__file__).name):
        asset(function)


def test_problems_are_gathered_for_whoever_wants_all() -> None:
    with collecting() as collected:

        @asset(group=1)
        def orders(): ...

        @asset(owners=[1])
        def revenue(orders): ...

    assert [problem.message.split(":")[0] for problem in collected.problems] == ["asset orders", "asset revenue"]
    assert (orders.broken, revenue.broken) == (True, True)
    assert collected.declared == [orders, revenue]


# ── retry, approval ──────────────────────────────────────────────────────────────────────────────────────────────


def test_retry_knows_which_errors_deserve_it() -> None:
    assert Retry().deserves(ValueError())
    some = Retry(on=(OSError, "KeyError"))
    assert (some.deserves(FileNotFoundError()), some.deserves(KeyError()), some.deserves(ValueError())) == (
        True,
        True,
        False,
    )
    assert Retry(on=some.on) == some
    assert Retry(on=OSError) == Retry(on=("builtins.OSError",))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Retry(attempts=0),
        lambda: Retry(attempts=1.5),
        lambda: Retry(factor=0),
        lambda: Retry(jitter=101),
        lambda: Retry(delay=30),
        lambda: Retry(cap=timedelta(seconds=-1)),
        lambda: Retry(on=(5,)),
        lambda: Approval(""),
        lambda: Approval("finance", deadline=timedelta(0)),
        lambda: Approval("finance", on_deadline="shrug"),
        lambda: Schedule("Nightly", cron="0 6 * * *", select="x"),
        lambda: Schedule("nightly", cron="0 6 * *", select="x"),
        lambda: Schedule("nightly", cron="0 25 * * *", select="x"),
        lambda: Schedule("nightly", cron="0 0 6 * * *", select="x"),
        lambda: Schedule("nightly", cron="0 6 * * *", timezone="Mars/Base", select="x"),
        lambda: Schedule("nightly", cron="0 6 * * *", select=" "),
        lambda: Schedule("nightly", cron="0 6 * * *", select="x", overlap="maybe"),
        lambda: Schedule("nightly", cron="0 6 * * *", select="x", max_catchup_ticks=0),
        lambda: RunRequest(key="", select="x"),
        lambda: RunRequest(key="a", select=""),
        check.row_count,
        lambda: check.row_count(min=-1),
        lambda: check.row_count(min=2, max=1),
        check.not_null,
        lambda: check.unique(""),
        lambda: check.range("a"),
        lambda: check.range("a", min="x", max=1),
        lambda: check.accepted_values("a", []),
        lambda: check.accepted_values("a", "eu"),
        lambda: check.accepted_values("a", [object()]),
        lambda: check.sql(""),
        lambda: check.sql("SELECT 1"),
        lambda: check.function("x"),
        lambda: check.range("a", min=datetime(2025, 1, 1)),  # noqa: DTZ001 (that is what is wrong)
    ],
)
def test_refuses_what_cannot_be_meant(wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        wrong()


# ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_checks_are_data() -> None:
    def positive(df):
        return df.where("amount < 0").isEmpty()

    checks = [
        check.row_count(min=1, max=10),
        check.not_null("a", "b"),
        check.unique("a", blocking=True, name="one each"),
        check.range("amount", min=0, max=Decimal("1.5")),
        check.accepted_values("region", ["eu", "us"]),
        check.sql("amount >= 0"),
        check.sql("select count(*) from {data} where amount < 0"),
        check.function(positive),
    ]
    assert [one.name for one in checks] == [
        "row_count", "not_null(a, b)", "one each", "range(amount)", "accepted_values(region)", "sql(amount >= 0)",
        "sql(select count(*) from {data} where amount < 0)", "positive",
    ]  # fmt: skip
    assert [one.blocking for one in checks].count(True) == 1
    assert checks[5].parameters == {"expression": "amount >= 0"}
    assert checks[6].parameters == {"statement": "select count(*) from {data} where amount < 0"}
    assert checks[7].function is positive
    for one in checks[:7]:
        assert Check.from_json(one.to_json()) == one


@pytest.mark.parametrize(
    "value",
    [1, "a", True, None, 0.1, Decimal("1.10"), date(2025, 1, 1), datetime(2025, 1, 1, tzinfo=UTC)],
)
def test_values_survive_json(value: Any) -> None:
    assert value_of(literal(value)) == value
    assert type(value_of(literal(value))) is type(value)


# ── automation ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_schedules_and_sensors_know_where_they_stand() -> None:
    nightly = Schedule("nightly", cron="0 6 * * *", timezone="Europe/Berlin", select="+revenue")
    assert nightly.source is not None
    assert (nightly.source.file, nightly.partitions, nightly.enabled) == (__file__, "latest", True)

    @sensor(min_interval=timedelta(seconds=5))
    def landing(context):
        yield RunRequest(key="a", select="orders+", partitions=["2025-01-01"])

    assert (landing.name, landing.kind, landing.min_interval) == ("landing", "poll", timedelta(seconds=5))
    [request] = landing(None)
    assert (request.key, request.partitions) == ("a", ("2025-01-01",))


def test_refuses_sensors_that_cannot_be_called() -> None:
    with pytest.raises(InvalidDefinition, match="takes more or less than context"):

        @sensor
        def landing(): ...

    with pytest.raises(InvalidDefinition, match="min_interval"):
        sensor(min_interval=timedelta(0), name="landing")(lambda context: [])

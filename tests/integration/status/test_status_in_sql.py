"""`partition_status` in SQL says what `partition list` and `partition stale` say, row for row."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import servo
from servo.errors import InvalidQuery
from servo.events.columns import Outcome
from servo.execution.spark import session
from servo.execution.spark_projections import register_views
from servo.fold.partition_rows import PartitionStatusRow
from servo.fold.rows import columns
from servo.projections.computed_columns import Computed
from servo.runtime.maintenance import Maintenance
from servo.runtime.states import state_at
from servo.status.asset_status import status_columns
from tests.support.questions import PartitionBook, mark
from tests.support.telling import Telling

DEFINITIONS = """
from datetime import timedelta
from servo import Daily, Dynamic, Monthly, Static, asset

days = Daily("date", start="2025-01-01", end="2025-04-01")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days * Static("region", ["eu", "us"]), code_version="CODE")
def orders(raw): ...

@asset(partitions=Monthly("month", start="2025-01", end="2025-04"))
def report(orders): ...

@asset(freshness=timedelta(days=1))
def rates(context): ...
"""
JANUARY = "2025-01-01..2025-01-31"
COLUMNS = ("status", "stale_since", "stale_reason_code", "overlays")
SQL = f"SELECT asset_key, partition_key, {', '.join(COLUMNS)} FROM partition_status"
Rows = dict[tuple[str, str], tuple[object, ...]]


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Telling]:
    """A history with every reason, every status and every overlay but that of approvals."""
    telling = Telling(tmp_path)
    telling.deploy(DEFINITIONS)
    telling.materialized("first", raw=JANUARY, orders=JANUARY, report="2025-01", rates="all")
    failed = telling.run("failed", raw="2025-01-31..2025-02-02")
    telling.finished(failed, "raw", telling.keys("raw", "2025-01-31..2025-02-02"), Outcome.FAILED)
    telling.ended(failed, Outcome.FAILED)
    telling.invalidated("orders", telling.keys("orders", "2025-01-02..2025-01-03"), "bad rates")
    telling.materialized("second", raw="2025-01-03..2025-01-05")
    mark(telling.project, "orders", ["2025-01-05"], as_what="frozen", reason="audited", actor="alice")
    with telling.project.compactor() as compactor:
        compactor.compact()
    yield telling
    telling.close()


def _busy(told: Telling) -> None:
    told.started(told.run("working", raw="2025-01-08..2025-01-09", orders="2025-01-08"), "raw")


def _listed(told: Telling, as_of: datetime | None = None) -> Rows:
    """What `partition list` says of every partition that has a row."""
    rows: Rows = {}
    for asset in ("raw", "orders", "report", "rates"):
        for one in PartitionBook(told.project).page(asset, limit=1_000, as_of=as_of).partitions:
            if one.last_attempt_at is not None or one.last_materialization_at is not None:
                overlays = [str(overlay) for overlay in one.overlays] or None
                rows[one.asset_key, one.partition_key] = (
                    one.status, one.stale_since, one.stale_reason_code, overlays,
                )  # fmt: skip
    return rows


def _outdated(told: Telling, as_of: datetime | None = None) -> Rows:
    found = PartitionBook(told.project).stale(as_of=as_of).page(1_000)
    return {(one.asset_key, one.partition_key): (one.stale_since, one.reason_code) for one in found}


def _queried(told: Telling, as_of: datetime | None = None) -> Rows:
    answer = Maintenance(told.project).query(SQL, as_of=as_of)
    return {(row[0], row[1]): row[2:] for row in answer.rows}


def _stale_of(rows: Rows) -> Rows:
    return {place: row[1:3] for place, row in rows.items() if row[1] is not None}


def test_the_list_the_stale_ones_and_sql_are_equal_now_and_as_of_then(told: Telling) -> None:
    then = told.now
    told.now += timedelta(days=2)
    told.deploy(DEFINITIONS.replace("CODE", "CODE-2"))
    _busy(told)
    for as_of in (None, then):
        queried = _queried(told, as_of)
        assert queried == _listed(told, as_of)
        assert _stale_of(queried) == _outdated(told, as_of)
    now, before = _queried(told), _queried(told, then)
    assert {row[0] for row in now.values()} == {
        "MATERIALIZED", "STALE", "NEVER_MATERIALIZED", "MATERIALIZED_BUT_LAST_ATTEMPT_FAILED",
    }  # fmt: skip
    assert {row[2] for row in now.values()} == {None, "INVALIDATED", "CODE_CHANGED", "FRESHNESS_POLICY"}
    assert {row[2] for row in before.values()} == {None, "INVALIDATED", "UPSTREAM_CHANGED"}
    overlays = {tuple(row[3]) for row in now.values() if isinstance(row[3], list)}
    assert overlays == {("running",), ("queued",), ("frozen",)}


def test_only_a_query_that_reads_the_columns_pays_for_them(told: Telling) -> None:
    asked: list[str] = []

    def answer(sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        asked.clear()
        snapshot = told.project.reader.snapshot(fresh=True)
        real = status_columns(snapshot, lambda: state_at(told.project, snapshot))

        def stale() -> object:
            asked.append("stale")
            return real.stale()

        def overlays() -> object:
            asked.append("overlays")
            return real.overlays()

        computed = Computed(stale=stale, overlays=overlays)
        return told.project.reader.query(sql, parameters, fresh=True, computed=lambda _: computed).rows

    for sql, read in {
        "SELECT count(*) FROM partition_status": [],
        "SELECT asset_key, count(*) FROM partition_status GROUP BY ALL": [],
        "SELECT asset_key FROM (FROM partition_status) WHERE asset_key = 'shop/raw'": [],
        "SELECT count(*) FROM runs": [],
        "SELECT partition_key FROM partition_status ORDER BY status": ["stale"],
        "SELECT count(*) FROM partition_status WHERE stale_since IS NOT NULL": ["stale"],
        "SELECT min(stale_reason_code) FROM partition_status": ["stale"],
        "SELECT count(*) FROM partition_status WHERE list_contains(overlays, 'frozen')": ["overlays"],
        "FROM partition_status": ["stale", "overlays"],
        "SELECT row FROM partition_status AS row": ["stale", "overlays"],
        "FROM query_table('partition_' || 'status')": ["stale", "overlays"],
    }.items():
        assert answer(sql) is not None
        assert asked == read, sql
    # Names in any case, quoted, and values that come as parameters.
    stale = len(_outdated(told))
    assert answer('SELECT count(*) FROM "PARTITION_STATUS" AS p WHERE p."Status" = ?', ("STALE",)) == [(stale,)]
    assert answer("WITH s AS (SELECT * FROM partition_status) SELECT count(stale_since) FROM s") == [(stale,)]
    with pytest.raises(InvalidQuery):
        answer("SELECT no_such_column FROM partition_status")


def test_the_columns_of_the_files_come_first_and_in_order(told: Telling) -> None:
    answer = Maintenance(told.project).query("FROM partition_status LIMIT 1")
    assert answer.columns == [*columns(PartitionStatusRow), "status", "overlays"]
    (table,) = [one for one in Maintenance.tables() if one.name == "partition_status"]
    assert list(table.columns) == answer.columns
    # Before the first event there is nothing, and nothing fails.
    assert Maintenance(told.project).query(SQL, as_of=told.now - timedelta(days=30)).rows == []


def test_the_views_of_a_spark_session_are_equal_too(told: Telling) -> None:
    then = told.now
    told.now += timedelta(days=2)
    told.deploy(DEFINITIONS.replace("CODE", "CODE-2"))
    _busy(told)
    with session("local[2]") as spark:
        snapshot = told.project.reader.snapshot(fresh=True)
        register_views(spark, snapshot, status_columns(snapshot, lambda: state_at(told.project, snapshot)))
        assert {(row[0], row[1]): tuple(row[2:4]) for row in spark.sql(_PLAIN).collect()} == {
            place: (row[0], row[2]) for place, row in _listed(told).items()
        }
        assert spark.table("partition_status").columns == [*columns(PartitionStatusRow), "status", "overlays"]
        untouched = spark.sql("SELECT asset_key, count(*) FROM partition_status GROUP BY asset_key")
        assert "computed_stale_since" not in untouched._jdf.queryExecution().optimizedPlan().toString()
        assert "Join" not in untouched._jdf.queryExecution().optimizedPlan().toString()
        servo.spark_views(spark, project=told.path, as_of=then)
        found = spark.sql("SELECT asset_key, partition_key, unix_micros(stale_since), stale_reason_code, overlays"
                          " FROM partition_status WHERE status = 'STALE'").collect()  # fmt: skip
        assert {(row[0], row[1]): tuple(row[2:4]) for row in found} == {
            place: (int(since.timestamp() * 1_000_000), code)
            for place, (since, code) in _outdated(told, then).items()
            if isinstance(since, datetime)
        }
        # An asset that was renamed has one name: the current one, and as of then that of then.
        told.deploy(
            DEFINITIONS.replace("def orders(raw)", "def sales(raw)")
            .replace('code_version="CODE"', 'code_version="CODE-2", renamed_from="orders"')
            .replace("report(orders)", "report(sales)")
        )
        names = "SELECT DISTINCT asset_key, upstream_asset_key FROM lineage ORDER BY 1, 2"
        for as_of, name in ((None, "shop/sales"), (then, "shop/orders")):
            servo.spark_views(spark, project=told.path, as_of=as_of)
            shown = {row[0] for row in spark.sql("SELECT DISTINCT asset_key FROM partition_status").collect()}
            assert shown == {"shop/raw", name, "shop/report", "shop/rates"}
            edges = [tuple(row) for row in spark.sql(names).collect()]
            assert edges == sorted([("shop/report", name), (name, "shop/raw")])
            assert edges == Maintenance(told.project).query(names, as_of=as_of).rows


_PLAIN = "SELECT asset_key, partition_key, status, stale_reason_code FROM partition_status"

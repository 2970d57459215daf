"""Approvals on real Spark: what waits holds nothing up and outlives everybody, and is published as it was staged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from typing import Any

import pytest

from servo.answers.runs import CheckpointListed
from servo.errors import Conflict, DataNotFound, NotAllowed
from servo.runtime import load_settings, open_workspace
from servo.runtime.processes.workplace import controlling
from servo.runtime.worker.worker import open_worker
from tests.support.operating import Checkpoints
from tests.support.workshop import PATIENCE, Workshop, spark_workshop

SETTINGS = """
[limits]
tasks = 1
[approvals]
finance = ["anna", "ben"]
"""
DEFINITIONS = """
from pathlib import Path

from pyspark.sql import DataFrame, functions as F

from servo import Approval, Daily, Monthly, asset, check

FACTOR = Path(__file__).parent / "notes" / "factor"
days = Daily("date", start="2025-01-01", end="2025-01-04")


@asset(partitions=days)
def raw(context) -> DataFrame:
    factor = int(FACTOR.read_text()) if FACTOR.exists() else 1
    return context.spark.range(1, 4).select((F.col("id") * factor).alias("n"))


@asset(
    partitions=days,
    approval=Approval("finance", four_eyes=True),
    checks=[check.row_count(min=1, name="some"), check.range("n", max=2, name="small")],
)
def gated(raw: DataFrame) -> DataFrame:
    return raw


@asset(partitions=Monthly("month", start="2025-01", end="2025-02"))
def total(gated: DataFrame) -> DataFrame:
    return gated.agg(F.sum("n").alias("n"))


@asset
def free(context) -> DataFrame:
    return context.spark.range(1)
"""
DAYS = "2025-01-01..2025-01-03"
KEYS = [f"date=d:2025-01-0{day}" for day in (1, 2, 3)]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with spark_workshop(tmp_path_factory.mktemp("shop"), DEFINITIONS, SETTINGS) as shop:
        yield shop


@contextmanager
def at_work(shop: Workshop) -> Iterator[None]:
    """A control loop and a worker with Spark, which were not there before and are gone afterwards."""
    stop = Event()
    with ExitStack() as stack:
        mine = [
            stack.enter_context(open_workspace(load_settings(shop.here, shop.variables), create=True)) for _ in range(2)
        ]
        worker = stack.enter_context(open_worker(mine[0]))
        stack.enter_context(controlling(mine[1]))
        thread = Thread(target=worker.run, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def ask(shop: Workshop, *selection: str, by: str = "anna", partitions: str | None = None) -> str:
    return shop.runs.request(list(selection), partitions=partitions, actor=f"person:{by}").run_id


def states(shop: Workshop, run_id: str) -> list[str]:
    return [task.state for task in shop.runs.progress(run_id).tasks]


def waiting_of(shop: Workshop, run_id: str) -> CheckpointListed:
    [row] = Checkpoints(shop.project).list(run_id=run_id)
    return row


def files(shop: Workshop, ids: list[str]) -> dict[Any, Any]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for name in ids for path in shop.files_of(name)}


def test_from_a_staged_output_to_a_decision(shop: Workshop) -> None:
    found = Checkpoints(shop.project)
    with at_work(shop):
        run_id = ask(shop, "+total", partitions="2025-01")
        run = shop.runs.follow(run_id, lambda _: None, timeout=PATIENCE)
        assert (run.parked, states(shop, run_id)) == (True, ["SUCCEEDED", "WAITING_APPROVAL", "PLANNED"]), shop.said()
        # There is one slot, and it is free: another run begins and ends.
        assert shop.do("free").status == "SUCCEEDED"
    assert not shop.project.leases.live()

    # Nobody is at work any more, and it still waits.
    row = found.show(waiting_of(shop, run_id).checkpoint_id[:20])
    name = row.checkpoint_id
    assert (row.status, row.requested_by, row.approvers, row.four_eyes) == (
        "REQUESTED",
        "person:anna",
        "finance",
        True,
    )
    assert len(row.partitions) == 3
    assert {one.rows for one in row.partitions} == {3}
    assert [(check.check_name, check.passed) for check in row.partitions[0].checks] == [
        ("small", False),
        ("some", True),
    ]
    asset, staged = found.read(name)
    assert (asset, staged.total_rows) == ("shop/gated", 9)
    with pytest.raises(DataNotFound):
        shop.rows("gated")
    with pytest.raises(NotAllowed, match="eve may not decide"):
        found.approve(name, actor="person:eve")
    with pytest.raises(NotAllowed, match="eve may not decide"):
        found.reject(name, reason="no", actor="person:eve")
    with pytest.raises(NotAllowed, match="four eyes"):
        found.approve(name, actor="person:anna")
    with pytest.raises(Conflict, match="holds"):
        found.approve(name, content_hash="0" * 64, actor="person:ben")
    ids = [one.materialization_id for one in row.partitions]
    before = files(shop, ids)
    assert len(before) >= 3
    hidden = shop.files_of(ids[1])[0]
    hidden.rename(hidden.with_suffix(".away"))
    with pytest.raises(DataNotFound, match=ids[1]):
        found.approve(name, actor="person:ben")
    hidden.with_suffix(".away").rename(hidden)
    assert found.show(name).status == "REQUESTED"

    # No worker is there: what is published are the very files that were staged.
    decided = found.approve(name, content_hash=row.hash, reason="looked at", actor="person:ben")
    assert [one["materialization_id"] for one in decided.published] == ids
    assert files(shop, ids) == before
    assert shop.hashes("gated") == {one.partition_key: one.content_hash for one in row.partitions}
    assert states(shop, run_id) == ["SUCCEEDED", "SUCCEEDED", "READY"]
    for again in (lambda: found.approve(name, actor="person:ben"), lambda: found.reject(name, reason="x", actor="ben")):
        with pytest.raises(Conflict, match=r"was approved by person:ben at .*Z: looked at") as refused:
            again()
        assert refused.value.exit_code == 4
    read = shop.query("SELECT count(*), count(DISTINCT upstream_asset_key) FROM lineage WHERE asset_key = 'shop/gated'")
    assert read == [(3, 1)]
    [made] = shop.query(
        "SELECT DISTINCT code_version, made_by LIKE 'worker:%', attempt FROM materializations"
        " WHERE asset_key = 'shop/gated'"
    )
    assert made[0] is not None
    assert made[1:] == (True, 1)

    # Others take up the work where it was left.
    shop.tell("factor", "7")
    with at_work(shop):
        assert shop.wait(run_id).status == "SUCCEEDED"
        assert shop.rows("total", "2025-01")[0][0] == 18
        inputs = shop.query("SELECT upstream_materialization_id FROM lineage WHERE asset_key = 'shop/total' ORDER BY 1")
        assert [one for (one,) in inputs] == ids

        # Something else is staged, and refused.
        second = ask(shop, "raw or gated", partitions=DAYS)
        assert shop.runs.follow(second, lambda _: None, timeout=PATIENCE).parked
        other = found.show(waiting_of(shop, second).checkpoint_id)
        assert [one.current_content_hash for one in other.partitions] == [shop.hashes("gated")[key] for key in KEYS]
        found.reject(other.checkpoint_id, reason="seven is odd", actor="person:anna")
        ended = shop.wait(second)

        # Decided from the command line, by somebody who waits for what comes of it.
        third = ask(shop, "gated", partitions="2025-01-02")
        assert shop.runs.follow(third, lambda _: None, timeout=PATIENCE).parked
        command = ("checkpoint", "approve", waiting_of(shop, third).checkpoint_id, "--wait", "--json")
        done = shop.servo(*command, LOGNAME="ben")
        assert done.returncode == 0, done
        answer = json.loads(done.stdout)
        assert (answer["status"], len(answer["published"]), answer["run"]["status"]) == ("APPROVED", 1, "SUCCEEDED")
        shop.data.rollback("gated", ["2025-01-02"], reason="as before", actor="person:ben")
    assert (ended.status, ended.reason) == ("FAILED", "shop/gated failed: its approval was refused: seven is odd")
    assert {failure.error for failure in shop.runs.show(second).failures} == {"its approval was refused: seven is odd"}
    assert list(shop.hashes("gated").values()) == [one.content_hash for one in row.partitions]
    assert shop.rows("gated", "2025-01-01") == [one for one in sorted(staged.rows) if str(one[-1]) == "2025-01-01"]
    assert files(shop, ids) == before

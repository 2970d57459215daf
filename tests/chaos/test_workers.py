"""Workers that are killed, paused and left alone, on real Spark: nothing is lost, doubled or half seen."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from servo.events.model import TaskFinished, TaskRetryScheduled, TaskStarted
from servo.runtime import load_settings, open_workspace
from tests.support.questions import Data
from tests.support.workshop import Workshop, children, is_running, spark_workshop

# With the note `slow`, each row takes as many milliseconds as the note says: in Spark, while it is written.
DEFINITIONS = """
from pathlib import Path

from pyspark.sql import DataFrame, functions as F

from servo import Daily, asset

NOTES = Path(__file__).parent / "notes"
days = Daily("date", start="2025-01-01", end="2025-02-01")


def told(name, otherwise):
    note = NOTES / name
    return note.read_text() if note.exists() else otherwise


@asset(partitions=days)
def rows(context) -> DataFrame:
    version, slow = told("version", "1"), told("slow", None)
    frame = context.spark.range(0, 200, 1, 2).select("id", F.lit(int(version)).alias("version"))
    if slow is None:
        return frame
    # The first rows of each file come at once, so that it is there.
    sleep = f"java_method('java.lang.Thread', 'sleep', {slow}L) IS NOT NULL"
    return frame.where(F.expr(f"CASE WHEN id % 100 < 3 THEN true ELSE {sleep} END"))
"""
DAYS = "2025-01-01..2025-01-02"
FOR_EVER = "600000"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """A control loop without workers: the tests bring them."""
    with spark_workshop(tmp_path_factory.mktemp("shop"), DEFINITIONS) as shop:
        shop.start("up", "--workers", "0")
        yield shop


@pytest.fixture(scope="module")
def crew(shop: Workshop) -> list[subprocess.Popen[bytes]]:
    """Three workers; each starts its Spark when it is first given something to do."""
    return [shop.start("worker") for _ in range(3)]


@contextmanager
def watched(shop: Workshop) -> Iterator[list[tuple[int, ...]]]:
    """What a reader sees meanwhile, each time it is something else: rows, distinct ids, versions."""
    seen: list[tuple[int, ...]] = []
    stop = Event()

    def look() -> None:
        with open_workspace(load_settings(shop.path, shop.variables)) as project:
            data = Data(project)
            while not stop.is_set():
                for day in ("2025-01-01", "2025-01-02"):
                    table = data.read("rows", [day])
                    place = [table.columns.index(name) for name in ("id", "version")]
                    ids, versions = zip(*((row[place[0]], row[place[1]]) for row in table.rows), strict=True)
                    now = (len(ids), len(set(ids)), *sorted(set(versions)))
                    if now not in seen:
                        seen.append(now)

    thread = Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def writing(shop: Workshop, run_id: str) -> int:
    """The process that writes the only task of a run, once Spark is at it."""
    staging = f"_staging/{run_id}.*/**/_temporary/**/*.parquet"
    shop.until(lambda: list((shop.path / ".servo").rglob(staging)), "Spark writes")
    pid: int = shop.until(lambda: shop.pid_of(shop.task(run_id).worker), "somebody holds the task")
    return pid


def made(shop: Workshop, run_id: str) -> list[tuple[str, int]]:
    """How often each partition was published by a run."""
    return shop.query(
        "SELECT partition_key, count(*) FROM materializations"
        f" WHERE run_id = '{run_id}' AND published_at IS NOT NULL GROUP BY ALL ORDER BY ALL"
    )


ONCE = [("date=d:2025-01-01", 1), ("date=d:2025-01-02", 1)]


def test_a_worker_killed_in_the_middle_of_a_write(shop: Workshop, crew: list[subprocess.Popen[bytes]]) -> None:
    assert shop.do("rows", partitions=DAYS).status == "SUCCEEDED"
    shop.tell("version", "2")
    shop.tell("slow", FOR_EVER)
    with watched(shop) as seen:
        run_id = shop.request("rows", partitions=DAYS)
        pid = writing(shop, run_id)
        machines = children(pid, "java")
        assert machines
        shop.untell("slow")
        os.kill(pid, signal.SIGKILL)
        run = shop.wait(run_id)
        shop.until(lambda: (200, 200, 2) in seen, "the reader sees what is new")
    assert (run.status, run.tasks[0].attempt) == ("SUCCEEDED", 2)
    assert seen == [(200, 200, 1), (200, 200, 2)]
    assert made(shop, run_id) == ONCE
    first, second = [fact for fact in shop.facts(run_id) if isinstance(fact, TaskStarted)]
    assert first.worker != second.worker
    shop.until(lambda: not any(map(is_running, machines)), "its JVM ends by itself")


def test_a_worker_paused_past_its_lease_is_fenced_and_goes_on_under_another_name(
    shop: Workshop, crew: list[subprocess.Popen[bytes]]
) -> None:
    shop.tell("version", "3")
    shop.tell("slow", "20")  # some seconds: Spark ends while its worker sleeps
    run_id = shop.request("rows", partitions=DAYS)
    pid = writing(shop, run_id)
    paused = shop.task(run_id).worker
    os.kill(pid, signal.SIGSTOP)
    shop.untell("slow")
    try:
        assert shop.wait(run_id).status == "SUCCEEDED"
    finally:
        os.kill(pid, signal.SIGCONT)
    current = shop.hashes("rows", DAYS), shop.rows("rows", DAYS)
    first, second = [fact for fact in shop.facts(run_id) if isinstance(fact, TaskStarted)]
    assert (first.worker, paused) == (paused, first.worker)
    assert second.worker != first.worker

    # It comes back as somebody else, and what it was at is refused.
    shop.until(lambda: _names(shop, pid) - {paused}, "it is there again")
    log = next((shop.path / ".servo" / "logs").rglob(f"{run_id}/*/1.jsonl"))
    shop.until(lambda: "is over: its worker" in log.read_text(), "it is told that it was fenced out")
    assert {fact.worker for fact in shop.facts(run_id) if isinstance(fact, TaskFinished)} == {second.worker}
    assert [fact.attempt for fact in shop.facts(run_id) if isinstance(fact, TaskRetryScheduled)] == [1]
    assert made(shop, run_id) == ONCE
    assert (shop.hashes("rows", DAYS), shop.rows("rows", DAYS)) == current

    # What it and the one that was killed left behind is swept, and nothing else.
    left = shop.servo("vacuum", "--json", SERVO_RETENTION_GRACE_HOURS="0")
    assert left.returncode == 0, left
    assert run_id in left.stdout or "no event points to it" in left.stdout
    assert shop.data.vacuum(dry_run=True) == []
    assert list((shop.path / ".servo").rglob("_staging/*")) == []
    assert (shop.hashes("rows", DAYS), shop.rows("rows", DAYS)) == current
    for materialization_id, bytes_ in shop.query("SELECT materialization_id, bytes FROM materializations"):
        assert sum(file.stat().st_size for file in shop.files_of(materialization_id)) == bytes_

    # With nobody else about, it does what comes next.
    others = [process for process in crew if process.poll() is None and process.pid != pid]
    for process in others:
        process.terminate()
    assert {process.wait(600) for process in others} <= {0}
    again = shop.do("rows", partitions=DAYS)
    [start] = [fact for fact in shop.facts(again.run_id) if isinstance(fact, TaskStarted)]
    assert again.status == "SUCCEEDED"
    assert start.worker in _names(shop, pid)
    assert start.worker != paused


def _names(shop: Workshop, pid: int) -> set[str]:
    return {one.id for one in shop.project.leases.live() if one.pid == pid and one.kind == "worker"}


def test_who_asked_is_killed_and_what_was_asked_for_is_done_later(tmp_path: Path) -> None:
    # Typed in a folder of the project, with settings that mean something only there.
    kept = {"SERVO_HOME": "kept", "SERVO_PROJECTIONS": "kept/elsewhere", "SERVO_TENANT": "acme"}
    with spark_workshop(tmp_path, DEFINITIONS, variables=kept, below="notebooks") as shop:
        shop.tell("slow", FOR_EVER)
        asked = ("materialize", "rows", "--partitions", DAYS, "--request-id", "mine")
        process = shop.start(*asked)
        [row] = shop.until(shop.runs.list, "the run is there")
        run_id = row.run_id
        shop.until(lambda: shop.runs.progress(run_id).tasks and shop.task(run_id).state == "RUNNING", "it runs")
        below = children(process.pid)
        worker = shop.pid_of(shop.task(run_id).worker)
        assert worker in below
        process.kill()
        process.wait()
        shop.until(lambda: not any(map(is_running, {*below, *children(worker or 0)})), "its worker ends by itself")

        # Its leases have not run out, but nobody is there. What was accepted is done by whoever comes next.
        shop.untell("slow")
        again = shop.servo(*asked, "--json")
        assert again.returncode == 0, (again, shop.said())
        assert f'"run_id": "{run_id}"' in again.stdout
        assert [run.run_id for run in shop.runs.list()] == [run_id]
        assert made(shop, run_id) == ONCE
        assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["notebooks", "notes"]
        # The worker handed back what it was at, and nothing of it failed.
        states = {type(fact).__name__ for fact in shop.facts(run_id) if isinstance(fact, TaskRetryScheduled)}
        assert states == {"TaskRetryScheduled"}

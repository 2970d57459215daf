"""Runs on real Spark, with two control loops and two workers on one ledger: what is asked for happens, and once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from servo.events import decode
from servo.events.columns import Outcome
from servo.events.model import TaskFinished, TaskRetryScheduled, TaskStarted
from tests.support.workshop import ME, Workshop, spark_workshop

SETTINGS = """
[limits]
tasks = 3
pools = { narrow = 1 }
"""

DEFINITIONS = '''
import time
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, functions as F

from servo import Daily, Monthly, Retry, asset, check

NOTES = Path(__file__).parent / "notes"
days = Daily("date", start="2025-01-01", end="2025-03-01")


def told(name):
    note = NOTES / name
    return note.read_text() if note.exists() else None


def count(name):
    """How many times this was called, this time included."""
    NOTES.mkdir(exist_ok=True)
    number = 1
    while True:
        try:
            (NOTES / f"{name}-{number}").touch(exist_ok=False)
            return number
        except FileExistsError:
            number += 1


def await_note(name):
    for _ in range(4000):
        if told(name) is not None:
            return
        time.sleep(0.05)
    raise TimeoutError(name)


@asset(partitions=days, batch=True)
def parsed(context) -> DataFrame:
    text = [(one["date"], "x" if str(one["date"]) == told("poison") else "7") for one in context.partitions]
    return context.spark.createDataFrame(text, "date date, text string").select(
        "date", F.col("text").cast("int").alias("n")
    )


@asset(partitions=days, checks=[check.range("n", max=100, blocking=True)])
def numbers(context) -> DataFrame:
    factor = int(told("factor") or 1)
    return context.spark.range(1, 4).select((F.col("id") * factor).alias("n"))


@asset(partitions=days)
def doubled(numbers: DataFrame) -> DataFrame:
    return numbers.select((F.col("n") * 2).alias("n"))


@asset(partitions=Monthly("month", start="2025-01", end="2025-03"))
def total(doubled: DataFrame) -> DataFrame:
    return doubled.agg(F.sum("n").alias("n"))


@asset(partitions=days)
def endless(context) -> DataFrame:
    if told("quick") is not None:
        return context.spark.range(3)
    return context.spark.range(10**14).where(F.sqrt("id") < 0)


@asset
def meeting(context) -> DataFrame:
    if told("meet") is not None:
        count("met")
        await_note("met-2")
    return context.spark.range(100).select("id", F.lit(context.run_id).alias("run"))


@asset(retry=Retry(attempts=3, delay=timedelta(0)))
def flaky(context) -> DataFrame:
    if count("flaky") < 3:
        raise OSError("not yet")
    return context.spark.range(1)


@asset(retry=Retry(attempts=3, delay=timedelta(0), on=(OSError,)))
def hopeless(context) -> DataFrame:
    count("hopeless")
    raise ValueError("never")


@asset(partitions=days)
def fussy(context) -> DataFrame:
    day = str(context.partition["date"])
    count(f"fussy-{day}")
    if day in (told("refuse") or ""):
        raise OSError(f"no {day}")
    return context.spark.range(1)


@asset(tags={"pool": "narrow"})
def first(context) -> DataFrame:
    await_note("gate")
    return context.spark.range(1)


@asset(tags={"pool": "narrow"})
def second(context) -> DataFrame:
    return context.spark.range(1)


@asset(tags={"pool": "narrow"})
def third(context) -> DataFrame:
    return context.spark.range(1)
'''


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with spark_workshop(tmp_path_factory.mktemp("shop"), DEFINITIONS, SETTINGS) as shop:
        for _ in range(2):
            shop.start("up", "--workers", "1")
        yield shop
        assert [process.poll() for process in shop._started] == [None, None], shop.said()


def outcomes(shop: Workshop, run_id: str) -> Counter[Outcome]:
    """Of every partition, in every event that speaks of it."""
    said = [fact.partitions.outcomes() for fact in shop.facts(run_id) if isinstance(fact, TaskFinished)]
    return Counter(outcome for one in said for outcome in one)


def starts(shop: Workshop, run_id: str) -> list[TaskStarted]:
    return [fact for fact in shop.facts(run_id) if isinstance(fact, TaskStarted)]


# ── one poison partition ─────────────────────────────────────────────────────────────────────────────────────────


def test_of_thirty_partitions_the_poisoned_one_fails_alone(shop: Workshop) -> None:
    shop.tell("poison", "2025-01-17")
    run = shop.do("parsed", partitions="2025-01-01..2025-01-30")
    assert (run.status, run.succeeded, run.failed) == ("FAILED", 29, 1)
    assert outcomes(shop, run.run_id) == {Outcome.SUCCEEDED: 29, Outcome.FAILED: 1}
    assert len(starts(shop, run.run_id)) == 1
    assert len(shop.facts(run.run_id)) <= 16  # not one for each partition

    line = DEFINITIONS.splitlines().index('        "date", F.col("text").cast("int").alias("n")') + 1
    where = f"definitions.py:{line}"
    [failure] = shop.runs.show(run.run_id).failures
    assert failure.partition_key == "date=d:2025-01-17"
    assert failure.error is not None
    assert where in failure.error
    assert "'x'" in failure.error
    logs = shop.servo("run", "logs", run.run_id)
    assert logs.returncode == 0, logs
    errors = [line for line in logs.stdout.splitlines() if "ERROR" in line and where in line]
    assert any("2025-01-17: " in line and "CAST_INVALID_INPUT" in line for line in errors), logs.stdout
    assert len(shop.rows("parsed")) == 29

    # Tried again, the run is of what failed alone.
    shop.untell("poison")
    again = shop.servo("run", "retry", run.run_id, "--json")
    assert again.returncode == 0, again
    assert '"total": 1' in again.stdout
    assert len(shop.rows("parsed")) == 30


# ── cancel ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_cancelled_run_ends_within_five_seconds_and_its_worker_goes_on(shop: Workshop) -> None:
    run_id = shop.request("endless", partitions="2025-01-01..2025-01-08")
    staging = shop.path / ".servo"
    shop.until(lambda: list(staging.rglob(f"_staging/{run_id}.*/**/_temporary")), "Spark writes")
    said = shop.servo("run", "cancel", run_id, "--reason", "enough")
    assert said.returncode == 0, said
    assert shop.wait(run_id).status == "CANCELLED"
    times = {event.event_type: event.occurred_at for event in shop.events(run_id)}
    # From the request to the word of the worker that its jobs have ended.
    assert (times["TaskFinished"] - times["RunCancelRequested"]).total_seconds() < 5, times
    assert outcomes(shop, run_id)[Outcome.SUCCEEDED] == 0
    [was] = starts(shop, run_id)

    # The one that was interrupted is free: among two that take whatever comes, its turn comes too.
    shop.tell("quick")
    assert shop.pid_of(was.worker) is not None
    workers: set[str] = set()
    for attempt in range(60):
        run_id = shop.request("endless", partitions=f"2025-01-{attempt % 28 + 1:02}")
        assert shop.wait(run_id).status == "SUCCEEDED"
        workers |= {start.worker for start in starts(shop, run_id)}
        if was.worker in workers:
            break
    assert was.worker in workers


# ── two at once ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_runs_that_write_the_same_partition_at_once_both_stay(shop: Workshop) -> None:
    shop.tell("meet")
    runs = [shop.request("meeting"), shop.request("meeting")]
    assert [shop.wait(run).status for run in runs] == ["SUCCEEDED", "SUCCEEDED"]
    history = shop.data.materializations("meeting")
    assert sorted(row["run_id"] for row in history) == sorted(runs)
    assert [row["current"] for row in history].count(True) == 1
    assert len({row["content_hash"] for row in history}) == 2
    for row in history:
        files = shop.files_of(row["materialization_id"])
        assert (len(files), sum(file.stat().st_size for file in files)) == (row["files"], row["bytes"])
        now = shop.data.rollback("meeting", [], to=row["materialization_id"], reason="to look at it", actor=ME)
        read = shop.data.read("meeting", as_of=now["event_id"])
        assert read.total_rows == row["rows"] == 100
        assert {run for _, run in read.rows} == {row["run_id"]}
        assert [one.content_hash for one in read.materializations] == [row["content_hash"]]


# ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_blocking_check_refuses_is_not_published_and_the_old_version_stays(shop: Workshop) -> None:
    days = "2025-01-01..2025-01-02"
    assert shop.do("+doubled", partitions=days).status == "SUCCEEDED"
    before = (shop.hashes("numbers"), shop.hashes("doubled"), shop.rows("numbers"), shop.rows("doubled"))
    shop.tell("factor", "1000")
    run = shop.do("+doubled", partitions=days)
    shop.untell("factor")
    assert run.status == "FAILED"
    assert {task.asset_key: task.state for task in run.tasks} == {"shop/numbers": "FAILED", "shop/doubled": "SKIPPED"}
    assert outcomes(shop, run.run_id) == {Outcome.FAILED: 2, Outcome.SKIPPED: 2}
    assert (shop.hashes("numbers"), shop.hashes("doubled"), shop.rows("numbers"), shop.rows("doubled")) == before
    checks = shop.runs.show(run.run_id).checks
    assert {(one.check_name, one.blocking) for one in checks} == {(checks[0].check_name, True)}
    status = "SELECT DISTINCT last_attempt_outcome FROM partition_status WHERE asset_key = 'shop/numbers' AND {}"
    assert shop.query(status.format("last_attempt_run_id = '" + run.run_id + "'")) == [("FAILED",)]
    assert [name for name in _staged(shop) if name.startswith(run.run_id)] == []


def _staged(shop: Workshop) -> list[str]:
    return [folder.name for folder in (shop.path / ".servo").rglob("_staging/*")]


# ── going back ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_whatever_happens_later_what_was_current_then_can_be_read(shop: Workshop) -> None:
    day = "2025-02-03"
    seen = {}

    def look(as_of: str | None = None) -> tuple[object, ...]:
        when = {} if as_of is None else {"as_of": as_of}
        lineage = shop.query(
            "SELECT l.upstream_asset_key, l.upstream_partition_key, l.upstream_materialization_id"
            " FROM lineage l JOIN partition_status s USING (materialization_id)"
            " WHERE s.asset_key = 'shop/doubled' AND s.partition_key = 'date=d:2025-02-03' ORDER BY ALL",
            **when,
        )
        status = shop.query(
            "SELECT asset_key, materialization_id, content_hash, last_materialization_run_id FROM partition_status"
            " WHERE partition_key = 'date=d:2025-02-03' AND materialization_id IS NOT NULL ORDER BY ALL",
            **when,
        )
        names = ("numbers", "doubled")
        rows = [shop.rows(name, day, as_of=as_of) for name in names]
        return lineage, status, rows, [shop.hashes(name, day, as_of=as_of) for name in names]

    def moment(factor: int | None = None) -> None:
        if factor is not None:
            shop.tell("factor", str(factor))
            assert shop.do("+doubled", partitions=day).status == "SUCCEEDED"
            shop.untell("factor")
        seen[shop.head()] = look()

    moment(2)
    first = shop.project.clock()
    moment(3)
    [new, old] = shop.data.materializations("numbers", day)
    shop.data.rollback("numbers", [day], reason="it was better", actor=ME)
    moment()
    assert shop.rows("numbers", day) == shop.rows("numbers", day, as_of=first)
    assert shop.hashes("numbers", day) == {"date=d:2025-02-03": old["content_hash"]}
    rolled_back = shop.project.clock()
    moment(4)
    assert shop.do("doubled", partitions=day).status == "SUCCEEDED"
    # To a moment at which an older version was current again: that one, and not the newest of those made before.
    shop.data.rollback("numbers", [day], to=rolled_back.isoformat(), reason="again", actor=ME)
    moment()
    assert shop.hashes("numbers", day) == {"date=d:2025-02-03": old["content_hash"]} != new["content_hash"]
    assert len(seen) == 5
    assert len({str(state) for state in seen.values()}) == 5
    for event_id, state in seen.items():
        assert event_id is not None
        assert look(event_id) == state
    # The program says the same.
    [(first_id, _), *_] = seen.items()
    assert first_id is not None
    printed = shop.servo("read", "numbers", day, "--as-of", first_id)
    assert printed.returncode == 0, printed
    assert sorted(re.findall(r"^(\d+)\t", printed.stdout, re.MULTILINE)) == ["2", "4", "6"]


# ── trying again ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_flaky_asset_is_tried_until_it_succeeds(shop: Workshop) -> None:
    run = shop.do("flaky")
    assert (run.status, run.tasks[0].attempt) == ("SUCCEEDED", 3)
    assert len(shop.notes("flaky-")) == 3
    facts = shop.facts(run.run_id)
    assert [fact.attempt for fact in facts if isinstance(fact, TaskRetryScheduled)] == [1, 2]
    assert outcomes(shop, run.run_id) == {Outcome.FAILED: 2, Outcome.SUCCEEDED: 1}


def test_an_error_that_no_retry_is_meant_for_ends_it_at_once(shop: Workshop) -> None:
    run = shop.do("hopeless")
    assert (run.status, run.tasks[0].attempt) == ("FAILED", 1)
    assert shop.notes("hopeless-") == ["hopeless-1"]
    assert "never" in (run.reason or "")


def test_a_run_is_tried_again_from_failure_in_part_or_whole(shop: Workshop) -> None:
    shop.tell("refuse", "2025-01-02 2025-01-03 2025-01-04")
    run = shop.do("fussy", partitions="2025-01-01..2025-01-05")
    assert (run.status, run.succeeded, run.failed) == ("FAILED", 2, 3)

    def calls() -> dict[str, int]:
        return {str(day): len(shop.notes(f"fussy-2025-01-0{day}-")) for day in range(1, 6)}

    assert calls() == {"1": 1, "2": 1, "3": 1, "4": 1, "5": 1}
    shop.untell("refuse")
    part = shop.wait(shop.runs.retry(run.run_id, partitions="2025-01-02", actor=ME).run_id)
    assert (part.status, part.total) == ("SUCCEEDED", 1)
    assert calls() == {"1": 1, "2": 2, "3": 1, "4": 1, "5": 1}
    rest = shop.wait(shop.runs.retry(run.run_id, partitions="2025-01-03..2025-01-04", actor=ME).run_id)
    assert (rest.status, rest.total) == ("SUCCEEDED", 2)
    whole = shop.wait(shop.runs.retry(run.run_id, everything=True, actor=ME).run_id)
    assert (whole.status, whole.total) == ("SUCCEEDED", 5)
    assert calls() == {"1": 2, "2": 3, "3": 3, "4": 3, "5": 2}


# ── limits, and each task once ───────────────────────────────────────────────────────────────────────────────────


def test_a_pool_is_kept_and_the_urgent_run_goes_first(shop: Workshop) -> None:
    runs = [shop.request("first")]
    shop.until(lambda: shop.task(runs[0]).state == "RUNNING", "the first runs")
    runs += [shop.request("second"), shop.request("third", priority=10)]
    for run in runs[1:]:
        shop.until(lambda run=run: shop.runs.progress(run).status == "PLANNED", "it is planned")  # type: ignore[misc]
    shop.tell("gate")
    ended = [shop.wait(run) for run in runs]
    assert {run.status for run in ended} == {"SUCCEEDED"}
    steps = [
        (runs.index(event.correlation_id), event.event_type)
        for event in shop.project.history.events()
        if event.correlation_id in runs and event.event_type in ("TaskStarted", "TaskFinished")
    ]
    assert steps == [(run, step) for run in (0, 2, 1) for step in ("TaskStarted", "TaskFinished")]


def test_two_control_loops_and_two_workers_do_each_task_once(shop: Workshop) -> None:
    shop.tell("quick")
    # Of the second half, nothing is asked for at the same time by anybody else.
    runs = [shop.request("endless", "numbers", partitions=f"2025-02-{day:02d}") for day in range(10, 18)]
    assert {shop.wait(run).status for run in runs} == {"SUCCEEDED"}
    for run in runs:
        facts = shop.facts(run)
        assert Counter(type(fact).__name__ for fact in facts) == {
            "RunRequested": 1,
            "RunPlanned": 1,
            "RunStarted": 1,
            "TaskStarted": 2,
            "TaskFinished": 2,
            "RunFinished": 1,
        }
    made = "SELECT asset_key, partition_key, count(*) FROM materializations WHERE run_id IN ({}) GROUP BY ALL"
    assert {number for _, _, number in shop.query(made.format(", ".join(f"'{run}'" for run in runs)))} == {1}


def test_never_more_at_once_than_allowed_and_both_workers_worked(shop: Workshop) -> None:
    """Over everything that happened in this file."""
    shop.tell("quick")
    for _ in range(60):  # whoever is idle takes what comes, and on a busy machine one may have come late
        if (
            len({fact.worker for fact in map(decode, shop.project.history.events()) if isinstance(fact, TaskStarted)})
            > 1
        ):
            break
        assert shop.do("endless", partitions="2025-02-20").status == "SUCCEEDED"
    running: set[tuple[str, str]] = set()
    most = 0
    workers = set()
    for event in shop.project.history.events():
        fact = decode(event)
        if isinstance(fact, TaskStarted):
            workers.add(fact.worker)
            running.add((fact.run_id, fact.task_key))
        elif isinstance(fact, TaskRetryScheduled) or (isinstance(fact, TaskFinished) and fact.final):
            running.discard((fact.run_id, fact.task_key))
        most = max(most, len(running))
    assert 1 < most <= 3
    assert len(workers) >= 2, "nobody was idle; on a busy machine one may be given up for lost, and begin anew"
    assert running == set()

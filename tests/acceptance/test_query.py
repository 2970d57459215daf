"""`servo query`, from outside."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from servo.fold import TABLES
from tests.acceptance.support import Folder, FromTheFuture

COUNT = "SELECT count(*) FROM runs"


def test_answers_as_json(compacted: Folder) -> None:
    answer = compacted.json("query", "SELECT run_id, status, requested_at FROM runs ORDER BY run_id LIMIT 1")
    assert answer["columns"] == ["run_id", "status", "requested_at"]
    [[run_id, status, requested_at]] = answer["rows"]
    assert (run_id, status) == (f"run_{1:026d}", "SUCCEEDED")
    assert requested_at == "2025-01-01T00:01:00Z"
    assert answer["watermark"].keys() == {"position", "event_id", "occurred_at", "chain_hash"}
    assert answer["watermark"]["position"] == 12


def test_answers_tab_separated_in_a_pipe(compacted: Folder) -> None:
    lines = compacted.ok("query", "SELECT partition_key, partition_values FROM partition_status ORDER BY ALL LIMIT 1")
    assert lines == "partition_key\tpartition_values\ndate=d:2025-01-01\t{date: 2025-01-01}\n"


def test_writes_every_kind_of_value(compacted: Folder) -> None:
    sql = """SELECT [1, NULL], map {'k': 'v'}, '\\xAB'::BLOB, 1.50::DECIMAL(5,2), 'nan'::DOUBLE, DATE '2025-01-02',
             {'x': TIMESTAMPTZ '2025-01-02 10:00:00+02'}, 1::HUGEINT << 100, NULL, true, E'a\\tb\\n', INTERVAL 1 DAY"""
    [row] = compacted.rows(sql)
    assert row == [
        [1, None], {"k": "v"}, "ab", "1.50", None, "2025-01-02",
        {"x": "2025-01-02T08:00:00Z"}, 1 << 100, None, True, "a\tb\n", "1 day, 0:00:00",
    ]  # fmt: skip
    line = compacted.ok("query", sql).splitlines()[1]
    assert line.split("\t") == [
        "[1, null]", "{k: v}", "ab", "1.50", "nan", "2025-01-02",
        "{x: 2025-01-02T08:00:00Z}", str(1 << 100), "", "true", "a\\tb\\n", "1 day, 0:00:00",
    ]  # fmt: skip


def test_lists_the_tables_without_a_ledger(empty: Folder) -> None:
    tables = empty.json("query", "--tables")["tables"]
    assert {table["name"] for table in tables} == {table.table for table in TABLES}
    [runs] = [table for table in tables if table["name"] == "runs"]
    assert runs["key"] == ["run_id"]
    assert runs["columns"]["requested_at"] == "time"
    assert "runs\trun_id\ttext\n" in empty.ok("query", "--tables")
    assert list(empty.path.iterdir()) == []


# ── the past ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_answers_as_of_an_event_and_a_time(compacted: Folder) -> None:
    eighth = compacted.json("query", COUNT)["watermark"]["event_id"]
    between = compacted.now.isoformat()
    compacted.record_runs(2)
    assert compacted.rows(COUNT) == [[5]]
    assert compacted.rows(COUNT, "--as-of", eighth) == [[3]]
    assert compacted.rows(COUNT, "--as-of", between) == [[3]]
    assert compacted.rows(COUNT, "--as-of", "2025-01-01") == [[0]]
    assert compacted.rows(COUNT, "--as-of", "2030-01-01T00:00:00+02:00") == [[5]]
    past = compacted.json("query", COUNT, "--as-of", eighth)["watermark"]
    assert (past["position"], past["event_id"]) == (12, eighth)


def test_refuses_a_past_that_was_not(compacted: Folder) -> None:
    assert "neither a time nor an event id" in compacted.fails(2, "query", COUNT, "--as-of", "yesterday")
    assert "no event has the id" in compacted.fails(3, "query", COUNT, "--as-of", "01JGFJJZ000000000000000000")


def test_waits_for_an_event(folder: Folder) -> None:
    [receipt] = folder.record(FromTheFuture(name="unfolded"))[-1:]
    done = folder.servo("query", COUNT, "--wait-for", receipt.event_id)
    assert done.returncode == 0
    unborn = "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"
    assert "did not become visible" in folder.fails(1, "query", COUNT, "--wait-for", unborn, "--timeout", "0.1")
    assert "not an event id" in folder.fails(2, "query", COUNT, "--wait-for", "12")


# ── what it refuses ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE runs",
        "COPY runs TO 'out.csv'",
        "ATTACH 'other.db'",
        "PRAGMA database_list",
        "SET threads = 1",
        "INSTALL httpfs",
        "SELECT 1; SELECT 2",
        "",
        "/* nothing */",
        "SELEC 1",
        "SELECT * FROM nowhere",
        "SELECT nothing FROM runs",
        "SELECT 'x'::INTEGER",
        "SELECT 9223372036854775807::BIGINT + 1",
        "WITH x AS (DELETE FROM merged_runs RETURNING 1) SELECT count(*) FROM x, runs",
        "WITH x AS (COPY (SELECT 1) TO 'out.csv' (USE_TMP_FILE false)) SELECT * FROM x",
    ],
)
def test_refuses_what_is_not_one_sound_select(compacted: Folder, sql: str) -> None:
    before = compacted.files()
    done = compacted.servo("query", sql, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    error = json.loads(done.stderr)["error"]
    assert error.keys() == {"code", "message", "hint"}
    assert error["code"] == "invalid-query"
    assert compacted.files() == before


@pytest.mark.parametrize(
    "relation",
    [
        "read_csv('/etc/passwd')",
        "read_text('/etc/passwd')",
        "'/etc/passwd'",
        "read_parquet('secret.parquet')",
        "'secret.parquet'",
        "parquet_metadata('secret.parquet')",
        "glob('/etc/*')",
        "read_text(current_setting('temp_directory') || '/etc/passwd')",
        "read_parquet('https://127.0.0.1:9/x.parquet')",
    ],
)
def test_reads_no_files_but_its_own(compacted: Folder, relation: str) -> None:
    import duckdb

    duckdb.sql(f"COPY (SELECT 42 AS secret) TO '{compacted.path / 'secret.parquet'}'")
    said = compacted.fails(2, "query", f"FROM {relation}")
    assert "root:" not in said
    assert "secret.parquet" not in said


def test_reads_no_other_tenants_files(compacted: Folder) -> None:
    [theirs] = compacted.projections.glob("files/runs/*.parquet")
    other = Folder(compacted.path, variables={"SERVO_TENANT": "other"})
    other.record_runs(1)
    assert other.rows(COUNT) == [[1]]
    assert "no files" in other.fails(2, "query", f"FROM read_parquet('{theirs}')")


def test_says_what_is_missing(empty: Folder) -> None:
    said = empty.fails(3, "query", COUNT)
    assert "there is no ledger" in said
    assert "SERVO_LEDGER" in said
    assert list(empty.path.iterdir()) == []
    done = empty.servo("query", COUNT, "--json")
    assert (done.returncode, done.stdout) == (3, "")
    assert json.loads(done.stderr)["error"]["code"] == "ledger-not-found"


def test_says_which_workspaces_are_not_there(compacted: Folder) -> None:
    compacted.variables["SERVO_WORKSPACE"] = "elsewhere"
    assert "SERVO_WORKSPACE" in compacted.fails(3, "query", COUNT)


# ── the tail ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_compacts_what_is_old_and_not_what_is_new(empty: Folder) -> None:
    empty.variables["SERVO_TAIL_AGE_SECONDS"] = "inf"
    empty.record_runs(1)
    assert empty.rows(COUNT) == [[1]]
    assert not empty.projections.exists()
    empty.variables["SERVO_TAIL_EVENTS"] = "3"
    assert empty.rows(COUNT) == [[1]]
    assert (empty.projections / "CURRENT").exists()
    empty.record_runs(2)
    del empty.variables["SERVO_TAIL_EVENTS"]
    before = (empty.projections / "CURRENT").read_bytes()
    assert empty.rows(COUNT) == [[3]]
    assert (empty.projections / "CURRENT").read_bytes() == before
    del empty.variables["SERVO_TAIL_AGE_SECONDS"]
    assert empty.rows(COUNT) == [[3]]
    assert (empty.projections / "CURRENT").read_bytes() != before


def test_reads_where_projections_cannot_be_written(folder: Folder) -> None:
    folder.variables["SERVO_PROJECTIONS"] = "/proc/servo"  # for root, too
    assert folder.rows(COUNT) == [[3]]
    assert "/proc/servo" in folder.fails(1, "ledger", "compact")


def test_skips_unknown_events_with_a_warning(folder: Folder) -> None:
    folder.record(FromTheFuture(name="a"), FromTheFuture(name="b"))
    folder.record_runs(1)
    folder.variables["SERVO_TAIL_AGE_SECONDS"] = "inf"
    for _ in range(2):  # from the tail, then by the compactor
        done = folder.servo("query", COUNT)
        assert (done.returncode, done.stdout) == (0, "count_star()\n4\n")
        assert done.stderr.count("\n") == 1
        assert "warning: skipped 2 events of unknown type PartitionsTeleported version 3" in done.stderr
        del folder.variables["SERVO_TAIL_AGE_SECONDS"]
        folder.variables.setdefault("SERVO_TAIL_AGE_SECONDS", "0")
    done = folder.servo("ledger", "replay", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["equal"] is True
    assert "PartitionsTeleported" in json.loads(done.stderr.splitlines()[0])["warning"]["message"]
    assert folder.json("ledger", "verify")["ok"] is True


# ── a process among others ───────────────────────────────────────────────────────────────────────────────────────


def test_ends_quietly_when_nobody_reads_on(compacted: Folder) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "servo", "query", "FROM range(200000)"],
        cwd=compacted.path, env=compacted.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == b"range\n"
    child.stdout.close()
    assert child.wait(600) == 141
    assert child.stderr is not None
    assert child.stderr.read() == b""
    child.stderr.close()


def test_ends_cleanly_when_interrupted(compacted: Folder) -> None:
    # A shell that starts the tests in the background has them ignore interrupts, and children inherit that.
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from servo.cli.main import main; main()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, "query", "SELECT count(*) FROM range(100000000000)"],
        cwd=compacted.path, env=compacted.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(3)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=600)
    assert (child.returncode, out, err.strip()) == (130, "", "servo: interrupted")

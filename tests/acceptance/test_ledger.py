"""`servo ledger …`, from outside."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from servo.canonical import sha256_hex
from servo.fold import TABLES
from tests.acceptance.support import Folder

SAMPLE = ["SELECT * FROM runs ORDER BY ALL", "SELECT * FROM partition_status ORDER BY ALL"]


def sample(folder: Folder) -> list[object]:
    return [folder.json("query", sql) for sql in SAMPLE]


def test_status(folder: Folder) -> None:
    found = folder.json("ledger", "status")
    assert found["head"]["position"] == found["live_events"] == found["projection_lag"] == 12
    assert found["projection_problem"] is None
    assert "12 events" in folder.ok("ledger", "status")


def test_verify(folder: Folder) -> None:
    found = folder.json("ledger", "verify")
    assert (found["ok"], found["events"], found["problems"]) == (True, 12, [])
    assert "12 events are as they were recorded" in folder.ok("ledger", "verify")


def test_verify_names_each_problem(folder: Folder) -> None:
    with sqlite3.connect(folder.path / ".servo" / "ledger.db") as database:
        database.execute("UPDATE events SET actor = 'nobody' WHERE position IN (4, 9)")
    database.close()
    done = folder.servo("ledger", "verify")
    assert done.returncode == 1
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["✗ position 4", "✗ position 9"]
    assert done.stderr == "servo: the ledger is not what was recorded: 2 problems\n"
    done = folder.servo("ledger", "verify", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    found = json.loads(done.stdout)
    assert found["ok"] is False
    assert [(one["position"], one["kind"]) for one in found["problems"]] == [(4, "changed"), (9, "changed")]


def test_one_flipped_bit_in_the_pointer_is_one_sentence_and_replay_mends_it(compacted: Folder) -> None:
    pointer = compacted.projections / "CURRENT"
    before = compacted.rows(SAMPLE[0])
    data = bytearray(pointer.read_bytes())
    data[20] ^= 0x80  # in the name of the manifest: no longer UTF-8
    pointer.write_bytes(data)
    damaged = f"the pointer {pointer} is damaged: not UTF-8"

    for command in (["query", SAMPLE[0]], ["run", "list"], ["ledger", "compact"]):
        done = compacted.servo(*command)
        [line] = done.stderr.splitlines()
        assert (done.returncode, line.startswith(f"servo: {damaged}")) == (1, True), (command, done)
        assert "`servo ledger replay`" in line
    said = compacted.ok("ledger", "status")
    assert f"projections: damaged: {damaged}" in said
    assert "run `servo ledger replay`" in said
    verified = compacted.ok("ledger", "verify")
    assert "events are as they were recorded" in verified
    assert f"not compared with the projections: {damaged}" in verified
    assert "`servo ledger replay`" in verified
    assert damaged in compacted.json("ledger", "verify")["not_compared"]
    doctor = compacted.servo("doctor")
    assert doctor.returncode == 1
    assert damaged in doctor.stdout
    assert "Traceback" not in doctor.stdout + doctor.stderr

    replayed = compacted.json("ledger", "replay")
    assert replayed["equal"] is None
    assert damaged in replayed["not_compared"]
    assert compacted.rows(SAMPLE[0]) == before
    assert compacted.json("ledger", "verify")["not_compared"] is None
    assert compacted.json("ledger", "replay")["equal"] is True


def test_compact(folder: Folder) -> None:
    found = folder.json("ledger", "compact")
    assert (found["events"], found["version"], found["watermark"]["position"]) == (12, 1, 12)
    assert folder.json("ledger", "compact")["events"] == 0
    assert folder.json("ledger", "status")["projection_lag"] == 0


def test_replay_is_equal(folder: Folder) -> None:
    first = folder.json("ledger", "replay")
    assert (first["equal"], first["not_compared"]) == (None, "nothing was there")
    assert folder.json("ledger", "replay")["equal"] is True
    folder.record_runs(2)
    before = sample(folder)
    found = folder.json("ledger", "replay")
    assert found["equal"] is True
    assert {one["table"] for one in found["tables"]} == {table.table for table in TABLES}
    assert {one["table"]: one["rows"] for one in found["tables"]}["runs"] == 5
    assert sample(folder) == before
    assert folder.json("ledger", "replay", "--no-check")["not_compared"] == "not asked for"
    assert "equal to what was there" in folder.ok("ledger", "replay")


def test_replay_of_nothing(empty: Folder) -> None:
    with empty.ledger() as ledger:
        assert ledger.head().position == 0
    found = empty.json("ledger", "replay")
    assert (found["equal"], found["not_compared"], found["tables"]) == (None, "nothing was there", [])
    assert empty.rows("SELECT count(*) FROM runs") == [[0]]


def test_replay_finds_what_differs(compacted: Folder) -> None:
    import duckdb
    import msgspec

    # A version that says something else: same files by name, other rows, sizes as the manifest has them or not.
    [file] = compacted.projections.glob("files/runs/*.parquet")
    duckdb.sql(f"COPY (SELECT * REPLACE ('FAILED' AS status) FROM '{file}' LIMIT 2) TO '{file}.new' (FORMAT parquet)")
    file.with_name(f"{file.name}.new").replace(file)
    _vouch_for(compacted.projections, file)
    done = compacted.servo("ledger", "replay", "--json")
    assert done.returncode == 1
    found = msgspec.json.decode(done.stdout)
    [runs] = [one for one in found["tables"] if one["only_before"] or one["only_after"]]
    assert runs == {"table": "runs", "rows": 3, "only_before": 2, "only_after": 3}
    assert compacted.rows("SELECT DISTINCT status FROM runs") == [["SUCCEEDED"]]
    assert compacted.json("ledger", "replay")["equal"] is True


def test_replay_mends_a_changed_file(compacted: Folder) -> None:
    [file] = compacted.projections.glob("files/runs/*.parquet")
    changed = bytearray(file.read_bytes())
    changed[len(changed) // 4] ^= 1
    file.write_bytes(changed)
    assert "is damaged" in compacted.servo("query", "SELECT * FROM runs").stderr
    found = compacted.json("ledger", "replay")
    assert found["equal"] is None
    assert "could not be read" in found["not_compared"]
    assert compacted.json("ledger", "replay")["equal"] is True


def _write_sealed(path: Path, fields: dict[str, Any]) -> None:
    """Write a manifest with the checksum that fits it."""
    fields.pop("checksum")
    path.write_text(json.dumps(fields | {"checksum": sha256_hex(fields)}))


def _vouch_for(projections: Path, file: Path) -> None:
    """Make the manifest and the pointer say that a changed file is what was published."""
    [path] = projections.glob("manifests/*.json")
    manifest = json.loads(path.read_text())
    for entry in manifest["tables"]["runs"]:
        entry["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
        entry["bytes"] = file.stat().st_size
    _write_sealed(path, manifest)
    pointer = {"manifest": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    (projections / "CURRENT").write_text(json.dumps(pointer))


def test_archive_changes_no_answer(compacted: Folder) -> None:
    before, lines = sample(compacted), compacted.ok("ledger", "export")
    found = compacted.json("ledger", "archive", "--before", "2025-01-01T00:10:00Z")
    assert (found["first"], found["count"]) == (1, found["last"])
    assert 0 < found["count"] < 12
    assert sample(compacted) == before
    assert compacted.json("ledger", "verify")["ok"] is True
    assert compacted.json("ledger", "replay")["equal"] is True
    assert sample(compacted) == before
    assert compacted.ok("ledger", "export") == lines
    assert compacted.json("ledger", "archive", "--keep-days", "0")["last"] == 12
    assert compacted.json("ledger", "status")["live_events"] == 0
    assert compacted.rows("SELECT count(*) FROM runs", "--as-of", "2025-01-01T00:09:00Z") == [[1]]
    assert sample(compacted) == before
    assert compacted.ok("ledger", "export") == lines
    assert "nothing is that old" in compacted.ok("ledger", "archive", "--keep-days", "1")


def test_archive_wants_one_limit(folder: Folder) -> None:
    assert "either" in folder.fails(2, "ledger", "archive")
    assert "either" in folder.fails(2, "ledger", "archive", "--keep-days", "1", "--before", "2025-01-01")
    assert "before the year 1" in folder.fails(2, "ledger", "archive", "--keep-days", "1e9")
    assert "neither a time" in folder.fails(2, "ledger", "archive", "--before", "once")


def test_export(folder: Folder) -> None:
    events = [json.loads(line) for line in folder.ok("ledger", "export", "--after", "3", "--until", "6").splitlines()]
    assert [event["position"] for event in events] == [4, 5, 6]
    assert folder.ok("ledger", "export", "--after", "12") == ""


@pytest.mark.parametrize("verb", ["status", "verify", "replay", "compact", "export"])
def test_says_that_there_is_no_ledger(empty: Folder, verb: str) -> None:
    assert "there is no ledger" in empty.fails(3, "ledger", verb)
    assert list(empty.path.iterdir()) == []


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────────────


def mended(folder: Folder, sql: str = SAMPLE[0]) -> None:
    """A query says in one line what to do; that helps."""
    assert "servo ledger replay" in folder.fails(1, "query", sql)
    assert not folder.json_of_failing("doctor")["ok"]
    folder.ok("ledger", "replay")
    assert len(folder.rows(sql)) == 3


@pytest.mark.parametrize("damage", ["cut", "empty", "garbage", "missing"])
def test_damaged_parquet_is_mended_by_a_replay(compacted: Folder, damage: str) -> None:
    [file] = compacted.projections.glob("files/runs/*.parquet")
    data = file.read_bytes()
    match damage:
        case "cut":
            file.write_bytes(data[: len(data) // 2])
        case "empty":
            file.write_bytes(b"")
        case "garbage":
            file.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
        case _:
            file.unlink()
    mended(compacted)


def test_a_damaged_pointer_is_mended_by_a_replay(compacted: Folder) -> None:
    pointer = compacted.projections / "CURRENT"
    pointer.write_bytes(pointer.read_bytes()[:20])
    mended(compacted)


@pytest.mark.parametrize("damage", ["cut", "missing", "changed"])
def test_a_damaged_manifest_is_mended_by_a_replay(compacted: Folder, damage: str) -> None:
    [manifest] = compacted.projections.glob("manifests/*.json")
    match damage:
        case "cut":
            manifest.write_bytes(manifest.read_bytes()[:50])
        case "missing":
            manifest.unlink()
        case _:
            manifest.write_bytes(manifest.read_bytes().replace(b'"rows": 3', b'"rows": 4'))
    mended(compacted)


def test_a_newer_manifest_is_not_touched_by_reads(compacted: Folder) -> None:
    [manifest] = compacted.projections.glob("manifests/*.json")
    _write_sealed(manifest, json.loads(manifest.read_text()) | {"format": 2})
    said = compacted.fails(1, "query", SAMPLE[0])
    assert "has format 2, this Servo knows 1" in said
    assert "upgrade Servo" in said
    assert "format 2" in compacted.fails(1, "ledger", "compact")
    compacted.ok("ledger", "replay")
    assert len(compacted.rows(SAMPLE[0])) == 3


def test_projections_of_another_ledger_are_not_believed(compacted: Folder) -> None:
    for file in (compacted.path / ".servo").glob("ledger.db*"):
        file.unlink()
    compacted.now = compacted.now.replace(year=2024)
    compacted.record_runs(1)
    assert "another ledger" in compacted.fails(1, "query", SAMPLE[0])
    compacted.ok("ledger", "replay")
    assert len(compacted.rows(SAMPLE[0])) == 1


def test_a_file_that_is_no_ledger(empty: Folder) -> None:
    (empty.path / ".servo").mkdir()
    (empty.path / ".servo" / "ledger.db").write_bytes(b"this is not a database, not at all" * 100)
    assert "is not a ledger or is damaged" in empty.fails(1, "query", "SELECT 1")

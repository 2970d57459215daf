"""What a query can do to the projections: nothing; and what it is told where they are not as they were written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from servo.errors import InvalidQuery, ProjectionDamaged
from servo.projections import Snapshot, engine, manifest
from servo.projections import snapshot as snapshots
from servo.projections.manifest import FileRef, Manifest
from servo.runtime import load_settings, open_workspace
from servo.runtime.doctor import examine
from servo.runtime.maintenance import Maintenance
from tests.integration.projection_support import Place, cancel, cancels

ROOT = Path(__file__).parents[3]
COUNT = "SELECT count(*) FROM runs"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A large file, a small one on top of it, and a tail."""
    place = Place(tmp_path)
    with place.compactor() as compactor:
        place.ledger.append(cancels(60, "a"))
        compactor.compact()
        place.ledger.append(cancels(2, "b"))
        compactor.compact()
    place.ledger.append(cancels(3, "c"))
    yield place
    place.close()


def paths(place: Place) -> list[Path]:
    return [place.store.path("runs", file) for file in place.store.current().tables["runs"]]


# ── reading only ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "sql",
    [
        "WITH x AS (DELETE FROM merged_runs RETURNING 1) SELECT count(*) FROM x",
        "WITH x AS (UPDATE merged_runs SET status = 'none' RETURNING 1) SELECT count(*) FROM x UNION ALL SELECT 1",
        "WITH x AS (INSERT INTO merged_runs SELECT * FROM merged_runs RETURNING 1) SELECT count(*) FROM x",
        "SELECT * FROM (WITH x AS (DELETE FROM merged_runs RETURNING 1) SELECT count(*) FROM x)",
        "FROM query('WITH x AS (DELETE FROM merged_runs RETURNING 1) SELECT count(*) FROM x')",
        "WITH x AS (COPY (SELECT 1 AS a) TO '{file}' (FORMAT parquet, USE_TMP_FILE false)) SELECT * FROM x",
        "(WITH x AS (copy (SELECT 1 AS a) TO '{file}' (FORMAT csv, USE_TMP_FILE false)) SELECT * FROM x);",
        "WITH x AS (COPY (SELECT 1 AS a) TO '/tmp/servo-copied' (USE_TMP_FILE false)) SELECT * FROM x",
        "FROM query('WITH x AS (CO' || 'PY (SELECT 1) TO ''{file}'' (USE_TMP_FILE false)) SELECT * FROM x')",
    ],
)
def test_a_query_changes_nothing(place: Place, sql: str) -> None:
    snapshot = place.reader().snapshot()
    assert snapshot.query(COUNT).rows == [(65,)]
    before = [path.read_bytes() for path in paths(place)]
    with pytest.raises(InvalidQuery) as refused:
        snapshot.query(sql.format(file=paths(place)[0]))
    assert "\n" not in str(refused.value)
    assert [path.read_bytes() for path in paths(place)] == before
    assert snapshot.query(COUNT).rows == [(65,)]
    assert snapshot.query("SELECT count(DISTINCT status) FROM runs").rows == [(1,)]
    assert not Path("/tmp/servo-copied").exists()


def test_a_query_may_speak_of_copies(place: Place) -> None:
    answer = place.reader().query("SELECT 'copy' AS copy, count(*) FROM runs WHERE run_id <> ? -- copy", ["run_a1"])
    assert (answer.columns[0], answer.rows) == ("copy", [("copy", 64)])


@pytest.mark.parametrize(
    "relation",
    [
        "read_text(current_setting('temp_directory') || '/x')",
        "read_text('{spill}/x')",
        "glob(current_setting('temp_directory') || '/*')",
        "glob('{spill}/*')",
        "(SELECT getenv('HOME'))",
    ],
)
def test_what_others_spill_is_not_read(place: Place, relation: str) -> None:
    with engine.connect() as connection:
        [(spill,)] = connection.execute("SELECT current_setting('temp_directory')").fetchall()
    Path(spill).mkdir(exist_ok=True)
    (Path(spill) / "x").write_text("of somebody else")
    try:
        with pytest.raises(InvalidQuery):
            place.reader().query(f"FROM {relation.format(spill=spill)}")
    finally:
        (Path(spill) / "x").unlink()


def test_what_does_not_fit_into_memory_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = engine.connect

    def small(spill: str | None = None) -> engine.Connection:
        connection = connect(spill)
        connection.execute("SET GLOBAL memory_limit = '40MB'")
        return connection

    monkeypatch.setattr(engine, "connect", small)
    with pytest.raises(InvalidQuery, match="ask for less at once"):
        place.reader().query("SELECT max(n) FROM (SELECT hash(range)::VARCHAR AS n FROM range(5000000) ORDER BY n)")


def test_times_are_in_utc_wherever_the_machine_is(place: Place) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.integration.projection_support import Place\n"
        "answer = Place(Path(sys.argv[1])).reader().query('''SELECT current_setting('TimeZone'),"
        " date_trunc('day', TIMESTAMPTZ '2025-01-15 03:00:00+00')::VARCHAR, count(*) FROM runs''')\n"
        "print(*answer.rows[0])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(place.folder)],
        cwd=ROOT, env={**os.environ, "TZ": "America/New_York"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ended.stdout == "UTC 2025-01-15 00:00:00+00 65\n"


def test_every_setting_reaches_a_query(place: Place) -> None:
    names = ("TimeZone", "preserve_insertion_order", "parquet_metadata_cache", "enable_external_access")
    settings = ", ".join(f"current_setting('{name}')::VARCHAR" for name in names)
    assert place.reader().query(f"SELECT {settings}").rows == [("UTC", "false", "true", "false")]


# ── files that are not as they were written ──────────────────────────────────────────────────────────────────────


def test_every_flipped_bit_is_found(place: Place) -> None:
    random = Random(5)
    for turn in range(30):
        path = paths(place)[turn % 2]
        whole = path.read_bytes()
        bit = random.randrange(len(whole) * 8)
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(ProjectionDamaged, match="servo ledger replay") as found:
            place.reader().query(COUNT)
        assert str(path) in str(found.value)
        place.reader().query("SELECT count(*) FROM partition_status")
        path.write_bytes(whole)
    assert place.reader().query(COUNT).rows == [(65,)]


def test_a_merge_does_not_write_damage_on(place: Place) -> None:
    path = paths(place)[-1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    current = place.store.current()
    with pytest.raises(ProjectionDamaged, match=path.name):
        place.compact()
    assert place.store.current() == current


def test_a_file_is_read_from_end_to_end_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Path] = []
    digest = manifest._digest
    monkeypatch.setattr(manifest, "_digest", lambda path: (looked.append(path), digest(path))[1])
    manifest._intact.clear()
    reader = place.reader()
    for _ in range(2):
        assert reader.query(COUNT).rows == [(65,)]
        with pytest.raises(InvalidQuery):
            reader.query("SELECT run_id::INTEGER FROM runs")
        with pytest.raises(InvalidQuery):
            reader.query("SELECT no_such_column FROM runs")
    assert place.reader().query(COUNT).rows == [(65,)]
    assert sorted(looked) == sorted(paths(place))


def test_a_manifest_without_checksums_is_read(place: Place) -> None:
    """As the first Servo wrote it."""
    current = place.store.current()
    old = {
        name: [FileRef(name=file.name, rows=file.rows, bytes=file.bytes) for file in refs]
        for name, refs in current.tables.items()
    }
    manifest = Manifest(version=current.version, watermark=current.watermark, tables=old)
    assert Snapshot(place.store, manifest, None, manifest.watermark).query(COUNT).rows == [(62,)]
    paths(place)[0].write_bytes(b"short")
    with pytest.raises(ProjectionDamaged, match="servo ledger replay"):
        Snapshot(place.store, manifest, None, manifest.watermark).query(COUNT)


def test_a_table_that_could_not_be_made_ready_is_made_ready_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_FEW_ROWS", -1)  # as those are that have many
    run, failed = engine.run, []

    def fail_at(statement: str) -> Any:
        def failing(connection: engine.Connection, sql: str) -> None:
            if sql.startswith(statement) and statement not in failed:
                failed.append(statement)
                raise ProjectionDamaged("for a moment only")
            run(connection, sql)

        return failing

    for statement in ("CREATE OR REPLACE TABLE merged_", "DROP TABLE", "CREATE OR REPLACE VIEW"):
        place.ledger.append([cancel(statement)])
        monkeypatch.setattr(engine, "run", fail_at(statement))
        snapshot = place.reader().snapshot()
        with pytest.raises(ProjectionDamaged, match="for a moment"):
            snapshot.query(COUNT)
        assert snapshot.query(COUNT).rows == [(snapshot.watermark.position,)]
    assert len(failed) == 3


def test_the_doctor_reads_every_file(tmp_path: Path) -> None:
    with open_workspace(load_settings(tmp_path, {"SERVO_TENANT": "acme"}), create=True) as project:
        project.ledger.append(cancels(60))
        service = Maintenance(project)
        service.compact()
        [check] = [check for check in examine(project).checks if check.name == "projections"]
        assert check.level == "ok"
        [file] = project.store.current().tables["runs"]
        path = project.store.path("runs", file)
        status, data = path.stat(), bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a failing disk would do it
        [check] = [check for check in examine(project).checks if check.name == "projections"]
        assert check.level == "problem"
        assert str(path) in check.detail
        assert "servo ledger replay" in (check.remedy or "")

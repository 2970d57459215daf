"""Old events move to Parquet: nothing is lost, nothing doubled, whatever is interrupted."""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import duckdb
import pytest

from servo.errors import Conflict, IdempotencyMismatch, InvalidInput, LedgerCorrupt, ServoError, StorageFailed
from servo.events import RecordedEvent
from servo.faults import arm
from servo.ledger.archive import Archive, ArchiveReport, Segment, archive_events
from servo.ledger.history import History, export
from servo.ledger.protocol import Workspace
from servo.ledger.sqlite import SqliteLedger
from servo.ledger.verify import verify
from servo.runtime import load_settings, open_workspace
from servo.runtime.maintenance import Maintenance
from tests.contract.support import WORKSPACE, cancel, mint

START = datetime(2025, 1, 1, tzinfo=UTC)
EVENTS = 100
BIG = "x" * 5000  # stored deflated

CHILD = """
import sys
from datetime import datetime
from pathlib import Path
from servo.ledger import Workspace, open_ledger
from servo.ledger.archive import Archive, archive_events
folder, before = Path(sys.argv[1]), datetime.fromisoformat(sys.argv[2])
workspace = Workspace("acme", "main")
ledger = open_ledger(f"sqlite:{folder / 'ledger.db'}", workspace)
report = archive_events(ledger, Archive(folder / "archive", workspace), before=before, segment_events=20)
print(report.count)
"""


def one_per_minute() -> Callable[[], datetime]:
    minutes = count()
    return lambda: START + timedelta(minutes=next(minutes))


def minute(number: int) -> datetime:
    return START + timedelta(minutes=number)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """A hundred events, recorded a minute apart from 2025-01-01 on; every tenth is large."""
    ledger = SqliteLedger(tmp_path / "ledger.db", WORKSPACE, mint(one_per_minute()))
    for n in range(EVENTS):  # one by one, because a batch is recorded in one moment
        ledger.append([cancel(f"run_{n}", BIG if n % 10 == 0 else 'ä\n\u2028 "')])
    yield ledger
    ledger.close()


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive", WORKSPACE)


@pytest.fixture
def history(ledger: SqliteLedger, archive: Archive) -> History:
    return History(ledger, archive)


def whole(history: History) -> tuple[list[RecordedEvent], str]:
    """Everything that can be known of a history, proved sound."""
    lines = io.StringIO()
    export(history, lines)
    verification = verify(history)
    assert verification.problems == []
    events = list(history.events())
    assert verification.events == len(events)
    return events, lines.getvalue()


def segment_files(archive: Archive) -> list[Path]:
    return sorted((archive.path(archive.segments[0])).parent.iterdir())


def test_archiving_changes_nothing_that_can_be_read(history: History, ledger: SqliteLedger, archive: Archive) -> None:
    before = whole(history)
    steps: list[tuple[int, int]] = []
    report = archive_events(
        ledger, archive, before=minute(60), segment_events=25, progress=lambda *step: steps.append(step)
    )
    assert report == ArchiveReport(first=1, last=60, count=60, bytes=sum(s.bytes for s in archive.segments))
    assert steps == [(25, 60), (50, 60), (60, 60)]
    assert [(s.first, s.last, s.count) for s in archive.segments] == [(1, 25, 25), (26, 50, 25), (51, 60, 10)]
    assert [path.name for path in archive.paths()] == [
        f"{first:020d}-{last:020d}.parquet" for first, last in [(1, 25), (26, 50), (51, 60)]
    ]
    assert archive.paths() == segment_files(archive)
    assert ledger.head().trimmed_position == archive.last_position == 60
    assert [event.position for event in ledger.read(0)] == list(range(61, 101))
    assert whole(history) == before
    assert history.read(24, 3) == before[0][24:27]
    assert history.read(58, 5) == before[0][58:63]
    assert history.read(100) == []


def test_archiving_goes_on_where_it_stopped(history: History, ledger: SqliteLedger, archive: Archive) -> None:
    before = whole(history)
    archive_events(ledger, archive, before=minute(30))
    assert archive_events(ledger, archive, before=minute(30)) == ArchiveReport()
    assert archive_events(ledger, archive, before=minute(10)) == ArchiveReport()
    report = archive_events(ledger, archive, before=minute(100_000))
    assert (report.first, report.last, report.count) == (31, 100, 70)
    assert ledger.read(0) == []
    assert whole(history) == before
    ledger.append([cancel("later")])
    assert whole(history)[0][:-1] == before[0]


def test_only_what_was_recorded_before_the_time_is_moved(ledger: SqliteLedger, archive: Archive) -> None:
    assert archive_events(ledger, archive, before=datetime(1960, 1, 1, tzinfo=UTC)).count == 0
    assert archive_events(ledger, archive, before=minute(0)).count == 0
    assert archive_events(ledger, archive, before=minute(1)).last == 1
    assert archive_events(ledger, archive, before=minute(2) + timedelta(milliseconds=1)).last == 3
    with pytest.raises(InvalidInput, match="timezone"):
        archive_events(ledger, archive, before=datetime(2025, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidInput, match="at least one"):
        archive_events(ledger, archive, before=minute(9), segment_events=0)


@pytest.mark.parametrize(
    "fault",
    [
        "archive.begin=kill",
        "archive.after_segment=kill",
        "archive.after_segment=kill:2",
        "archive.after_index=kill",
        "archive.after_index=kill:3",
        "archive.after_trim=kill",
        "archive.after_trim=kill:3",
    ],
)
def test_a_kill_at_any_point_loses_and_doubles_nothing(
    fault: str, history: History, ledger: SqliteLedger, archive: Archive, tmp_path: Path
) -> None:
    before = whole(history)

    def run(until: int, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", CHILD, str(tmp_path), minute(until).isoformat()],
            env={**os.environ, **more},
            capture_output=True,
            text=True,
            check=False,
        )

    assert run(50, SERVO_FAULTS=fault).returncode == -signal.SIGKILL
    assert whole(history) == before
    # Another time than the first, so that what was left behind has other names.
    rerun = run(70)
    assert rerun.returncode == 0, rerun.stderr
    assert archive.last_position == ledger.head().trimmed_position == 70
    assert archive.paths() == segment_files(archive)
    assert whole(history) == before


def test_a_second_archiver_is_told_to_wait(ledger: SqliteLedger, archive: Archive, tmp_path: Path) -> None:
    seen: list[ServoError] = []

    def try_too() -> None:
        with pytest.raises(Conflict, match="somebody else is archiving acme/main") as caught:
            archive_events(ledger, Archive(tmp_path / "archive", WORKSPACE), before=minute(90))
        seen.append(caught.value)

    with arm("archive.after_segment", try_too):
        assert archive_events(ledger, archive, before=minute(50)).count == 50
    assert seen[0].exit_code == 4
    assert archive_events(ledger, archive, before=minute(90)).count == 40


def test_a_reader_sees_every_position_once_while_events_are_appended_and_archived(
    ledger: SqliteLedger, tmp_path: Path
) -> None:
    total = 600
    seen: list[int] = []
    failures: list[Exception] = []

    def follow() -> None:
        follower = SqliteLedger(tmp_path / "ledger.db", WORKSPACE, mint())
        history = History(follower, Archive(tmp_path / "archive", WORKSPACE))
        try:
            while len(seen) < total:
                history.head(beyond=len(seen), timeout=5)
                seen.extend(event.position for event in history.read(len(seen), 7))
        except Exception as problem:  # noqa: BLE001 – handed to the test, which fails on any
            failures.append(problem)
        finally:
            follower.close()

    readers = [threading.Thread(target=follow)]
    readers[0].start()
    archive = Archive(tmp_path / "archive", WORKSPACE)
    for number in range(EVENTS, total, 10):
        ledger.append([cancel(f"run_{number + extra}") for extra in range(10)])
        archive_events(ledger, archive, before=minute(number - 5), segment_events=30)
    for reader in readers:
        reader.join(60)
    assert failures == []
    assert seen == list(range(1, total + 1))
    assert archive.last_position > total - 50


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_changed_or_missing_segment_is_one_clear_error(
    history: History, ledger: SqliteLedger, archive: Archive
) -> None:
    archive_events(ledger, archive, before=minute(60), segment_events=30)
    path = archive.paths()[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert len(history.read(0, 30)) == 30
    with pytest.raises(LedgerCorrupt, match=path.name):
        history.read(30)
    path.write_bytes(content[:100])
    with pytest.raises(LedgerCorrupt, match=path.name):
        history.find("01" + "Z" * 24) if history.read(40, 1) else None
    path.unlink()
    with pytest.raises(LedgerCorrupt, match=rf"{path.name} is missing \(restore this file"):
        list(history.events())


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-20], lambda text: b"", lambda text: text.replace(b"acme", b"evil")]
)
def test_a_damaged_index_is_one_clear_error(
    damage: Callable[[bytes], bytes], history: History, ledger: SqliteLedger, archive: Archive, tmp_path: Path
) -> None:
    archive_events(ledger, archive, before=minute(60))
    index = tmp_path / "archive" / "acme" / "main" / "index.json"
    index.write_bytes(damage(index.read_bytes()))
    for ask in (
        lambda: history.read(0),
        lambda: verify(history),
        lambda: archive_events(ledger, archive, before=minute(90)),
    ):
        with pytest.raises(LedgerCorrupt, match=r"index\.json is damaged"):
            ask()


def test_a_lost_archive_is_named_and_never_written_over(
    history: History, ledger: SqliteLedger, archive: Archive, tmp_path: Path
) -> None:
    archive_events(ledger, archive, before=minute(60))
    files = segment_files(archive)
    (tmp_path / "archive" / "acme" / "main" / "index.json").unlink()
    for ask in (
        lambda: history.read(0),
        lambda: History(ledger, None).read(0),
        lambda: history.position_at_time(minute(5)),
        lambda: archive_events(ledger, archive, before=minute(90)),
    ):
        with pytest.raises(LedgerCorrupt, match=r"1–60 were moved to the archive.*restore the archive folder"):
            ask()
    assert all(path.exists() for path in files)
    assert [event.position for event in history.read(60)] == list(range(61, 101))


def test_files_beyond_the_end_of_a_ledger_that_was_set_back_are_kept(
    ledger: SqliteLedger, archive: Archive, tmp_path: Path
) -> None:
    folder = tmp_path / "archive" / "acme" / "main" / "segments"
    folder.mkdir(parents=True)
    orphan, only_copy, foreign = (
        folder / f"{51:020d}-{100:020d}.parquet",
        folder / f"{51:020d}-{101:020d}.parquet",
        folder / "notes.txt",
    )
    for path in (orphan, only_copy, foreign):
        path.write_text("")
    archive_events(ledger, archive, before=minute(10))
    assert [path.exists() for path in (orphan, only_copy, foreign)] == [False, True, True]


def test_the_archive_of_another_ledger_is_refused(ledger: SqliteLedger, archive: Archive, tmp_path: Path) -> None:
    archive_events(ledger, archive, before=minute(50))
    other = SqliteLedger(tmp_path / "other.db", WORKSPACE, mint(one_per_minute()))
    with pytest.raises(LedgerCorrupt, match="the archive goes to position 50, but the ledger ends at 0"):
        archive_events(other, archive, before=minute(90))
    other.append([cancel(f"other_{n}") for n in range(60)])
    with pytest.raises(LedgerCorrupt, match="different stories at position 50"):
        archive_events(other, archive, before=minute(90))
    assert other.head().trimmed_position == 0
    other.close()


def test_a_full_disk_trims_nothing(history: History, ledger: SqliteLedger, archive: Archive) -> None:
    before = whole(history)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StorageFailed, match="nothing was removed from the ledger"):
            archive_events(ledger, archive, before=minute(60))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ledger.head().trimmed_position == 0
    assert whole(history) == before
    assert archive_events(ledger, archive, before=minute(60)).count == 60
    assert whole(history) == before


def test_a_folder_that_cannot_be_made_is_one_clear_error(ledger: SqliteLedger, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed, match="Not a directory"):
        archive_events(ledger, Archive(tmp_path / "file", WORKSPACE), before=minute(60))
    assert ledger.head().trimmed_position == 0


def test_a_broken_chain_is_never_archived(ledger: SqliteLedger, archive: Archive) -> None:
    with ledger._connection() as connection:
        connection.execute("UPDATE events SET actor = 'mallory' WHERE position = 42")
    with pytest.raises(LedgerCorrupt, match="position 42 does not follow"):
        archive_events(ledger, archive, before=minute(90), segment_events=30)
    assert archive.last_position == ledger.head().trimmed_position == 30
    assert len(ledger.read(0)) == 70


# ── open files ───────────────────────────────────────────────────────────────────────────────────────────


def test_duckdb_opens_a_segment_plainly(history: History, ledger: SqliteLedger, archive: Archive) -> None:
    archive_events(ledger, archive, before=minute(50), segment_events=30)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        table = connection.read_parquet([str(path) for path in archive.paths()])
        assert dict(zip(table.columns, map(str, table.types), strict=True)) == {
            "position": "BIGINT",
            "event_id": "VARCHAR",
            "event_type": "VARCHAR",
            "event_version": "INTEGER",
            "occurred_at": "TIMESTAMP WITH TIME ZONE",
            "tenant_id": "VARCHAR",
            "workspace_id": "VARCHAR",
            "actor": "VARCHAR",
            "idempotency_key": "VARCHAR",
            "correlation_id": "VARCHAR",
            "causation_id": "VARCHAR",
            "payload": "VARCHAR",
            "chain_hash": "VARCHAR",
        }
        rows = table.order("position").fetchall()
    assert [(row[0], row[1], row[11].encode(), row[12]) for row in rows] == [
        (event.position, event.event_id, event.payload, event.chain_hash) for event in history.read(0, 50)
    ]


def test_large_payloads_make_small_row_groups(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db", WORKSPACE, mint(one_per_minute()))
    ledger.append([cancel(f"run_{n}", "y" * 100_000) for n in range(600)])
    archive = Archive(tmp_path / "archive", Workspace("acme", "main"))
    archive_events(ledger, archive, before=minute(600))
    with duckdb.connect() as connection:
        sizes = connection.execute(
            "SELECT DISTINCT row_group_id, row_group_num_rows FROM parquet_metadata(?) ORDER BY 1",
            [str(archive.paths()[0])],
        ).fetchall()
    assert sizes[0][1] == 256
    assert all(rows <= 90 for _, rows in sizes[1:])
    assert [event.position for event in archive.read(250, 100)] == list(range(251, 351))
    ledger.close()


# ── idempotency keys ─────────────────────────────────────────────────────────────────────────────────────────────────


def is_known(ledger: SqliteLedger, number: int) -> bool:
    """Whether an old append, repeated with another payload, is noticed. Refused with others, it leaves nothing."""
    with pytest.raises(IdempotencyMismatch) as refused:
        ledger.append([cancel(f"run_{number}", "another"), cancel(f"run_{EVENTS - 1}", "another")])
    return bool(refused.value.idempotency_key == f"run_cancel:run_{number}")


def test_keys_outlive_the_move_to_the_archive(ledger: SqliteLedger, archive: Archive) -> None:
    archive_events(ledger, archive, before=minute(50))
    assert all(is_known(ledger, number) for number in range(50))
    archive_events(ledger, archive, before=minute(60), keys_before=minute(20))
    assert [number for number in range(70) if not is_known(ledger, number)] == list(range(20))
    archive_events(ledger, archive, before=minute(60), keys_before=minute(30))  # nothing to move any more
    assert [number for number in range(70) if not is_known(ledger, number)] == list(range(30))
    archive_events(ledger, archive, before=minute(70), keys_before=minute(90))  # those still in the ledger stay
    assert [number for number in range(90) if not is_known(ledger, number)] == list(range(70))


def test_the_settings_say_how_long_keys_live(tmp_path: Path) -> None:
    now = [START]
    settings = load_settings(tmp_path, {"SERVO_IDEMPOTENCY_DAYS": "2"})
    with open_workspace(settings, create=True, clock=lambda: now[0]) as project:
        for day in range(4):
            now[0] = START + timedelta(days=day)
            project.ledger.append([cancel(f"run_{day}")])
        Maintenance(project).archive(keep_days=0.5)
        assert project.ledger.head().trimmed_position == 3
        receipts = project.ledger.append([cancel(f"run_{day}") for day in range(4)])
        assert [receipt.duplicate for receipt in receipts] == [False, True, True, True]
    with open_workspace(load_settings(tmp_path, {"SERVO_IDEMPOTENCY_DAYS": "9999999"})) as project:
        Maintenance(project).archive(keep_days=0)
        assert project.ledger.append([cancel("run_1")])[0].duplicate


def test_a_replay_on_spark_takes_every_event_up_to_its_position_while_others_archive(
    history: History, archive: Archive, ledger: SqliteLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from servo.execution.spark_projections import _segments
    from servo.ledger.segments import SegmentFile

    archive_events(ledger, archive, before=minute(20), segment_events=20)
    read, looks = Archive.segments.fget, count(1)

    def segments(self: Archive) -> tuple[Segment, ...]:
        found = read(self)
        if next(looks) == 1:  # right after the first look, all that is left is archived by somebody else
            archive_events(ledger, Archive(tmp_path / "archive", WORKSPACE), before=minute(EVENTS), segment_events=20)
        return found

    monkeypatch.setattr(Archive, "segments", property(segments))

    def gathered(until: int) -> list[int]:
        files = [Path(file.removeprefix("file://")) for file in _segments(history, tmp_path, until)]
        return sorted(event.position for file in files for events in SegmentFile(file).batches() for event in events)

    assert gathered(EVENTS) == list(range(1, EVENTS + 1))
    assert gathered(EVENTS - 10) == list(range(1, EVENTS - 9))  # others may have been appended, and archived, since

"""Tampering with the real files: every change is found, and named as exactly as can be known."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servo.events import GENESIS, RecordedEvent, chain
from servo.faults import arm
from servo.ledger.archive import Archive, archive_events
from servo.ledger.chain import MOST_PROBLEMS
from servo.ledger.history import History
from servo.ledger.sql import pack
from servo.ledger.sqlite import SqliteLedger
from servo.ledger.verify import verify
from servo.runtime import load_settings, open_workspace
from servo.runtime.maintenance import Maintenance
from tests.contract.support import WORKSPACE, cancel, mint

START = datetime(2025, 1, 1, tzinfo=UTC)
EVENTS = 40
LARGE = 17  # the position of an event that is stored deflated


def minute(number: int) -> datetime:
    return START + timedelta(minutes=number)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    minutes = count()
    ledger = SqliteLedger(tmp_path / "ledger.db", WORKSPACE, mint(lambda: minute(next(minutes))))
    for n in range(1, EVENTS + 1):  # one by one, because a batch is recorded in one moment
        ledger.append([cancel(f"run_{n}", "large " * 1000 if n == LARGE else "r")])
    yield ledger
    ledger.close()


@pytest.fixture
def sql(ledger: SqliteLedger, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    yield connection
    connection.close()


@pytest.fixture
def history(ledger: SqliteLedger, tmp_path: Path) -> History:
    return History(ledger, Archive(tmp_path / "archive", WORKSPACE))


def found(history: History) -> list[tuple[int, str]]:
    return [(problem.position, problem.kind) for problem in verify(history).problems]


def test_an_untouched_ledger_has_no_problems(history: History) -> None:
    steps: list[tuple[int, int]] = []
    verification = verify(history, progress=lambda *step: steps.append(step))
    assert (verification.events, verification.problems) == (EVENTS, [])
    assert verification.head == history.head()
    assert steps[-1] == (EVENTS, EVENTS)


def test_an_empty_ledger_has_no_problems(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "empty.db", WORKSPACE, mint())
    assert verify(History(ledger, None)).problems == []
    ledger.close()


# ── one statement of SQL against the live part ───────────────────────────────────────────────────────────

CHANGES = [
    "payload = CAST(replace(CAST(payload AS TEXT), '\"r\"', '\"s\"') AS BLOB)",
    "actor = 'mallory'",
    "event_type = 'RunStarted'",
    "event_version = 2",
    "occurred_at = occurred_at + 1",
    "idempotency_key = 'other'",
    "correlation_id = 'other'",
    "causation_id = 'other'",
    "event_id = '7' || substr(event_id, 2)",
    "chain_hash = zeroblob(32)",
    "chain_hash = x'00'",
    "occurred_at = 9223372036854775807",
    "actor = CAST(x'ff' AS TEXT)",
    "payload = x''",
]


@pytest.mark.parametrize("position", [1, 2, 20, 39, 40])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_event_is_named(change: str, position: int, history: History, sql: sqlite3.Connection) -> None:
    assert sql.execute(f"UPDATE events SET {change} WHERE position = ?", [position]).rowcount == 1
    (problem,) = verify(history).problems
    assert (problem.position, problem.kind) == (position, "changed")


def test_one_byte_of_a_deflated_payload(history: History, sql: sqlite3.Connection) -> None:
    (stored,) = sql.execute("SELECT payload FROM events WHERE position = ?", [LARGE]).fetchone()
    assert stored[:1] == b"x"
    for place in (0, 1, len(stored) // 2, len(stored) - 1):
        broken = bytearray(stored)
        broken[place] ^= 1
        sql.execute("UPDATE events SET payload = ? WHERE position = ?", [bytes(broken), LARGE])
        assert found(history) == [(LARGE, "changed")], place
    other = pack(b'{"reason":"' + b"other " * 1000 + b'"}')
    sql.execute("UPDATE events SET payload = ? WHERE position = ?", [other, LARGE])
    assert found(history) == [(LARGE, "changed")]


def renumber(sql: sqlite3.Connection, after: int, by: int) -> None:
    sql.execute("UPDATE events SET position = -position WHERE position > ?", [after])
    sql.execute("UPDATE events SET position = ? - position WHERE position < 0", [by])


def insert(sql: sqlite3.Connection, position: int, like: int, chain_hash: bytes = bytes(32)) -> None:
    """A made-up row, a copy of another with its own key and actor."""
    sql.execute(
        "INSERT INTO events SELECT workspace_no, ?, substr(event_id, 1, 25) || 'Z', event_type, event_version,"
        " occurred_at, 'mallory', 'forged:' || ?, correlation_id, causation_id, payload, ?"
        " FROM events WHERE position = ?",
        [position, position, chain_hash, like],
    )


@pytest.mark.parametrize("position", [1, 2, 20, 39, 40])
def test_a_removed_row(position: int, history: History, sql: sqlite3.Connection) -> None:
    sql.execute("DELETE FROM events WHERE position = ?", [position])
    assert found(history) == [(position, "removed")]


def test_removed_rows(history: History, sql: sqlite3.Connection) -> None:
    sql.execute("DELETE FROM events WHERE position BETWEEN 5 AND 9 OR position >= 39")
    first, second = verify(history).problems
    assert "positions 5–9 are missing" in first.detail
    assert "positions 39–40 are missing" in second.detail


def test_all_rows_removed(history: History, sql: sqlite3.Connection) -> None:
    sql.execute("DELETE FROM events")
    assert found(history) == [(1, "removed")]


@pytest.mark.parametrize("with_head", [False, True])
@pytest.mark.parametrize(("position", "rows"), [(1, 1), (20, 1), (20, 5), (38, 1)])
def test_removed_and_renumbered(
    position: int, rows: int, with_head: bool, history: History, sql: sqlite3.Connection
) -> None:
    sql.execute("DELETE FROM events WHERE position >= ? AND position < ?", [position, position + rows])
    renumber(sql, position, -rows)
    if with_head:
        sql.execute("UPDATE workspaces SET position = position - ?", [rows])
    assert found(history) == [(position, "removed")]


@pytest.mark.parametrize("with_head", [False, True])
@pytest.mark.parametrize("position", [1, 20, 40])
@pytest.mark.parametrize("forged", [False, True])
def test_inserted_and_renumbered(
    position: int, forged: bool, with_head: bool, history: History, sql: sqlite3.Connection
) -> None:
    renumber(sql, position - 1, 1)
    insert(sql, position, like=position + 1)
    if forged:  # even its hash continues the chain
        previous = history.ledger.read(position - 2, 1)[0].chain_hash if position > 1 else GENESIS
        (row,) = history.ledger.read(position - 1, 1)
        sql.execute(
            "UPDATE events SET chain_hash = ? WHERE position = ?", [bytes.fromhex(chain(previous, row)), position]
        )
    if with_head:
        sql.execute("UPDATE workspaces SET position = position + 1")
    assert found(history) == [(position, "inserted")]


def test_several_inserted_and_renumbered(history: History, sql: sqlite3.Connection) -> None:
    renumber(sql, 19, 3)
    for position in (20, 21, 22):
        insert(sql, position, like=30, chain_hash=bytes([position]) * 32)
    assert found(history) == [(20, "inserted"), (21, "inserted"), (22, "inserted")]


def test_inserted_beyond_the_head(history: History, sql: sqlite3.Connection) -> None:
    insert(sql, EVENTS + 1, like=EVENTS)
    assert found(history) == [(EVENTS + 1, "inserted")]
    insert(sql, EVENTS + 5, like=EVENTS)
    assert found(history) == [(EVENTS + 1, "inserted"), (EVENTS + 5, "inserted")]


def test_inserted_before_the_first(history: History, sql: sqlite3.Connection) -> None:
    insert(sql, 0, like=1)
    assert found(history) == [(0, "inserted")]


@pytest.mark.parametrize(("one", "other"), [(1, 2), (20, 21), (39, 40)])
def test_swapped_neighbours(one: int, other: int, history: History, sql: sqlite3.Connection) -> None:
    sql.execute("UPDATE events SET position = -position WHERE position IN (?, ?)", [one, other])
    sql.execute("UPDATE events SET position = ? + position WHERE position < 0", [one + other])
    (problem,) = verify(history).problems
    assert (problem.position, problem.kind) == (one, "reordered")
    assert "exchanged" in problem.detail


def test_swapped_far_apart(history: History, sql: sqlite3.Connection) -> None:
    sql.execute("UPDATE events SET position = -position WHERE position IN (10, 30)")
    sql.execute("UPDATE events SET position = 40 + position WHERE position < 0")
    problems = dict(found(history))
    assert problems[10] == "reordered"
    assert 30 in problems
    assert set(problems) <= {10, 11, 30, 31}
    assert problems.get(11) != "changed"


def test_many_changes_are_all_named_and_bounded(
    history: History, ledger: SqliteLedger, sql: sqlite3.Connection
) -> None:
    sql.execute("UPDATE events SET actor = 'mallory' WHERE position % 10 = 0")
    assert found(history) == [(position, "changed") for position in (10, 20, 30, 40)]
    sql.execute("UPDATE events SET actor = 'mallory' WHERE position > 10")
    assert [position for position, _ in found(history)] == list(range(10, 41))
    ledger.append([cancel(f"more_{n}") for n in range(500)])
    sql.execute("UPDATE events SET actor = 'mallory'")
    assert len(found(history)) == MOST_PROBLEMS


@pytest.mark.parametrize(
    "change",
    [
        "chain_hash = printf('%064d', 1)",
        "event_id = '7' || substr(event_id, 2)",
        "occurred_at = occurred_at + 1",
    ],
)
def test_a_changed_head(change: str, history: History, sql: sqlite3.Connection) -> None:
    sql.execute(f"UPDATE workspaces SET {change}")
    assert found(history) == [(EVENTS, "head-mismatch")]


# ── the archive ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def archived(history: History, ledger: SqliteLedger) -> Archive:
    """Positions 1–10, 11–20 and 21–30 are archived, the rest is live."""
    assert history.archive is not None
    archive_events(ledger, history.archive, before=minute(30), segment_events=10)
    return history.archive


Rows = list[dict[str, Any]]


def rewrite(archive: Archive, number: int, change: Callable[[Rows], Rows]) -> None:
    path = archive.paths()[number]
    table = pq.read_table(path)
    pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema), path)


def with_value(position: int, **values: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [row | values if row["position"] == position else row for row in rows]


def renumbered(rows: Rows) -> Rows:
    return [row | {"position": number} for number, row in enumerate(rows, rows[0]["position"])]


@pytest.mark.parametrize("position", [11, 15, 20])
@pytest.mark.parametrize(
    "values",
    [
        {"payload": '{"reason":"s","run_id":"run_1"}'},
        {"actor": "mallory"},
        {"tenant_id": "evil"},
        {"chain_hash": "f" * 64},
        {"chain_hash": "not a hash"},
        {"occurred_at": START},
    ],
)
def test_a_changed_archived_event(position: int, values: dict[str, Any], history: History, archived: Archive) -> None:
    rewrite(archived, 1, with_value(position, **values))
    assert found(history) == [(position, "changed")]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda rows: rows[1:], [(11, "removed")]),
        (lambda rows: rows[:4] + rows[5:], [(15, "removed")]),
        (lambda rows: rows[:-1], [(20, "removed")]),
        (lambda rows: [*rows[:4], rows[4] | {"actor": "x"}, *rows[4:]], [(15, "inserted")]),
        (lambda rows: [*rows[:5], rows[4] | {"actor": "x"}, *rows[5:]], [(15, "inserted")]),
        (lambda rows: [*rows[:4], rows[5], rows[4], *rows[6:]], [(15, "reordered")]),
        (lambda rows: renumbered([*rows[:4], rows[5], rows[4], *rows[6:]]), [(15, "reordered")]),
    ],
)
def test_rows_of_a_segment(
    change: Callable[[Rows], Rows], expected: list[tuple[int, str]], history: History, archived: Archive
) -> None:
    rewrite(archived, 1, change)
    assert found(history) == expected


def test_renumbered_rows_of_a_segment(history: History, archived: Archive) -> None:
    rewrite(archived, 1, lambda rows: renumbered(rows[:4] + rows[5:]))
    assert found(history) == [(15, "removed")]
    rewrite(archived, 2, lambda rows: renumbered([*rows[:4], rows[4] | {"chain_hash": "0" * 64}, *rows[4:]]))
    assert found(history) == [(15, "removed"), (25, "inserted")]


def test_a_file_written_anew_with_the_same_events(history: History, archived: Archive) -> None:
    rewrite(archived, 1, lambda rows: rows)
    (problem,) = verify(history).problems
    assert (problem.position, problem.kind) == (11, "changed")
    assert archived.paths()[1].name in problem.detail


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:99])])
def test_an_unreadable_segment_is_named_and_the_rest_still_proved(
    damage: Callable[[Path], None], history: History, archived: Archive, sql: sqlite3.Connection
) -> None:
    path = archived.paths()[1]
    damage(path)
    sql.execute("UPDATE events SET actor = 'mallory' WHERE position = 35")
    lost, changed = verify(history).problems
    assert (lost.position, lost.kind) == (11, "removed")
    assert path.name in lost.detail
    assert "11–20" in lost.detail
    assert (changed.position, changed.kind) == (35, "changed")


def test_a_lost_archive(ledger: SqliteLedger, archived: Archive, sql: sqlite3.Connection) -> None:
    sql.execute("UPDATE events SET actor = 'mallory' WHERE position = 31")
    assert found(History(ledger, None)) == [(1, "removed"), (31, "changed")]


def test_the_boundary_between_archive_and_ledger(history: History, archived: Archive, sql: sqlite3.Connection) -> None:
    sql.execute("DELETE FROM events WHERE position = 31")
    assert found(history) == [(31, "removed")]
    for chain_hash in ("f" * 64, "not a hash"):
        sql.execute("UPDATE workspaces SET trimmed_chain_hash = ?", [chain_hash])
        assert found(history) == [(30, "head-mismatch"), (31, "removed")]


def test_a_row_where_everything_was_archived(history: History, archived: Archive, sql: sqlite3.Connection) -> None:
    insert(sql, 7, like=31)
    assert found(history) == [(7, "inserted")]


def test_rows_that_are_in_both_must_be_equal(history: History, ledger: SqliteLedger, sql: sqlite3.Connection) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    assert history.archive is not None
    with arm("archive.after_index", stop), pytest.raises(KeyboardInterrupt):
        archive_events(ledger, history.archive, before=minute(30))
    assert (history.archive.last_position, history.head().trimmed_position) == (30, 0)
    assert found(history) == []
    sql.execute("UPDATE events SET actor = 'mallory' WHERE position = 12")
    assert found(history) == [(12, "changed")]
    sql.execute("DELETE FROM events WHERE position = 12")
    assert found(history) == [(12, "removed")]


def test_archiving_while_it_is_verified(history: History, ledger: SqliteLedger) -> None:
    assert history.archive is not None
    archive = history.archive
    ledger.append([cancel(f"more_{n}") for n in range(1000)])

    def go_on(done: int, total: int) -> None:
        archive_events(ledger, archive, before=minute(done + 150), segment_events=100)
        if done < 1200:
            ledger.append([cancel(f"late_{done}")])

    verification = verify(history, progress=go_on)
    assert verification.problems == []
    assert verification.events == verification.head.position


# ── what the projections remember ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Maintenance]:
    """Forty events of which the projections know thirty; nothing is archived."""
    with open_workspace(load_settings(tmp_path, {}), create=True) as project:
        service = Maintenance(project)
        for first, last in [(1, 20), (21, 30)]:
            project.ledger.append([cancel(f"run_{n}") for n in range(first, last + 1)])
            service.compact()
        project.ledger.append([cancel(f"run_{n}") for n in range(31, 41)])
        yield service


def rewritten(service: Maintenance, events: list[RecordedEvent]) -> None:
    """Replace the whole ledger by events that are chained anew, with a head that fits: it is sound in itself."""
    previous = GENESIS
    with sqlite3.connect(service._project.settings.home / "ledger.db", isolation_level=None) as sql:
        sql.execute("DELETE FROM events WHERE position > ?", (len(events),))
        for event in events:
            previous = chain(previous, event)
            sql.execute(
                "UPDATE events SET actor = ?, chain_hash = ? WHERE position = ?",
                (event.actor, bytes.fromhex(previous), event.position),
            )
        sql.execute(
            "UPDATE workspaces SET position = ?, event_id = ?, chain_hash = ?",
            (len(events), events[-1].event_id, previous),
        )
    sql.close()


def found_by(service: Maintenance) -> list[tuple[int, str]]:
    return [(problem.position, problem.kind) for problem in service.verify().problems]


def test_the_projections_have_nothing_to_say_about_a_sound_ledger(service: Maintenance) -> None:
    assert found_by(service) == []
    service.archive(keep_days=0)
    assert found_by(service) == []


@pytest.mark.parametrize("left", [29, 25, 20, 19])
def test_a_cut_off_end_is_found_by_what_the_projections_remember(service: Maintenance, left: int) -> None:
    rewritten(service, service._project.ledger.read(0)[:left])
    assert verify(service._project.history).problems == []
    (problem,) = service.verify().problems
    assert (problem.position, problem.kind) == (left + 1, "removed")
    assert "made from events up to 30" in problem.detail


def test_a_chain_forged_anew_is_found_by_what_the_projections_remember(service: Maintenance) -> None:
    events = service._project.ledger.read(0)
    events[24] = msgspec.structs.replace(events[24], actor="nobody")
    rewritten(service, events)
    assert verify(service._project.history).problems == []
    (problem,) = service.verify().problems
    assert (problem.position, problem.kind) == (30, "changed")
    assert events[29].chain_hash in problem.detail


@pytest.mark.parametrize("damage", ["pointer", "manifests", "gone"])
def test_damaged_projections_do_not_hinder_the_proof(service: Maintenance, damage: str) -> None:
    root = service._project.store.root
    if damage == "gone":
        shutil.rmtree(root)
    for path in [root / "CURRENT"] if damage == "pointer" else root.glob("manifests/*"):
        path.write_text("nonsense")
    assert found_by(service) == []
    with sqlite3.connect(service._project.settings.home / "ledger.db") as sql:
        sql.execute("UPDATE events SET actor = 'nobody' WHERE position = 30")
    sql.close()
    assert found_by(service) == [(30, "changed")]

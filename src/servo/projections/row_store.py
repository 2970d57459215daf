"""The tables that are asked by key or in short lists, kept as rows and changed in place by each batch of events.

DuckDB takes milliseconds to plan a question about one run, and as long to change one; SQLite a tenth of one. Here each
process that asks more than once keeps the newest state of such tables, in a file of its own that nobody else knows. A
batch and its watermark are one transaction, so whoever reads sees all of a batch or nothing, and what was begun before
it sees nothing of it.

A table lives here or in the columns of the projections' files: `ROW_TABLES` says which. What events mean for a row is
said in `fold/` alone; `_merge` is its law (`fold/rows.py`) as SQLite takes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sqlite3
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from servo.events.fact import from_micros, to_micros
from servo.fold.batch import Batch, Chunk, Each
from servo.fold.partition_rows import LineageRow, MaterializationRow, PartitionStatusRow, RollbackRow
from servo.fold.rows import Group, Kind, Row, all_groups, columns
from servo.fold.tables import TABLES, CheckResultRow, RunKeyConflictRow
from servo.projections.manifest import Watermark
from servo.projections.table_sql import CURRENT_NAMES, NAMED_TABLES, NAMING_TABLES, with_current_names

_COLUMNAR = (PartitionStatusRow, MaterializationRow, LineageRow, RollbackRow, CheckResultRow, RunKeyConflictRow)
ROW_TABLES = {table.table: table for table in TABLES if table not in _COLUMNAR}
"""The tables that are kept as rows; the others have a row for each partition, and are asked about all of them."""

_INDEXES = {
    "runs": ("requested_at", "requested_version", "run_key", "finished_version, requested_version"),
    "tasks": ("asset_id, code_version", "worker"),
    "run_key_index": ("run_id",),
    "checkpoints": ("run_id", "requested_version"),
    "backfills": ("created_version", "name"),
    "backfill_chunks": ("run_id",),
    "schedule_ticks": ("schedule_id, tick_version",),
    "sensor_evals": ("sensor_id, eval_version",),
}
_PREFIX, _FILE = "servo-rows-", "rows"
_YOUNG = 60.0  # seconds in which a folder may be one that its process is about to hold
_MOST_LOG = 16 << 20
_TYPES = {Kind.INTEGER: "INTEGER", Kind.BOOLEAN: "INTEGER", Kind.TIME: "INTEGER"}
_UNNESTED = re.compile(r"SELECT unnest\((\$\w+)\)")


class Rows:
    """The row tables as of one watermark. Threads share it."""

    def __init__(self, store: RowStore, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = Lock()
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM runs LIMIT 1").fetchall()  # the first read fixes what all others see
        weakref.finalize(self, store.give_back, connection).atexit = False

    def query(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of a query's columns, and all its rows. It is one of our own, in words that DuckDB knows too."""
        # One at a time: a thread that waits for the connection holds Python's own lock, which our functions need.
        with self._lock:
            found = self._connection.execute(_translated(sql), _given(parameters))
            names, rows = [column[0] for column in found.description], found.fetchall()
        readers = [(place, _READERS[name]) for place, name in enumerate(names) if name in _READERS]
        return names, [_read(row, readers) for row in rows] if readers else rows


class RowStore:
    """The newest state of the row tables, for one process. `apply` is called by one thread at a time."""

    def __init__(self, worn: RowStore | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        _sweep(before=self._folder.stat().st_mtime - _YOUNG)
        held = os.open(self._folder, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)  # as long as we live: what nobody holds was left by a process that was killed
        if worn is not None:
            worn._writer.execute("VACUUM INTO ?", (str(self._folder / _FILE),))
        # Without a lock: what is no longer held is given back wherever garbage is collected, also in here.
        self._spare: deque[sqlite3.Connection] = deque()
        self._writer: sqlite3.Connection = self._connect()
        weakref.finalize(self, _leave, os.getpid(), self._folder, held, self._writer, self._spare)
        self.watermark: Watermark = Watermark() if worn is None else worn.watermark
        self._renamed: dict[str, str] | None = None if worn is None else worn._renamed
        # It is lost with its process: nothing waits for the disk.
        self._writer.execute("PRAGMA journal_mode = WAL")
        self._writer.execute("PRAGMA synchronous = OFF")
        if worn is None:
            for table in ROW_TABLES.values():
                kinds = ", ".join(f"{name} {_TYPES.get(kind, 'TEXT')}" for name, kind in columns(table).items())
                self._writer.execute(f"CREATE TABLE rows_{table.table} ({kinds}, PRIMARY KEY ({', '.join(table.key)}))")

    def renewed(self) -> RowStore:
        """The same without its log, where that has grown: whoever reads an earlier state keeps it from being emptied,
        and the newest state is always read by somebody."""
        log = self._folder / f"{_FILE}-wal"
        return RowStore(self) if log.exists() and log.stat().st_size > _MOST_LOG else self

    def load(self, contents: Callable[[str], Iterable[tuple[Any, ...]]], watermark: Watermark) -> None:
        """All rows of all tables, as of a watermark."""
        with self._transaction(watermark):
            for name, table in ROW_TABLES.items():
                writers = [_WRITERS.get(kind, _as_it_is) for kind in columns(table).values()]
                self._writer.executemany(_insert(table), (_written(row, writers) for row in contents(name)))
                for number, names in enumerate(_INDEXES.get(name, ())):
                    self._writer.execute(f"CREATE INDEX {name}_{number} ON rows_{name} ({names})")
            self._show_current_names()

    def apply(self, batch: Batch, watermark: Watermark) -> None:
        """What the events up to a watermark say. Said again it changes nothing."""
        with self._transaction(watermark):
            touched = set()
            for chunk in batch.chunks:
                if chunk.table.table in ROW_TABLES:
                    self._writer.executemany(_merge(chunk.table), _rows(chunk))
                    touched.add(chunk.table.table)
            if not touched.isdisjoint(NAMING_TABLES):
                self._show_current_names()

    def read(self) -> Rows:
        """The state of now, which stays as it is for whoever holds it."""
        try:
            connection = self._spare.pop()
        except IndexError:
            connection = self._connect()
        return Rows(self, connection)

    def give_back(self, connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")
        self._spare.append(connection)

    @contextmanager
    def _transaction(self, watermark: Watermark) -> Iterator[None]:
        """A change of all tables and of the watermark, or of nothing."""
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:  # else SQLite has rolled back by itself, as where the disk is full
                self._writer.execute("ROLLBACK")
            raise
        self.watermark = watermark

    def _show_current_names(self) -> None:
        renamed = dict(self._writer.execute(_TABLES.sub(r"rows_\1", CURRENT_NAMES)))
        if renamed == self._renamed:
            return
        for name, table in ROW_TABLES.items():
            if self._renamed is None or name in NAMED_TABLES:
                self._writer.execute(f"DROP VIEW IF EXISTS {name}")
                shown = with_current_names(table, renamed)
                self._writer.execute(f"CREATE VIEW {name} AS SELECT {shown} FROM rows_{name}")
        self._renamed = renamed

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._folder / _FILE, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        for name, (count, function) in _FUNCTIONS.items():
            connection.create_function(name, count, function, deterministic=True)
        return connection


def _leave(
    owner: int, folder: Path, held: int, writer: sqlite3.Connection, spare: Iterable[sqlite3.Connection]
) -> None:
    if os.getpid() != owner:  # a process that was forked off: the folder is its parent's
        return
    for connection in (writer, *spare):
        connection.close()
    shutil.rmtree(folder, ignore_errors=True)
    os.close(held)


def _sweep(before: float) -> None:
    """Remove what killed processes left before a moment."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # held by its process, of somebody else, or gone
            looked = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(looked, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(looked).st_mtime < before:
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(looked)


@cache
def _insert(table: type[Row]) -> str:
    names = columns(table)
    return f"INSERT INTO rows_{table.table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


@cache
def _merge(table: type[Row]) -> str:
    """Lay a contribution over the row that is there: of each group, the one that it keeps."""
    kept = [
        f"{name} = CASE WHEN {_is_kept(group)} THEN excluded.{name} ELSE {name} END"
        for group in all_groups(table)
        for name in (group.version, *group.columns)
    ]
    return f"{_insert(table)} ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {', '.join(kept)}"


def _is_kept(group: Group) -> str:
    later = "<" if group.keep == "first" else ">="
    version = group.version
    return f"excluded.{version} IS NOT NULL AND ({version} IS NULL OR excluded.{version} {later} {version})"


def _rows(chunk: Chunk) -> Iterable[list[Any]]:
    """The rows of a chunk, in the order of the table's columns."""
    writers = [_WRITERS.get(kind, _as_it_is) for kind in columns(chunk.table).values()]
    given = [chunk.columns.get(name) for name in columns(chunk.table)]
    for number in range(chunk.count):
        yield _written([one.values[number] if isinstance(one, Each) else one for one in given], writers)


def _written(row: Iterable[Any], writers: Iterable[Callable[[Any], Any]]) -> list[Any]:
    return [None if value is None else write(value) for value, write in zip(row, writers, strict=True)]


# ── values and words ─────────────────────────────────────────────────────────────────────────────────────────────


def _as_it_is(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_WRITERS: dict[Kind, Callable[[Any], Any]] = {Kind.TIME: to_micros, Kind.TEXTS: _text, Kind.TEXT_MAP: _text}
_KIND_READERS: dict[Kind, Callable[[Any], Any]] = {
    Kind.TIME: from_micros,
    Kind.BOOLEAN: bool,
    Kind.TEXTS: json.loads,
    Kind.TEXT_MAP: json.loads,
}
# By the name of a column, which means the same in every table, also where a query computes it.
_READERS = {
    name: _KIND_READERS[kind]
    for table in ROW_TABLES.values()
    for name, kind in columns(table).items()
    if kind in _KIND_READERS
}
_TABLES = re.compile(rf"\b({'|'.join(NAMING_TABLES)})\b")


def _read(row: tuple[Any, ...], readers: Sequence[tuple[int, Callable[[Any], Any]]]) -> tuple[Any, ...]:
    values = list(row)
    for place, reader in readers:
        if values[place] is not None:
            values[place] = reader(values[place])
    return tuple(values)


@cache
def _translated(sql: str) -> str:
    """The few words that SQLite has others for."""
    return _UNNESTED.sub(r"SELECT value FROM json_each(\1)", sql)


def _given(parameters: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    named = (
        parameters if isinstance(parameters, Mapping) else {str(place): one for place, one in enumerate(parameters, 1)}
    )
    return {name: _parameter(value) for name, value in named.items()}


@lru_cache(64)
def _set(texts: str) -> frozenset[str]:
    """A list that is a parameter: the same for every row."""
    return frozenset(json.loads(texts))


def _parameter(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_micros(value)
    return _text(list(value)) if isinstance(value, list | tuple | set | frozenset) else value


_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "list_contains": (2, lambda texts, one: None if texts is None else one in json.loads(texts)),
    "list_has_any": (2, lambda texts, some: None if texts is None else not _set(some).isdisjoint(json.loads(texts))),
    "len": (1, lambda texts: None if texts is None else len(json.loads(texts))),
    "starts_with": (2, lambda text, start: None if text is None or start is None else text.startswith(start)),
    "contains": (2, lambda text, part: None if text is None or part is None else part in text),
    "epoch_us": (1, lambda micros: micros),
}

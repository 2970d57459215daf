"""A version in the making: files are written here, and seen by nobody until a manifest names them.

Each batch of events becomes one sorted file for each table that it speaks of. Before a version is published those are
merged, many at a time, and the result goes on the table's stack, whose files are each several times larger than the
next: what is on top and too small for what comes is merged with it. So folding n events writes each row a few times,
never the whole table for a handful of events, and takes no more memory than a batch.

Reads do without this file: half of Arrow comes with writing Parquet.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from servo.faults import reach
from servo.fold.rows import Row
from servo.fold.tables import TABLES_BY_NAME, RunKeyConflictRow, RunKeyRow
from servo.ledger.archive import sync_file
from servo.projections import engine
from servo.projections.arrow import in_order, rows, tables
from servo.projections.manifest import ROW_GROUP, FileRef, Manifest, file_ref
from servo.projections.merging import PAGE, Merge, dictionaries, one_row_per_key
from servo.projections.store import Store, storage_explained
from servo.projections.table_sql import conflicts, merged, sort_order

if TYPE_CHECKING:
    from servo.fold.batch import Batch

# A file on the stack holds at least this many times the rows of the one above it.
_GROWTH = 8
_FAN_IN = 32  # files that are merged at once, at most
_WRITERS, _MERGERS = 4, 2
# Arrow's own allocator keeps for each thread what was freed: half as much again as a merge needs.
pa.set_memory_pool(pa.system_memory_pool())


class Draft:
    """Tables as lists of files, begun from a manifest or from nothing. It takes about so many bytes of `memory`."""

    def __init__(
        self, store: Store, connection: engine.Connection, mint: Callable[[], str], base: Manifest, memory: int
    ) -> None:
        self._store = store
        self._connection = connection
        self._mint = mint
        self._memory = memory
        self.tables: dict[str, list[FileRef]] = {name: list(files) for name, files in base.tables.items()}
        # Of each table the files of what was folded since, by how many times their rows were merged.
        self._runs: dict[str, list[list[FileRef]]] = {}
        self._own: set[str] = set()  # files that no other process knows of
        # A batch is written while the next one is folded, its tables side by side.
        self._writers = ThreadPoolExecutor(_WRITERS, "servo-write")
        self._writing: list[tuple[type[Row], Future[FileRef]]] = []

    def add(self, batch: Batch) -> None:
        """Fold a batch in: one more file for each table that it speaks of."""
        self._add({TABLES_BY_NAME[name]: contributions for name, contributions in tables(batch).items()})
        if batch.requests:
            self._add({RunKeyConflictRow: self._conflicts(rows(RunKeyConflictRow, batch.requests))})

    def stack(self) -> None:
        """Put what was folded on the stacks, together with the files on top that are too small to lie under it."""
        self._finish_writing()
        self._merge_tables({name: self._taken(name) for name in self._runs})

    def settle(self) -> None:
        """Merge every stack, and what was folded, into one file."""
        self._finish_writing()
        files = {name: [*self.tables.get(name, []), *self._waiting(name)] for name in {*self.tables, *self._runs}}
        self.tables = {}
        self._merge_tables(files)

    # ── what was folded ──────────────────────────────────────────────────────────────────────────────────────────

    def _add(self, said: dict[type[Row], pa.Table]) -> None:
        settled = {table: self._settled(table, rows) for table, rows in said.items() if rows.num_rows}
        self._finish_writing()
        self._writing = [
            (table, self._writers.submit(self._write_rows, table, rows)) for table, rows in settled.items()
        ]

    def _finish_writing(self) -> None:
        writing, self._writing = self._writing, []
        for table, file in writing:
            self._add_run(table, file.result())
            reach("compact.after_file")

    def _conflicts(self, requests: pa.Table) -> pa.Table:
        """The run requests that the index, as it is after this batch, gives another fingerprint."""
        self._finish_writing()
        self._connection.register("requests", requests)
        name = RunKeyRow.table
        files = engine.parquet(self._store.intact(name, [*self.tables.get(name, []), *self._waiting(name)]))
        index = merged(RunKeyRow, f"(SELECT * FROM {files} SEMI JOIN requests USING (run_key))")
        return engine.fetch_arrow(self._connection, conflicts("requests", f"({index})"))

    def _settled(self, table: type[Row], said: pa.Table) -> pa.Table:
        """One row for each key."""
        self._connection.register("said", said)
        rows = one_row_per_key(self._connection, table, "said")
        return said if rows is None else engine.fetch_arrow(self._connection, rows)

    def _write_rows(self, table: type[Row], rows: pa.Table) -> FileRef:
        ordered = in_order(rows, sort_order(table))
        return self._write(table, lambda path: write(ordered, path))

    def _add_run(self, table: type[Row], file: FileRef) -> None:
        """One more file that waits to be merged. Where many wait they are merged, and wait as one of a level higher."""
        levels = self._runs.setdefault(table.table, [])
        for level in itertools.count():
            if level == len(levels):
                levels.append([])
            levels[level].append(file)
            if len(levels[level]) < _FAN_IN:
                return
            file = self._merge(table, levels[level], self._memory // (_MERGERS + 1))
            levels[level] = []

    def _waiting(self, name: str) -> list[FileRef]:
        return [file for level in self._runs.get(name, []) for file in level]

    # ── merging ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _taken(self, name: str) -> list[FileRef]:
        """All files that wait, and those taken from the stack because they are too small to lie under so many rows."""
        taken, stack = self._waiting(name), self.tables.get(name, [])
        count = sum(file.rows for file in taken)
        while stack and count * _GROWTH > stack[-1].rows:
            taken.append(stack.pop())
            count += taken[-1].rows
        return taken

    def _merge_tables(self, files: dict[str, list[FileRef]]) -> None:
        """Put one file on each stack, made of these, two tables at a time."""
        with ThreadPoolExecutor(_MERGERS, "servo-merge") as mergers:
            made = mergers.map(self._merge_all, files.keys(), files.values())
            for name, file in zip(files, made, strict=True):
                self.tables.setdefault(name, []).append(file)
                reach("compact.after_file")
        self._runs = {}

    def _merge_all(self, name: str, files: list[FileRef]) -> FileRef:
        """One file of many, the smallest first, so that the fewest rows are written more than once."""
        while len(files) > 1:
            files = sorted(files, key=lambda file: file.rows)
            file = self._merge(TABLES_BY_NAME[name], files[:_FAN_IN], self._memory // (_MERGERS + 1))
            files = [file, *files[_FAN_IN:]]
        return files[0]

    def _merge(self, table: type[Row], files: list[FileRef], memory: int) -> FileRef:
        """A sorted file with one row per key."""
        paths = self._store.intact(table.table, files)  # a merge would write a damage on
        with self._scratch() as scratch, self._connection.cursor() as connection:
            merge = Merge(table, connection, memory, scratch)
            made = self._write(table, lambda path: merge.write(paths, path))
        reach("compact.after_merge")
        for file in files:
            if file.name in self._own:
                self._own.remove(file.name)
                self._store.path(table.table, file).unlink(missing_ok=True)
        return made

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        """A folder for what a merge needs beside the files, which is swept where a crash leaves it."""
        folder = self._store.root / "staging" / self._mint()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _write(self, table: type[Row], write_to: Callable[[Path], None]) -> FileRef:
        path = self._store.root / "files" / table.table / f"{self._mint()}.parquet"
        with storage_explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                write_to(path)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            sync_file(path)
            sync_file(path.parent)
            self._own.add(path.name)
            return file_ref(path, row_count(path))


def write(rows: pa.Table, path: Path) -> None:
    """A new Parquet file. Texts that differ from row to row are not worth a dictionary."""
    pq.write_table(
        rows,
        path,
        compression="zstd",
        row_group_size=ROW_GROUP,
        data_page_size=PAGE,
        use_dictionary=dictionaries(rows),
        store_schema=False,  # dictionaries are how we hold the rows, not what they are
    )


def read(path: Path) -> pa.Table:
    """The rows of a Parquet file that `write` made."""
    return pq.read_table(path)


def row_count(path: Path) -> int:
    """How many rows a file has, by what it says of itself."""
    return int(pq.read_metadata(path).num_rows)

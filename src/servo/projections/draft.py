"""A version in the making: files are written here, and seen by nobody until a manifest names them.

The files of a table form a stack, each several times larger than the next. New rows go on top; when the top has grown
too large for what is under it, the two are merged. So folding n events writes O(n) rows now and each row O(log) times
over its life, never the whole table for a handful of events.

Reads do without this file: half of Arrow comes with writing Parquet.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from servo.faults import reach
from servo.fold.rows import Row, columns
from servo.fold.tables import TABLES_BY_NAME, RunKeyConflictRow, RunKeyRow
from servo.ledger.archive import sync_file
from servo.projections import engine
from servo.projections.arrow import in_order, rows, tables
from servo.projections.manifest import ROW_GROUP, FileRef, Manifest, file_ref
from servo.projections.store import Store, storage_explained
from servo.projections.table_sql import conflicts, merged, sort_order

if TYPE_CHECKING:
    from servo.fold.batch import Batch

# A file on the stack holds at least this many times the rows of the one above it.
_GROWTH = 8
_WRITERS = 4
_HASH = "hash_of_key"  # a column that no table has


class Draft:
    """Tables as lists of files, begun from a manifest or from nothing."""

    def __init__(self, store: Store, connection: engine.Connection, mint: Callable[[], str], base: Manifest) -> None:
        self._store = store
        self._connection = connection
        self._mint = mint
        self.tables: dict[str, list[FileRef]] = {name: list(files) for name, files in base.tables.items()}

    def add(self, batch: Batch) -> None:
        """Fold a batch in."""
        self._push({TABLES_BY_NAME[name]: contributions for name, contributions in tables(batch).items()})
        if batch.requests:
            self._push({RunKeyConflictRow: self._conflicts(rows(RunKeyConflictRow, batch.requests))})

    def _conflicts(self, requests: pa.Table) -> pa.Table:
        """The run requests that the index, as it is after this batch, gives another fingerprint."""
        self._connection.register("requests", requests)
        files = self._parquet(RunKeyRow, self.tables[RunKeyRow.table])
        index = merged(RunKeyRow, f"(SELECT * FROM {files} SEMI JOIN requests USING (run_key))")
        return engine.fetch_arrow(self._connection, conflicts("requests", f"({index})"))

    def _push(self, said: dict[type[Row], pa.Table]) -> None:
        """Put rows on the stacks, together with the files on top of them that are too small to lie under them."""
        as_they_are: dict[type[Row], pa.Table] = {}
        for table, contributions in said.items():
            if not contributions.num_rows:
                continue
            merging = self._take_smaller(table, contributions.num_rows)
            relation = "SELECT * FROM said"
            if merging:
                relation += f" UNION ALL SELECT * FROM {self._parquet(table, merging)}"
            self._connection.register("said", contributions)
            repeated = self._repeated(table, f"({relation})")
            if merging or repeated:
                self.tables[table.table].append(self._merge(table, f"({relation})", repeated=repeated))
            else:
                as_they_are[table] = contributions
        # Arrow writes what is in memory several times as fast as DuckDB, and tables side by side.
        with ThreadPoolExecutor(_WRITERS, "servo-write") as writers:
            files = writers.map(self._write_rows, as_they_are.keys(), as_they_are.values())
            for table, file in zip(as_they_are, files, strict=True):
                self.tables[table.table].append(file)

    def _take_smaller(self, table: type[Row], count: int) -> list[FileRef]:
        """Take from the stack the files that are too small to lie under so many rows."""
        stack = self.tables.setdefault(table.table, [])
        taken: list[FileRef] = []
        while stack and count * _GROWTH > stack[-1].rows:
            taken.append(stack.pop())
            count += taken[-1].rows
        return taken

    def _write_rows(self, table: type[Row], contributions: pa.Table) -> FileRef:
        ordered = in_order(contributions, sort_order(table))
        return self._write(table, lambda path: write(ordered, path))

    def settle(self) -> None:
        """Merge every stack into one file."""
        for name, stack in self.tables.items():
            if len(stack) > 1:
                table = TABLES_BY_NAME[name]
                relation = f"(SELECT * FROM {self._parquet(table, stack)})"
                stack[:] = [self._merge(table, relation, repeated=self._repeated(table, relation))]

    def _parquet(self, table: type[Row], files: list[FileRef]) -> str:
        """A relation over files, none of which is damaged: a merge would write the damage on."""
        return engine.parquet(self._store.intact(table.table, files))

    def _repeated(self, table: type[Row], relation: str) -> bool:
        """Whether any key is spoken of twice; which ones, by their hashes, is in `repeated`.

        Hashes are counted faster than texts; two keys with one hash are merely looked at twice.
        """
        hashes = f"SELECT hash({', '.join(table.key)}) AS {_HASH} FROM {relation} GROUP BY {_HASH} HAVING count(*) > 1"
        repeated = engine.fetch_arrow(self._connection, hashes)
        self._connection.register("repeated", repeated)
        return bool(repeated.num_rows)

    def _merge(self, table: type[Row], relation: str, *, repeated: bool) -> FileRef:
        """A sorted file with one row per key."""
        select = f"({self._merged(table, relation)})" if repeated else relation
        ordered = f"SELECT * FROM {select} ORDER BY {', '.join(sort_order(table))}"
        return self._write(table, lambda path: engine.write(self._connection, ordered, path))

    @staticmethod
    def _merged(table: type[Row], relation: str) -> str:
        """One row per key. Merging is dear, so rows whose key is spoken of once are passed on as they are."""
        names = ", ".join(columns(table))
        numbered = f"(SELECT *, hash({', '.join(table.key)}) AS {_HASH} FROM {relation})"
        again = merged(table, f"(SELECT {names} FROM {numbered} SEMI JOIN repeated USING ({_HASH}))")
        return f"SELECT {names} FROM {numbered} ANTI JOIN repeated USING ({_HASH}) UNION ALL {again}"

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
            reach("compact.after_file")
            return file_ref(path, row_count(path))


def write(rows: pa.Table, path: Path) -> None:
    """A new Parquet file. Texts that differ from row to row are not worth a dictionary."""
    unlike = {pa.string(), pa.int64()}
    pq.write_table(
        rows,
        path,
        compression="zstd",
        row_group_size=ROW_GROUP,
        use_dictionary=[field.name for field in rows.schema if field.type not in unlike],
        store_schema=False,  # dictionaries are how we hold the rows, not what they are
    )


def read(path: Path) -> pa.Table:
    """The rows of a Parquet file that `write` made."""
    return pq.read_table(path)


def row_count(path: Path) -> int:
    """How many rows a file has, by what it says of itself."""
    return int(pq.read_metadata(path).num_rows)

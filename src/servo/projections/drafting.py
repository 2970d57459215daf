"""A version in the making: files are written here, and seen by nobody until a manifest names them.

The files of a table form a stack, each several times larger than the next. New rows go on top; when the top has grown
too large for what is under it, the two are merged. So folding n events writes O(n) rows now and each row O(log) times
over its life, never the whole table for a handful of events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from servo.faults import reach
from servo.fold.rows import Row
from servo.fold.run_rows import RunKeyConflictRow, RunKeyRow
from servo.fold.tables import TABLES_BY_NAME
from servo.projections import engine
from servo.projections.arrow import rows, tables
from servo.projections.manifest import FileRef, Manifest
from servo.projections.merging import conflicts, merged, sort_order
from servo.projections.store import Store, storage_explained, sync_file

if TYPE_CHECKING:
    from servo.fold.batch import Batch

# A file on the stack holds at least this many times the rows of the one above it.
_GROWTH = 8


class Draft:
    """Tables as lists of files, begun from a manifest or from nothing."""

    def __init__(self, store: Store, connection: engine.Connection, mint: Callable[[], str], base: Manifest) -> None:
        self._store = store
        self._connection = connection
        self._mint = mint
        self.tables: dict[str, list[FileRef]] = {name: list(files) for name, files in base.tables.items()}

    def add(self, batch: Batch) -> None:
        """Fold a batch in."""
        said = tables(batch)
        for name, contributions in said.items():
            self._push(TABLES_BY_NAME[name], self._settled(TABLES_BY_NAME[name], contributions))
        if batch.requests:
            self._add_conflicts(rows(RunKeyConflictRow, batch.requests))

    def _settled(self, table: type[Row], contributions: pa.Table) -> str:
        """The contributions as a relation with one row per key.

        Merging costs more than counting, and a key is seldom spoken of twice in a batch: so only those that are
        get merged.
        """
        self._connection.register("said", contributions)
        keys = ", ".join(table.key)
        repeated = engine.fetch_arrow(self._connection, f"SELECT {keys} FROM said GROUP BY {keys} HAVING count(*) > 1")
        if not repeated.num_rows:
            return "(SELECT * FROM said)"
        self._connection.register("repeated", repeated)
        again = merged(table, f"(SELECT * FROM said SEMI JOIN repeated USING ({keys}))")
        return f"(SELECT * FROM said ANTI JOIN repeated USING ({keys}) UNION ALL {again})"

    def _add_conflicts(self, requests: pa.Table) -> None:
        """Run requests are compared with the index as it is after this batch."""
        self._connection.register("requests", requests)
        index = self._merged_files(RunKeyRow, "SEMI JOIN requests USING (run_key)")
        found = engine.fetch_arrow(self._connection, conflicts("requests", f"({index})"))
        if found.num_rows:
            self._connection.register("said", found)
            self._push(RunKeyConflictRow, f"({merged(RunKeyConflictRow, 'said')})")

    def _merged_files(self, table: type[Row], restriction: str = "") -> str:
        paths = [self._store.path(table.table, file) for file in self.tables.get(table.table, [])]
        return merged(table, f"(SELECT * FROM {engine.parquet(paths)} {restriction})")

    def _push(self, table: type[Row], relation: str) -> None:
        """Put rows on the stack, merging downwards while the new file is too large for the one under it."""
        stack = self.tables.setdefault(table.table, [])
        top = self._write(table, f"SELECT * FROM {relation}")
        while stack and top.rows * _GROWTH > stack[-1].rows:
            under = stack.pop()
            paths = [self._store.path(table.table, file) for file in (under, top)]
            top = self._write(table, merged(table, engine.parquet(paths)))
        stack.append(top)

    def _write(self, table: type[Row], select: str) -> FileRef:
        name = f"{self._mint()}.parquet"
        path = self._store.root / "files" / table.table / name
        with storage_explained(path):
            count = engine.write(self._connection, f"{select} ORDER BY {sort_order(table)}", path)
            sync_file(path)
            sync_file(path.parent)
            reach("compact.after_file")
            return FileRef(name=name, rows=count, bytes=path.stat().st_size)

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
from servo.fold.rows import Row, columns
from servo.fold.run_rows import RunKeyConflictRow, RunKeyRow
from servo.fold.tables import TABLES_BY_NAME
from servo.projections import engine
from servo.projections.arrow import is_sorted, rows, tables
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
        below = [self._store.path(table, file) for table, files in self.tables.items() for file in files]
        with engine.damage_named(self._connection, below):
            for name, contributions in tables(batch).items():
                self._push(TABLES_BY_NAME[name], contributions)
            if batch.requests:
                self._push(RunKeyConflictRow, self._conflicts(rows(RunKeyConflictRow, batch.requests)))

    def _conflicts(self, requests: pa.Table) -> pa.Table:
        """The run requests that the index, as it is after this batch, gives another fingerprint."""
        self._connection.register("requests", requests)
        files = self._parquet(RunKeyRow, self.tables[RunKeyRow.table])
        index = merged(RunKeyRow, f"(SELECT * FROM {files} SEMI JOIN requests USING (run_key))")
        return engine.fetch_arrow(self._connection, conflicts("requests", f"({index})"))

    def _push(self, table: type[Row], contributions: pa.Table) -> None:
        """Put rows on the stack, together with the files on top of it that are too small to lie under them."""
        if not contributions.num_rows:
            return
        stack = self.tables.setdefault(table.table, [])
        relation, count = "SELECT * FROM said", contributions.num_rows
        merging: list[FileRef] = []
        while stack and count * _GROWTH > stack[-1].rows:
            merging.append(stack.pop())
            count += merging[-1].rows
        if merging:
            relation += f" UNION ALL SELECT * FROM {self._parquet(table, merging)}"
        self._connection.register("said", contributions)
        repeated = self._repeated(table, f"({relation})")
        select = self._merged(table, f"({relation})") if repeated else relation
        if merging or repeated or not is_sorted(contributions, sort_order(table)):
            select = f"SELECT * FROM ({select}) ORDER BY {', '.join(sort_order(table))}"
        stack.append(self._write(table, select))

    def _parquet(self, table: type[Row], files: list[FileRef]) -> str:
        return engine.parquet([self._store.path(table.table, file) for file in files])

    def _repeated(self, table: type[Row], relation: str) -> bool:
        """Whether any key is spoken of twice; which ones, by their hashes, is in `repeated`.

        Hashes are counted faster than texts; two keys with one hash are merely looked at twice.
        """
        hashes = f"SELECT hash({', '.join(table.key)}) AS number FROM {relation} GROUP BY number HAVING count(*) > 1"
        repeated = engine.fetch_arrow(self._connection, hashes)
        self._connection.register("repeated", repeated)
        return bool(repeated.num_rows)

    @staticmethod
    def _merged(table: type[Row], relation: str) -> str:
        """One row per key. Merging is dear, so rows whose key is spoken of once are passed on as they are."""
        names = ", ".join(columns(table))
        numbered = f"(SELECT *, hash({', '.join(table.key)}) AS number FROM {relation})"
        again = merged(table, f"(SELECT {names} FROM {numbered} SEMI JOIN repeated USING (number))")
        return f"SELECT {names} FROM {numbered} ANTI JOIN repeated USING (number) UNION ALL {again}"

    def _write(self, table: type[Row], select: str) -> FileRef:
        name = f"{self._mint()}.parquet"
        path = self._store.root / "files" / table.table / name
        with storage_explained(path):
            count = engine.write(self._connection, select, path)
            sync_file(path)
            sync_file(path.parent)
            reach("compact.after_file")
            return FileRef(name=name, rows=count, bytes=path.stat().st_size)

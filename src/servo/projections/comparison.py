"""How two versions of the projections differ, row for row."""

from __future__ import annotations

import msgspec

from servo.fold.rows import Row
from servo.fold.tables import TABLES
from servo.projections import engine
from servo.projections.manifest import Manifest
from servo.projections.merging import merged
from servo.projections.store import Store


class TableComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of the newer version, and how many are in one of the two versions only."""

    table: str
    rows: int
    only_before: int
    only_after: int

    @property
    def is_equal(self) -> bool:
        return self.only_before == self.only_after == 0


def compare(store: Store, before: Manifest, after: Manifest) -> list[TableComparison]:
    """Every table of two versions of one store, compared as multisets of rows."""
    connection = engine.connect()
    try:
        return [_compared(connection, store, before, after, table) for table in TABLES]
    finally:
        connection.close()


def _compared(
    connection: engine.Connection, store: Store, before: Manifest, after: Manifest, table: type[Row]
) -> TableComparison:
    old, new = _relation(store, before, table), _relation(store, after, table)
    _, [(rows, only_before, only_after)] = engine.fetch(
        connection,
        f"SELECT (SELECT count(*) FROM {new}),"
        f" (SELECT count(*) FROM (SELECT * FROM {old} EXCEPT ALL SELECT * FROM {new})),"
        f" (SELECT count(*) FROM (SELECT * FROM {new} EXCEPT ALL SELECT * FROM {old}))",
    )
    return TableComparison(table=table.table, rows=rows, only_before=only_before, only_after=only_after)


def _relation(store: Store, manifest: Manifest, table: type[Row]) -> str:
    paths = store.intact(table.table, manifest.tables.get(table.table, []))
    return f"({merged(table, engine.parquet(paths))})" if paths else engine.empty(table)

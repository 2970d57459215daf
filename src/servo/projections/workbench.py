"""A place for work in several steps over one snapshot: relations laid beside its tables, and answers kept for later.

Also for many small questions to one snapshot, by SQL of our own: they go over one connection, without the guards that
queries of others need, which are most of what a small question costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from servo.fold.rows import Kind
from servo.fold.tables import TABLES_BY_NAME
from servo.projections import engine
from servo.projections.snapshot import Answer, Snapshot, tables_in
from servo.projections.table_sql import merged

if TYPE_CHECKING:
    import pyarrow as pa

_PLACES = {"asset_id": Kind.TEXT, "partition_key": Kind.TEXT}
_SAME_PLACE = "near.asset_id = one.asset_id AND near.partition_key = one.partition_key"
_FEW = 1_000  # values that are written into a query one by one


class Workbench:
    """A connection of its own with the tables of a snapshot. What is laid down is gone with it.

    It belongs to one thread, and is for SQL that nobody else wrote.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._connection = snapshot.prepared("")
        self.watermark = snapshot.watermark
        self.tables_read: set[str] = set()
        """The tables that anything here was worked out from."""

    def lay(self, name: str, columns: Mapping[str, Kind], values: Sequence[Sequence[Any]]) -> None:
        """A relation of values, column by column."""
        names = ", ".join(f"unnest(CAST(? AS {engine.TYPES[kind]}[])) AS {column}" for column, kind in columns.items())
        engine.fetch(self._connection, f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT {names}", list(values))

    def keep(self, name: str, sql: str) -> None:
        """The answer to a query, as a relation."""
        self._prepare(sql)
        engine.fetch(self._connection, f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")

    def add(self, name: str, sql: str, steps: Sequence[Sequence[int]]) -> None:
        """More rows for a relation that is kept, step by step: the query, in which the numbers of each step stand for
        `{0}`, `{1}` and so on, reads what the steps before it have added."""
        if not steps:
            return
        self._prepare(sql)
        # To plan it takes much longer than to run it over the few rows of a step.
        query = sql.format(*(f"${place}" for place in range(1, len(steps[0]) + 1)))
        engine.fetch(self._connection, f"PREPARE step AS INSERT INTO {name} {query}")
        for numbers in steps:
            engine.fetch(self._connection, f"EXECUTE step({', '.join(map(str, numbers))})")
        engine.fetch(self._connection, "DEALLOCATE step")

    def near(
        self, table: str, columns: Sequence[str], places: Sequence[tuple[str, str]], ids: Sequence[str] | None = None
    ) -> None:
        """Of a large table some columns of the rows of some partitions (asset id and key), as `near_` and its name.

        `ids`: of these materializations alone, for who needs no others.
        """
        assets = sorted({asset for asset, _ in places}) or [""]
        keys = [key for _, key in places] or [""]
        # Plain values, where they are not too many, let most of a file be passed over.
        given = [min(keys), max(keys), *assets]
        where = f"partition_key >= $1 AND partition_key <= $2 AND asset_id IN ({_numbered(3, len(assets))})"
        if ids is not None and len(ids) <= _FEW:
            where += f" AND materialization_id IN ({_numbered(len(given) + 1, len(ids) or 1)})"
            given += ids or [""]
        elif len(places) <= _FEW:
            parts = []
            for asset in assets:
                mine = [key for one, key in places if one == asset] or [""]
                parts.append(
                    f"asset_id = ${len(given) + 1} AND partition_key IN ({_numbered(len(given) + 2, len(mine))})"
                )
                given += [asset, *mine]
            where += f" AND ({' OR '.join(parts)})"
        else:
            self.lay("near_partitions", _PLACES, [[asset for asset, _ in places], [key for _, key in places]])
            where += f" AND EXISTS (SELECT 1 FROM near_partitions AS near WHERE {_SAME_PLACE})"
        sql = f"CREATE OR REPLACE TEMP TABLE near_{table} AS {self._some(table, columns, where)}"
        engine.fetch(self._connection, sql, given)

    def _some(self, name: str, columns: Sequence[str], where: str) -> str:
        """A query for the rows of few partitions: whoever says anything says of which, so only that must be merged."""
        base, newer = self._relations(name)
        if newer is None:
            return f"SELECT {', '.join(columns)} FROM {base} AS one WHERE {where}"
        said = " UNION ALL ".join(f"SELECT * FROM {part} AS one WHERE {where}" for part in (base, newer))
        return merged(TABLES_BY_NAME[name], f"({said})", only=columns)

    def spoken_of(self, name: str, after: str) -> list[tuple[Any, ...]]:
        """The keys of a table about which anything was said after an event."""
        keys = ", ".join(TABLES_BY_NAME[name].key)
        parts = [part for part in self._relations(name) if part is not None]
        said = " UNION ".join(f"SELECT {keys} FROM {part} WHERE row_version > $1" for part in parts)
        return engine.fetch(self._connection, said, [after])[1]

    def query(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Answer:
        """The answer to a query, with its watermark."""
        self._prepare(sql)
        names, rows = engine.fetch(self._connection, sql, parameters)
        return Answer(names, rows, self.watermark)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The answer to a query."""
        return self.query(sql, parameters).rows

    def table(self, sql: str) -> pa.Table:
        """The answer to a query, in columns."""
        self._prepare(sql)
        return engine.fetch_arrow(self._connection, sql)

    def put(self, name: str, table: pa.Table) -> None:
        """Rows that are there already, as a relation."""
        self._connection.register(name, table)

    def _prepare(self, sql: str) -> None:
        self.tables_read |= tables_in(sql)
        self._snapshot.prepare(sql)

    def _relations(self, name: str) -> tuple[str, str | None]:
        self.tables_read.add(name)
        return self._snapshot.relations(name, self._connection)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _numbered(first: int, count: int) -> str:
    """So many parameters of a query."""
    return ", ".join(f"${number}" for number in range(first, first + count))

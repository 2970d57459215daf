"""`partition_status` as people query it: with the columns that no file holds, because they are computed when asked.

`stale_since` and `stale_reason_code` follow from definitions and the time, `status` from these and the row, and
`overlays` from unfinished runs. They are the same in `servo query` (DuckDB) and in `servo.spark_views` (Spark).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from servo.fold.display import ADDED, status_sql
from servo.fold.partition_rows import PartitionStatusRow
from servo.fold.rows import Kind, columns
from servo.projections import engine
from servo.projections.snapshot import Answer, Snapshot, tables_in

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = PartitionStatusRow.table
_PLACE = {"asset_id": Kind.TEXT, "partition_key": Kind.TEXT}
# Names of columns that a plan shows if and only if the query reads them.
STALE = {**_PLACE, "computed_stale_since": Kind.TIME, "computed_stale_reason_code": Kind.TEXT}
OVERLAYS = {**_PLACE, "computed_overlays": Kind.TEXTS}
_STALE_RELATION, _OVERLAYS_RELATION = "computed_staleness", "computed_overlay_lists"


class Computed(msgspec.Struct, frozen=True, kw_only=True):
    """Computes what the columns are made of: the stale partitions, and the partitions that something goes on with."""

    stale: Callable[[], pa.Table]  # columns as in STALE
    overlays: Callable[[], pa.Table]  # columns as in OVERLAYS


def view_sql(status: str, stale: str, overlays: str) -> str:
    """The view as a query over three relations, in SQL that DuckDB and Spark both run."""
    computed = {
        "stale_since": "stale.computed_stale_since",
        "stale_reason_code": "stale.computed_stale_reason_code",
        "status": status_sql("stale.computed_stale_since IS NOT NULL"),
        "overlays": "going_on.computed_overlays",
    }
    names = [*columns(PartitionStatusRow), *ADDED]
    chosen = ", ".join(f"{computed.get(name, f'row.{name}')} AS {name}" for name in names)
    return (
        f"SELECT {chosen} FROM {status} AS row LEFT JOIN {stale} AS stale ON stale.asset_id = row.asset_id"
        f" AND stale.partition_key = row.partition_key LEFT JOIN {overlays} AS going_on"
        " ON going_on.asset_id = row.asset_id AND going_on.partition_key = row.partition_key"
    )


def query_with(snapshot: Snapshot, sql: str, parameters: Sequence[Any] | dict[str, Any], computed: Computed) -> Answer:
    """Run one SELECT of a user, with `partition_status` as people query it. Only the columns it reads are computed."""
    if TABLE not in tables_in(sql):
        return snapshot.query(sql, parameters)
    # Arrow comes with this import.
    from servo.projections.arrow import table_of  # noqa: PLC0415

    engine.require_select(sql)
    annex = snapshot.annex(sql)
    own = annex.connection
    own.register(_STALE_RELATION, table_of(STALE, []))
    own.register(_OVERLAYS_RELATION, table_of(OVERLAYS, []))
    with snapshot.naming_lost_files():
        view = view_sql(annex.hidden(TABLE), _STALE_RELATION, _OVERLAYS_RELATION)
        engine.run(own, f"CREATE VIEW {annex.name}.{TABLE} AS {view}")
        # The optimizer knows nothing of Arrow tables, not even that they are empty: it leaves out what is not read.
        _, [(_, plan)] = engine.fetch(own, f"EXPLAIN (FORMAT json) {sql}", parameters)
        reads_stale, reads_overlays = "computed_stale" in plan, "computed_overlays" in plan
        if reads_stale:
            own.register(_STALE_RELATION, computed.stale())
        if reads_overlays:
            own.register(_OVERLAYS_RELATION, computed.overlays())
        if not reads_stale and not reads_overlays:
            engine.run(own, f"CREATE OR REPLACE VIEW {annex.name}.{TABLE} AS {_bare(annex.hidden(TABLE))}")
    return snapshot.answer(own, sql, parameters)


def _bare(status: str) -> str:
    """The same columns without the joins, for a query that reads none of the computed ones."""
    names = ", ".join(f"CAST(NULL AS {engine.TYPES[kind]}) AS {name}" for name, kind in ADDED.items())
    return f"SELECT *, {names} FROM {status}"

"""The rows of assets and checkpoints, a bounded number at a time, and exactly which materializations they are from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from servo.answers.assets import Held, Rows
from servo.answers.values import plain
from servo.errors import DataNotFound, InvalidInput
from servo.execution.protocol import Place, Storage
from servo.operations.checkpoints.views import find_checkpoint, staged_data
from servo.operations.data.requests import ReadData
from servo.operations.handling import answers
from servo.operations.outside import Outside
from servo.partitions import PartitionSet
from servo.status.current import Current, current
from servo.status.removals import require_set
from servo.status.state import State

__all__ = ["Table", "named_partitions", "places", "rows_of", "staged_rows", "table_shown"]


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of an asset, and exactly which materializations they are from."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    total_rows: int | None
    materializations: list[Current]


def places(state: State, asset: str, partitions: Sequence[str] = ()) -> tuple[list[Place], list[Current]]:
    """The current materializations of an asset, in the order of their keys."""
    known = state.catalog
    key = known.graph.resolve(asset)
    definition, asset_id = known.spec(key).partitions, known.asset_id(key)
    wanted = named_partitions(state, key, partitions, asset)
    found = current(state.tables, asset_id, None if wanted is None else map(str, wanted))
    if wanted is not None:
        absent = next((one for one in wanted if str(one) not in found), None)
        if absent is not None:
            when = "" if state.as_of is None else f" as of {state.as_of}"
            raise DataNotFound(
                f"{key} {definition.label(absent)} has no data{when}".replace("  ", " "),
                hint=f"materialize it: servo materialize '{asset}@{definition.short_key(absent)}'",
            )
        marked = next((one for one in wanted if found[str(one)].marked), None)
        if marked is not None:
            raise DataNotFound(
                f"{key} {definition.label(marked)} was marked as materialized, and holds no data".replace("  ", " "),
                hint=f"materialize it for real: servo materialize '{asset}@{definition.short_key(marked)}'",
            )
    found = {name: one for name, one in found.items() if not one.marked}
    if not found:
        which = "" if not definition.dimensions else "@latest"
        raise DataNotFound(f"{key} has no data", hint=f"materialize it: servo materialize {asset}{which}")
    chosen = [found[one] for one in sorted(found)]
    return [Place(asset_id=asset_id, key=one.key, materialization_id=one.materialization_id) for one in chosen], chosen


def named_partitions(state: State, key: str, partitions: Sequence[str], asset: str) -> PartitionSet | None:
    """The partitions that people name, each by itself or as a range; None where they name none."""
    wanted: PartitionSet | None = None
    for text in partitions:
        some = require_set(state, key, text, asset=asset)
        wanted = some if wanted is None else wanted | some
    return wanted


def rows_of(storage: Storage, places: list[Place], chosen: list[Current], limit: int | None, offset: int = 0) -> Table:
    """The rows of exactly these materializations, without Spark; after so many of them, and at most so many."""
    columns: list[str] = []
    rows: list[tuple[Any, ...]] = []
    total = 0
    for batch in storage.read(places):
        columns = columns or list(batch.schema.names)
        begin = min(max(offset - total, 0), batch.num_rows)
        total += batch.num_rows
        wanted = batch.slice(begin) if limit is None else batch.slice(begin, max(limit - len(rows), 0))
        rows += zip(*(wanted.column(name).to_pylist() for name in columns), strict=True)
        if limit is not None and len(rows) >= limit:
            break
    complete = limit is None or len(rows) < limit
    return Table(columns=columns, rows=rows, total_rows=total if complete else None, materializations=chosen)


def staged_rows(
    storage: Storage, state: State, checkpoint_id: str, limit: int | None, offset: int = 0
) -> tuple[str, Table]:
    """The asset and the rows of a checkpoint: what would be published, or was to be. Without Spark."""
    row = find_checkpoint(state, checkpoint_id)
    chosen = [Current(key=key, materialization_id=name, content_hash=one) for key, name, one in staged_data(row)]
    where = [Place(asset_id=row["asset_id"], key=one.key, materialization_id=one.materialization_id) for one in chosen]
    return row["asset_key"], rows_of(storage, where, chosen, limit, offset)


def table_shown(asset: str, found: Table) -> Rows:
    """Rows, and what they are from. Their values are as they are: whoever shows them says how."""
    return Rows(
        asset_key=asset,
        columns=list(found.columns),
        rows=[list(row) for row in found.rows],
        total_rows=found.total_rows,
        materializations=[
            Held(partition_key=one.key, materialization_id=one.materialization_id, content_hash=one.content_hash)
            for one in found.materializations
        ],
    )


_MOST_PARTITIONS = 1_000


def _read(outside: Outside, state: State, request: ReadData) -> Rows:
    """What is stored of the rows that are asked for; one more than fits tells whether there are more."""
    if (request.asset is None) == (request.checkpoint is None):
        raise InvalidInput("asset: give it, or a checkpoint instead", field="asset")
    if request.checkpoint is not None and (request.partition or state.as_of is not None):
        raise InvalidInput(
            "checkpoint: what waits in one is all of it, and of no other time", hint="give it alone", field="checkpoint"
        )
    if request.checkpoint is not None:
        return table_shown(*staged_rows(outside.storage, state, request.checkpoint, request.limit + 1, request.offset))
    assert request.asset is not None
    return table_shown(state.catalog.graph.resolve(request.asset), _rows(outside, state, request.asset, request))


@answers(ReadData, evidence=_read)
def read(_: State, request: ReadData, shown: Rows) -> Rows:
    rows = [[plain(cell) for cell in row] for row in shown.rows[: request.limit]]
    return msgspec.structs.replace(shown, rows=rows)


def _rows(outside: Outside, state: State, asset: str, request: ReadData) -> Table:
    """Rows of partitions that are few enough to say of each which materialization it is."""
    where, chosen = places(state, asset, request.partition)
    if len(chosen) > _MOST_PARTITIONS:
        raise InvalidInput(
            f"partition: {len(chosen):,} partitions of {asset} have data, and rows are shown of {_MOST_PARTITIONS:,}",
            hint="name some of them",
        )
    return rows_of(outside.storage, where, chosen, request.limit + 1, request.offset)

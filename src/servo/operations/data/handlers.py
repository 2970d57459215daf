"""The rows of assets and checkpoints, a bounded number at a time."""

from __future__ import annotations

import msgspec

from servo.answers.assets import Rows
from servo.answers.values import plain
from servo.errors import InvalidInput
from servo.operations.data.requests import ReadData
from servo.operations.data.rows import Table, places, rows_of, staged_rows, table_shown
from servo.operations.handling import answers
from servo.operations.outside import Outside
from servo.status.state import State

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

"""The rows of assets and checkpoints, a bounded number at a time."""

from __future__ import annotations

from datetime import datetime

import msgspec

from servo.answers.data import Rows
from servo.answers.values import plain
from servo.errors import InvalidInput
from servo.operations.data.requests import ReadData
from servo.runtime.checkpoints import Checkpoints
from servo.runtime.data import Data, Table, rows_of
from servo.runtime.documents import table_shown
from servo.runtime.serving import serves_question
from servo.runtime.wiring import Project

_MOST_PARTITIONS = 1_000


@serves_question(ReadData)
def read(project: Project, request: ReadData, as_of: datetime | str | None) -> Rows:
    if (request.asset is None) == (request.checkpoint is None):
        raise InvalidInput("asset: give it, or a checkpoint instead", field="asset")
    if request.checkpoint is not None and (request.partition or as_of is not None):
        raise InvalidInput(
            "checkpoint: what waits in one is all of it, and of no other time", hint="give it alone", field="checkpoint"
        )
    # One row more than fits tells whether there are more.
    if request.checkpoint is not None:
        asset, found = Checkpoints(project).read(request.checkpoint, limit=request.limit + 1, offset=request.offset)
    else:
        assert request.asset is not None
        asset, found = request.asset, _rows(project, request.asset, request, as_of)
    shown = table_shown(asset, found)
    rows = [[plain(cell) for cell in row] for row in shown.rows[: request.limit]]
    return msgspec.structs.replace(shown, rows=rows)


def _rows(project: Project, asset: str, request: ReadData, as_of: datetime | str | None) -> Table:
    """Rows of partitions that are few enough to say of each which materialization it is."""
    places, chosen = Data(project).places(asset, request.partition, as_of=as_of)
    if len(chosen) > _MOST_PARTITIONS:
        raise InvalidInput(
            f"partition: {len(chosen):,} partitions of {asset} have data, and rows are shown of {_MOST_PARTITIONS:,}",
            hint="name some of them",
        )
    return rows_of(project.storage, places, chosen, request.limit + 1, request.offset)

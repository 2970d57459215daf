"""The route of the data itself."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated

from litestar import Controller, Response, get
from msgspec import Meta

from servo.answers.data import Held, Rows
from servo.api.desk import AtDesk
from servo.api.glimpses import Glimpse
from servo.api.inputs import Reading, Text
from servo.api.operations import operation
from servo.errors import InvalidInput
from servo.runtime.checkpoints import Checkpoints
from servo.runtime.data import Data, Table, rows_of
from servo.ui.values import plain

__all__ = ["DataRoutes"]

MOST_ROWS = 10_000
_MOST_PARTITIONS = 1_000


class DataAsked(Reading, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asset: Annotated[str, Meta(description="`namespace/name` or `name`.", max_length=500)] | None = None
    partition: Annotated[
        tuple[Text, ...],
        Meta(description="Of these partitions; of all that are there, if left out. May be repeated.", max_length=100),
    ] = ()
    checkpoint: (
        Annotated[str, Meta(description="Instead of an asset: what waits to be approved, or did.", max_length=64)]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=0, le=MOST_ROWS, description="At most so many rows.")] = 1_000
    offset: Annotated[int, Meta(ge=0, le=100_000_000, description="After so many of them.")] = 0


class DataRoutes(Controller):
    path = "/data"
    tags = ["data"]

    @get(
        opt=operation(
            "viewer",
            answers=Rows,
            query=DataAsked,
            refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY),
        )
    )
    async def read(self, desk: AtDesk) -> Response[bytes]:
        """The rows of an asset: exactly what is current, or was as of then; or what waits in a checkpoint."""
        asked = desk.query(DataAsked)
        if (asked.asset is None) == (asked.checkpoint is None):
            raise InvalidInput("asset: give it, or a checkpoint instead", field="asset")
        if asked.checkpoint is not None and (asked.partition or asked.as_of is not None):
            raise InvalidInput(
                "checkpoint: what waits in one is all of it, and of no other time",
                hint="give it alone",
                field="checkpoint",
            )

        def work(here: Glimpse) -> Rows:
            # One more than fit tells whether there are more.
            how = {"limit": asked.limit + 1, "offset": asked.offset}
            if asked.checkpoint is not None:
                name, got = Checkpoints(here.project).read(asked.checkpoint, **how)
            else:
                assert asked.asset is not None
                name, got = asked.asset, _rows(here, asked.asset, asked.partition, **how)
            rows = got.rows[: asked.limit]
            return Rows(
                asset_key=name,
                columns=list(got.columns),
                rows=[[plain(cell) for cell in row] for row in rows],
                total_rows=got.total_rows,
                materializations=[
                    Held(
                        partition_key=one.key, materialization_id=one.materialization_id, content_hash=one.content_hash
                    )
                    for one in got.materializations
                ],
            )

        return await desk.one(asked, work, out_of_turn=True)


def _rows(here: Glimpse, asset: str, partitions: Sequence[str], *, limit: int, offset: int) -> Table:
    """Of partitions that are few enough to say of each which materialization it is."""
    places, chosen = Data(here.project).places(asset, partitions, as_of=here.as_of)
    if len(chosen) > _MOST_PARTITIONS:
        raise InvalidInput(
            f"partition: {len(chosen):,} partitions of {asset} have data, and rows are shown of {_MOST_PARTITIONS:,}",
            hint="name some of them",
        )
    return rows_of(here.project.storage, places, chosen, limit, offset)

"""What can be asked of the data of assets."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from servo.answers.assets import Rows
from servo.operations.fields import AssetText, Text
from servo.operations.operation import NOT_FOUND, UNFIT, Question

MOST_ROWS = 10_000


class ReadData(Question[Rows], route="GET /data", client="data", slow=True, refusals=(NOT_FOUND, UNFIT)):
    """Read the rows of an asset: exactly what is current, or was as of then; or what waits in a checkpoint."""

    asset: AssetText | None = None
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

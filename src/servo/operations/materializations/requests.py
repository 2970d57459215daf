"""What can be asked of materializations."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from servo.answers.materializations import Materialization, Rollback
from servo.operations.fields import Limit, Text
from servo.operations.operation import CONFLICT, NOT_FOUND, UNFIT, Change, ListQuestion


class ListMaterializations(
    ListQuestion[Materialization],
    route="GET /materializations",
    client="materializations.list",
    positional=("asset", "partition"),
    refusals=(NOT_FOUND, UNFIT),
):
    """List the materializations of a partition that were ever published, newest first."""

    asset: Annotated[str, Meta(description="`namespace/name` or `name`.", max_length=500)]
    partition: Annotated[
        str, Meta(description="Which; an asset without partitions has one, which needs no name.", max_length=4_000)
    ] = ""
    limit: Limit = 50


class RollBack(
    Change[Rollback],
    route="POST /materializations/rollback",
    client="materializations",
    key="required",
    example={"asset": "orders", "partitions": ["2025-01-15"], "reason": "the source was wrong"},
    refusals=(NOT_FOUND, CONFLICT, UNFIT),
):
    """Make earlier materializations current again. Nothing is copied or removed, and it can be undone likewise."""

    asset: Text
    reason: Text
    partitions: Annotated[tuple[Text, ...], Meta(max_length=1_000)] = ()
    to: (
        Annotated[
            str,
            Meta(
                description="A materialization, a time or an event id; the one before each, if left out.", max_length=64
            ),
        ]
        | None
    ) = None

"""What can be asked of lineage, and done to what was made from partitions."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from servo.answers.lineage import Invalidated, LineageGraph, Rematerialized
from servo.operations.fields import Priority, Text
from servo.operations.operation import CONFLICT, NOT_FOUND, UNFIT, Change, OperationType, Question

Direction = Literal["upstream", "downstream", "both"]
_Partitions = Annotated[
    tuple[Text, ...], Meta(description="Partitions, each by itself or as a range.", max_length=1_000)
]


_Start = Annotated[
    tuple[Text, ...], Meta(description="Of these partitions; of all, if left out. May be repeated.", max_length=100)
]
_Depth = Annotated[int, Meta(ge=1, le=1_000, description="At most so many hops.")] | None
_Run = Annotated[str, Meta(description="Only what this run made and read.", max_length=200)] | None
_Exact = Annotated[bool, Meta(description="Follow what was really read, be it current or not.")]


class LineageFields(msgspec.Struct, metaclass=OperationType):
    """Whose lineage, from which partitions, and how far."""

    asset: Annotated[str, Meta(description="Whose lineage: `namespace/name` or `name`.", max_length=500)]
    partition: _Start = ()
    depth: _Depth = None
    run: _Run = None
    exact: _Exact = False


class GetUpstream(
    Question[LineageGraph],
    LineageFields,
    route="GET /lineage/upstream",
    client="lineage",
    refusals=(NOT_FOUND, UNFIT),
):
    """What partitions were made from, hop by hop."""


class GetDownstream(
    Question[LineageGraph],
    LineageFields,
    route="GET /lineage/downstream",
    client="lineage",
    refusals=(NOT_FOUND, UNFIT),
):
    """What was made from partitions, hop by hop."""


class GetImpact(
    Question[LineageGraph],
    LineageFields,
    route="GET /lineage/impact",
    client="lineage",
    refusals=(NOT_FOUND, UNFIT),
):
    """What a change of partitions would reach, and how each of it stands now."""


class GetLineageGraph(
    Question[LineageGraph],
    route="GET /lineage/graph",
    client="lineage",
    refusals=(NOT_FOUND, UNFIT),
):
    """Both directions in one; without an asset, the whole project from its ends upstream."""

    asset: (
        Annotated[str, Meta(description="Whose lineage; of the whole project, if left out.", max_length=500)] | None
    ) = None
    partition: _Start = ()
    depth: _Depth = None
    run: _Run = None
    exact: _Exact = False


class GetLineageAt(
    Question[LineageGraph],
    LineageFields,
    route="GET /lineage/at",
    client="lineage",
    refusals=(NOT_FOUND, UNFIT),
):
    """The lineage as it was at `as_of`: every hop with what was current then, and the definitions of that day."""

    direction: Direction = "upstream"


class Invalidate(
    Change[Invalidated],
    route="POST /lineage/invalidate",
    client="lineage",
    key="required",
    example={"asset": "raw_orders", "partitions": ["2025-01-15"], "reason": "the source was corrected"},
    refusals=(NOT_FOUND, CONFLICT, UNFIT),
):
    """Declare stale whatever was made from these partitions, at any distance. The data stays as it is."""

    asset: Text
    reason: Text
    partitions: _Partitions = ()
    itself: Annotated[bool, Meta(description="Also the partitions themselves.")] = False


class Rematerialize(
    Change[Rematerialized],
    route="POST /lineage/rematerialize",
    client="lineage",
    key="required",
    example={"asset": "raw_orders", "partitions": ["2025-01-15"]},
    refusals=(NOT_FOUND, CONFLICT, UNFIT),
):
    """Compute anew whatever is stale of what was made from these partitions, in order, as a backfill."""

    asset: Text
    partitions: _Partitions = ()
    itself: Annotated[bool, Meta(description="Also the partitions themselves, where they are stale.")] = False
    priority: Priority = 0

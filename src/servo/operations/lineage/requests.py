"""Requests about lineage, what was made from partitions, and audit reports.

To verify a report, it is sent as it is (`servo.api.raw_routes`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from servo.answers.lineage import Invalidated, LineageGraph, Rematerialized
from servo.lineage.report import Report
from servo.operations.fields import AssetText, PartitionList, Priority, Text
from servo.operations.operation import NOT_FOUND, UNFIT, Change, Fields, Question

Direction = Literal["upstream", "downstream", "both"]


class LineageFields(Fields):
    """From which partitions lineage is followed, and how far."""

    partition: Annotated[
        tuple[Text, ...], Meta(description="Of these partitions; of all, if left out. May be repeated.", max_length=100)
    ] = ()
    depth: Annotated[int, Meta(ge=1, le=1_000, description="At most so many hops.")] | None = None
    run: Annotated[str, Meta(description="Only what this run made and read.", max_length=200)] | None = None
    exact: Annotated[bool, Meta(description="Follow what was really read, be it current or not.")] = False


class LineageQuestion(
    Question[LineageGraph],
    LineageFields,
    positional=("asset", "partition"),
    called={"partition": "partitions"},
    refusals=(NOT_FOUND, UNFIT),
):
    """Asks for the lineage of an asset."""

    asset: Annotated[str, Meta(description="Whose lineage: `namespace/name` or `name`.", max_length=500)]


class GetUpstream(LineageQuestion, route="GET /lineage/upstream", client="lineage.upstream"):
    """What partitions were made from, hop by hop."""


class GetDownstream(LineageQuestion, route="GET /lineage/downstream", client="lineage.downstream"):
    """What was made from partitions, hop by hop."""


class GetImpact(LineageQuestion, route="GET /lineage/impact", client="lineage.impact"):
    """What a change of partitions would reach, and how each of it stands now."""


class GetLineageAt(LineageQuestion, route="GET /lineage/at", client="lineage"):
    """The lineage as it was at `as_of`: every hop with what was current then, and the definitions of that day."""

    direction: Direction = "upstream"


class GetLineageGraph(
    Question[LineageGraph],
    LineageFields,
    route="GET /lineage/graph",
    client="lineage.graph",
    positional=("asset", "partition"),
    called={"partition": "partitions"},
    refusals=(NOT_FOUND, UNFIT),
):
    """Both directions in one; without an asset, the whole project from its ends upstream."""

    asset: (
        Annotated[str, Meta(description="Whose lineage; of the whole project, if left out.", max_length=500)] | None
    ) = None


class Invalidate(
    Change[Invalidated],
    route="POST /lineage/invalidate",
    client="lineage.invalidate",
    positional=("asset", "partitions"),
    key="required",
    example={"asset": "raw_orders", "partitions": ["2025-01-15"], "reason": "the source was corrected"},
):
    """Declare stale whatever was made from these partitions, at any distance. The data stays as it is."""

    asset: Text
    reason: Text
    partitions: PartitionList = ()
    itself: Annotated[bool, Meta(description="Also the partitions themselves.")] = False


class Rematerialize(
    Change[Rematerialized],
    route="POST /lineage/rematerialize",
    client="lineage.rematerialize",
    positional=("asset", "partitions"),
    part="backfill",
    key="required",
    example={"asset": "raw_orders", "partitions": ["2025-01-15"]},
    deploys="first",
):
    """Compute anew whatever is stale of what was made from these partitions, in order, as a backfill."""

    asset: Text
    partitions: PartitionList = ()
    itself: Annotated[bool, Meta(description="Also the partitions themselves, where they are stale.")] = False
    priority: Priority = 0


# ── audit reports ────────────────────────────────────────────────────────────────────────────────────────────────


_Partition = Annotated[str, Meta(description="Which; empty for an asset without.", max_length=4_000)]


class GetReport(Question[Report], route="GET /audit/report", client="audit", refusals=(NOT_FOUND, UNFIT)):
    """How the current materialization of a partition came about, proven by the ledger's own events.

    `data` is the report itself, to be kept as a file and verified later. Nothing is recorded, and vacuum is not
    told to spare what it cites: `servo audit report` does that.
    """

    asset: AssetText
    partition: _Partition = ""


class KeepReport(
    Question[Report],
    route="POST /audit/reports",
    client="audit",
    role="operator",
    example={"asset": "revenue", "partition": "2025-01-15"},
    refusals=(NOT_FOUND, UNFIT),
):
    """The report of `GET /audit/report`; and vacuum spares the data that it cites from now on.

    The ledger records nothing of it. Asked again, it cites the same.
    """

    asset: Text
    partition: _Partition = ""
    as_of: Annotated[str, Meta(description="A time or an event id.", max_length=64)] | None = None

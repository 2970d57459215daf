"""What can be asked of audit reports. To verify one, it is sent as it is (`servo.api.raw_routes`)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from servo.lineage.report import Report
from servo.operations.fields import AssetText, Text
from servo.operations.operation import NOT_FOUND, UNFIT, Question

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

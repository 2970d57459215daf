"""What can be asked of backfills."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from servo.answers.backfills import (
    Backfilled,
    BackfillPreview,
    BackfillSummary,
    BackfillTree,
    BackfillView,
    ChunkView,
    Steered,
)
from servo.operations.fields import Name, Partitions, Priority, Since, Text, Until
from servo.operations.operation import (
    CONFLICT,
    NOT_FOUND,
    UNFIT,
    Change,
    Fields,
    ListQuestion,
    Question,
    VersionedFields,
)

BackfillFilter = Literal["missing", "failed", "stale"]
BackfillStatus = Literal["PENDING", "WAITING_UPSTREAM", "RUNNING", "PAUSED", "SUCCEEDED", "FAILED", "CANCELLED"]

_EXAMPLE = {"assets": ["revenue"], "start": "2025-01-01", "end": "2025-01-31", "chunk_size": 10}


class BackfillFields(Fields):
    """Which partitions of which assets, in which chunks. A range, a list and a filter may be combined."""

    assets: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=1_000)]
    start: Text | None = None
    end: Text | None = None
    partitions: Partitions = None
    filter: BackfillFilter | None = None
    chunk_size: Annotated[int, Meta(ge=1, le=1_000_000)] = 10
    target_chunk_seconds: Annotated[float, Meta(gt=0, le=31_536_000)] | None = None
    max_concurrent_runs: (
        Annotated[int, Meta(ge=1, le=10_000, description="Runs of it at the same time: 2 unless given.")] | None
    ) = None
    concurrency: Annotated[int, Meta(ge=1, le=10_000, description="The same, under its older name.")] | None = None
    include_upstream: bool = False
    max_upstream_depth: Annotated[int, Meta(ge=-1, le=1_000_000)] | None = None
    include_downstream: bool = False
    only_missing: bool = False
    priority: Priority = 0
    newest_first: bool = False
    name: Annotated[str, Meta(min_length=1, max_length=100)] | None = None


class CreateBackfill(
    Change[Backfilled],
    BackfillFields,
    route="POST /backfills",
    client="backfills.create",
    key="required",
    example=_EXAMPLE,
    deploys="first",
):
    """Ask for a backfill with all jobs of its tree, in one append. Whoever works here does it."""


class PreviewBackfill(
    Question[BackfillPreview],
    BackfillFields,
    route="POST /backfills/preview",
    client="backfills.preview",
    key="optional",
    example=_EXAMPLE,
    refusals=(NOT_FOUND, UNFIT),
):
    """Say what the same body would come to; nothing is written."""


class ListBackfills(
    ListQuestion[BackfillSummary],
    route="GET /backfills",
    client="backfills.list",
    refusals=(NOT_FOUND,),
):
    """List backfills with their trees, newest first."""

    status: Annotated[BackfillStatus | None, Meta(description="Only with a job that stands so.")] = None
    asset: Annotated[str, Meta(description="Only with a job of this asset.", max_length=500)] | None = None
    since: Since = None
    until: Until = None


class GetBackfill(Question[BackfillView], route="GET /backfills/{backfill}", client="backfills.get"):
    """Show a backfill, by its name or id: how far it is, how fast, and until when."""

    backfill: Name


class GetBackfillTree(Question[BackfillTree], route="GET /backfills/{backfill}/tree", client="backfills.tree"):
    """Show it with all jobs of its tree, and what failed first."""

    backfill: Name


class ListChunks(ListQuestion[ChunkView], route="GET /backfills/{backfill}/chunks", client="backfills.chunks"):
    """List the chunks that were planned, by their number."""

    backfill: Name
    after: Annotated[int, Meta(ge=-1, le=2**31, description="Only those with a higher number.")] = -1


class SteerBackfill(Change[Steered], VersionedFields, key="optional", refusals=(NOT_FOUND, CONFLICT)):
    """Changes what is to become of a backfill."""

    backfill: Name


class PauseBackfill(SteerBackfill, route="POST /backfills/{backfill}/pause", client="backfills.pause"):
    """Start no more chunks; those at work finish. Of a root, in its whole tree."""


class ResumeBackfill(SteerBackfill, route="POST /backfills/{backfill}/resume", client="backfills.resume"):
    """Go on with the next chunk. Of a root, in its whole tree."""


class CancelBackfill(SteerBackfill, route="POST /backfills/{backfill}/cancel", client="backfills.cancel"):
    """End it and its runs; what they have made stays. Of a root, its whole tree."""


class RetryFailed(
    Change[Backfilled],
    route="POST /backfills/{backfill}/retry-failed",
    client="backfills.retry_failed",
    key="required",
    refusals=(NOT_FOUND, CONFLICT),
    deploys="first",
):
    """Compute again exactly the partitions that failed in one that has ended, as a new backfill."""

    backfill: Name

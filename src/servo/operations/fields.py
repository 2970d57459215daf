"""Types of fields that operations share: each constraint and description is said here once."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

MOST_ITEMS = 100
LONGEST_TEXT = 4_000

Text = Annotated[str, Meta(min_length=1, max_length=LONGEST_TEXT)]
Texts = Annotated[tuple[Text, ...], Meta(min_length=1, max_length=100)]
Name = Annotated[str, Meta(min_length=1)]
"""The name or id of a schedule, sensor, run, backfill … in a path."""
AssetName = Annotated[str, Meta(min_length=1, description="`namespace/name` or `name`.", extra={"asset": True})]
"""The name of an asset in a path: one segment, or two."""
AssetText = Annotated[str, Meta(description="`namespace/name` or `name`.", max_length=500)]
"""The name of an asset behind the question mark."""
MOMENT = {"moment": True}
Moment = Annotated[str, Meta(max_length=64, extra=MOMENT)]
"""A time as people write it: UTC unless it says otherwise."""
Tags = Annotated[dict[str, str], Meta(max_length=100)]
Reason = Annotated[str, Meta(description="Is recorded with it.", max_length=LONGEST_TEXT)] | None
Version = (
    Annotated[
        int, Meta(description="Only if it is still at this version; else 409 with `expected` and `actual`.", ge=0)
    ]
    | None
)
Priority = Annotated[int, Meta(ge=-(2**31), le=2**31)]
Partitions = Annotated[str, Meta(min_length=1, max_length=100_000)] | None
PartitionList = Annotated[
    tuple[Text, ...], Meta(description="Partitions, each by itself or as a range.", max_length=1_000)
]
Limit = Annotated[int, Meta(ge=1, le=MOST_ITEMS, description="At most so many items.")]
Since = Annotated[str, Meta(description="Only from this time on.", max_length=64, extra=MOMENT)] | None
Until = Annotated[str, Meta(description="Only before this time.", max_length=64, extra=MOMENT)] | None
OnOff = Annotated[Literal["enabled", "paused"] | None, Meta(description="Only those.")]
BeforeEvent = Annotated[str, Meta(description="Only those recorded before this event id.", max_length=64)] | None

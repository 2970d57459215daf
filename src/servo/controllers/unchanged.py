"""What of a task need not be computed: partitions that are there and current when its turn comes.

A run of what is stale asks for what follows as well. Whether that is stale is known once its inputs were made: if they
came out as they were, it is as current as it was before the run.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from servo.controllers.dispatch import Claim

__all__ = ["UNCHANGED", "without_unchanged"]

UNCHANGED = "unchanged: its inputs came out as they were"


def without_unchanged(claim: Claim, there: Collection[str], stale: Collection[str]) -> tuple[Claim, list[str]]:
    """What is left to compute of a claim, and what is unchanged, given which of its partitions have data and which of
    those are stale. A run of named partitions computes all of them."""
    if not claim.only_stale:
        return claim, []
    unchanged = [key for key in claim.keys if key in there and key not in stale]
    if not unchanged:
        return claim, []
    left = claim.partitions - claim.partitions.partitions.set_of(unchanged)
    return msgspec.structs.replace(claim, partitions=left), unchanged

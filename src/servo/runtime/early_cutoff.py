"""Asks the projections which partitions of a claim need not be computed, or must not be."""

from __future__ import annotations

import msgspec

from servo.controllers.dispatch import Claim
from servo.controllers.unchanged import without_unchanged
from servo.planning.catalog import Catalog
from servo.projections.snapshot import Answers
from servo.runtime.states import state_of
from servo.runtime.wiring import Project
from servo.status.exclusions import frozen_among
from servo.status.staleness import stale_partitions

__all__ = ["left_to_compute", "without_frozen_partitions"]

_THERE = """
    SELECT partition_key FROM partition_status
    WHERE asset_id = $asset_id AND materialization_version IS NOT NULL AND partition_key IN (SELECT unnest($keys))
"""


def left_to_compute(project: Project, claim: Claim, known: Catalog) -> tuple[Claim, list[str]]:
    """What is left of a claim, as of the ledger's head now, and which of its partitions are unchanged."""
    if not claim.only_stale:
        return claim, []
    state = state_of(project, catalog=known)
    keys = list(claim.keys)
    there = _there(state.tables, claim, keys)
    asked = {claim.asset_key: [key for key in keys if key in there]}
    stale = stale_partitions(state, [claim.asset_key], only=asked) if there else []
    return without_unchanged(claim, there, {one.partition_key for one in stale})


def without_frozen_partitions(project: Project, claim: Claim, known: Catalog) -> tuple[Claim, list[str], list[str]]:
    """What is left of a claim without partitions that were frozen since it was planned, all of these, and those of them
    that hold data, which whoever reads them finds. The others leave nothing to read."""
    state = state_of(project, catalog=known)
    frozen = frozen_among(state, {claim.asset_key: claim.partitions}).get(claim.asset_key)
    if not frozen:
        return claim, [], []
    keys = [str(key) for key in frozen]
    there = _there(state.tables, claim, keys)
    absent = frozen.partitions.set_of([key for key in keys if key not in there])
    left = msgspec.structs.replace(claim, partitions=claim.partitions - frozen, blocked=claim.blocked | absent)
    return left, keys, [key for key in keys if key in there]


def _there(snapshot: Answers, claim: Claim, keys: list[str]) -> set[str]:
    return {key for (key,) in snapshot.query(_THERE, {"asset_id": claim.asset_id, "keys": keys}).rows}

"""Asks the projections which partitions of a claim need not be computed, or must not be."""

from __future__ import annotations

import msgspec

from servo.controllers.dispatch import Claim
from servo.controllers.unchanged import without_unchanged
from servo.planning.catalog import Catalog
from servo.projections.snapshot import Answers
from servo.runtime.frozen import frozen_among
from servo.runtime.moments import look_at
from servo.runtime.staleness import Staleness
from servo.runtime.wiring import Project

__all__ = ["left_to_compute", "without_frozen_partitions"]

_THERE = """
    SELECT partition_key FROM partition_status
    WHERE asset_id = $asset_id AND materialization_version IS NOT NULL AND partition_key IN (SELECT unnest($keys))
"""
_PATIENCE = 60.0  # seconds for the tail to be folded


def left_to_compute(project: Project, claim: Claim, known: Catalog) -> tuple[Claim, list[str]]:
    """What is left of a claim, as of the ledger's head now, and which of its partitions are unchanged."""
    if not claim.only_stale:
        return claim, []
    moment = look_at(project, known=known)
    keys = list(claim.keys)
    there = _there(moment.snapshot, claim, keys)
    asked = {claim.asset_key: [key for key in keys if key in there]}
    found = Staleness(project, sweep=False).find([claim.asset_key], moment=moment, only=asked) if there else None
    stale = set() if found is None else {one.partition_key for one in found.rows}
    return without_unchanged(claim, there, stale)


def without_frozen_partitions(project: Project, claim: Claim, known: Catalog) -> tuple[Claim, list[str], list[str]]:
    """What is left of a claim without partitions that were frozen since it was planned, all of these, and those of them
    that hold data, which whoever reads them finds. The others leave nothing to read."""
    frozen = frozen_among(project, known, {claim.asset_key: claim.partitions}).get(claim.asset_key)
    if not frozen:
        return claim, [], []
    keys = [str(key) for key in frozen]
    there = _there(project.reader.snapshot(fresh=True, timeout=_PATIENCE), claim, keys)
    absent = frozen.partitions.set_of([key for key in keys if key not in there])
    left = msgspec.structs.replace(claim, partitions=claim.partitions - frozen, blocked=claim.blocked | absent)
    return left, keys, [key for key in keys if key in there]


def _there(snapshot: Answers, claim: Claim, keys: list[str]) -> set[str]:
    return {key for (key,) in snapshot.query(_THERE, {"asset_id": claim.asset_id, "keys": keys}).rows}

"""What a run holds back: partitions that a `+` added to what was named, and whose inputs are not complete. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.planning.planner import DEFAULT_LIMITS, PlanLimits, make_plan, unmet
from servo.planning.stages import HeldBack, Plan

__all__ = ["hold_back", "plan_holding_back"]

Wanted = Mapping[str, PartitionSet]


def plan_holding_back(
    catalog: Catalog,
    wanted: Wanted,
    added: Wanted,
    have: Wanted,
    now: datetime,
    *,
    limits: PlanLimits = DEFAULT_LIMITS,
) -> Plan:
    """The plan of what is wanted without what is held back. `have`: of the `boundary` of all of it, what is there."""
    left, held = hold_back(catalog, wanted, added, have, now)
    return msgspec.structs.replace(make_plan(catalog, left, have, now, limits), held_back=held)


def hold_back(
    catalog: Catalog, wanted: Wanted, added: Wanted, have: Wanted, now: datetime
) -> tuple[dict[str, PartitionSet], tuple[HeldBack, ...]]:
    """What is left of what is wanted, and what of the `added` partitions is held back.

    An added partition is held back where it reads something that is neither there nor made by the same run, and so is
    every added partition that reads one that is held back. What was named is never held back: what it lacks is found
    again as missing in the plan of what is left.
    """
    left = {key: some for key, some in wanted.items() if some}
    held: dict[str, PartitionSet] = {}
    more = bool(added)
    while more:
        more = False
        for missing in unmet(catalog, left, have, now):
            key = missing.needed_by
            may_wait = left[key] & added[key] if key in added else None
            if not may_wait:
                continue
            # Where a custom mapping does not tell who reads what is missing, anybody may.
            readers = may_wait & missing.needed_for if missing.needed_for else may_wait
            if readers:
                left[key] = left[key] - readers
                held[key] = held[key] | readers if key in held else readers
                more = True
        left = {key: some for key, some in left.items() if some}
    ordered = [key for key in catalog.graph.specs if key in held]
    return left, tuple(
        HeldBack(
            asset_id=catalog.asset_id(key),
            asset_key=key,
            partitions=held[key],
            missing=tuple(
                missing for missing in unmet(catalog, {**left, key: held[key]}, have, now) if missing.needed_by == key
            ),
            held_upstream={other: held[other] for other in catalog.graph.upstream(key) if other in held},
        )
        for key in ordered
    )

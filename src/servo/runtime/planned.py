"""A plan for what is wanted, given what is there."""

from __future__ import annotations

from datetime import datetime

from servo.partitions import PartitionSet
from servo.planning import Plan, boundary, make_plan, require_inputs
from servo.planning.catalog import Catalog
from servo.planning.left_out import LeftOut
from servo.planning.planner import with_inputs
from servo.runtime.inputs import present
from servo.runtime.wiring import Project

__all__ = ["plan_for", "plan_of_what_can_be_made"]


def plan_for(project: Project, known: Catalog, wanted: dict[str, PartitionSet], now: datetime | None = None) -> Plan:
    """The very plan that would run now."""
    now = now or project.clock()
    return make_plan(known, wanted, _there(project, known, wanted, now), now)


def plan_of_what_can_be_made(
    project: Project, known: Catalog, wanted: dict[str, PartitionSet], now: datetime
) -> tuple[Plan, tuple[LeftOut, ...]]:
    """The plan of all that has its inputs, and what has not; refused where nothing has."""
    have = _there(project, known, wanted, now)
    plan = make_plan(known, wanted, have, now)
    if not plan.missing:
        return plan, ()
    left, without = with_inputs(known, wanted, have, now)
    return make_plan(known, left, have, now) if left else require_inputs(plan), without


def _there(project: Project, known: Catalog, wanted: dict[str, PartitionSet], now: datetime) -> dict[str, PartitionSet]:
    needed = boundary(known, wanted, now)
    return present(project, needed, known) if needed else {}

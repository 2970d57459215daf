"""A plan for what is wanted, given what is there."""

from __future__ import annotations

from datetime import datetime

from servo.partitions import PartitionSet
from servo.planning import Plan, boundary, make_plan
from servo.planning.catalog import Catalog
from servo.runtime.inputs import present
from servo.runtime.wiring import Project


def plan_for(project: Project, known: Catalog, wanted: dict[str, PartitionSet], now: datetime | None = None) -> Plan:
    """The very plan that would run now."""
    now = now or project.clock()
    needed = boundary(known, wanted, now)
    have = present(project, needed, known) if needed else {}
    return make_plan(known, wanted, have, now)

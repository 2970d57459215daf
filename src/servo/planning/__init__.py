"""What would run, and why: plans as data."""

from servo.planning.catalog import Catalog
from servo.planning.planner import DEFAULT_LIMITS, PlanLimits, boundary, make_plan
from servo.planning.stages import (
    MissingInput,
    Plan,
    Stage,
    TaskPlan,
    explain,
    plan_fact,
    require_inputs,
)

__all__ = [
    "DEFAULT_LIMITS",
    "Catalog",
    "MissingInput",
    "Plan",
    "PlanLimits",
    "Stage",
    "TaskPlan",
    "boundary",
    "explain",
    "make_plan",
    "plan_fact",
    "require_inputs",
]

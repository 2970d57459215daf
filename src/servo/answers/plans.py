"""What a run would do, stage by stage."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

__all__ = ["DueGroup", "DueHeld", "HeldBackView", "MissingInput", "PartitionGroup", "PlanStage", "PlanTask", "RunPlan"]


class PartitionGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of an asset: as data, in words, and how many."""

    asset_key: str
    partitions: Any  # as `PartitionSet.to_json` has them
    described: str
    count: int


class PlanTask(PartitionGroup, frozen=True, kw_only=True):
    """A task of a plan."""

    task_key: str
    batch: bool
    code_version: str
    upstream: list[str]
    why: str


class PlanStage(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that begin where the stage before has what they need."""

    stage: int
    tasks: list[PlanTask]


class MissingInput(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that are not there, and without which others are held back."""

    asset_key: str
    count: int
    partitions: Any
    examples: list[str]
    held_back: bool


class HeldBackView(PartitionGroup, frozen=True, kw_only=True):
    """Partitions of an asset that a run does not make though a `+` added them, and why."""

    reason: str
    frozen: bool = False
    missing: list[MissingInput] = []


class DueGroup(PartitionGroup, frozen=True, kw_only=True):
    """Partitions of an asset that should run now for one reason."""

    code: str
    why: str
    because_of: list[str]


class DueHeld(PartitionGroup, frozen=True, kw_only=True):
    """Partitions of an asset that are due and cannot run yet, or are frozen."""

    why: str
    frozen: bool = False


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The stages of a run that was not asked for yet. `groups` and `held` are there where it is of what is due."""

    stages: list[PlanStage]
    total: int
    held_back: list[HeldBackView]
    warnings: list[str]
    history: list[str]
    groups: list[DueGroup] | UnsetType = UNSET
    held: list[DueHeld] | UnsetType = UNSET

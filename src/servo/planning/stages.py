"""A run's plan as data: what would run, in which order, over which partitions, and why. The very stages that run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from servo import canonical
from servo.errors import InputsMissing
from servo.events import definitions as events
from servo.events.definitions import PlannedTask
from servo.events.model import RunPlanned
from servo.partitions import Partitions, PartitionSet
from servo.partitions.sets import values_of

_EXAMPLES = 3  # missing partitions that an event names
_LONGEST_SET = 4_096  # bytes of a set of missing partitions that an event carries; of a longer one it has examples


class TaskPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One asset over a set of its partitions: what a worker takes in one piece."""

    task_key: str
    asset_id: str
    asset_key: str
    partitions: PartitionSet
    upstream: tuple[str, ...] = ()  # keys of the tasks of this run whose partitions it reads
    code_version: str
    batch: bool = False
    inputs: tuple[str, ...] = ()  # keys of all the assets it reads some of, from this run or from before it


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that wait for nothing but the stages before."""

    number: int
    tasks: tuple[TaskPlan, ...]


class MissingInput(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of an upstream asset that are read, and neither there nor part of the run.

    Where `partitions` is empty, the upstream's definition has none that `needed_for` could read.
    """

    asset_key: str
    partitions: PartitionSet
    needed_by: str
    needed_for: PartitionSet

    def sentence(self) -> str:
        """What is wrong, in one line."""
        if self.partitions:
            read = f"{self.asset_key} {self.partitions.describe()}".rstrip()
            return f"{self.needed_by} reads {read}, which is not there and not part of the run"
        asked = f"{self.needed_by} {self.needed_for.describe()}".rstrip()
        return f"{asked} has nothing to read in {self.asset_key}"


class HeldBack(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of one asset that a run does not make: what they read is missing, and a `+` added them; or they are
    frozen."""

    asset_id: str
    asset_key: str
    partitions: PartitionSet
    missing: tuple[MissingInput, ...] = ()
    held_upstream: dict[str, PartitionSet] = {}  # what is held back of the assets that it reads
    frozen: bool = False
    why: str = ""  # the reason, where it is neither that inputs are missing nor that they are frozen

    @property
    def reason(self) -> str:
        """What is missing, in words; or that it is frozen."""
        if self.why:
            return self.why
        if self.frozen:
            return "is frozen" if self.partitions.count == 1 else "are frozen"
        return "; ".join(
            lacking(one.asset_key, one.partitions, held_back=self.is_held_back(one)) for one in self.missing
        )

    def is_held_back(self, missing: MissingInput) -> bool:
        """Whether all of a missing input is part of the same run, and held back as well."""
        held = self.held_upstream.get(missing.asset_key)
        return bool(held and missing.partitions and not missing.partitions - held)

    def sentence(self) -> str:
        """Which partitions are held back, and why, in one line."""
        return f"{self.asset_key} {self.partitions.describe()}".rstrip() + f": {self.reason}"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Stages in order, what stands against running them, and what is not part of them though a `+` added it."""

    stages: tuple[Stage, ...]
    missing: tuple[MissingInput, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    warnings: tuple[str, ...] = ()
    history: tuple[str, ...] = ()  # what deploying its definitions first does to the history of assets
    deployment_id: str | None = None

    @property
    def tasks(self) -> tuple[TaskPlan, ...]:
        return tuple(task for stage in self.stages for task in stage.tasks)

    @property
    def partition_count(self) -> int:
        return sum(task.partitions.count for task in self.tasks)


def require_inputs(plan: Plan) -> Plan:
    """The plan itself, if it makes something, and everything that it reads is there or is computed by it."""
    if not plan.missing:
        if plan.held_back and not plan.stages:
            first_held = "; ".join(one.sentence() for one in plan.held_back[:3])
            hint = f"make what is missing first, or select +{plan.held_back[0].asset_key}"
            if all(one.frozen for one in plan.held_back):
                hint = "give --unfreeze REASON, or thaw them: servo partition mark … --as thawed --reason …"
            raise InputsMissing(f"nothing can run: {first_held}", hint=hint)
        return plan
    first, *others = plan.missing
    more = f", and {len(others)} more like it" if others else ""
    for held in plan.held_back:
        if held.asset_key == first.asset_key and held.partitions & first.partitions:
            more += f". It is held back: {held.sentence()}"
    hint = (
        f"select +{first.needed_by} to compute what it reads as well"
        if first.partitions
        else f"ask for partitions that {first.asset_key} covers, or correct the mapping"
    )
    raise InputsMissing(f"{first.sentence()}{more}", hint=hint)


_UNITS = {"hourly": "hour", "daily": "day", "weekly": "week", "monthly": "month"}


def lacking(asset_key: str, some: PartitionSet, *, held_back: bool = False) -> str:
    """What partitions that are held back lack of one upstream asset, in words."""
    if not some:
        return f"has nothing to read in {asset_key}"
    which = some.describe()
    if held_back:
        return f"reads {f'{asset_key} {which}'.rstrip()}, which is held back as well"
    dimensions = some.partitions.dimensions
    if not dimensions:
        return f"needs {asset_key}, which is missing"
    unit = _UNITS.get(dimensions[0].kind, "partition") if len(dimensions) == 1 else "partition"
    counted = f"1 {unit}" if some.count == 1 else f"{some.count:,} {unit}s"
    return f"needs {counted} of {asset_key} that {'is' if some.count == 1 else 'are'} missing: {which}"


def stage_numbers(upstream: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """The stage of each task: one past the latest of those it reads. Tasks come after their upstream tasks."""
    numbers: dict[str, int] = {}
    for task_key, before in upstream.items():
        numbers[task_key] = 1 + max((numbers.get(key, 0) for key in before), default=0)
    return numbers


def staged(tasks: Iterable[TaskPlan]) -> tuple[Stage, ...]:
    """Tasks, each after those it reads, in stages."""
    ordered = list(tasks)
    numbers = stage_numbers({task.task_key: task.upstream for task in ordered})
    by_stage: dict[int, list[TaskPlan]] = {}
    for task in ordered:
        by_stage.setdefault(numbers[task.task_key], []).append(task)
    return tuple(Stage(number=number, tasks=tuple(by_stage[number])) for number in sorted(by_stage))


def plan_fact(plan: Plan, run_id: str) -> RunPlanned:
    """The plan as the ledger keeps it."""
    return RunPlanned(
        run_id=run_id,
        deployment_id=plan.deployment_id,
        tasks=[
            PlannedTask(
                task_key=task.task_key,
                asset_id=task.asset_id,
                asset_key=task.asset_key,
                partition_count=task.partitions.count,
                partitions=task.partitions.to_json(),
                upstream=list(task.upstream),
                code_version=task.code_version,
            )
            for task in plan.tasks
        ],
        held_back=[_held_back_fact(held) for held in plan.held_back],
    )


def _held_back_fact(held: HeldBack) -> events.HeldBack:
    return events.HeldBack(
        asset_id=held.asset_id,
        asset_key=held.asset_key,
        partition_count=held.partitions.count,
        partitions=held.partitions.to_json(),
        described=held.partitions.describe(),
        reason=held.reason,
        frozen=held.frozen,
        missing=[_missing_fact(one, held_back=held.is_held_back(one)) for one in held.missing],
    )


def _missing_fact(missing: MissingInput, *, held_back: bool) -> events.MissingPartitions:
    some = missing.partitions
    data = some.to_json() if some else None
    return events.MissingPartitions(
        asset_key=missing.asset_key,
        partition_count=some.count,
        partitions=None if data is None or len(canonical.dumps(data)) > _LONGEST_SET else data,
        examples=[some.partitions.short_key(key) for key in islice(some, _EXAMPLES)],
        held_back=held_back,
    )


# ── what is left out ─────────────────────────────────────────────────────────────────────────────────────────────────


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of one asset that were asked for and cannot be made."""

    asset_key: str
    partitions: PartitionSet
    label: str  # what tells their tasks from those that run
    summary: str
    reasons: dict[str, str] = {}  # by partition key; where it has none, the summary is the reason

    def reason(self, key: str) -> str:
        return self.reasons.get(key, self.summary)


def no_data(asset_key: str, some: PartitionSet) -> str:
    """Say that partitions were marked and hold no data."""
    verb = "was" if some.count == 1 else "were"
    holds = "holds" if some.count == 1 else "hold"
    return f"{f'{asset_key} {some.describe()}'.rstrip()}, which {verb} marked as materialized and {holds} no data"


def apart(definition: Partitions, data: Mapping[str, Any]) -> tuple[PartitionSet, PartitionSet]:
    """Split a set as data into what a definition has and what it no longer has; refused where it fits no dimension."""
    kept = PartitionSet.from_json(definition, data, clip=True)
    wide = _as_wide_as(definition, data)
    return kept, PartitionSet.from_json(wide, data) - PartitionSet.from_json(wide, kept.to_json())


def no_longer_there(asset_key: str, gone: PartitionSet) -> LeftOut:
    """What the definition of an asset had when it was asked for, and has no longer."""
    return LeftOut(
        asset_key=asset_key,
        partitions=gone,
        label="gone",
        summary=f"{asset_key} no longer has {gone.describe() or 'it'}",
        reasons=dict.fromkeys(map(str, gone), f"{asset_key} no longer has it"),
    )


def _as_wide_as(definition: Partitions, data: Mapping[str, Any]) -> Partitions:
    """The definition with what a set needs of it, and with no other bounds."""
    if not data["parts"]:
        return definition
    found = values_of(data)
    described = []
    for dimension in definition.dimensions:
        values = found[dimension.name]
        arguments = dimension.to_json()
        if dimension.timed:
            arguments.pop("end", None)
            arguments["start"] = min(values)
        elif "values" in arguments:
            arguments["values"] = values
        described.append(arguments)
    wide = Partitions.from_json({"dimensions": described})
    return wide.resolved(found)


# ── for people ───────────────────────────────────────────────────────────────────────────────────────────────────────


def explain(plan: Plan) -> dict[str, str]:
    """Say of each task, by its key, what it waits for and what it takes as it finds it."""
    assets = {task.task_key: task.asset_key for task in plan.tasks}
    return {task.task_key: _why(task, [assets[key] for key in task.upstream]) for task in plan.tasks}


def _why(task: TaskPlan, computed: list[str]) -> str:
    parts = ["asked for"]
    if computed:
        parts.append(f"after {', '.join(dict.fromkeys(computed))}")
    if kept := [key for key in task.inputs if key not in computed]:
        parts.append(f"reads {', '.join(kept)} as it is")
    return "; ".join(parts)

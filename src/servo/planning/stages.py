"""A run's plan as data: what would run, in which order, over which partitions. The very stages that run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from servo.errors import InputsMissing
from servo.events.definitions import PlannedTask
from servo.events.model import RunPlanned
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog


class TaskPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One asset over a set of its partitions: what a worker takes in one piece."""

    task_key: str
    asset_id: str
    asset_key: str
    partitions: PartitionSet
    upstream: tuple[str, ...] = ()  # keys of the tasks of this run whose partitions it reads
    code_version: str
    batch: bool = False
    inputs: tuple[str, ...] = ()  # keys of all the assets it reads, from this run or from before it


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


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Stages in order, and what stands against running them."""

    stages: tuple[Stage, ...]
    missing: tuple[MissingInput, ...] = ()
    warnings: tuple[str, ...] = ()
    deployment_id: str | None = None

    @property
    def tasks(self) -> tuple[TaskPlan, ...]:
        return tuple(task for stage in self.stages for task in stage.tasks)

    @property
    def partition_count(self) -> int:
        return sum(task.partitions.count for task in self.tasks)


def require_inputs(plan: Plan) -> Plan:
    """The plan itself, if everything that it reads is there or is computed by it."""
    if not plan.missing:
        return plan
    first, *others = plan.missing
    more = f", and {len(others)} more like it" if others else ""
    hint = (
        f"select +{first.needed_by} to compute what it reads as well"
        if first.partitions
        else f"ask for partitions that {first.asset_key} covers, or correct the mapping"
    )
    raise InputsMissing(f"{first.sentence()}{more}", hint=hint)


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
    )


def plan_of(fact: RunPlanned, catalog: Catalog) -> Plan:
    """The plan that the ledger keeps, given the definitions it was made with."""
    return Plan(stages=staged(_tasks(fact, catalog)), deployment_id=fact.deployment_id)


def _tasks(fact: RunPlanned, catalog: Catalog) -> Iterator[TaskPlan]:
    for task in fact.tasks:
        spec = catalog.spec(task.asset_key)
        yield TaskPlan(
            task_key=task.task_key,
            asset_id=task.asset_id,
            asset_key=task.asset_key,
            partitions=PartitionSet.from_json(spec.partitions, task.partitions or {}),
            upstream=tuple(task.upstream),
            code_version=task.code_version or spec.code_version,
            batch=spec.batch,
            inputs=tuple(dict.fromkeys(dependency.upstream for dependency in spec.dependencies)),
        )

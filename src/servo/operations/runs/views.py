"""Runs as they are shown: from the projections, and from the events of the run itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import UNSET

from servo import decoders
from servo.answers import build
from servo.answers.runs import (
    DueGroup,
    DueHeld,
    HeldBackView,
    MissingInput,
    PartitionFailure,
    PlanStage,
    PlanTask,
    RunListed,
    RunPlan,
    RunProgress,
    RunView,
    TaskProgress,
)
from servo.controllers.board import Board
from servo.controllers.states import RunState, TaskState
from servo.errors import RunNotFound
from servo.events import RecordedEvent, decode
from servo.events.columns import MADE, Outcome, spread
from servo.events.definitions import HeldBack
from servo.events.lifecycles import CheckpointStatus, TaskStatus
from servo.events.model import CheckpointRequested, RunFinished, TaskFinished
from servo.partitions import PartitionSet
from servo.planning import Plan, explain, plan_fact
from servo.planning.due import Due
from servo.status.state import State

_FIND = (
    "SELECT run_id, requested_version FROM runs WHERE starts_with(run_id, $run_id) ORDER BY requested_at DESC LIMIT 2"
)
_LIST = """
    SELECT run_id, status, asset_selection, source_kind, requested_by, requested_at, started_at, finished_at,
           (SELECT coalesce(sum(partition_count), 0) FROM tasks WHERE tasks.run_id = runs.run_id) AS partitions,
           reason
    FROM runs
    WHERE requested_version IS NOT NULL AND ($status IS NULL OR status = $status)
      AND ($asset IS NULL OR list_contains(asset_selection, $asset) OR run_id IN (
          SELECT run_id FROM tasks WHERE asset_id = $asset_id))
      AND requested_at >= coalesce($since, requested_at) AND ($until IS NULL OR requested_at < $until)
      AND ($at IS NULL OR requested_at < $at OR (requested_at = $at AND run_id > $run_id))
    ORDER BY requested_at DESC, run_id LIMIT $limit
"""
_TASKS = "SELECT * FROM tasks WHERE run_id = $run_id ORDER BY task_key"
_FAILED_CHECKS = """
    SELECT asset_key, partition_key, check_name, blocking, observed, task_key, attempt FROM check_results
    WHERE run_id = $run_id AND NOT passed ORDER BY asset_key, partition_key, check_name LIMIT 1000
"""
_CHECKPOINTS = f"""
    SELECT checkpoint_id, coalesce(decision, '{CheckpointStatus.REQUESTED}') AS status, asset_key, task_key,
           len(partition_keys) AS partitions, approvers, escalated_to, deadline, requested_at,
           decided_by, decided_at, decision_reason
    FROM checkpoints WHERE run_id = $run_id ORDER BY requested_version
"""
_OUTCOMES = """
    SELECT asset_key, last_attempt_outcome AS outcome, count(*) AS partitions FROM partition_status
    WHERE last_attempt_run_id = $run_id GROUP BY ALL ORDER BY ALL
"""


# ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────


def runs_listed(
    state: State,
    *,
    status: str | None = None,
    asset: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    after: tuple[datetime, str] | None = None,
    limit: int,
) -> list[RunListed]:
    """Runs, the newest first. `after`: when the last one that was seen was asked for, and its id."""
    key = None if asset is None else state.catalog.graph.resolve(asset)
    at, run_id = after or (None, None)
    parameters = {
        "status": status,
        "asset": key,
        "asset_id": None if key is None else state.catalog.asset_id(key),
        "since": since,
        "until": until,
        "at": at,
        "run_id": run_id,
        "limit": limit,
    }
    return decoders.convert(state.tables.query(_LIST, parameters).dicts(), list[RunListed])


# ── one run ──────────────────────────────────────────────────────────────────────────────────────────────────────


class RunPlace(NamedTuple):
    """A run, and the position of its request."""

    run_id: str
    position: int


def find_run(state: State, run_id: str) -> RunPlace:
    """A run by its id, or by how that begins."""
    rows = state.tables.query(_FIND, {"run_id": run_id}).rows
    exact = [row for row in rows if row[0] == run_id]
    if not rows or not run_id:
        raise RunNotFound(f"there is no run {run_id!r:.80}", hint="see `servo run list`")
    if len(rows) > 1 and not exact:
        raise RunNotFound(f"several runs begin with {run_id!r:.80}", hint="give more of the id")
    name, requested = (exact or rows)[0]
    return RunPlace(name, state.history.find(requested))


def run_of(state: State, run_id: str) -> RunState:
    """A run with its tasks, as its own events tell it."""
    return _run(_events(state, find_run(state, run_id)))


def run_view(state: State, run_id: str) -> RunView:
    """Everything about a run: its row, its tasks, the checks that failed, and its partitions by outcome."""
    place, ask = find_run(state, run_id), state.tables.query
    parameters = {"run_id": place.run_id}
    (row,) = ask("SELECT * FROM runs WHERE run_id = $run_id", parameters).dicts()
    tasks = ask(_TASKS, parameters).dicts()
    begun = row["finished_version"] is not None or any(task["state"] != TaskStatus.PLANNED for task in tasks)
    # Of a run that waits there is nothing else to tell, however much was recorded since it was asked for.
    events = list(_events(state, place)) if begun else []
    skipped = {task.task_key: task.skipped for task in progress_of(_run(events)).tasks} if begun else {}
    finished = [fact for event in events if isinstance(fact := decode(event), TaskFinished)]
    attempted = any(task["started_version"] or task["finished_version"] for task in tasks)

    def kept(sql: str, table: str) -> list[dict[str, Any]]:
        """What one of the large tables says of the run; kept until something happens to that table."""
        if not attempted:
            return []
        return state.snapshot.derived((sql, place.run_id), {table}, lambda: ask(sql, parameters).dicts())

    shown = {
        **row,
        "tasks": [task | {"partitions_skipped": skipped.get(task["task_key"], 0)} for task in tasks],
        "checks": kept(_FAILED_CHECKS, "check_results"),
        "partitions": kept(_OUTCOMES, "partition_status"),
        "checkpoints": ask(_CHECKPOINTS, parameters).dicts(),
        "failures": _failures(finished),
        "held_back": [_held_back(held) for held in decoders.decode(row["held_back"] or "[]", list[HeldBack])],
        "rows_left_out": _rows_left_out(finished),
        "samples": _samples_taken(finished),
    }
    return decoders.convert(shown, RunView)


def progress_of(run: RunState) -> RunProgress:
    """How far a run is: its tasks, and how many partitions came to what."""
    tasks = [_task(task) for task in run.tasks.values()]
    counts = ("total", "succeeded", "failed", "skipped", "unchanged")
    return build(
        RunProgress,
        run,
        {name: sum(getattr(task, name) for task in tasks) for name in counts},
        tasks=tasks,
        parked=run.parked and not run.ended and not run.cancel_requested,
    )


def _task(task: TaskState) -> TaskProgress:
    return build(
        TaskProgress,
        task,
        state=task.shown.value,
        total=task.count,
        succeeded=len(task.succeeded),
        failed=len(task.failed),
        skipped=len(task.skipped),
        unchanged=len(task.unchanged),
    )


def _events(state: State, place: RunPlace) -> Iterator[RecordedEvent]:
    """The events of a run, from its request to its end or to now."""
    stories = {place.run_id}  # its own, and those of its checkpoints
    for event in state.history.events(place.position - 1, state.position):
        if event.event_type == CheckpointRequested.event_type:
            asked = decode(event)
            if isinstance(asked, CheckpointRequested) and asked.run_id == place.run_id:
                stories.add(asked.checkpoint_id)
        if event.correlation_id in stories:
            yield event
            if event.event_type == RunFinished.event_type:
                return


def _run(events: Iterable[RecordedEvent]) -> RunState:
    (run,) = Board(keep_ended=True).take(events).runs.values()
    return run


def _failures(finished: Iterable[TaskFinished]) -> list[PartitionFailure]:
    """The partitions whose newest outcome in the run is a failure, with what each failed of."""
    found: dict[tuple[str, str], PartitionFailure] = {}
    for fact in finished:
        columns = zip(
            fact.partitions.keys,
            fact.partitions.outcomes(),
            spread(fact.partitions.error, len(fact.partitions)),
            strict=True,
        )
        for key, outcome, error in columns:
            found.pop((fact.asset_key, key), None)
            if outcome is Outcome.FAILED:
                found[fact.asset_key, key] = PartitionFailure(
                    asset_key=fact.asset_key, partition_key=key, error=error or fact.error
                )
    return list(found.values())


def _rows_left_out(finished: Iterable[TaskFinished]) -> list[dict[str, Any]]:
    """For each task whose function returned rows of other partitions: how many, an example, and what came out empty."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for fact in finished:
        calls = fact.calls
        if calls is None:
            continue
        task = {"task_key": fact.task_key, "asset_key": fact.asset_key, "rows": 0, "example": None, "empty": []}
        count = len(fact.partitions)
        columns = zip(
            fact.partitions.keys, fact.partitions.outcomes(), spread(fact.partitions.rows, count), strict=True
        )
        counted = set()
        for place, (key, outcome, rows) in enumerate(columns):
            number = calls.of_output(place)
            left_out = 0 if number is None else calls.rows_left_out_by(number)
            if number is None or not left_out:
                continue
            one = found.setdefault((fact.task_key, fact.attempt), task)
            if number not in counted:
                counted.add(number)
                one["rows"] += left_out
                one["example"] = one["example"] or calls.example_of(number)
            if outcome in MADE and rows == 0:
                one["empty"].append(key)
    return list(found.values())


def _samples_taken(finished: Iterable[TaskFinished]) -> list[dict[str, Any]]:
    """Every partition of a batch that was computed alone as well, and how both compared."""
    return [
        {
            "task_key": fact.task_key,
            "asset_key": fact.asset_key,
            "partition_key": key,
            "verdict": verdict.value,
            "remark": remark,
        }
        for fact in finished
        if fact.samples is not None
        for key, verdict, remark in zip(
            fact.samples.keys,
            spread(fact.samples.verdict, len(fact.samples.keys)),
            spread(fact.samples.remark, len(fact.samples.keys)),
            strict=True,
        )
    ]


# ── plans ────────────────────────────────────────────────────────────────────────────────────────────────────────


def run_plan_shown(plan: Plan, due: Due | None = None) -> RunPlan:
    """What a run would do, stage by stage; of what is due, also why each group of partitions should run now."""
    why = explain(plan)
    return RunPlan(
        stages=[
            PlanStage(
                stage=stage.number,
                tasks=[
                    build(
                        PlanTask,
                        task,
                        **_set(task.partitions),
                        upstream=list(task.upstream),
                        why=why[task.task_key],
                    )
                    for task in stage.tasks
                ],
            )
            for stage in plan.stages
        ],
        total=plan.partition_count,
        held_back=[_held_back(held) for held in plan_fact(plan, "").held_back],
        warnings=list(plan.warnings),
        history=list(plan.history),
        groups=UNSET if due is None else _due_groups(due),
        held=UNSET if due is None else _due_held(due),
    )


def _held_back(held: HeldBack) -> HeldBackView:
    missing = [build(MissingInput, one, count=one.partition_count) for one in held.missing]
    return build(HeldBackView, held, count=held.partition_count, missing=missing)


def _due_groups(due: Due) -> list[DueGroup]:
    return [
        build(DueGroup, one, why=one.sentence(), because_of=list(one.because_of), **_set(one.partitions))
        for one in due.groups
    ]


def _due_held(due: Due) -> list[DueHeld]:
    """What should run now and cannot yet."""
    return [build(DueHeld, one, **_set(one.partitions)) for one in due.held]


def _set(partitions: PartitionSet) -> dict[str, Any]:
    return {"partitions": partitions.to_json(), "described": partitions.describe(), "count": partitions.count}

"""What answers and decides the operations on runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

import msgspec

from servo.answers.runs import (
    CancelRequested,
    DueRequested,
    Record,
    Requested,
    RunConflict,
    RunListed,
    RunPlan,
    RunProgress,
    RunView,
    TaskView,
)
from servo.controllers.requests import request as run_requested
from servo.controllers.requests import retry_selection
from servo.controllers.states import RunState
from servo.errors import Conflict, InvalidInput
from servo.events.definitions import Source
from servo.events.lifecycles import RunStatus
from servo.events.model import PartitionsMarked, RunCancelRequested
from servo.operations.fields import moment
from servo.operations.handling import Decision, Found, Outside, answers, decides, lists
from servo.operations.operation import Change, answer_type, fingerprint_of
from servo.operations.partitions.handlers import thawed
from servo.operations.runs.known_runs import answer_of, decided_once, run_key_of
from servo.operations.runs.requests import (
    CancelRun,
    CreateDueRun,
    CreateRun,
    GetProgress,
    GetRun,
    ListConflicts,
    ListLogs,
    ListRuns,
    ListTasks,
    PlanRun,
    RetryRun,
)
from servo.operations.runs.selection import (
    Chosen,
    chosen,
    due_chosen,
    plan_of_chosen,
    plan_of_due,
    retry_subset,
)
from servo.operations.runs.views import (
    find_run,
    progress_of,
    run_of,
    run_plan_shown,
    run_view,
    runs_listed,
)
from servo.planning import require_inputs
from servo.status.plans import frozen_among, plan_for
from servo.status.state import State

A = TypeVar("A")
Trace = Callable[..., str | None]

# The first request of a key has the run, others got none.
_CONFLICTS = """
    SELECT run_key, conflicts.run_id, status AS run_status, source_kind, source_id, source_detail,
           conflicts.requested_by, detected_at, existing_fingerprint, conflicting_fingerprint, conflicting_event_id
    FROM run_key_conflicts AS conflicts LEFT JOIN runs USING (run_key)
    WHERE conflict_version IS NOT NULL AND conflict_version < coalesce($before, 'a')
    AND ($run_key IS NULL OR run_key = $run_key)
    ORDER BY conflict_version DESC LIMIT $limit
"""


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────


@answers(PlanRun)
def plan_run(state: State, request: PlanRun) -> RunPlan:
    if not request.stale:
        return run_plan_shown(require_inputs(plan_of_chosen(state, request.select, request.partitions)))
    due, plan = plan_of_due(state, request.select, request.partitions)
    return run_plan_shown(require_inputs(plan), due)


@lists(ListRuns, place=lambda run: (run.requested_at, run.run_id), place_type=tuple[datetime, str])
def list_runs(state: State, request: ListRuns, after: tuple[datetime, str] | None) -> Found[RunListed]:
    found = runs_listed(
        state,
        status=request.status,
        asset=request.asset,
        since=moment(request.since, "since"),
        until=moment(request.until, "until"),
        after=after,
        limit=request.limit + 1,
    )
    return Found(items=found)


@answers(GetRun)
def get_run(state: State, request: GetRun) -> RunView:
    return run_view(state, request.run_id)


@answers(GetProgress)
def get_progress(state: State, request: GetProgress) -> RunProgress:
    return progress_of(run_of(state, request.run_id))


@lists(ListTasks, place=lambda task: task.task_key, place_type=str)
def list_tasks(state: State, request: ListTasks, after: str | None) -> Found[TaskView]:
    run = run_view(state, request.run_id)
    tasks = [task for task in run.tasks if after is None or task.task_key > after]
    return Found(items=tasks, more={"run_id": run.run_id})


class LogPlace(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Where a log goes on: after which moment, and how many records of that moment were given already."""

    time: datetime
    number: int


def _record(placed: tuple[LogPlace, Record]) -> Record:
    return placed[1]


def _logs(outside: Outside, state: State, request: ListLogs) -> Iterator[Record]:
    return outside.run_logs(find_run(state, request.run_id).run_id, request.task)


@lists(ListLogs, place=lambda placed: placed[0], place_type=LogPlace, show=_record, evidence=_logs)
def list_logs(
    state: State, request: ListLogs, after: LogPlace | None, records: Iterable[Record]
) -> Found[tuple[LogPlace, Record]]:
    run = run_of(state, request.run_id)
    found = list(islice(records_after(records, after), request.limit + 1))
    last = found[-1][0] if found else after
    return Found(items=found, more={"run_id": run.run_id, "status": run.status}, next_place=None if run.ended else last)


def records_after(records: Iterable[Record], place: LogPlace | None) -> Iterator[tuple[LogPlace, Record]]:
    """The records after a place, each with its own."""
    time: datetime | None = None
    number = 0
    for record in records:
        number = number + 1 if record.time == time else 1
        time = record.time
        here = LogPlace(time=time, number=number)
        if place is None or (here.time, here.number) > (place.time, place.number):
            yield here, record


@lists(ListConflicts, place=lambda conflict: conflict.conflicting_event_id, place_type=str)
def list_conflicts(state: State, request: ListConflicts, after: str | None) -> Found[RunConflict]:
    parameters = {"run_key": request.run_key, "before": after, "limit": request.limit + 1}
    return Found(items=[RunConflict(**row) for row in state.tables.query(_CONFLICTS, parameters).dicts()])


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _trace(outside: Outside, _: State, __: CreateRun | CreateDueRun | RetryRun) -> Trace:
    """Begins the span of the run, and tells how its trace goes on."""
    return outside.trace


@decides(CreateRun, evidence=_trace, recall=answer_of)
def create_run(state: State, request: CreateRun, trace: Trace) -> Decision[Requested]:
    _require_own(request.tags)

    def decide() -> Decision[Requested]:
        thawing = request.unfreeze
        if thawing is not None and not thawing.strip():
            raise InvalidInput("no reason is given to unfreeze", hint="say why: whoever looks at it later will ask")
        found = chosen(state, request.select, request.partitions, thawing=thawing is not None)
        require_inputs(plan_for(found.state, found.selection, frozen={} if thawing else found.frozen))
        marks = [] if thawing is None else thawed(state, found.state.catalog, found.frozen, thawing)
        return _requested(state, request, found, trace, _wishes(request), marks)

    return decided_once(state, request, fingerprint_of("run", request), decide)


@decides(CreateDueRun, evidence=_trace, recall=answer_of)
def create_due_run(state: State, request: CreateDueRun, trace: Trace) -> Decision[DueRequested]:
    _require_own(request.tags)

    def decide() -> Decision[DueRequested]:
        found = due_chosen(state, request.select, request.partitions)
        if found is None:
            return Decision(answer=DueRequested())
        require_inputs(plan_for(found.state, found.selection, frozen=found.frozen))
        return _requested(state, request, found, trace, _wishes(request))

    return decided_once(state, request, fingerprint_of("due", request), decide)


@decides(RetryRun, evidence=_trace, recall=answer_of)
def retry_run(state: State, request: RetryRun, trace: Trace) -> Decision[Requested]:
    run = run_of(state, request.run_id)

    def decide() -> Decision[Requested]:
        if not run.ended:
            raise Conflict(f"{run.run_id} has not ended yet", hint=f"cancel it first: servo run cancel {run.run_id}")
        found = _retried(state, run, request)
        require_inputs(plan_for(found.state, found.selection, frozen=found.frozen))
        wishes = {
            "priority": run.request.priority,
            "tags": run.request.tags,
            "queue": run.request.queue,
            "retry_of": run.run_id,
            "accept_schema": run.request.accept_schema,
        }
        return _requested(state, request, found, trace, wishes)

    return decided_once(state, request, fingerprint_of(f"retry:{run.run_id}", request), decide)


@decides(CancelRun)
def cancel_run(state: State, request: CancelRun) -> Decision[CancelRequested]:
    run = run_of(state, request.run_id)
    if run.ended:
        raise Conflict(f"{run.run_id} has already ended: {run.status}", hint="there is nothing left to cancel")
    # A run that ends at this very moment has ended, and the request changes nothing. Asked again, it is the same.
    reason = run.cancel_reason if run.cancel_requested else request.reason
    return Decision(
        facts=(RunCancelRequested(run_id=run.run_id, reason=reason),),
        answer=CancelRequested(run_id=run.run_id, event_id=None, status=RunStatus.CANCELLING),
    )


def _require_own(tags: Mapping[str, str]) -> None:
    for name in tags:
        if not name or name.startswith("servo."):
            raise InvalidInput(f"tags: {name!r:.40} is Servo's own", hint="choose another name", field="tags")


def _retried(state: State, run: RunState, request: RetryRun) -> Chosen:
    known = state.judged_by(state.local.catalog)
    subset = None if request.partitions is None else retry_subset(state, run, request.partitions)
    selection = retry_selection(run, known.catalog, everything=request.everything, subset=subset)
    return Chosen(state=known, selection=selection, frozen=frozen_among(known, selection.wanted))


def _wishes(request: CreateRun | CreateDueRun) -> dict[str, Any]:
    return {"priority": request.priority, "tags": request.tags, "accept_schema": request.accept_schema}


def _requested(  # noqa: PLR0917 (all that a request for a run is made of)
    state: State,
    request: Change[A],
    found: Chosen,
    trace: Trace,
    wishes: dict[str, Any],
    more: Iterable[PartitionsMarked] = (),
) -> Decision[A]:
    """The request for a run: without a key a new one, with a key that of the key."""
    selection, detail = found.selection, state.key or state.new_id()
    run_key = run_key_of(detail)
    run_id = state.run_id(run_key)
    fact = run_requested(
        found.state.catalog,
        selection.wanted,
        added=selection.added,
        only_stale=selection.only_stale,
        run_key=run_key,
        run_id=run_id,
        source=Source(kind="manual", id=state.actor, detail=detail),
        # What is decided by definitions that are not in force yet is decided again.
        traceparent=trace("run", run_id=run_id, assets=len(selection.wanted)) if state.local.in_force else None,
        **wishes,
    )
    assets = {key: some.count for key, some in sorted(selection.wanted.items()) if some}
    return Decision(
        facts=(fact, *more),
        answer=answer_type(type(request))(run_id=run_id, run_key=run_key, event_id="", assets=assets),
        begins=run_id if state.key is not None else None,
    )

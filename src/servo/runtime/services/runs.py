"""Runs that people ask for, look at and cancel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from servo.answers.plans import RunPlan
from servo.answers.run_views import RunListed, RunView, TaskView
from servo.answers.runs import CancelRequested, DueRequested, Record, Requested, RunConflict, RunProgress
from servo.errors import Conflict, InvalidInput, NotFound
from servo.events import RecordedEvent, decode
from servo.events.model import RunRequested
from servo.events.requests import RequestAccepted
from servo.operations.decision import other_request
from servo.operations.handling import Found
from servo.operations.moments import moment
from servo.operations.operation import Change
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
from servo.planning.stages import require_inputs
from servo.runtime.automation.run_conflicts import run_conflicts
from servo.runtime.cataloguing import counted
from servo.runtime.documents import run_plan_shown
from servo.runtime.due import plan_what_is_due, request_what_is_due
from servo.runtime.performer import action_of, fingerprint_of
from servo.runtime.requesting import event_of
from servo.runtime.runs import Runs
from servo.runtime.serving import Call, serves_change, serves_list, serves_question
from servo.runtime.wiring import Project

_FIRST = "SELECT event_id FROM run_key_index WHERE run_key = $run_key"
_PATIENCE = 30.0


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────


@serves_question(PlanRun)
def plan(project: Project, request: PlanRun, _: datetime | str | None) -> RunPlan:
    if not request.stale:
        return run_plan_shown(require_inputs(Runs(project).plan(request.select, partitions=request.partitions)))
    due, found = plan_what_is_due(project, request.select, request.partitions)
    return run_plan_shown(require_inputs(found), due)


@serves_list(ListRuns, place=lambda run: (run.requested_at, run.run_id), place_type=tuple[datetime, str])
def list_runs(
    project: Project, request: ListRuns, after: tuple[datetime, str] | None, _: datetime | str | None
) -> Found[RunListed]:
    found = Runs(project).list(
        status=request.status,
        asset=request.asset,
        since=moment(request.since, "since"),
        until=moment(request.until, "until"),
        after=after,
        limit=request.limit + 1,
    )
    return Found(items=found)


@serves_question(GetRun)
def get_run(project: Project, request: GetRun, _: datetime | str | None) -> RunView:
    return Runs(project).show(request.run_id)


@serves_question(GetProgress)
def get_progress(project: Project, request: GetProgress, _: datetime | str | None) -> RunProgress:
    return Runs(project).progress(request.run_id)


@serves_list(ListTasks, place=lambda task: task.task_key, place_type=str)
def list_tasks(project: Project, request: ListTasks, after: str | None, _: datetime | str | None) -> Found[TaskView]:
    run = Runs(project).show(request.run_id)
    tasks = [task for task in run.tasks if after is None or task.task_key > after]
    return Found(items=tasks, more={"run_id": run.run_id})


class LogPlace(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Where a log goes on: after which moment, and how many records of that moment were told already."""

    time: datetime
    number: int


@serves_list(ListLogs, place=lambda record: record[0], place_type=LogPlace, show=lambda record: record[1])
def list_logs(
    project: Project, request: ListLogs, after: LogPlace | None, _: datetime | str | None
) -> Found[tuple[LogPlace, Record]]:
    runs = Runs(project)
    progress = runs.progress(request.run_id)
    records = records_after(runs.logs(progress.run_id, task=request.task), after)
    found = list(islice(records, request.limit + 1))
    last = found[-1][0] if found else after
    return Found(
        items=found,
        more={"run_id": progress.run_id, "status": progress.status},
        next_place=None if progress.ended else last,
    )


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


@serves_list(ListConflicts, place=lambda conflict: conflict.conflicting_event_id, place_type=str)
def list_conflicts(
    project: Project, request: ListConflicts, after: str | None, _: datetime | str | None
) -> Found[RunConflict]:
    return Found(items=run_conflicts(project, run_key=request.run_key, before=after, limit=request.limit + 1))


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _requested(project: Project, said: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
    """What is answered to a request for a run. Earlier versions recorded no answer: then its event says all of it."""
    where = {"event_id": event.event_id, "position": event.position}
    if said:
        return said | where
    fact = decode(event)
    assert isinstance(fact, RunRequested)
    assets = counted(project, event, fact.partitions)
    shown = {key: count for key, count in sorted(assets.items()) if count}
    return {"run_id": fact.run_id, "run_key": fact.run_key, "assets": shown} | where


@serves_change(CreateRun, finish=_requested)
def create(call: Call, request: CreateRun) -> Requested:
    _require_own(request.tags)

    def ask() -> Requested:
        return Runs(call.project).request(
            request.select,
            partitions=request.partitions,
            priority=request.priority,
            tags=request.tags,
            request_id=call.key,
            accept_schema=request.accept_schema,
            unfreeze=request.unfreeze,
            actor=call.actor,
            before=call.before,
        )

    return _once(call, request, fingerprint_of("run", request), ask)


class _NothingDue(InvalidInput):
    """Raised where nothing should run now, to be told from a run."""


@serves_change(CreateDueRun, finish=_requested)
def create_due(call: Call, request: CreateDueRun) -> Requested | DueRequested:
    _require_own(request.tags)

    def ask() -> Requested:
        found = request_what_is_due(
            call.project,
            request.select,
            request.partitions,
            priority=request.priority,
            tags=request.tags,
            request_id=call.key,
            accept_schema=request.accept_schema,
            actor=call.actor,
            before=call.before,
        )
        if found is None:
            raise _NothingDue("nothing is stale or missing that could run")
        return found

    try:
        return _once(call, request, fingerprint_of("due", request), ask)
    except _NothingDue:
        return DueRequested()


@serves_change(RetryRun, finish=_requested)
def retry(call: Call, request: RetryRun) -> Requested:
    runs = Runs(call.project)
    run_id = runs.progress(request.run_id).run_id

    def ask() -> Requested:
        return runs.retry(
            run_id,
            partitions=request.partitions,
            everything=request.everything,
            request_id=call.key,
            actor=call.actor,
            before=call.before,
        )

    return _once(call, request, fingerprint_of(f"retry:{run_id}", request), ask)


@serves_change(CancelRun)
def cancel(call: Call, request: CancelRun) -> CancelRequested:
    return Runs(call.project).cancel(request.run_id, reason=request.reason, actor=call.actor)


def _require_own(tags: dict[str, str]) -> None:
    for name in tags:
        if not name or name.startswith("servo."):
            raise InvalidInput(f"tags: {name!r:.40} is Servo's own", hint="choose another name", field="tags")


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _once(call: Call, request: Change[Any], fingerprint: str, ask: Callable[[], Requested]) -> Requested:
    """The run of a key whose request the ledger does not remember: a new one, or one of long ago.

    Most often it is new, so it is asked for at once. Where that is refused, the reason may be that there is a run of
    this key: what was asked for then may mean another thing today (`latest`, what is stale), or cannot be asked for any
    more. `fingerprint`: of the request, as earlier versions recorded it with the run.
    """
    made: Requested | None = None
    try:
        made = ask()
        if call.key is None or not made.duplicate:
            return made
        event = _run_of(call.project, call.key)
    except (Conflict, InvalidInput, NotFound):
        if call.key is None or call.project.unbegun or (event := _run_of(call.project, call.key)) is None:
            raise
    assert event is not None
    fact = decode(event)
    assert isinstance(fact, RunRequested)
    accepted, body = _accepted_with(call.project, event), _body_of(call.project, fact)
    if made is not None and accepted is None and body is None and _same_wishes(request, fact):
        return made  # of the command line of an earlier version, which compared what the words mean
    is_retry = isinstance(request, RetryRun)
    if is_retry is not (fact.retry_of is not None) or (
        body != fingerprint and accepted != fingerprint_of(action_of(request), request)
    ):
        raise other_request(call.key, fact.run_id)
    return Requested(**_requested(call.project, {}, event), accepted_at=event.occurred_at, duplicate=True)


def _same_wishes(request: Change[Any], fact: RunRequested) -> bool:
    """Whether a run was asked for with the same wishes, of one that nothing but itself was recorded of."""
    if isinstance(request, RetryRun):
        return fact.retry_of is not None
    asked = (request.priority, request.tags, request.accept_schema)  # type: ignore[attr-defined]  # of both others
    return fact.retry_of is None and (fact.priority, fact.tags, fact.accept_schema) == asked


def _run_of(project: Project, key: str) -> RecordedEvent | None:
    """The request for the run of a key."""
    rows = project.reader.query(_FIRST, {"run_key": f"manual:{key}"}, fresh=True, timeout=_PATIENCE).rows
    return event_of(project, rows[0][0]) if rows else None


def _body_of(project: Project, fact: RunRequested) -> str | None:
    """The fingerprint of the body by which a run was asked for in an earlier version, unless a retry inherited it."""
    if fact.retry_of is None or fact.body_fingerprint is None:
        return fact.body_fingerprint
    sql = "SELECT event_id FROM run_key_index WHERE run_id = $run_id"
    rows = project.reader.query(sql, {"run_id": fact.retry_of}, fresh=True, timeout=_PATIENCE).rows
    first = decode(event_of(project, rows[0][0])) if rows else None
    inherited = isinstance(first, RunRequested) and first.body_fingerprint == fact.body_fingerprint
    return None if inherited else fact.body_fingerprint


def _accepted_with(project: Project, event: RecordedEvent) -> str | None:
    """The fingerprint of the request that was recorded just before what it caused, if that has one."""
    fact = next((decode(one) for one in project.history.read(event.position - 2, 1)), None)
    return fact.fingerprint if isinstance(fact, RequestAccepted) else None

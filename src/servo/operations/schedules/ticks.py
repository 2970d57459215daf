"""Ticks of schedules: what they ask for at a moment, and those that a person wants."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from servo import canonical
from servo.answers.automations import Ticked
from servo.assets.evaluation import Evaluation
from servo.assets.selection import Selection
from servo.controllers.automation_boards import ScheduleState
from servo.controllers.scheduling import Filling, Skipped, filled, tick_of
from servo.errors import (
    Conflict,
    EvaluationUnavailable,
    IdempotencyMismatch,
    InvalidInput,
    NotFound,
    ServoError,
    UserCodeFailed,
)
from servo.operations.fields import moment
from servo.operations.handling import Decision, Outside
from servo.operations.schedules.requests import TriggerSchedule
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.status.deployed import schedule_state
from servo.status.plans import frozen_among, let_readers_wait, refusals
from servo.status.selections import statuses_of
from servo.status.state import State

__all__ = ["ask_function", "trigger", "wanted_by"]

_TICK = "SELECT * FROM schedule_ticks WHERE tick_id = $tick_id"


def wanted_by(
    state: State,
    schedule: ScheduleState,
    moment: datetime,
    *,
    evaluation: Evaluation | None = None,
    coming: dict[str, PartitionSet] | None = None,
) -> Filling:
    """What a schedule wants for a moment: of a function, what that answered; else as its definition says.

    Raises Skipped where all of it is frozen, and InputsMissing where a run of it could do nothing otherwise, given what
    is there, what unfinished runs make, and what is `coming` by other ticks of the same pass, to which it is added.
    """
    partitions = None if evaluation is None else _answered(evaluation)
    try:
        found = filled(schedule.definition, state.catalog, moment, statuses_of(state, state.catalog), partitions)
        selection = Selection(wanted=found.wanted, added=found.added, by_status=found.by_status)
        if selection.by_status:
            selection = let_readers_wait(state.at_time(moment), selection)
        found = msgspec.structs.replace(found, added=selection.added)
        [problem] = refusals(state, [selection], coming={} if coming is None else coming)
        if problem is not None:
            frozen = frozen_among(state, found.wanted)
            if frozen and all(key in frozen and not some - frozen[key] for key, some in found.wanted.items()):
                raise Skipped(problem.message)  # as somebody wanted it, and no failure
            raise problem
        return found
    except (ServoError, Skipped):
        raise
    except Exception as problem:
        # A custom mapping is anybody's code, and one schedule must not stop all others.
        raise UserCodeFailed(f"what it asks for cannot be told: {type(problem).__name__}: {problem}") from problem


def _answered(evaluation: Evaluation) -> str:
    if evaluation.error is not None:
        raise UserCodeFailed(evaluation.error)
    if evaluation.skip is not None or not evaluation.requests:
        raise Skipped(evaluation.skip or "its function asked for nothing")
    return " | ".join(evaluation.requests[0].partitions or ())


# ── ticks that a person wants ────────────────────────────────────────────────────────────────────────────────────


def ask_function(outside: Outside, state: State, request: TriggerSchedule) -> Evaluation | None:
    """What the function of the schedule answers, where it has one and is to be asked."""
    schedule = schedule_state(state, request.schedule)
    if not schedule.definition.settings.get("function") or _recorded(state, schedule) is not None:
        return None
    _require_no_overlap(schedule)
    evaluation = outside.ask_schedule(schedule.definition, moment(request.at, "at") or state.now)
    if evaluation is not None and evaluation.unasked:
        raise EvaluationUnavailable(evaluation.error or "nobody could be asked", hint="try again")
    return evaluation


def trigger(state: State, request: TriggerSchedule, evaluation: Evaluation | None) -> Decision[Ticked]:
    """Tick for a moment (now, unless another one is given), without moving the schedule's clock.

    Where what it asks for cannot be done, nothing is recorded.
    """
    schedule, at = schedule_state(state, request.schedule), moment(request.at, "at")
    if (row := _recorded(state, schedule)) is not None:
        return _recorded_tick(state, row, at)
    _require_no_overlap(schedule)
    numbers: dict[str, int] = {}

    def fill(schedule: ScheduleState, moment: datetime) -> Filling:
        found = wanted_by(state, schedule, moment, evaluation=evaluation)
        numbers.update({key: some.count for key, some in found.wanted.items()})
        return found

    request_id = state.key or state.new_id()
    facts = tick_of(schedule, at or state.now, state.catalog, fill, state.run_id, request_id=request_id)
    tick = facts[0]
    if tick.status == "FAILED":
        raise InvalidInput(f"schedule {schedule.definition.name}: {tick.reason}")
    answer = Ticked(
        tick_id=tick.tick_id,
        event_id="",
        schedule_id=tick.schedule_id,
        scheduled_for=tick.scheduled_for,
        status=tick.status,
        reason=tick.reason,
        run_key=tick.run_key,
        run_id=tick.run_id,
        partitions=sum(numbers.values()),
        accepted_at=state.now,
    )
    # Where ticks must not overlap, another tick in between matters.
    alone = frozenset({tick.schedule_id}) if schedule.definition.overlap != "allow" else None
    return Decision(facts=facts, answer=answer, subjects=alone)


def _require_no_overlap(schedule: ScheduleState) -> None:
    if schedule.runs and schedule.definition.overlap == "skip":
        run_id = next(iter(schedule.runs))
        raise Conflict(
            f"{run_id} of schedule {schedule.definition.name} has not ended, and its overlap is skip",
            hint=f"wait for it, or cancel it: servo run cancel {run_id}",
        )


def _recorded(state: State, schedule: ScheduleState) -> dict[str, Any] | None:
    """The tick that was recorded under this key, also where the ledger has forgotten the key."""
    if state.key is None:
        return None
    rows = state.tables.query(_TICK, {"tick_id": f"{schedule.id}:manual:{state.key}"}).dicts()
    return rows[0] if rows else None


def _recorded_tick(state: State, row: dict[str, Any], at: datetime | None) -> Decision[Ticked]:
    # Without a moment, a tick is for when it came.
    first = None if row["scheduled_for"] == row["ticked_at"] else row["scheduled_for"]
    if first != at:
        raise IdempotencyMismatch(
            f"the request id {state.key!r:.80} was used for a tick at {row['scheduled_for'].isoformat()}",
            idempotency_key=state.key or "",
            hint="give this one another id",
        )
    names = ("tick_id", "schedule_id", "scheduled_for", "status", "reason", "run_key", "run_id")
    answer = Ticked(
        **{name: row[name] for name in names},
        event_id=row["tick_version"],
        partitions=_count(state, row),
        accepted_at=row["ticked_at"],
    )
    return Decision(answer=answer, recorded=row["tick_version"])


def _count(state: State, row: dict[str, Any]) -> int:
    """How many partitions a tick asked for: by today's definitions where these have them all, else by those of then."""
    asked = canonical.loads((row["partitions"] or "{}").encode())

    def count(known: Catalog) -> int:
        return sum(PartitionSet.from_json(known.spec(key).partitions, some).count for key, some in asked.items())

    try:
        return count(state.catalog)
    except (InvalidInput, NotFound):
        return count(state.at(row["tick_version"]).catalog)

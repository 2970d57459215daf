"""Ticks of schedules: what they ask for at a moment, and those that a person wants."""

from __future__ import annotations

from datetime import datetime

import msgspec

from servo.answers.schedules import Ticked
from servo.assets.selection import Selection
from servo.controllers.filling import filled
from servo.controllers.schedule_board import ScheduleState
from servo.controllers.scheduling import Filling, Skipped, tick_of
from servo.errors import Conflict, EvaluationUnavailable, IdempotencyMismatch, InvalidInput, ServoError, UserCodeFailed
from servo.events import Proposal, decode
from servo.events.automation import ScheduleTicked
from servo.events.definitions import ScheduleDefinition
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.runtime.automation.tracker import AutomationTracker, run_id_of
from servo.runtime.cataloguing import counted
from servo.runtime.evaluation.evaluating import Evaluation, Evaluators, Question
from servo.runtime.planned import refusals
from servo.runtime.requesting import append_answered, event_of
from servo.runtime.states import state_of, statuses_in
from servo.runtime.wiring import Project
from servo.status.exclusions import frozen_among, let_readers_wait

__all__ = ["Ticking", "question_of", "wanted_by"]


def wanted_by(
    project: Project,
    known: Catalog,
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
        found = filled(schedule.definition, known, moment, statuses_in(project, known), partitions)
        selection = Selection(wanted=found.wanted, added=found.added, by_status=found.by_status)
        if selection.by_status:
            selection = let_readers_wait(state_of(project, catalog=known, now=moment), selection)
        found = msgspec.structs.replace(found, added=selection.added)
        [problem] = refusals(project, known, [selection], coming={} if coming is None else coming)
        if problem is not None:
            frozen = frozen_among(state_of(project, catalog=known), found.wanted)
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


def question_of(project: Project, schedule: ScheduleState, moment: datetime) -> Question | None:
    """What to ask the function of a schedule, where it has one."""
    if not schedule.definition.settings.get("function"):
        return None
    return Question(
        kind="schedule",
        name=schedule.definition.name,
        now=project.clock(),
        scheduled_for=moment,
        timeout=float(project.settings.sensors.timeout_seconds),
    )


class Ticking:
    """Ticks that people want."""

    def __init__(self, project: Project, evaluators: Evaluators) -> None:
        self._project = project
        self._evaluators = evaluators

    def ask(self, one: ScheduleDefinition, at: datetime) -> Evaluation:
        """What the function of a schedule answers for a moment, if it has one; nothing is recorded."""
        timeout = float(self._project.settings.sensors.timeout_seconds)
        return self._evaluators.evaluate(
            Question(kind="schedule", name=one.name, now=self._project.clock(), scheduled_for=at, timeout=timeout)
        )

    def trigger(
        self, schedule: str, *, request_id: str | None = None, at: datetime | None = None, actor: str
    ) -> Ticked:
        """Tick for a moment (now, unless another one is given), without moving the schedule's clock.

        The same request id again gives the same tick. Where what it asks for cannot be done, nothing is recorded.
        """
        project, tracker = self._project, AutomationTracker(self._project)
        state, known = tracker.schedule(schedule), tracker.catalog
        given, now = request_id, project.clock()
        request_id = request_id or project.mint()
        before = None if given is None else self._before(state, given)
        if before is not None:
            # Without a moment, a tick is for when it came.
            first = None if before.scheduled_for == before.accepted_at else before.scheduled_for
            if first != at:
                raise IdempotencyMismatch(
                    f"the request id {given!r:.80} was used for a tick at {before.scheduled_for.isoformat()}",
                    idempotency_key=request_id,
                    hint="give this one another id",
                )
            return before
        if state.runs and state.definition.overlap == "skip":
            raise Conflict(
                f"{next(iter(state.runs))} of schedule {state.definition.name} has not ended, and its overlap is skip",
                hint=f"wait for it, or cancel it: servo run cancel {next(iter(state.runs))}",
            )
        moment = at or now
        question = question_of(project, state, moment)
        evaluation = None if question is None else self._evaluators.evaluate(question)
        if evaluation is not None and evaluation.unasked:
            raise EvaluationUnavailable(evaluation.error or "nobody could be asked", hint="try again")
        numbers: dict[str, int] = {}

        def fill(schedule: ScheduleState, moment: datetime) -> Filling:
            found = wanted_by(project, known, schedule, moment, evaluation=evaluation)
            numbers.update({key: some.count for key, some in found.wanted.items()})
            return found

        facts = tick_of(state, moment, known, fill, run_id_of(project), request_id=request_id)
        tick = facts[0]
        if tick.status == "FAILED":
            raise InvalidInput(f"schedule {state.definition.name}: {tick.reason}")
        done = _ticked(tick, now, sum(numbers.values()))
        proposals = [Proposal(fact=fact, occurred_at=now, actor=actor) for fact in facts]
        try:
            receipt = append_answered(project, proposals, answer=done)[0]
        except IdempotencyMismatch:
            found = self._before(state, request_id)
            if found is None:
                raise
            return found
        return msgspec.structs.replace(done, event_id=receipt.event_id, duplicate=receipt.duplicate)

    def _before(self, state: ScheduleState, request_id: str) -> Ticked | None:
        """The tick of this request, where there is one."""
        sql = "SELECT * FROM schedule_ticks WHERE tick_id = $tick_id"
        tick_id = f"{state.id}:manual:{request_id}"
        rows = self._project.reader.query(sql, {"tick_id": tick_id}, fresh=True, timeout=30.0).dicts()
        if not rows:
            return None
        row = rows[0]
        event = event_of(self._project, row["tick_version"])
        tick = decode(event)
        assert isinstance(tick, ScheduleTicked)
        return Ticked(
            tick_id=tick_id,
            event_id=row["tick_version"],
            schedule_id=state.id,
            scheduled_for=row["scheduled_for"],
            status=row["status"],
            reason=row["reason"],
            run_key=row["run_key"],
            run_id=row["run_id"],
            partitions=sum(counted(self._project, event, tick.partitions).values()),
            duplicate=True,
            accepted_at=row["ticked_at"],
        )


def _ticked(tick: ScheduleTicked, now: datetime, partitions: int) -> Ticked:
    return Ticked(
        tick_id=tick.tick_id,
        event_id="",
        schedule_id=tick.schedule_id,
        scheduled_for=tick.scheduled_for,
        status=tick.status,
        reason=tick.reason,
        run_key=tick.run_key,
        run_id=tick.run_id,
        partitions=partitions,
        accepted_at=now,
    )

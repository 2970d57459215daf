"""Evaluation of sensors, by a message or by a poll, and the record of it.

Evaluations that a person wants are an operation (`operations/automations/evaluation.py`), which also says what an
answer comes to.
"""

from __future__ import annotations

import base64
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

import msgspec

from servo.answers.automations import Accepted
from servo.assets.evaluation import Evaluation, Message
from servo.controllers import sensing
from servo.controllers.automation_boards import SensorBoard, SensorState
from servo.controllers.sensing import Occasion
from servo.errors import AppendConflict, Conflict, IdempotencyMismatch, InvalidInput
from servo.events import Proposal
from servo.events.automation import SensorEvaluated
from servo.events.definitions import ScheduleDefinition
from servo.events.fact import Fact
from servo.events.model import RunRequested
from servo.ledger.protocol import Condition
from servo.operations.automations.envelopes import require_acceptable
from servo.operations.automations.evaluation import accepted, evaluation_facts, recorded_evaluation, require_asked
from servo.planning.catalog import Catalog
from servo.runtime.evaluation.pool import EvaluatorPool
from servo.runtime.loop.service_loop import AutomationTracker
from servo.runtime.states import state_of
from servo.runtime.wiring import Project

__all__ = ["FoundNothing", "Sensing"]

_PAUSED = "paused"
_TRIES = 200  # others may write of the same sensor, but not for ever
_MARGIN = timedelta(hours=1)  # clocks of others may be ahead
_UNREADABLE_SECONDS = 1.0  # for what was written to become readable


class FoundNothing(msgspec.Struct, frozen=True, kw_only=True):
    """A poll that changed nothing: counted, and not recorded."""

    at: datetime


class Sensing:
    """The sensors of one workspace, and the functions of its schedules, as a server asks them. Threads share it."""

    def __init__(self, project: Project, evaluators: EvaluatorPool) -> None:
        self._project = project
        self._evaluators = evaluators
        self._lock = Lock()
        self._tracker: AutomationTracker | None = None

    # ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────

    def accept(self, sensor: str, message: Message, *, actor: str) -> Accepted:
        """Take a message for a push sensor. When this returns, it and the runs it asks for are in the ledger.

        The same message again gives what it gave the first time, and nothing more.
        """
        require_acceptable(message)
        found, known = self._current_sensor(sensor)
        if found.definition.kind != "push":
            raise InvalidInput(f"sensor {found.definition.name} takes no messages: it polls", hint="name a push sensor")
        occasion = Occasion(trigger="push", message_id=message.id, message=_message_fields(message))
        eval_id = occasion.eval_id(found)
        if self._may_be_forgotten(message) and (before := self._recorded(eval_id)) is not None:
            return before
        if found.enabled:
            evaluation = require_asked(self._evaluators.ask_sensor(found, self._project.clock(), message))
            facts = evaluation_facts(state_of(self._project, catalog=known), found, occasion, evaluation)
        else:
            facts = sensing.skipped(found, occasion, _PAUSED)
        try:
            return self._append(facts, actor=actor or f"sensor:{found.definition.name}")
        except IdempotencyMismatch:  # it was answered before, in whatever words
            if (first := self._recorded(eval_id)) is None:
                raise Conflict(f"{eval_id} was recorded in other words", hint="try again") from None
            return first

    def ask_sensor(self, sensor: SensorState, message: Message | None) -> Evaluation:
        """Ask a sensor, by the definitions that are deployed now; nothing is recorded."""
        self._current_sensor(sensor.id)
        return self._evaluators.ask_sensor(sensor, self._project.clock(), message)

    def ask_schedule(self, definition: ScheduleDefinition, at: datetime) -> Evaluation:
        """Ask the function of a schedule; nothing is recorded."""
        return self._evaluators.ask_schedule(definition, at, self._project.clock())

    def _current_sensor(self, name: str) -> tuple[SensorState, Catalog]:
        with self._lock:
            if self._tracker is None:
                self._tracker = AutomationTracker(self._project)
            else:
                before = self._tracker.deployed_at
                self._tracker.refresh()
                if self._tracker.deployed_at != before:
                    self._evaluators.renew(self._tracker.deployed_at)
            return msgspec.structs.replace(self._tracker.sensor(name)), self._tracker.catalog

    def _may_be_forgotten(self, message: Message) -> bool:
        """Whether a message is of so long ago that the ledger may have forgotten the key of its evaluation."""
        project = self._project
        if not project.ledger.head().trimmed_position:
            return False
        remembered = project.clock() - timedelta(days=project.settings.idempotency_days) + _MARGIN
        return message.published_at is None or message.published_at <= remembered

    def _recorded(self, eval_id: str) -> Accepted | None:
        return recorded_evaluation(state_of(self._project), eval_id)

    # ── polls ────────────────────────────────────────────────────────────────────────────────────────────────────

    def poll(self, sensor: SensorState, known: Catalog, position: int) -> Accepted | FoundNothing | None:
        """Ask a sensor about its cursor as it was at a position, and record the answer unless that has moved meanwhile.

        An answer that changes nothing is only counted. None where the sensor is gone by then, or another driver has
        recorded this very evaluation.
        """
        occasion = Occasion(trigger="poll", poll_epoch=round(self._project.clock().timestamp() * 1000))
        evaluation = self._evaluators.ask_sensor(sensor, self._project.clock())
        if evaluation.unasked and self._evaluators.closed:
            return None
        facts = evaluation_facts(state_of(self._project, catalog=known), sensor, occasion, evaluation)
        now, polls = self._project.clock(), self._project.polls
        if not evaluation.requests and sensing.is_counted(sensor, facts, now):
            polls.count(sensor.id, now, recorded_at=sensor.recorded_at, reason=evaluation.skip)
            return FoundNothing(at=now)
        before = polls.all().get(sensor.id)
        if before is not None and before.quiet_after(sensor.recorded_at):
            facts = sensing.with_quiet_polls(facts, before.quiet, before.quiet_since)
        actor = f"sensor:{sensor.definition.name}"
        for _ in range(_TRIES):
            condition = Condition(position=position, subjects=frozenset({sensor.id}))
            try:
                return self._append(facts, actor=actor, condition=condition)
            except IdempotencyMismatch:
                return None
            except AppendConflict:
                position, current = self._since(sensor, position)
            if current is None:
                return None
            if current.state_version != sensor.state_version:
                return self._append_late(sensor, occasion, current, actor)
            if not current.enabled:
                facts = sensing.skipped(sensor, occasion, _PAUSED)
        raise Conflict(f"sensor {sensor.definition.name} was changed by others again and again", hint="try again")

    def _since(self, sensor: SensorState, position: int) -> tuple[int, SensorState | None]:
        """The newest position, and the sensor as of it; None if it is gone."""
        board = SensorBoard(position=position, sensors=[msgspec.structs.replace(sensor)])
        for events in self._project.follower.new_events(position):
            board.take(events)
        if board.position == position:  # it was written, and cannot be read yet
            self._project.follower.wait(position, _UNREADABLE_SECONDS)
        return board.position, board.sensors.get(sensor.id)

    def _append_late(self, sensor: SensorState, occasion: Occasion, current: SensorState, actor: str) -> Accepted:
        while True:
            try:
                return self._append(sensing.late(sensor, occasion, current), actor=actor)
            except IdempotencyMismatch:
                # The winner began in the very same millisecond.
                assert occasion.poll_epoch is not None
                occasion = msgspec.structs.replace(occasion, poll_epoch=occasion.poll_epoch + 1)

    # ── both ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _append(self, facts: list[Fact], *, actor: str, condition: Condition | None = None) -> Accepted:
        now, asked = self._project.clock(), facts
        while True:
            proposals = [Proposal(fact=fact, occurred_at=now, actor=actor) for fact in asked]
            try:
                receipts = self._project.ledger.append(proposals, condition)
            except IdempotencyMismatch as known:
                # A run that was asked for before, with other tags: it is there, and stays as it is.
                new = [fact for fact in asked if not _is_request(fact, known.idempotency_key)]
                if len(new) == len(asked):
                    raise
                asked = new
                continue
            recorded = next(one for fact, one in zip(asked, receipts, strict=True) if isinstance(fact, SensorEvaluated))
            if recorded.duplicate:  # then it was accepted when it was
                [event] = self._project.history.read(recorded.position - 1, 1)
                now = event.occurred_at
            started = [
                fact
                for fact, one in zip(asked, receipts, strict=True)
                if isinstance(fact, RunRequested) and not one.duplicate
            ]
            answer = accepted(facts, now, started, event_id=recorded.event_id)
            return msgspec.structs.replace(answer, duplicate=recorded.duplicate)


def _is_request(fact: Fact, key: str) -> bool:
    return isinstance(fact, RunRequested) and fact.idempotency_key == key


def _message_fields(message: Message) -> dict[str, Any]:
    """The fields of a message that an event keeps."""
    data: dict[str, Any] = {"id": message.id, "data": base64.b64encode(message.data).decode()}
    if message.attributes:
        data["attributes"] = dict(message.attributes)
    if message.published_at is not None:
        data["published_at"] = message.published_at.isoformat()
    return data

"""Asking sensors, and recording what they answer: about a message, about their cursor, or because a person wants it."""

from __future__ import annotations

from datetime import datetime
from threading import Lock

import msgspec

from servo.answers.sensors import Accepted
from servo.assets.evaluation import Made
from servo.assets.messages import Message
from servo.controllers import sensing
from servo.controllers.sensing import Occasion, Wish
from servo.controllers.sensor_board import SensorState
from servo.errors import (
    PASSING,
    AppendConflict,
    Conflict,
    EvaluationUnavailable,
    IdempotencyMismatch,
    InvalidInput,
    ServoError,
)
from servo.events.fact import Fact
from servo.ledger.protocol import Condition
from servo.planning.catalog import Catalog
from servo.planning.deployed import DECLARED
from servo.runtime.automation.envelopes import require_acceptable
from servo.runtime.automation.evaluations import Evaluations, kept
from servo.runtime.automation.tracker import AutomationTracker, run_id_of, wanted
from servo.runtime.evaluation.evaluating import Evaluation, Evaluators, Question
from servo.runtime.planned import refusals
from servo.runtime.wiring import Project

__all__ = ["FoundNothing", "Sensing"]

_PAUSED = "paused"
_TRIES = 200  # others may write of the same sensor, but not for ever


class FoundNothing(msgspec.Struct, frozen=True, kw_only=True):
    """A poll that changed nothing: counted, and not recorded."""

    at: datetime


class Sensing:
    """The sensors of one workspace, at work. Any thread may use it."""

    def __init__(self, project: Project, evaluators: Evaluators) -> None:
        self._project = project
        self._evaluators = evaluators
        self._evaluations = Evaluations(project)
        self._lock = Lock()
        self._tracker: AutomationTracker | None = None

    def accept(self, sensor: str, message: Message, *, actor: str) -> Accepted:
        """Take a message for a push sensor. When this returns, it and the runs it asks for are in the ledger.

        The same message again gives what it gave the first time, and nothing more.
        """
        require_acceptable(message)
        found, known = self._look(sensor)
        if found.definition.kind != "push":
            raise InvalidInput(f"sensor {found.definition.name} takes no messages: it polls", hint="name a push sensor")
        before = self._evaluations.forgotten(found, message)
        if before is not None:
            return before
        occasion = Occasion(trigger="push", message_id=message.id, message=kept(message))
        if found.enabled:
            facts = self._facts(found, occasion, known, _require_asked(self._asked(found, message)))
        else:
            facts = sensing.skipped(found, occasion, _PAUSED)
        return self._evaluations.record(facts, actor=actor or f"sensor:{found.definition.name}")

    def evaluate(
        self,
        sensor: str,
        *,
        message: Message | None = None,
        message_id: str | None = None,
        request_id: str | None = None,
        dry_run: bool = False,
        actor: str,
    ) -> Accepted:
        """Ask a sensor because a person wants it: with a sample message, or with one that was skipped or failed.

        No cursor is moved. Runs of a message that came before have its run key: they are made once, however often it
        is asked for. `dry_run`: nothing is recorded, and nothing runs.
        """
        found, known = self._look(sensor)
        if message_id is not None:
            message = self._evaluations.unanswered(found, message_id)
        elif message is not None:
            require_acceptable(message)
        if found.definition.kind != "push" and message is not None:
            raise InvalidInput(
                f"sensor {found.definition.name} is polled, and gets no messages",
                hint="evaluate it without --data and --message-id",
            )
        if found.definition.kind == "push" and message is None:
            raise InvalidInput(
                f"sensor {found.definition.name} is sent messages: there is nothing to evaluate",
                hint="give a sample with --data, or the id of a message that was skipped with --message-id",
            )
        occasion = Occasion(trigger="manual", request_id=request_id or self._project.mint(), message_id=message_id)
        facts = self._facts(found, occasion, known, _require_asked(self._asked(found, message)))
        if dry_run:
            return self._evaluations.tried(facts)
        return self._evaluations.record(facts, actor=actor)

    def poll(self, sensor: SensorState, known: Catalog, position: int) -> Accepted | FoundNothing | None:
        """Ask a sensor about its cursor as it was at a position, and record the answer unless that has moved meanwhile.

        An answer that changes nothing is only counted. None where the sensor is gone by then, or another driver has
        recorded this very evaluation.
        """
        occasion = Occasion(trigger="poll", poll_epoch=round(self._project.clock().timestamp() * 1000))
        evaluation = self._asked(sensor)
        if evaluation.unasked and self._evaluators.closed:
            return None
        facts = self._facts(sensor, occasion, known, evaluation)
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
                return self._evaluations.append(facts, actor=actor, condition=condition)
            except IdempotencyMismatch:
                return None
            except AppendConflict:
                position, current = self._evaluations.since(sensor, position)
            if current is None:
                return None
            if current.state_version != sensor.state_version:
                return self._too_late(sensor, occasion, current, actor)
            if not current.enabled:
                facts = sensing.skipped(sensor, occasion, _PAUSED)
        raise Conflict(f"sensor {sensor.definition.name} was changed by others again and again", hint="try again")

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self, name: str) -> tuple[SensorState, Catalog]:
        with self._lock:
            if self._tracker is None:
                self._tracker = AutomationTracker(self._project)
            else:
                before = self._tracker.deployed_at
                self._tracker.refresh()
                if self._tracker.deployed_at != before:
                    self._evaluators.renew(self._tracker.deployed_at)
            return msgspec.structs.replace(self._tracker.sensor(name)), self._tracker.catalog

    def _asked(self, sensor: SensorState, message: Message | None = None) -> Evaluation:
        timeout = sensor.definition.settings.get("timeout_seconds") or self._project.settings.sensors.timeout_seconds
        return self._evaluators.evaluate(
            Question(
                kind="sensor",
                name=sensor.definition.name,
                sensor_id=sensor.id,
                now=self._project.clock(),
                cursor=sensor.cursor,
                message=message,
                made=_made(sensor),
                timeout=float(timeout),
            )
        )

    def _facts(self, sensor: SensorState, occasion: Occasion, known: Catalog, evaluation: Evaluation) -> list[Fact]:
        """What an evaluation comes to; what it asks for and nobody can do is a failure of it."""
        if evaluation.error is not None:
            return sensing.failed(sensor, occasion, evaluation.error, log=evaluation.log or None)
        try:
            added = sensing.new_values(evaluation.added, known)
            known = known.with_values(added) if added else known
            wishes, left_out, refused = self._wishes(sensor, occasion, known, evaluation)
            return sensing.answered(
                sensor,
                occasion,
                wishes,
                known,
                run_id_of(self._project),
                cursor=evaluation.cursor,
                added=added,
                reason=evaluation.skip or left_out,
                refused=refused,
                log=evaluation.log or None,
            )
        except PASSING:
            raise
        except ServoError as problem:
            return sensing.failed(sensor, occasion, str(problem), log=evaluation.log or None)

    def _wishes(
        self, sensor: SensorState, occasion: Occasion, known: Catalog, evaluation: Evaluation
    ) -> tuple[list[Wish], str | None, list[str]]:
        """What a sensor asks for, what is left out of it, and why requests are refused that could do nothing yet.

        Code that asks for what cannot be is wrong, and is asked again. What a watch has found is as it is: it must not
        keep the rest waiting for ever. A watch never finds the same again, so a run of what others still make is asked
        for; code is asked again until what it asks for can run.
        """
        now, alone = self._project.clock(), len(evaluation.requests) == 1
        watch = "select" in sensor.definition.settings
        wishes, left_out = [], []
        for asked in evaluation.requests:
            key = sensing.run_key_of(sensor, occasion, asked.key, alone=alone)
            try:
                chosen = wanted(self._project, known, asked.select, asked.partitions, now)
            except InvalidInput as problem:
                if not watch:
                    raise
                left_out.append(f"{asked.key}: {problem.message}")
            else:
                wishes.append((asked.key, Wish(run_key=key, selection=chosen, tags=asked.tags)))
        problems = refusals(self._project, known, [wish.selection for _, wish in wishes], {} if watch else None)
        refused = [
            f"{key or 'its run'}: {problem.message if watch else problem}"
            for (key, _), problem in zip(wishes, problems, strict=True)
            if problem is not None
        ]
        possible = [wish for (_, wish), problem in zip(wishes, problems, strict=True) if problem is None]
        if watch:
            left_out, refused = left_out + refused, []
        more = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
        return possible, f"not asked for {left_out[0]}{more}" if left_out else None, refused

    def _too_late(self, sensor: SensorState, occasion: Occasion, current: SensorState, actor: str) -> Accepted:
        while True:
            try:
                return self._evaluations.append(sensing.late(sensor, occasion, current), actor=actor)
            except IdempotencyMismatch:
                # The winner began in the very same millisecond.
                assert occasion.poll_epoch is not None
                occasion = msgspec.structs.replace(occasion, poll_epoch=occasion.poll_epoch + 1)


def _made(sensor: SensorState) -> Made | None:
    settings = sensor.definition.settings
    if DECLARED in settings:
        return None
    return Made(select=settings["select"], watch=settings.get("watch"), partitions=settings.get("partitions"))


def _require_asked(evaluation: Evaluation) -> Evaluation:
    """Refuse a message that nobody could be asked about: whoever sent it sends it again, and nothing is lost."""
    if evaluation.unasked:
        raise EvaluationUnavailable(evaluation.error or "nobody could be asked", hint="try again")
    return evaluation

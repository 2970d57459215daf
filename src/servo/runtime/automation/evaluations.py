"""Evaluations of sensors in the ledger: recording one, and finding what was recorded before."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta
from typing import Any

import msgspec

from servo import canonical
from servo.answers.sensors import Accepted
from servo.assets.messages import Message
from servo.controllers.sensor_board import SensorBoard, SensorState
from servo.errors import Conflict, IdempotencyMismatch, NotFound
from servo.events import Proposal, RecordedEvent, decode
from servo.events.automation import SensorEvaluated
from servo.events.fact import Fact
from servo.events.model import RunRequested
from servo.ledger.protocol import Condition, Receipt
from servo.runtime.requesting import append_answered
from servo.runtime.wiring import Project

__all__ = ["Evaluations", "evaluation_of", "kept"]

_ROW = """
    SELECT status, reason, run_keys, evaluated_at, eval_version, message, message_id FROM sensor_evals
    WHERE eval_id = $eval_id
"""
_RUNS = """
    SELECT i.run_key, i.run_id, i.event_id, r.partitions FROM run_key_index i LEFT JOIN runs r USING (run_id)
    WHERE i.run_key IN (SELECT unnest($run_keys)) ORDER BY i.first_version
"""
_PATIENCE = 30.0  # seconds for the tail to be folded
_MARGIN = timedelta(hours=1)  # clocks of others may be ahead
_UNREADABLE_SECONDS = 1.0  # for what was written to become readable


class Evaluations:
    """The evaluations of one workspace."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def record(self, facts: list[Fact], *, actor: str) -> Accepted:
        """Record one. Where its question was answered before, in whatever words, that is the answer."""
        try:
            return self.append(facts, actor=actor)
        except IdempotencyMismatch:
            return self._as_before(_evaluated(facts))

    def tried(self, facts: list[Fact]) -> Accepted:
        """What recording one would come to; nothing is written."""
        trial = said(facts, self._project.clock(), None)
        known = {row["run_key"] for row in self._runs(trial.run_keys)}
        new = [one for key, one in zip(trial.run_keys, trial.run_ids, strict=True) if key not in known]
        return msgspec.structs.replace(trial, started=new)

    def append(self, facts: list[Fact], *, actor: str, condition: Condition | None = None) -> Accepted:
        now, asked = self._project.clock(), facts
        while True:
            proposals = [Proposal(fact=fact, occurred_at=now, actor=actor) for fact in asked]
            try:
                of = next(number for number, fact in enumerate(asked) if isinstance(fact, SensorEvaluated))
                receipts = append_answered(self._project, proposals, condition, answer={}, of=of)
                if receipts[of].duplicate:  # then it was accepted when it was
                    [event] = self._project.history.read(receipts[of].position - 1, 1)
                    now = event.occurred_at
                return said(facts, now, {id(fact): one for fact, one in zip(asked, receipts, strict=True)})
            except IdempotencyMismatch as known:
                # A run that was asked for before, with other tags: it is there, and stays as it is.
                new = [fact for fact in asked if not _is_request(fact, known.idempotency_key)]
                if len(new) == len(asked):
                    raise
                asked = new

    def since(self, sensor: SensorState, position: int) -> tuple[int, SensorState | None]:
        """A sensor as it is by now, and up to where that is known; None if it is gone."""
        board = SensorBoard(position=position, sensors=[msgspec.structs.replace(sensor)])
        for events in self._project.follower.new_events(position):
            board.take(events)
        if board.position == position:  # it was written, and cannot be read yet
            self._project.follower.wait(position, _UNREADABLE_SECONDS)
        return board.position, board.sensors.get(sensor.id)

    def forgotten(self, sensor: SensorState, message: Message) -> Accepted | None:
        """What became of a message of long ago, whose key the ledger may have forgotten by now."""
        project = self._project
        if not project.ledger.head().trimmed_position:
            return None
        remembered = project.clock() - timedelta(days=project.settings.idempotency_days) + _MARGIN
        if message.published_at is not None and message.published_at > remembered:
            return None
        eval_id = f"{sensor.id}:msg:{message.id}"
        row = self._row(eval_id)
        return None if row is None else self._accepted(eval_id, sensor.id, row)

    def recorded(self, sensor_id: str, eval_id: str) -> tuple[Accepted, str | None] | None:
        """An evaluation as it was answered the first time, and the id of its message, if it was of one."""
        row = self._row(eval_id)
        return None if row is None else (self._accepted(eval_id, sensor_id, row), row["message_id"])

    def unanswered(self, sensor: SensorState, message_id: str) -> Message:
        """A message that was skipped or failed."""
        name, row = sensor.definition.name, self._row(f"{sensor.id}:msg:{message_id}")
        if row is None:
            raise NotFound(f"sensor {name} got no message {message_id!r:.80}", hint=f"see `servo sensor evals {name}`")
        if row["message"] is None:
            raise Conflict(
                f"message {message_id!r:.80} was answered ({row['status']})", hint="what was skipped or failed is kept"
            )
        return _message(canonical.loads(row["message"].encode()))

    def _as_before(self, fact: SensorEvaluated) -> Accepted:
        row = self._row(fact.eval_id)
        if row is None:
            raise Conflict(f"{fact.eval_id} was recorded in other words", hint="try again")
        return self._accepted(fact.eval_id, fact.sensor_id, row)

    def _accepted(self, eval_id: str, sensor_id: str, row: dict[str, Any]) -> Accepted:
        keys = row["run_keys"] or []
        runs = self._runs(keys)
        return Accepted(
            eval_id=eval_id,
            event_id=row["eval_version"],
            sensor_id=sensor_id,
            status=row["status"],
            reason=row["reason"],
            run_keys=keys,
            run_ids=[run["run_id"] for run in runs],
            duplicate=True,
            accepted_at=row["evaluated_at"],
            # What it asked for first comes right after it, in the same append.
            started=[run["run_id"] for run in runs if run["event_id"] > row["eval_version"]],
            asked={run["run_id"]: canonical.loads((run["partitions"] or "{}").encode()) or {} for run in runs},
        )

    def _runs(self, keys: list[str]) -> list[dict[str, Any]]:
        if not keys:
            return []
        return self._project.reader.query(_RUNS, {"run_keys": keys}, fresh=True, timeout=_PATIENCE).dicts()

    def _row(self, eval_id: str) -> dict[str, Any] | None:
        rows = self._project.reader.query(_ROW, {"eval_id": eval_id}, fresh=True, timeout=_PATIENCE).dicts()
        return rows[0] if rows else None


def evaluation_of(project: Project, _: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
    """The answer that an evaluation's event and runs tell, whoever asks for it first and whoever asks again."""
    fact = decode(event)
    assert isinstance(fact, SensorEvaluated)
    found = Evaluations(project).recorded(fact.sensor_id, fact.eval_id)
    assert found is not None  # what is in the ledger is in the projections
    return msgspec.structs.asdict(found[0])


def said(facts: list[Fact], now: datetime, receipts: dict[int, Receipt] | None) -> Accepted:
    """What the facts of an evaluation say, and what became of each: of a run that was there already, nothing."""
    fact = _evaluated(facts)
    receipt = None if receipts is None else receipts[id(fact)]
    requests = [one for one in facts if isinstance(one, RunRequested)]
    new = [one for one in requests if receipts and id(one) in receipts and not receipts[id(one)].duplicate]
    return Accepted(
        eval_id=fact.eval_id,
        event_id=None if receipt is None else receipt.event_id,
        sensor_id=fact.sensor_id,
        status=fact.status,
        reason=fact.reason,
        run_keys=fact.run_keys,
        run_ids=[one.run_id for one in requests],
        duplicate=receipt is not None and receipt.duplicate,
        accepted_at=now,
        started=[one.run_id for one in new],
        asked={one.run_id: one.partitions or {} for one in requests},
    )


def _is_request(fact: Fact, key: str) -> bool:
    return isinstance(fact, RunRequested) and fact.idempotency_key == key


def _evaluated(facts: list[Fact]) -> SensorEvaluated:
    return next(fact for fact in facts if isinstance(fact, SensorEvaluated))


def kept(message: Message) -> dict[str, Any]:
    """A message as an event keeps it."""
    data: dict[str, Any] = {"id": message.id, "data": base64.b64encode(message.data).decode()}
    if message.attributes:
        data["attributes"] = dict(message.attributes)
    if message.published_at is not None:
        data["published_at"] = message.published_at.isoformat()
    return data


def _message(data: dict[str, Any]) -> Message:
    published = data.get("published_at")
    return Message(
        id=data["id"],
        data=base64.b64decode(data["data"]),
        attributes=data.get("attributes", {}),
        published_at=None if published is None else datetime.fromisoformat(published),
    )

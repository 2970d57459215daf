"""Evaluations of sensors: what the answer of a sensor comes to, and those that a person wants."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

import msgspec

from servo import canonical
from servo.answers import build
from servo.answers.automations import Accepted
from servo.assets.evaluation import Evaluation, Message
from servo.assets.selection import Selection, selection_of
from servo.controllers import sensing
from servo.controllers.automation_boards import SensorState
from servo.controllers.sensing import Occasion, Wish
from servo.errors import PASSING, Conflict, EvaluationUnavailable, InvalidInput, NotFound, ServoError
from servo.events import RecordedEvent, decode
from servo.events.automation import SensorEvaluated
from servo.events.fact import Fact
from servo.events.model import RunRequested
from servo.operations.automations.envelopes import require_acceptable
from servo.operations.automations.requests import EvaluateSensor
from servo.operations.handling import Decision, Outside
from servo.status.deployed import sensor_state
from servo.status.plans import let_readers_wait, refusals
from servo.status.selections import statuses_of
from servo.status.state import State

__all__ = ["accepted", "ask_sensor", "evaluate", "evaluation_facts", "recall", "recorded_evaluation", "require_asked"]

_EVALUATION = """
    SELECT sensor_id, status, reason, run_keys, evaluated_at, eval_version, message FROM sensor_evals
    WHERE eval_id = $eval_id
"""
_RUNS = """
    SELECT i.run_key, i.run_id, i.event_id, r.partitions FROM run_key_index i LEFT JOIN runs r USING (run_id)
    WHERE i.run_key IN (SELECT unnest($run_keys)) ORDER BY i.first_version
"""
_REQUESTED = """
    SELECT run_key, request_fingerprint FROM run_key_index WHERE run_key IN (SELECT unnest($run_keys))
    UNION ALL
    SELECT run_key, conflicting_fingerprint FROM run_key_conflicts WHERE run_key IN (SELECT unnest($run_keys))
"""


# ── what an answer comes to ──────────────────────────────────────────────────────────────────────────────────────


def evaluation_facts(state: State, sensor: SensorState, occasion: Occasion, evaluation: Evaluation) -> list[Fact]:
    """The facts of an evaluation; a request that cannot be met makes it a failure."""
    if evaluation.error is not None:
        return sensing.failed(sensor, occasion, evaluation.error, log=evaluation.log or None)
    try:
        added = sensing.new_values(evaluation.added, state.catalog)
        if added:
            state = state.judged_by(state.catalog.with_values(added))
        wishes, left_out, refused = _wishes(state, sensor, occasion, evaluation)
        return sensing.answered(
            sensor,
            occasion,
            wishes,
            state.catalog,
            state.run_id,
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
    state: State, sensor: SensorState, occasion: Occasion, evaluation: Evaluation
) -> tuple[list[Wish], str | None, list[str]]:
    """What a sensor asks for, what is left out of it, and why requests are refused that could do nothing yet.

    Code that asks for what cannot be is wrong, and is asked again. What a watch has found is as it is: it must not
    keep the rest waiting for ever. A watch never finds the same again, so a run of what others still make is asked
    for; code is asked again until what it asks for can run.
    """
    alone, watch = len(evaluation.requests) == 1, "select" in sensor.definition.settings
    wishes, left_out = [], []
    for asked in evaluation.requests:
        key = sensing.run_key_of(sensor, occasion, asked.key, alone=alone)
        try:
            chosen = _selected(state, asked.select, asked.partitions)
        except InvalidInput as problem:
            if not watch:
                raise
            left_out.append(f"{asked.key}: {problem.message}")
        else:
            wishes.append((asked.key, Wish(run_key=key, selection=chosen, tags=asked.tags)))
    problems = refusals(state, [wish.selection for _, wish in wishes], {} if watch else None)
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


def _selected(state: State, selection: str, partitions: tuple[str, ...] | None) -> Selection:
    """What a selection means now."""
    text = None if partitions is None else " | ".join(partitions)
    statuses = statuses_of(state, state.catalog)
    found = selection_of(state.catalog.graph, selection, now=state.now, partitions=text, statuses=statuses)
    return let_readers_wait(state, found) if found.by_status else found


def require_asked(evaluation: Evaluation) -> Evaluation:
    """Refuse an evaluation that could not be made: its sender sends the message again, and nothing is lost."""
    if evaluation.unasked:
        raise EvaluationUnavailable(evaluation.error or "nobody could be asked", hint="try again")
    return evaluation


def accepted(facts: list[Fact], now: datetime, started: list[RunRequested], *, event_id: str | None = None) -> Accepted:
    """What the facts of an evaluation say, and which of its runs it started: those that were not there already."""
    fact = next(fact for fact in facts if isinstance(fact, SensorEvaluated))
    requests = [one for one in facts if isinstance(one, RunRequested)]
    return build(
        Accepted,
        fact,
        event_id=event_id,
        run_ids=[one.run_id for one in requests],
        accepted_at=now,
        duplicate=False,
        started=[one.run_id for one in started],
        asked={one.run_id: one.partitions or {} for one in requests},
    )


def recorded_evaluation(state: State, eval_id: str) -> Accepted | None:
    """An evaluation as it was answered the first time."""
    row = _row(state, eval_id)
    if row is None:
        return None
    keys = row["run_keys"] or []
    runs = state.tables.query(_RUNS, {"run_keys": keys}).dicts() if keys else []
    return build(
        Accepted,
        row,
        eval_id=eval_id,
        event_id=row["eval_version"],
        run_keys=keys,
        run_ids=[run["run_id"] for run in runs],
        duplicate=True,
        accepted_at=row["evaluated_at"],
        # What it asked for first comes right after it, in the same append.
        started=[run["run_id"] for run in runs if run["event_id"] > row["eval_version"]],
        asked={run["run_id"]: canonical.loads((run["partitions"] or "{}").encode()) or {} for run in runs},
    )


def _row(state: State, eval_id: str) -> dict[str, Any] | None:
    rows = state.tables.query(_EVALUATION, {"eval_id": eval_id}).dicts()
    return rows[0] if rows else None


# ── evaluations that a person wants ──────────────────────────────────────────────────────────────────────────────


def ask_sensor(outside: Outside, state: State, request: EvaluateSensor) -> Evaluation | None:
    """What the sensor answers, unless that was recorded under the key before."""
    sensor = sensor_state(state, request.sensor)
    message = _message(state, sensor, request)
    if not request.dry_run and state.key and _row(state, f"{sensor.id}:manual:{state.key}") is not None:
        return None
    return require_asked(outside.ask_sensor(sensor, message))


def evaluate(state: State, request: EvaluateSensor, evaluation: Evaluation | None) -> Decision[Accepted]:
    """Ask a sensor with a sample message, with one that was skipped or failed, or about its cursor as it is.

    No cursor is moved. Runs of a message that came before have its run key: they are made once, however often it is
    asked for.
    """
    sensor = sensor_state(state, request.sensor)
    occasion = Occasion(trigger="manual", request_id=state.key or state.new_id(), message_id=request.message_id)
    if evaluation is None:
        first = recorded_evaluation(state, occasion.eval_id(sensor))
        assert first is not None
        return Decision(answer=first, recorded=first.event_id, note=True)
    facts = evaluation_facts(state, sensor, occasion, evaluation)
    requests = [fact for fact in facts if isinstance(fact, RunRequested)]
    rows = state.tables.query(_REQUESTED, {"run_keys": [one.run_key for one in requests]}).rows if requests else []
    known = set(rows)  # what is asked for again, perhaps with other tags, is there and stays as it is
    new = [one for one in requests if (one.run_key, one.request_fingerprint) not in known]
    answer = accepted(facts, state.now, new)
    if request.dry_run:
        return Decision(answer=answer)
    facts = [*(fact for fact in facts if not isinstance(fact, RunRequested)), *new]
    main = next(number for number, fact in enumerate(facts) if isinstance(fact, SensorEvaluated))
    return Decision(facts=facts, answer=answer, main=main)


def recall(state: State, _: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
    """The recorded answer of an evaluation, from its event and runs."""
    fact = decode(event)
    assert isinstance(fact, SensorEvaluated)
    first = recorded_evaluation(state, fact.eval_id)
    assert first is not None  # what is in the ledger is in the projections
    return msgspec.structs.asdict(first)


def _message(state: State, sensor: SensorState, request: EvaluateSensor) -> Message | None:
    """The message that the sensor is asked about, where it is one that takes messages."""
    if request.data is not None and request.message_id is not None:
        raise InvalidInput(
            "message_id: a message is a sample or one that came before", hint="give data, or an id", field="message_id"
        )
    name, message = sensor.definition.name, None
    if request.message_id is not None:
        message = _unanswered(state, sensor, request.message_id)
    elif request.data is not None:
        data = _bytes(request.data)
        message = Message(id=state.new_id(), data=data, attributes=request.attributes, published_at=state.now)
        require_acceptable(message)
    if sensor.definition.kind != "push" and message is not None:
        raise InvalidInput(
            f"sensor {name} is polled, and gets no messages", hint="evaluate it without --data and --message-id"
        )
    if sensor.definition.kind == "push" and message is None:
        raise InvalidInput(
            f"sensor {name} is sent messages: there is nothing to evaluate",
            hint="give a sample with --data, or the id of a message that was skipped with --message-id",
        )
    return message


def _unanswered(state: State, sensor: SensorState, message_id: str) -> Message:
    """A message that was skipped or failed."""
    name, row = sensor.definition.name, _row(state, f"{sensor.id}:msg:{message_id}")
    if row is None:
        raise NotFound(f"sensor {name} got no message {message_id!r:.80}", hint=f"see `servo sensor evals {name}`")
    if row["message"] is None:
        raise Conflict(
            f"message {message_id!r:.80} was answered ({row['status']})", hint="what was skipped or failed is kept"
        )
    data = canonical.loads(row["message"].encode())
    published = data.get("published_at")
    return Message(
        id=data["id"],
        data=base64.b64decode(data["data"]),
        attributes=data.get("attributes", {}),
        published_at=None if published is None else datetime.fromisoformat(published),
    )


def _bytes(text: str) -> bytes:
    """The bytes of a message: those that a terminal could not decode are in the text as lone surrogates."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")

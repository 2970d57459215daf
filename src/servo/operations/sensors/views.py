"""Sensors and their evaluations as they are shown, and what became of the runs that they asked for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from servo.answers.automations import AskedRun, EvalView, SensorView
from servo.controllers.automation_boards import SensorState
from servo.events import RecordedEvent, decode
from servo.events.automation import SensorEvaluated
from servo.events.lifecycles import EvaluationStatus
from servo.ledger.side_tables import Poll
from servo.planning.catalog import DeployedAutomation

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["evals_of", "facts_of", "view_of"]

EventById = Callable[[str], RecordedEvent]

_EVALS = """
    SELECT eval_id, trigger, status, reason, message_id, poll_epoch, request_id, expected_state_version, cursor_before,
           cursor_after, run_keys, definition_version, message IS NOT NULL AS message_kept, log, evaluated_at,
           eval_version, coalesce(quiet_polls, 0) AS quiet_polls, quiet_since
    FROM sensor_evals WHERE eval_version IS NOT NULL AND sensor_id = $sensor_id AND status = coalesce($status, status)
    AND trigger = coalesce($trigger, trigger) AND eval_version < coalesce($before, 'a')
    AND evaluated_at >= coalesce($since, evaluated_at)
    AND ($until IS NULL OR evaluated_at < $until)
    ORDER BY eval_version DESC LIMIT $limit
"""
_RUNS = """
    SELECT run_key, run_key_index.run_id, run_key_index.request_fingerprint, event_id, runs.status, created_at
    FROM run_key_index LEFT JOIN runs USING (run_key) WHERE run_key IN (SELECT unnest($keys))
"""
_FIRST = f"""
    SELECT eval_id, run_keys FROM sensor_evals
    WHERE sensor_id = $sensor_id AND status = '{EvaluationStatus.TRIGGERED}' AND list_has_any(run_keys, $keys)
    ORDER BY eval_version
"""
_FACTS = """
    SELECT sensor_id, created_at, created_by, updated_at, cursor, state_version, last_evaluation_at,
           last_eval_id, last_status, last_reason, last_polled_at, failures
    FROM sensor_definitions LEFT JOIN sensor_state USING (sensor_id)
"""

STARTED, DUPLICATE, CONFLICT, DROPPED = "started", "duplicate", "conflict", "dropped"


def facts_of(snapshot: Answers | None) -> dict[str, dict[str, Any]]:
    """What is known of sensors beside their definitions, by id."""
    if snapshot is None:
        return {}
    return {row.pop("sensor_id"): row for row in snapshot.query(_FACTS).dicts()}


def view_of(
    one: DeployedAutomation, facts: dict[str, Any], poll: Poll | None, now: datetime, *, deployed: bool
) -> SensorView:
    """A sensor as it stands now."""
    definition = one.sensor
    settings = definition.settings
    recorded = facts.get("last_polled_at")
    # What was counted after another poll than the last one of this state has nothing to do with it.
    quiet = poll if poll is not None and poll.quiet_after(recorded) else None
    polled = recorded if quiet is None else quiet.asked_at
    failures = facts.get("failures") or 0
    due = None
    if definition.kind == "poll":
        state = SensorState(
            definition=definition, version=one.version, enabled=definition.enabled, polled_at=polled, failures=failures
        )
        due = max(now, state.next_poll or now)
    return SensorView(
        sensor_id=definition.sensor_id,
        name=definition.name,
        kind=definition.kind,
        description=settings.get("description"),
        min_interval_seconds=definition.min_interval_seconds,
        timeout_seconds=settings.get("timeout_seconds"),
        watch=settings.get("watch"),
        select=settings.get("select"),
        partitions=settings.get("partitions"),
        enabled=definition.enabled,
        version=one.version,
        declared=one.is_declared,
        source=one.declared_at,
        deployed=deployed,
        created_at=facts.get("created_at"),
        created_by=facts.get("created_by"),
        updated_at=facts.get("updated_at"),
        cursor=facts.get("cursor"),
        state_version=facts.get("state_version") or 0,
        last_evaluation_at=facts.get("last_evaluation_at"),
        last_eval_id=facts.get("last_eval_id"),
        last_status=facts.get("last_status"),
        last_reason=facts.get("last_reason"),
        last_polled_at=polled,
        failures=failures,
        next_at=due,
        quiet_polls=0 if quiet is None else quiet.quiet,
        quiet_since=None if quiet is None else quiet.quiet_since,
        quiet_reason=None if quiet is None else quiet.reason,
    )


def evals_of(snapshot: Answers | None, event: EventById, parameters: dict[str, Any]) -> list[EvalView]:
    """Evaluations of one sensor, newest first, each with what became of the runs that it asked for."""
    if snapshot is None:
        return []
    rows = [row | {"message_kept": bool(row["message_kept"])} for row in snapshot.query(_EVALS, parameters).dicts()]
    keys = sorted({key for row in rows for key in row["run_keys"] or ()})
    known = {row["run_key"]: row for row in snapshot.query(_RUNS, {"keys": keys}).dicts()} if keys else {}
    again = sorted(
        {key for row in rows for key in row["run_keys"] or () if key in known and not _is_its_own(known[key], row)}
    )
    if again:
        for eval_id, asked in snapshot.query(_FIRST, {"sensor_id": parameters["sensor_id"], "keys": again}).rows:
            for key in known.keys() & asked:
                known[key].setdefault("first_by", eval_id)
    return [_eval(event, row, known) for row in rows]


def _is_its_own(run: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether the run was first asked for by this evaluation: what it asks for is recorded with it, right after it."""
    return bool(row["status"] == EvaluationStatus.TRIGGERED and run["event_id"] > row["eval_version"])


def _eval(event: EventById, row: dict[str, Any], known: dict[str, dict[str, Any]]) -> EvalView:
    runs = _asked(event, row, known)
    told = {name: value for name, value in row.items() if name not in ("run_keys", "eval_version")}
    return EvalView(**told, runs=runs, event_id=row["eval_version"])


def _asked(event: EventById, row: dict[str, Any], known: dict[str, dict[str, Any]]) -> list[AskedRun]:
    fingerprints: dict[str, str] | None = None
    found = []
    for key in row["run_keys"] or ():
        run = known.get(key)
        if run is None or row["status"] != EvaluationStatus.TRIGGERED:
            found.append(AskedRun(run_key=key, outcome=DROPPED))
            continue
        mine = _is_its_own(run, row)
        outcome = STARTED if mine else DUPLICATE
        if not mine:
            # Only the event itself knows what it asked for under the key.
            fingerprints = fingerprints or _fingerprints(event, row["eval_version"])
            if fingerprints.get(key, run["request_fingerprint"]) != run["request_fingerprint"]:
                outcome = CONFLICT
        found.append(
            AskedRun(
                run_key=key,
                outcome=outcome,
                run_id=run["run_id"],
                run_status=run["status"],
                first_by=None if mine else run.get("first_by"),
                first_at=run["created_at"],
            )
        )
    return found


def _fingerprints(event: EventById, event_id: str) -> dict[str, str]:
    """What an evaluation asked for under each of its run keys."""
    fact = decode(event(event_id))
    assert isinstance(fact, SensorEvaluated)
    return dict(zip(fact.run_keys, fact.fingerprints, strict=False))

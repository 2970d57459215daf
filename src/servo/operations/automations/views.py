"""Schedules with their ticks, and sensors with their evaluations, as they are shown."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from servo import canonical
from servo.answers import build
from servo.answers.automations import AskedRun, EvalView, Fill, ScheduleView, SensorView, TickView
from servo.controllers.automation_boards import SensorState
from servo.errors import InvalidInput, ServoError
from servo.events import RecordedEvent, decode
from servo.events.automation import SensorEvaluated
from servo.events.definitions import ScheduleDefinition
from servo.events.lifecycles import EvaluationStatus
from servo.ledger.side_tables import Poll
from servo.partitions import PartitionSet
from servo.partitions.cron import firing
from servo.planning.catalog import Catalog, DeployedAutomation

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

EventById = Callable[[str], RecordedEvent]

_FACTS = {
    "schedule": """
        SELECT schedule_id AS id, created_at, created_by, updated_at, clock_since, last_scheduled_for
        FROM schedule_definitions LEFT JOIN schedule_state USING (schedule_id)
    """,
    "sensor": """
        SELECT sensor_id AS id, created_at, created_by, updated_at, cursor, state_version, last_evaluation_at,
               last_eval_id, last_status, last_reason, last_polled_at, failures
        FROM sensor_definitions LEFT JOIN sensor_state USING (sensor_id)
    """,
}


def facts_of(snapshot: Answers | None, what: str) -> dict[str, dict[str, Any]]:
    """What is known of schedules, or of sensors, beside their definitions, by id."""
    if snapshot is None:
        return {}
    return {row.pop("id"): row for row in snapshot.query(_FACTS[what]).dicts()}


def _shown(automation: DeployedAutomation, *, deployed: bool) -> dict[str, Any]:
    """What is shown of a schedule as well as of a sensor, beside its definition."""
    return {
        "version": automation.version,
        "declared": automation.is_declared,
        "source": automation.declared_at,
        "deployed": deployed,
    }


# ── schedules ────────────────────────────────────────────────────────────────────────────────────────────────────

_TICK = """
    SELECT tick_id, schedule_id, scheduled_for, ticked_at, status, manual, reason, run_key, run_id,
           definition_version, asset_selection, partition_selection, partitions, tick_version
    FROM schedule_ticks WHERE tick_version IS NOT NULL
"""
_TICKS = f"""
    SELECT ticks.*, runs.status AS run_status FROM (
        {_TICK} AND schedule_id = $schedule_id AND status = coalesce($status, status)
        AND tick_version < coalesce($before, 'a') AND scheduled_for >= coalesce($since, scheduled_for)
        AND ($until IS NULL OR scheduled_for < $until)
        ORDER BY tick_version DESC LIMIT $limit
    ) AS ticks LEFT JOIN runs USING (run_id) ORDER BY tick_version DESC
"""
_LAST = f"""
    SELECT ticks.*, runs.status AS run_status FROM (
        {_TICK} AND tick_version IN (SELECT max(tick_version) FROM schedule_ticks GROUP BY schedule_id)
    ) AS ticks LEFT JOIN runs USING (run_id)
"""


def last_ticks(snapshot: Answers | None, known: Catalog) -> dict[str, TickView]:
    """The newest tick of each schedule, by the schedule's id."""
    if snapshot is None:
        return {}
    return {row["schedule_id"]: _tick(row, known) for row in snapshot.query(_LAST).dicts()}


def ticks_of(snapshot: Answers | None, known: Catalog, parameters: dict[str, Any]) -> list[TickView]:
    """Ticks of one schedule, newest first. `parameters`: those of `_TICKS`."""
    return [] if snapshot is None else [_tick(row, known) for row in snapshot.query(_TICKS, parameters).dicts()]


def schedule_view(
    schedule: DeployedAutomation, facts: dict[str, Any], last_tick: TickView | None, now: datetime, *, deployed: bool
) -> ScheduleView:
    """A schedule as it stands now."""
    definition = schedule.schedule
    settings = definition.settings
    next_at, problem = None, None
    try:
        after = max(now, ticked_until(definition, facts) or now)
        next_at = next(firing(definition.cron, definition.timezone, after), None)
    except InvalidInput as wrong:
        problem = wrong.message
    return build(
        ScheduleView,
        _shown(schedule, deployed=deployed),
        facts or dict.fromkeys(("created_at", "created_by", "updated_at", "clock_since", "last_scheduled_for")),
        definition,
        select=list(definition.asset_selection),
        partitions=settings.get("partitions"),
        function=bool(settings.get("function")),
        tags=dict(settings.get("tags") or {}),
        last_tick=last_tick,
        next_at=next_at,
        problem=problem,
    )


def ticked_until(definition: ScheduleDefinition, facts: dict[str, Any]) -> datetime | None:
    """Nothing up to this is the schedule's to tick for. It lies ahead where a clock was ahead and was set back."""
    moments = (definition.clock_since or facts.get("created_at"), facts.get("last_scheduled_for"))
    return max((moment for moment in moments if moment is not None), default=None)


def _tick(row: dict[str, Any], known: Catalog) -> TickView:
    """A tick, with its partitions also as people write them."""
    partitions = None if row["partitions"] is None else canonical.loads(row["partitions"].encode())
    fills = []
    for key, data in (partitions or {}).items():
        with suppress(ServoError):  # what it was about is no longer there, or is not what it was
            some = PartitionSet.from_json(known.spec(key).partitions, data, clip=True)
            fills.append(Fill(asset_key=key, partitions=some.describe(), count=some.count))
    return build(
        TickView,
        row,
        lateness_seconds=max(0.0, (row["ticked_at"] - row["scheduled_for"]).total_seconds()),
        manual=bool(row["manual"]),
        select=row["asset_selection"] or [],
        partitions=partitions,
        fills=fills,
        event_id=row["tick_version"],
    )


# ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────────

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

STARTED, DUPLICATE, CONFLICT, DROPPED = "started", "duplicate", "conflict", "dropped"


def sensor_view(
    sensor: DeployedAutomation, facts: dict[str, Any], poll: Poll | None, now: datetime, *, deployed: bool
) -> SensorView:
    """A sensor as it stands now."""
    definition, recorded, failures = sensor.sensor, facts.get("last_polled_at"), facts.get("failures") or 0
    # What was counted after another poll than the last one of this state has nothing to do with it.
    quiet = poll if poll is not None and poll.quiet_after(recorded) else None
    polled = recorded if quiet is None else quiet.asked_at
    due = None
    if definition.kind == "poll":
        state = SensorState(
            definition=definition,
            version=sensor.version,
            enabled=definition.enabled,
            polled_at=polled,
            failures=failures,
        )
        due = max(now, state.next_poll or now)
    optional = ("description", "timeout_seconds", "watch", "select", "partitions", "created_at", "created_by")
    unknown = ("updated_at", "cursor", "last_evaluation_at", "last_eval_id", "last_status", "last_reason")
    return build(
        SensorView,
        _shown(sensor, deployed=deployed),
        facts,
        definition,
        definition.settings,
        dict.fromkeys((*optional, *unknown)),
        state_version=facts.get("state_version") or 0,
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
    rows = snapshot.query(_EVALS, parameters).dicts()
    keys = sorted({key for row in rows for key in row["run_keys"] or ()})
    known = {row["run_key"]: row for row in snapshot.query(_RUNS, {"keys": keys}).dicts()} if keys else {}
    again = sorted(
        {key for row in rows for key in row["run_keys"] or () if key in known and not _is_its_own(known[key], row)}
    )
    if again:
        for eval_id, asked in snapshot.query(_FIRST, {"sensor_id": parameters["sensor_id"], "keys": again}).rows:
            for key in known.keys() & asked:
                known[key].setdefault("first_by", eval_id)
    return [
        build(
            EvalView,
            row,
            message_kept=bool(row["message_kept"]),
            runs=_asked(event, row, known),
            event_id=row["eval_version"],
        )
        for row in rows
    ]


def _is_its_own(run: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether the run was first asked for by this evaluation: what it asks for is recorded with it, right after it."""
    return bool(row["status"] == EvaluationStatus.TRIGGERED and run["event_id"] > row["eval_version"])


def _asked(event: EventById, row: dict[str, Any], known: dict[str, dict[str, Any]]) -> list[AskedRun]:
    fingerprints: dict[str, str] | None = None
    asked = []
    for key in row["run_keys"] or ():
        run = known.get(key)
        if run is None or row["status"] != EvaluationStatus.TRIGGERED:
            asked.append(AskedRun(run_key=key, outcome=DROPPED))
            continue
        outcome, first_by = STARTED, None
        if not _is_its_own(run, row):
            # Only the event itself knows what it asked for under the key.
            fingerprints = fingerprints or _fingerprints(event, row["eval_version"])
            same = fingerprints.get(key, run["request_fingerprint"]) == run["request_fingerprint"]
            outcome, first_by = DUPLICATE if same else CONFLICT, run.get("first_by")
        first_at = run["created_at"]
        asked.append(
            build(AskedRun, run, outcome=outcome, run_status=run["status"], first_by=first_by, first_at=first_at)
        )
    return asked


def _fingerprints(event: EventById, event_id: str) -> dict[str, str]:
    """What an evaluation asked for under each of its run keys."""
    fact = decode(event(event_id))
    assert isinstance(fact, SensorEvaluated)
    return dict(zip(fact.run_keys, fact.fingerprints, strict=False))

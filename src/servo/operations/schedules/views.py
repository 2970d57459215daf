"""Schedules and their ticks as they are shown, and the queries behind them."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from servo import canonical
from servo.answers.automations import Fill, ScheduleView, TickView
from servo.errors import InvalidInput, ServoError
from servo.events.definitions import ScheduleDefinition
from servo.partitions import PartitionSet
from servo.partitions.cron import firing
from servo.planning.catalog import Catalog, DeployedAutomation

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["facts_of", "in_words", "last_ticks", "ticked_until", "ticks_of", "view_of"]

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
_FACTS = """
    SELECT schedule_id, created_at, created_by, updated_at, clock_since, last_scheduled_for
    FROM schedule_definitions LEFT JOIN schedule_state USING (schedule_id)
"""


def facts_of(snapshot: Answers | None) -> dict[str, dict[str, Any]]:
    """What is known of schedules beside their definitions, by id."""
    if snapshot is None:
        return {}
    return {row.pop("schedule_id"): row for row in snapshot.query(_FACTS).dicts()}


def last_ticks(snapshot: Answers | None) -> dict[str, TickView]:
    """The newest tick of each schedule, by the schedule's id."""
    if snapshot is None:
        return {}
    return {row["schedule_id"]: _tick(row) for row in snapshot.query(_LAST).dicts()}


def ticks_of(
    snapshot: Answers | None,
    schedule_id: str,
    *,
    status: str | None,
    since: datetime | None,
    until: datetime | None,
    before: str | None,
    limit: int,
) -> list[TickView]:
    """Ticks of one schedule, newest first; `before` is the event id of the last one that was seen."""
    if snapshot is None:
        return []
    parameters = {
        "schedule_id": schedule_id,
        "status": status,
        "since": since,
        "until": until,
        "before": before,
        "limit": limit,
    }
    return [_tick(row) for row in snapshot.query(_TICKS, parameters).dicts()]


def view_of(
    one: DeployedAutomation,
    facts: dict[str, Any],
    last_tick: TickView | None,
    now: datetime,
    *,
    deployed: bool,
) -> ScheduleView:
    """A schedule as it stands now."""
    definition = one.schedule
    settings = definition.settings
    next_at, problem = None, None
    try:
        after = max(now, ticked_until(definition, facts) or now)
        next_at = next(firing(definition.cron, definition.timezone, after), None)
    except InvalidInput as wrong:
        problem = wrong.message
    return ScheduleView(
        schedule_id=definition.schedule_id,
        name=definition.name,
        cron=definition.cron,
        timezone=definition.timezone,
        select=list(definition.asset_selection),
        partitions=settings.get("partitions"),
        function=bool(settings.get("function")),
        overlap=definition.overlap,
        catchup_window_minutes=definition.catchup_window_minutes,
        max_catchup_ticks=definition.max_catchup_ticks,
        tags=dict(settings.get("tags") or {}),
        enabled=definition.enabled,
        version=one.version,
        declared=one.is_declared,
        source=one.declared_at,
        deployed=deployed,
        created_at=facts.get("created_at"),
        created_by=facts.get("created_by"),
        updated_at=facts.get("updated_at"),
        clock_since=facts.get("clock_since"),
        last_scheduled_for=facts.get("last_scheduled_for"),
        last_tick=last_tick,
        next_at=next_at,
        problem=problem,
    )


def ticked_until(definition: ScheduleDefinition, facts: dict[str, Any]) -> datetime | None:
    """Nothing up to this is the schedule's to tick for. It lies ahead where a clock was ahead and was set back."""
    moments = (definition.clock_since or facts.get("created_at"), facts.get("last_scheduled_for"))
    return max((moment for moment in moments if moment is not None), default=None)


def in_words(tick: TickView, known: Catalog) -> TickView:
    """The same with its partitions as people write them."""
    fills = []
    for key, data in (tick.partitions or {}).items():
        with suppress(ServoError):  # what it was about is no longer there, or is not what it was
            some = PartitionSet.from_json(known.spec(key).partitions, data, clip=True)
            fills.append(Fill(asset_key=key, partitions=some.describe(), count=some.count))
    return msgspec.structs.replace(tick, fills=fills)


def _tick(row: dict[str, Any]) -> TickView:
    late = (row["ticked_at"] - row["scheduled_for"]).total_seconds()
    partitions = row["partitions"]
    return TickView(
        tick_id=row["tick_id"],
        scheduled_for=row["scheduled_for"],
        ticked_at=row["ticked_at"],
        lateness_seconds=max(0.0, late),
        status=row["status"],
        manual=bool(row["manual"]),
        reason=row["reason"],
        run_id=row["run_id"],
        run_status=row["run_status"],
        run_key=row["run_key"],
        definition_version=row["definition_version"],
        select=row["asset_selection"] or [],
        partition_selection=row["partition_selection"],
        partitions=None if partitions is None else canonical.loads(partitions.encode()),
        event_id=row["tick_version"],
    )

"""Schedules with their ticks, sensors with their evaluations, and changes to both."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded of a schedule or sensor; without an event where it was so already."""

    id: str
    name: str
    version: int
    enabled: bool
    event_id: str | None
    accepted_at: datetime | None = None
    duplicate: bool = False
    changed: tuple[str, ...] = ()  # the fields, where it was an update


# ── schedules ────────────────────────────────────────────────────────────────────────────────────────────────────


class Fill(msgspec.Struct, frozen=True, kw_only=True):
    """What a tick asks for of one asset."""

    asset_key: str
    partitions: str
    count: int


class TickView(msgspec.Struct, frozen=True, kw_only=True):
    """One tick: when it was due, when it came, and what came of it."""

    tick_id: str
    scheduled_for: datetime
    ticked_at: datetime
    lateness_seconds: float
    status: str  # TRIGGERED, SKIPPED, FAILED
    manual: bool
    reason: str | None
    run_id: str | None
    run_status: str | None
    run_key: str | None
    definition_version: int
    select: list[str]
    partition_selection: list[str] | None
    partitions: dict[str, Any] | None  # of each asset, as the run was asked for
    fills: list[Fill] = []  # the same in words, of the assets that are still there
    event_id: str


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it stands. Times are UTC."""

    schedule_id: str
    name: str
    cron: str
    timezone: str
    select: list[str]
    partitions: str | None
    function: bool  # it fills in the partitions
    overlap: str
    catchup_window_minutes: int
    max_catchup_ticks: int
    tags: dict[str, str]
    enabled: bool
    version: int
    declared: bool
    source: str | None  # file and line, where code declares it
    deployed: bool  # as it is shown here
    created_at: datetime | None
    created_by: str | None
    updated_at: datetime | None
    clock_since: datetime | None
    last_scheduled_for: datetime | None
    last_tick: TickView | None
    next_at: datetime | None  # whether or not it is paused by then
    problem: str | None = None  # why it can never fire


class Upcoming(msgspec.Struct, frozen=True, kw_only=True):
    """A tick that is to come, if nothing changes until then."""

    schedule_id: str
    name: str
    scheduled_for: datetime
    local_time: str  # in the schedule's timezone, with its offset from UTC
    timezone: str
    fills: list[Fill]
    by_function: bool = False  # its function says what it fills
    skip: str | None = None  # why its function would skip it
    remark: str | None = None  # where the clocks change
    problem: str | None = None  # why it would fail


class ForecastSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule in the time that was asked about; its ticks may be more than are listed."""

    schedule_id: str
    name: str
    ticks: int
    by_stretch: list[int]  # in equal parts of the time, for a picture
    remark: str | None = None  # what its cron means that is easily read otherwise


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The ticks of all that were asked about, in order."""

    since: datetime
    until: datetime
    total: int
    ticks: list[Upcoming]
    schedules: list[ForecastSchedule]
    paused: list[str]  # names of those that would be skipped
    broken: dict[str, str] = {}  # names of those that can never fire, and why


class Ticked(msgspec.Struct, frozen=True, kw_only=True):
    """A tick that a person wanted, and the run that it asked for; `duplicate` if it was there before."""

    tick_id: str
    event_id: str
    schedule_id: str
    scheduled_for: datetime
    status: str
    reason: str | None
    run_key: str | None
    run_id: str | None
    partitions: int
    duplicate: bool = False
    accepted_at: datetime | None = None


# ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────────


class SensorView(msgspec.Struct, frozen=True, kw_only=True):
    """A sensor as it stands. Times are UTC."""

    sensor_id: str
    name: str
    kind: str
    description: str | None
    min_interval_seconds: int
    timeout_seconds: float | None
    watch: dict[str, Any] | None
    select: str | None
    partitions: str | None
    enabled: bool
    version: int
    declared: bool
    source: str | None
    deployed: bool
    created_at: datetime | None
    created_by: str | None
    updated_at: datetime | None
    cursor: str | None
    state_version: int
    last_evaluation_at: datetime | None
    last_eval_id: str | None
    last_status: str | None
    last_reason: str | None
    last_polled_at: datetime | None  # also by a poll that found nothing and has no evaluation
    failures: int  # by poll, in a row
    next_at: datetime | None  # not before; later where evaluations failed
    quiet_polls: int = 0  # since the last evaluation, that found nothing
    quiet_since: datetime | None = None  # the first of them
    quiet_reason: str | None = None  # what the sensor said of the last of them


class AskedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that an evaluation asked for, and what became of that."""

    run_key: str
    outcome: str  # started, duplicate (of a run that was there), conflict (the key is another run's), dropped
    run_id: str | None = None  # of the run that has the key
    run_status: str | None = None
    first_by: str | None = None  # the evaluation that the run was first asked for by, where it was another
    first_at: datetime | None = None


class EvalView(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation of a sensor."""

    eval_id: str
    trigger: str  # push, poll, manual
    status: str  # TRIGGERED, NO_DATA, SKIPPED, SKIPPED_STALE_CURSOR, FAILED
    reason: str | None
    evaluated_at: datetime
    message_id: str | None
    poll_epoch: int | None
    request_id: str | None
    expected_state_version: int | None
    cursor_before: str | None
    cursor_after: str | None
    definition_version: int | None
    message_kept: bool  # it can still be evaluated, by hand
    log: str | None = None  # the end of what it printed and logged
    runs: list[AskedRun]
    event_id: str
    quiet_polls: int = 0  # before this one, that found nothing and have no evaluations of their own
    quiet_since: datetime | None = None


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation, and the event by which it is in the ledger; `duplicate` if it was there before.

    A trial run has no event.
    """

    eval_id: str
    event_id: str | None
    sensor_id: str
    status: str
    reason: str | None
    run_keys: list[str]
    run_ids: list[str]
    duplicate: bool = False
    accepted_at: datetime | None = None
    started: list[str] = []  # of these runs the ones that it asked for first
    asked: dict[str, dict[str, Any]] = {}  # by run id, the partitions of each asset


class CursorReset(msgspec.Struct, frozen=True, kw_only=True):
    """Where a sensor goes on from now on."""

    sensor_id: str
    name: str
    cursor: str | None
    cursor_before: str | None
    state_version: int
    event_id: str
    accepted_at: datetime | None = None


class MessageAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is in the ledger: by which event, since when, and what became of it."""

    accepted_event_id: str
    accepted_at: datetime
    correlation_id: str
    duplicate: bool
    eval_id: str
    sensor_id: str
    status: str
    reason: str | None
    run_keys: list[str]
    run_ids: list[str]

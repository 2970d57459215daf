"""Schedules, their ticks, and what they will do."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


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

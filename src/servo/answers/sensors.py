"""Sensors and their evaluations."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


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

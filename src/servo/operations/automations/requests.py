"""Requests about schedules and sensors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from servo.answers.automations import (
    Accepted,
    Changed,
    CursorReset,
    EvalView,
    Forecast,
    ScheduleView,
    SensorView,
    Ticked,
    TickView,
)
from servo.operations.fields import BeforeEvent, Moment, Name, OnOff, Since, Tags, Text, Texts, Until, Version
from servo.operations.operation import CONFLICT, NOT_FOUND, UNFIT, Change, ListQuestion, Question, VersionedFields

Overlap = Literal["allow", "skip", "queue"]


class CreateSchedule(
    Change[Changed],
    route="POST /schedules",
    client="schedules.create",
    key="required",
    example={"name": "nightly", "cron": "0 6 * * *", "timezone": "Europe/Berlin", "select": ["+revenue"]},
    refusals=(CONFLICT, UNFIT),
):
    """Create a schedule that no code declares. It fires from now on, never for the past."""

    name: Text
    cron: Text
    select: Texts
    timezone: Text = "UTC"
    partitions: Text | None = None  # None: the window that ended last, of assets that have windows
    catchup_window_minutes: int = 1440
    max_catchup_ticks: int = 10
    overlap: Overlap = "allow"
    tags: Tags = {}
    enabled: bool = True


class UpdateSchedule(
    Change[Changed],
    route="PATCH /schedules/{schedule}",
    client="schedules.update",
    key="optional",
    example={"cron": "0 7 * * *", "expected_state_version": 1},
    body_required=True,
):
    """Change a schedule that no code declares. A field that is left out or null keeps its value.

    Runs that were asked for before stay as they are.
    """

    schedule: Name
    expected_state_version: Version = None
    name: Text | None = None
    cron: Text | None = None
    select: Texts | None = None
    timezone: Text | None = None
    partitions: Text | None = None
    catchup_window_minutes: int | None = None
    max_catchup_ticks: int | None = None
    overlap: Overlap | None = None
    tags: Tags | None = None


class SwitchSchedule(Change[Changed], VersionedFields, key="optional", refusals=(NOT_FOUND, CONFLICT)):
    """Turns a schedule on or off, or deletes it."""

    schedule: Name


class DeleteSchedule(SwitchSchedule, route="DELETE /schedules/{schedule}", client="schedules.delete"):
    """Delete a schedule that no code declares. Its ticks and runs stay what they are."""


class PauseSchedule(
    SwitchSchedule,
    route="POST /schedules/{schedule}/pause",
    client="schedules.pause",
    deploys="unknown",
):
    """Pause a schedule: its ticks are recorded as skipped from now on, and never made up."""


class ResumeSchedule(
    SwitchSchedule,
    route="POST /schedules/{schedule}/resume",
    client="schedules.resume",
    deploys="unknown",
):
    """Let a paused schedule fire again, from its next tick on."""


class TriggerSchedule(
    Change[Ticked],
    route="POST /schedules/{schedule}/trigger",
    client="schedules.trigger",
    key="required",
    example={"at": "2025-01-15T06:00:00Z"},
    deploys="always",
    shares="schedule",
):
    """Let a schedule tick now, paused or not. This never moves its clock."""

    schedule: Name
    at: Annotated[Moment, Meta(description="As if it were due then; now, if left out.")] | None = None


class ListSchedules(ListQuestion[ScheduleView], route="GET /schedules", client="schedules.list"):
    """List schedules by name."""

    status: OnOff = None


class GetSchedule(Question[ScheduleView], route="GET /schedules/{schedule}", client="schedules.get"):
    """Show a schedule, by its name or id: when it fires next, and its last tick."""

    schedule: Name


class ListTicks(ListQuestion[TickView], route="GET /schedules/{schedule}/ticks", client="schedules.ticks"):
    """List the ticks of a schedule, newest first."""

    schedule: Name
    status: Literal["TRIGGERED", "SKIPPED", "FAILED"] | None = None
    since: Since = None
    until: Until = None
    before: BeforeEvent = None


class ForecastSchedules(
    Question[Forecast],
    route="GET /forecast",
    client="schedules.forecast",
    positional=("schedule",),
    slow=True,
    shares="forecast",
    refusals=(NOT_FOUND, UNFIT, 429),
):
    """Say what would fire in the days to come, and which partitions each tick would fill; nothing is written."""

    schedule: (
        Annotated[
            str, Meta(description="Of this one, by its name or id; of all that are on, if left out.", max_length=500)
        ]
        | None
    ) = None
    days: Annotated[float, Meta(gt=0, le=3_660, description="How far to look ahead.")] = 7
    since: Annotated[Moment, Meta(description="From then on; from now on, if left out.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000, description="At most so many ticks.")] = 200


# ── sensors ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class CreateSensor(
    Change[Changed],
    route="POST /sensors",
    client="sensors.create",
    key="required",
    example={
        "name": "landed",
        "select": "raw_orders+",
        "watch": {"kind": "new_files", "pattern": "landing/{date}/*.json"},
        "partitions": "{date}",
    },
    refusals=(CONFLICT, UNFIT),
):
    """Create a sensor that no code declares: with a watch it polls, without one it is sent messages.

    `partitions` is a template over what is found, such as `{date}`; over a message, its attributes and the texts
    and numbers that its JSON names.
    """

    name: Text
    select: Text
    watch: dict[str, Any] | None = None
    partitions: Text | None = None
    min_interval_seconds: int | None = None
    timeout_seconds: int | None = None
    description: str | None = None
    enabled: bool = True


class SwitchSensor(Change[Changed], VersionedFields, key="optional", refusals=(NOT_FOUND, CONFLICT)):
    """Turns a sensor on or off, or deletes it."""

    sensor: Name


class DeleteSensor(SwitchSensor, route="DELETE /sensors/{sensor}", client="sensors.delete"):
    """Delete a sensor that no code declares. What it asked for stays."""


class PauseSensor(SwitchSensor, route="POST /sensors/{sensor}/pause", client="sensors.pause", deploys="unknown"):
    """Pause a sensor: it is not polled, and its messages are recorded as skipped; those can be evaluated later."""


class ResumeSensor(SwitchSensor, route="POST /sensors/{sensor}/resume", client="sensors.resume", deploys="unknown"):
    """Let a paused sensor go on from its cursor."""


class ResetCursor(
    Change[CursorReset],
    VersionedFields,
    route="POST /sensors/{sensor}/reset-cursor",
    client="sensors.reset_cursor",
    key="optional",
    example={"cursor": None, "expected_state_version": 3},
    deploys="unknown",
    refusals=(NOT_FOUND, CONFLICT),
):
    """Let a sensor go on from another cursor; an evaluation that is under way comes too late, and is dropped."""

    sensor: Name
    cursor: Annotated[str, Meta(description="null: as if it had never been evaluated.")] | None


class EvaluateSensor(
    Change[Accepted],
    route="POST /sensors/{sensor}/evaluate",
    client="sensors.evaluate",
    key="required",
    example={"data": '{"day": "2025-01-15"}', "dry_run": True},
    deploys="always",
    shares="sensor",
):
    """Ask a sensor now; this moves no cursor. With `dry_run` nothing is recorded, and no key is needed.

    A push sensor is asked about a sample (`data`), or about a message that was skipped or failed (`message_id`).
    """

    sensor: Name
    data: Annotated[str, Meta(description="A sample message.")] | None = None
    attributes: dict[str, str] = {}
    message_id: Annotated[str, Meta(max_length=1_000)] | None = None
    dry_run: Annotated[bool, Meta(description="Only say what it would ask for; write nothing.")] = False

    @property
    def needs_no_key(self) -> bool:
        return self.dry_run


class ListSensors(ListQuestion[SensorView], route="GET /sensors", client="sensors.list"):
    """List sensors by name."""

    status: OnOff = None


class GetSensor(Question[SensorView], route="GET /sensors/{sensor}", client="sensors.get"):
    """Show a sensor, by its name or id: its cursor, and its last evaluation."""

    sensor: Name


class ListEvaluations(ListQuestion[EvalView], route="GET /sensors/{sensor}/evals", client="sensors.evals"):
    """List the evaluations of a sensor, newest first, each with what became of the runs that it asked for."""

    sensor: Name
    status: Literal["TRIGGERED", "NO_DATA", "SKIPPED", "SKIPPED_STALE_CURSOR", "FAILED"] | None = None
    trigger: Literal["push", "poll", "manual"] | None = None
    since: Since = None
    until: Until = None
    before: BeforeEvent = None

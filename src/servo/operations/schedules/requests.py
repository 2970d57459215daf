"""What can be asked of schedules."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from servo.answers.automations import Changed, Forecast, ScheduleView, Ticked, TickView
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

"""What can be asked of sensors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from servo.answers.automation import Changed
from servo.answers.sensors import Accepted, CursorReset, EvalView, SensorView
from servo.operations.fields import BeforeEvent, Limit, Name, Reason, Since, Text, Until, Version
from servo.operations.operation import CONFLICT, NOT_FOUND, UNFIT, Change, ListQuestion, Question


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


class DeleteSensor(
    Change[Changed],
    route="DELETE /sensors/{sensor}",
    client="sensors.delete",
    key="optional",
    refusals=(NOT_FOUND, CONFLICT),
):
    """Delete a sensor that no code declares. What it asked for stays."""

    sensor: Name
    expected_state_version: Version = None
    reason: Reason = None


class PauseSensor(
    Change[Changed],
    route="POST /sensors/{sensor}/pause",
    client="sensors.pause",
    key="optional",
    body_required=False,
    deploys="unknown",
    refusals=(NOT_FOUND, CONFLICT),
):
    """Pause a sensor: it is not polled, and its messages are recorded as skipped; those can be evaluated later."""

    sensor: Name
    expected_state_version: Version = None
    reason: Reason = None


class ResumeSensor(
    Change[Changed],
    route="POST /sensors/{sensor}/resume",
    client="sensors.resume",
    key="optional",
    body_required=False,
    deploys="unknown",
    refusals=(NOT_FOUND, CONFLICT),
):
    """Let a paused sensor go on from its cursor."""

    sensor: Name
    expected_state_version: Version = None
    reason: Reason = None


class ResetCursor(
    Change[CursorReset],
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
    reason: Reason = None
    expected_state_version: Version = None


class EvaluateSensor(
    Change[Accepted],
    route="POST /sensors/{sensor}/evaluate",
    client="sensors.evaluate",
    key="required",
    example={"data": '{"day": "2025-01-15"}', "dry_run": True},
    body_required=False,
    deploys="always",
    shares="sensor",
    refusals=(NOT_FOUND, CONFLICT, UNFIT),
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

    status: Annotated[Literal["enabled", "paused"] | None, Meta(description="Only those.")] = None
    limit: Limit = 50


class GetSensor(Question[SensorView], route="GET /sensors/{sensor}", client="sensors.get", refusals=(NOT_FOUND,)):
    """Show a sensor, by its name or id: its cursor, and its last evaluation."""

    sensor: Name


class ListEvaluations(
    ListQuestion[EvalView],
    route="GET /sensors/{sensor}/evals",
    client="sensors.evals",
    cacheable=True,
    refusals=(NOT_FOUND,),
):
    """List the evaluations of a sensor, newest first, each with what became of the runs that it asked for."""

    sensor: Name
    status: Literal["TRIGGERED", "NO_DATA", "SKIPPED", "SKIPPED_STALE_CURSOR", "FAILED"] | None = None
    trigger: Literal["push", "poll", "manual"] | None = None
    since: Since = None
    until: Until = None
    before: BeforeEvent = None
    limit: Limit = 50

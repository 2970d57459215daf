"""What can be asked of sensors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from servo.answers.automations import Accepted, Changed, CursorReset, EvalView, SensorView
from servo.operations.fields import BeforeEvent, Name, OnOff, Since, Text, Until
from servo.operations.operation import CONFLICT, NOT_FOUND, UNFIT, Change, ListQuestion, Question, VersionedFields


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

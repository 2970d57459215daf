"""Sensors of one workspace: listed, switched, set back, and asked what they found.

Who evaluates them is `servo.runtime.automation.sensing`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from datetime import datetime

import msgspec

from servo.answers.automation import Changed
from servo.answers.sensors import CursorReset, EvalView, SensorView
from servo.assets.watches import watch_from_json
from servo.errors import AppendConflict, IdempotencyMismatch, InvalidInput
from servo.events import Proposal
from servo.events.automation import SensorCursorReset, SensorDeleted, SensorPaused, SensorResumed
from servo.events.definitions import SensorDefinition
from servo.events.fact import Fact
from servo.events.lifecycles import EvaluationStatus
from servo.ids import is_ulid
from servo.ledger.protocol import Condition
from servo.runtime.appending import Patience
from servo.runtime.automation.changing import change, require_version
from servo.runtime.automation.schedule_making import require_ours
from servo.runtime.automation.sensor_making import SensorRequest, create_sensor
from servo.runtime.automation.sensor_views import evals_of, facts_of, view_of
from servo.runtime.automation.state import Folder, find, looked_at, snapshot_of, there
from servo.runtime.deployed_state import DeployedAutomation, DeployedState, state_of
from servo.runtime.requesting import append_answered
from servo.runtime.wiring import Project

__all__ = ["SensorRequest", "Sensors"]

STATUSES = tuple(EvaluationStatus)
TRIGGERS = ("push", "poll", "manual")
_LONGEST_CURSOR = 64 * 1024


class Sensors:
    """The sensors. With `local`, what the folder declares counts as it is written there, deployed or not."""

    def __init__(self, project: Project, *, local: bool = False) -> None:
        self._project = project
        self._local = local

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def list(self) -> list[SensorView]:
        """All that there are, by name."""
        folder = self._folder()
        return self._views(there(folder.state.sensors), folder)

    def find(self, sensor: str) -> DeployedAutomation:
        """The one that is meant: by its name, its id, or how its id begins."""
        return find(self._folder().state.sensors, sensor, what="sensor")

    def show(self, sensor: str) -> SensorView:
        folder = self._folder()
        [view] = self._views([find(folder.state.sensors, sensor, what="sensor")], folder)
        return view

    def evals(
        self,
        sensor: str,
        *,
        status: str | None = None,
        trigger: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> builtins.list[EvalView]:
        """What it found, newest first. `before`: the event id of the last one that was seen."""
        if status is not None and status not in STATUSES:
            raise InvalidInput(f"an evaluation is never {status!r:.40}", hint=f"one of {', '.join(STATUSES)}")
        if trigger is not None and trigger not in TRIGGERS:
            raise InvalidInput(f"nothing is evaluated by {trigger!r:.40}", hint=f"one of {', '.join(TRIGGERS)}")
        if limit < 1 or (before is not None and not is_ulid(before)):
            raise InvalidInput("the limit is 1 or more, and `before` an event id", hint="leave them out")
        one = self.find(sensor)
        asked = {"status": status, "trigger": trigger, "since": since, "until": until, "before": before, "limit": limit}
        return evals_of(self._project, snapshot_of(self._project), {"sensor_id": one.id, **asked})

    # ── making ───────────────────────────────────────────────────────────────────────────────────────────────────

    def create(self, asked: SensorRequest, *, request_id: str | None = None, actor: str) -> Changed:
        """A sensor that no code declares. The same request id again is the same sensor."""
        return create_sensor(self._project, asked, request_id=request_id, actor=actor)

    def delete(
        self, sensor: str, *, expected_version: int | None = None, reason: str | None = None, actor: str
    ) -> Changed:
        """It is asked no more. What it asked for stays."""

        def decide(one: DeployedAutomation) -> tuple[Fact | None, bool]:
            require_ours(one, "deleted")
            return SensorDeleted(sensor_id=one.id, version=one.version + 1, reason=reason), False

        return self._change(sensor, decide, expected_version, actor)

    # ── switching ────────────────────────────────────────────────────────────────────────────────────────────────

    def pause(
        self, sensor: str, *, expected_version: int | None = None, reason: str | None = None, actor: str
    ) -> Changed:
        """It is not polled, and messages are recorded as skipped; those can be evaluated later, by hand."""

        def decide(one: DeployedAutomation) -> tuple[Fact | None, bool]:
            fact = SensorPaused(sensor_id=one.id, version=one.version + 1, reason=reason)
            return (fact if one.definition.enabled else None), False

        return self._change(sensor, decide, expected_version, actor)

    def resume(
        self, sensor: str, *, expected_version: int | None = None, reason: str | None = None, actor: str
    ) -> Changed:
        """It goes on from its cursor."""

        def decide(one: DeployedAutomation) -> tuple[Fact | None, bool]:
            fact = SensorResumed(sensor_id=one.id, version=one.version + 1, reason=reason)
            return (None if one.definition.enabled else fact), True

        return self._change(sensor, decide, expected_version, actor)

    def reset_cursor(
        self,
        sensor: str,
        cursor: str | None,
        *,
        expected_state_version: int | None = None,
        reason: str | None = None,
        actor: str,
    ) -> CursorReset:
        """It goes on from this cursor; from None as if it had never been evaluated.

        An evaluation that is under way comes too late, and what it asks for is dropped.
        """
        project = self._project
        patience = Patience(f"sensor {sensor!r:.80}")
        while True:
            snapshot = snapshot_of(project)
            state = DeployedState(position=0) if snapshot is None else state_of(snapshot)
            one = find(state.sensors, sensor, what="sensor")
            _require_cursor(one, cursor)
            facts = facts_of(snapshot).get(one.id, {})
            version = facts.get("state_version") or 0
            require_version(one.definition.name, version, expected_state_version, what="state version")
            now = project.clock()
            fact = SensorCursorReset(sensor_id=one.id, state_version=version + 1, cursor=cursor, reason=reason)
            done = CursorReset(
                sensor_id=one.id,
                name=one.definition.name,
                cursor=cursor,
                cursor_before=facts.get("cursor"),
                state_version=version + 1,
                event_id="",
                accepted_at=now,
            )
            try:
                (receipt,) = append_answered(
                    project,
                    [Proposal(fact=fact, occurred_at=now, actor=actor)],
                    Condition(position=state.position, subjects=frozenset({one.id})),
                    answer=done,
                )
            except (AppendConflict, IdempotencyMismatch):
                patience.pause()  # it was evaluated meanwhile, which is no obstacle
                continue
            return msgspec.structs.replace(done, event_id=receipt.event_id)

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _folder(self) -> Folder:
        return looked_at(self._project, local=self._local)

    def _views(self, ones: builtins.list[DeployedAutomation], folder: Folder) -> builtins.list[SensorView]:
        snapshot, now = snapshot_of(self._project), self._project.clock()
        facts = facts_of(snapshot)
        polls = {} if snapshot is None else self._project.polls.all()
        return [
            view_of(one, facts.get(one.id, {}), polls.get(one.id), now, deployed=one.id not in folder.undeployed)
            for one in ones
        ]

    def _change(
        self,
        sensor: str,
        decide: Callable[[DeployedAutomation], tuple[Fact | None, bool]],
        expected: int | None,
        actor: str,
    ) -> Changed:
        def found(state: DeployedState) -> DeployedAutomation:
            return find(state.sensors, sensor, what="sensor")

        return change(self._project, found, decide, expected_version=expected, actor=actor)


def _require_cursor(one: DeployedAutomation, cursor: str | None) -> None:
    """Refuse a cursor that the sensor could not go on from."""
    definition = one.definition
    assert isinstance(definition, SensorDefinition)
    if definition.kind != "poll":
        raise InvalidInput(
            f"{definition.name} is a {definition.kind} sensor, which has no cursor", hint="only poll sensors have one"
        )
    if cursor is None:
        return
    if not isinstance(cursor, str):
        raise InvalidInput(f"the cursor of {definition.name} is a text, not {cursor!r:.80}", hint="write it as a text")
    if len(cursor.encode(errors="surrogatepass")) > _LONGEST_CURSOR or not _is_unicode(cursor):
        raise InvalidInput(f"the cursor of {definition.name} is a text of 64 KB at most", hint="give a shorter one")
    if (watch := definition.settings.get("watch")) is not None:
        watch_from_json(watch).require_cursor(cursor)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

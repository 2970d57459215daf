"""Short ways to perform operations on a project, as a server does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from servo.answers import runs as answers
from servo.answers.automations import Changed, CursorReset, EvalView, Forecast, ScheduleView, SensorView, TickView
from servo.answers.backfills import Backfilled, BackfillSummary, BackfillTree, ChunkView, Steered
from servo.answers.lineage import Invalidated
from servo.answers.runs import CheckpointListed, CheckpointView, Decided
from servo.assets.evaluation import Evaluation, Message
from servo.controllers.automation_boards import SensorState
from servo.controllers.backfill_board import Backfill
from servo.events.definitions import ScheduleDefinition
from servo.operations.assets.materializations import Table, staged_rows
from servo.operations.automations import requests as automations
from servo.operations.backfills.plan import BackfillPlan, plan_backfill
from servo.operations.backfills.records import backfills_of, find_backfill
from servo.operations.backfills.requests import (
    BackfillFields,
    CancelBackfill,
    CreateBackfill,
    ListBackfills,
    PauseBackfill,
    ResumeBackfill,
    RetryFailed,
)
from servo.operations.backfills.views import chunks_of, tree_of
from servo.operations.checkpoints import requests as checkpoints
from servo.operations.lineage.requests import Invalidate, Rematerialize
from servo.operations.operation import Change, ListQuestion, Question
from servo.operations.runs import requests as runs
from servo.operations.runs.selection import plan_of_chosen, plan_of_due
from servo.planning import Plan
from servo.planning.catalog import DeployedAutomation
from servo.planning.due import Due
from servo.runtime import Project
from servo.runtime.deploying import deployed_state
from servo.runtime.performer import Performer
from servo.runtime.runs import follow_run
from servo.runtime.states import state_of
from servo.status.state import State

A = TypeVar("A")


class NoUserCode:
    """For operations that ask no function; one that does fails."""

    def ask_sensor(self, sensor: SensorState, message: Message | None) -> Evaluation:
        raise AssertionError("nothing is evaluated here")

    def ask_schedule(self, definition: ScheduleDefinition, at: datetime) -> Evaluation | None:
        return None


class Operating:
    """Performs operations on a project."""

    def __init__(self, project: Project, *, local: bool = False) -> None:
        self.project = project
        self.performer = Performer(project, NoUserCode(), in_folder=local)

    def ask(self, request: Question[A]) -> A:
        return self.performer.ask(request)

    def items(self, request: ListQuestion[A], limit: int = 1_000) -> list[A]:
        return list(self.performer.listed(request, limit=limit).items)

    def do(self, request: Change[A], *, actor: str, request_id: str | None = None) -> A:
        return self.performer.change(request, actor=actor, key=request_id).told


class Backfills(Operating):
    """The operations on backfills, by their verbs, and what they are made of."""

    @property
    def state(self) -> State:
        return state_of(self.project)

    def preview(self, asked: BackfillFields) -> BackfillPlan:
        state = self.state
        return plan_backfill(state.judged_by(state.local.catalog), asked)

    def create(self, asked: CreateBackfill, *, actor: str, request_id: str | None = None) -> Backfilled:
        return self.do(asked, actor=actor, request_id=request_id)

    def retry_failed(self, backfill: str, *, actor: str, request_id: str | None = None) -> Backfilled:
        return self.do(RetryFailed(backfill=backfill), actor=actor, request_id=request_id)

    def _steer(
        self, kind: Any, backfill: str, actor: str, expected_version: int | None = None, reason: str | None = None
    ) -> Steered:
        request = kind(backfill=backfill, expected_state_version=expected_version, reason=reason)
        return self.do(request, actor=actor)

    def pause(self, backfill: str, *, actor: str, **options: Any) -> Steered:
        return self._steer(PauseBackfill, backfill, actor, **options)

    def resume(self, backfill: str, *, actor: str, **options: Any) -> Steered:
        return self._steer(ResumeBackfill, backfill, actor, **options)

    def cancel(self, backfill: str, *, actor: str, **options: Any) -> Steered:
        return self._steer(CancelBackfill, backfill, actor, **options)

    def find(self, backfill: str) -> tuple[str, str]:
        return find_backfill(self.state, backfill)

    def job(self, backfill: str) -> Backfill:
        backfill_id, root = self.find(backfill)
        return backfills_of(self.state.tables, [root]).jobs[backfill_id]

    def list(self) -> list[BackfillSummary]:
        return self.items(ListBackfills())

    def tree(self, backfill: str, *, failures: int = 100) -> BackfillTree:
        return tree_of(self.state, *self.find(backfill), failures=failures)

    def chunks(self, backfill: str, **options: Any) -> list[ChunkView]:
        return chunks_of(self.state, self.job(backfill), **options)


class Invalidation(Operating):
    """The changes of lineage, by their verbs."""

    def invalidate(
        self, asset: str, partitions: Sequence[str] = (), *, actor: str, request_id: str | None = None, **asked: Any
    ) -> Invalidated:
        request = Invalidate(asset=asset, partitions=tuple(partitions), **asked)
        return self.do(request, actor=actor, request_id=request_id)

    def rematerialize(
        self, asset: str, partitions: Sequence[str] = (), *, actor: str, request_id: str | None = None, **asked: Any
    ) -> Backfilled | None:
        request = Rematerialize(asset=asset, partitions=tuple(partitions), **asked)
        return self.do(request, actor=actor, request_id=request_id).backfill


class Schedules(Operating):
    """The operations on schedules, by their verbs."""

    def find(self, schedule: str) -> DeployedAutomation:
        return deployed_state(self.project).schedule(schedule)

    def list(self) -> list[ScheduleView]:
        return self.items(automations.ListSchedules())

    def show(self, schedule: str) -> ScheduleView:
        return self.ask(automations.GetSchedule(schedule=schedule))

    def ticks(self, schedule: str, limit: int = 50, **asked: Any) -> Any:
        asked |= {name: asked[name].isoformat() for name in ("since", "until") if name in asked}
        found: list[TickView] = self.items(automations.ListTicks(schedule=schedule, **asked), limit)
        return found

    def next(self, *, name: str | None = None, since: datetime | None = None, **asked: Any) -> Forecast:
        begin = None if since is None else since.isoformat()
        return self.ask(automations.ForecastSchedules(schedule=name, since=begin, **asked))

    def create(self, request: automations.CreateSchedule, *, actor: str, request_id: str | None = None) -> Changed:
        return self.do(request, actor=actor, request_id=request_id)

    def update(self, schedule: str, *, actor: str, expected_version: int | None = None, **edit: Any) -> Changed:
        request = automations.UpdateSchedule(schedule=schedule, expected_state_version=expected_version, **edit)
        return self.do(request, actor=actor)

    def _switch(
        self, kind: Any, schedule: str, expected_version: int | None, reason: str | None, actor: str
    ) -> Changed:
        request = kind(schedule=schedule, expected_state_version=expected_version, reason=reason)
        return self.do(request, actor=actor)

    def delete(
        self, schedule: str, *, actor: str, expected_version: int | None = None, reason: str | None = None
    ) -> Changed:
        return self._switch(automations.DeleteSchedule, schedule, expected_version, reason, actor)

    def pause(
        self, schedule: str, *, actor: str, expected_version: int | None = None, reason: str | None = None
    ) -> Changed:
        return self._switch(automations.PauseSchedule, schedule, expected_version, reason, actor)

    def resume(
        self, schedule: str, *, actor: str, expected_version: int | None = None, reason: str | None = None
    ) -> Changed:
        return self._switch(automations.ResumeSchedule, schedule, expected_version, reason, actor)


class Sensors(Operating):
    """The operations on sensors, by their verbs."""

    def find(self, sensor: str) -> DeployedAutomation:
        return deployed_state(self.project).sensor(sensor)

    def list(self) -> list[SensorView]:
        return self.items(automations.ListSensors())

    def show(self, sensor: str) -> SensorView:
        return self.ask(automations.GetSensor(sensor=sensor))

    def evals(self, sensor: str, limit: int = 50, **asked: Any) -> Any:
        asked |= {name: asked[name].isoformat() for name in ("since", "until") if name in asked}
        found: list[EvalView] = self.items(automations.ListEvaluations(sensor=sensor, **asked), limit)
        return found

    def create(self, request: automations.CreateSensor, *, actor: str, request_id: str | None = None) -> Changed:
        return self.do(request, actor=actor, request_id=request_id)

    def _switch(self, kind: Any, sensor: str, expected_version: int | None, reason: str | None, actor: str) -> Changed:
        return self.do(kind(sensor=sensor, expected_state_version=expected_version, reason=reason), actor=actor)

    def delete(
        self, sensor: str, *, actor: str, expected_version: int | None = None, reason: str | None = None
    ) -> Changed:
        return self._switch(automations.DeleteSensor, sensor, expected_version, reason, actor)

    def pause(
        self, sensor: str, *, actor: str, expected_version: int | None = None, reason: str | None = None
    ) -> Changed:
        return self._switch(automations.PauseSensor, sensor, expected_version, reason, actor)

    def resume(
        self, sensor: str, *, actor: str, expected_version: int | None = None, reason: str | None = None
    ) -> Changed:
        return self._switch(automations.ResumeSensor, sensor, expected_version, reason, actor)

    def reset_cursor(
        self,
        sensor: str,
        cursor: str | None,
        *,
        actor: str,
        expected_state_version: int | None = None,
        reason: str | None = None,
    ) -> CursorReset:
        request = automations.ResetCursor(
            sensor=sensor, cursor=cursor, expected_state_version=expected_state_version, reason=reason
        )
        return self.do(request, actor=actor)


class Runs(Operating):
    """The operations on runs, by their verbs."""

    def plan(self, select: Sequence[str], *, partitions: str | None = None) -> Plan:
        return plan_of_chosen(state_of(self.project), select, partitions)

    def request(
        self, select: Sequence[str], *, actor: str, request_id: str | None = None, **wishes: Any
    ) -> answers.Requested:
        return self.do(runs.CreateRun(select=tuple(select), **wishes), actor=actor, request_id=request_id)

    def request_due(self, select: Sequence[str], *, actor: str) -> answers.Requested | None:
        return self.do(runs.CreateDueRun(select=tuple(select)), actor=actor).run

    def retry(self, run_id: str, *, actor: str, request_id: str | None = None, **wishes: Any) -> answers.Requested:
        return self.do(runs.RetryRun(run_id=run_id, **wishes), actor=actor, request_id=request_id)

    def cancel(self, run_id: str, *, actor: str, reason: str | None = None) -> answers.CancelRequested:
        return self.do(runs.CancelRun(run_id=run_id, reason=reason), actor=actor)

    def progress(self, run_id: str) -> answers.RunProgress:
        return self.ask(runs.GetProgress(run_id=run_id))

    def show(self, run_id: str) -> answers.RunView:
        return self.ask(runs.GetRun(run_id=run_id))

    def list(self, limit: int = 50, **asked: Any) -> Any:
        found: list[answers.RunListed] = self.items(runs.ListRuns(**asked), limit)
        return found

    def conflicts(self, **asked: Any) -> Any:
        found: list[answers.RunConflict] = self.items(runs.ListConflicts(**asked))
        return found

    def follow(
        self, run: answers.Requested | str, on_change: Callable[[answers.RunProgress], None], **how: Any
    ) -> answers.RunProgress:
        return follow_run(self.project, run, on_change, **how)


def plan_what_is_due(project: Project, select: Sequence[str]) -> tuple[Due, Plan]:
    return plan_of_due(state_of(project), select)


class Checkpoints(Operating):
    """The operations on checkpoints, by their verbs."""

    def list(self, **asked: Any) -> Any:
        found: list[CheckpointListed] = self.items(checkpoints.ListCheckpoints(**asked))
        return found

    def show(self, checkpoint_id: str) -> CheckpointView:
        return self.ask(checkpoints.GetCheckpoint(checkpoint_id=checkpoint_id))

    def read(self, checkpoint_id: str, *, limit: int | None = None) -> tuple[str, Table]:
        return staged_rows(self.project.storage, state_of(self.project), checkpoint_id, limit)

    def approve(self, checkpoint_id: str, *, actor: str, **wishes: Any) -> Decided:
        return self.do(checkpoints.ApproveCheckpoint(checkpoint_id=checkpoint_id, **wishes), actor=actor)

    def reject(self, checkpoint_id: str, *, actor: str, reason: str) -> Decided:
        return self.do(checkpoints.RejectCheckpoint(checkpoint_id=checkpoint_id, reason=reason), actor=actor)

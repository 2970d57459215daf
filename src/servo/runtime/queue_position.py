"""Positions of runs and tasks in the queue: why one that could begin does not run yet, as of now."""

from __future__ import annotations

from servo.controllers.dispatch import POOL, Limits, queue_heads, ready, unplanned
from servo.controllers.states import RunState, TaskState
from servo.runtime.tracker import RunTracker
from servo.runtime.wiring import Project
from servo.status.state import State

__all__ = ["QueuePosition"]

_IDLE = "nothing is at work: it begins when `servo up` does"


class QueuePosition:
    """Why runs and tasks wait, by the same rules that give them to workers."""

    def __init__(self, project: Project, state: State) -> None:
        self._state = state
        self._limits = Limits.of(project.settings.limits)
        self._at_work = {holder.kind for holder in project.leases.live()}
        tracker = RunTracker(project)
        tracker.refresh()
        self._board = tracker.board

    def of(self, run_id: str, task_key: str | None) -> tuple[str, list[str]]:
        """Why a task does not run, or a run is not planned, in words; and the tasks or runs that it waits behind."""
        run = self._board.runs.get(run_id)
        if run is None:
            return "it waits for its turn", []
        ahead = run if run.queue is None else queue_heads(self._board).get(run.queue, run)
        if ahead is not run:
            return f"it waits for {ahead.run_id}: they go one after another", [ahead.run_id]
        if task_key is None or task_key not in run.tasks:
            return self._planning(run)
        return self._starting(run, run.tasks[task_key])

    def _planning(self, run: RunState) -> tuple[str, list[str]]:
        if not run.planned and run not in unplanned(self._board, self._limits):
            return f"it waits behind the limit of {self._limits.runs} runs at a time", self._others(run)
        return ("it is planned when the control loop comes to it" if "control" in self._at_work else _IDLE), []

    def _starting(self, run: RunState, task: TaskState) -> tuple[str, list[str]]:
        limits = self._limits
        first = ((one.run_id, one.task_key) for one in ready(self._board, self._state.catalog, self._state.now, limits))
        if (run.run_id, task.task_key) in first:
            return ("it is ready, for the next worker that is free" if "worker" in self._at_work else _IDLE), []
        busy = [key for one in self._board.runs.values() for key in one.running]
        if len(busy) >= limits.tasks:
            return f"it waits behind the limit of {limits.tasks} tasks at a time", busy
        spec = self._state.catalog.graph.specs.get(task.asset_key)
        pool = None if spec is None else spec.tags.get(POOL)
        if pool in limits.pools:
            return f"it waits behind the limit of {limits.pools[pool]} tasks in the pool {pool}", busy
        others = self._others(run)
        if not run.running and len(others) >= limits.runs:
            return f"it waits behind the limit of {limits.runs} runs at a time", others
        return "it waits for its turn: others go first", busy

    def _others(self, run: RunState) -> list[str]:
        return [one.run_id for one in self._board.runs.values() if one.started and one.run_id != run.run_id]

"""What runs have done about a partition, and why not more: the newest first, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from servo import canonical, decoders
from servo.answers.partitions import InputState, Obstacle
from servo.controllers.dispatch import POOL, UNCHANGED, queue_heads, ready, unplanned
from servo.controllers.states import RunState, TaskState
from servo.events import decode
from servo.events.columns import MADE, Outcome, spread
from servo.events.definitions import HeldBack
from servo.events.lifecycles import TaskStatus, in_sql
from servo.events.model import TaskFinished
from servo.partitions import PartitionKey, PartitionSet
from servo.planning.planner import without_input
from servo.planning.stages import lacking
from servo.status.asset_status import partitions_of
from servo.status.plans import FROZEN
from servo.status.state import State

__all__ = ["Activity", "error_of", "lacking_inputs"]

# Of an asset, the newest tasks that may be about one partition; who asks for a thousand runs of it in vain knows why.
_TASKS = f"""
    SELECT t.run_id, t.task_key, t.state, t.attempt, t.state_at, t.retry_at, t.reason, t.partitions, t.upstream,
           t.worker, t.started_at, t.partitions_unchanged, t.finished_version, r.requested_at, r.requested_by,
           r.planned_at, r.cancel_reason, r.finished_at
    FROM tasks t JOIN runs r USING (run_id)
    WHERE t.asset_id = $asset_id AND r.requested_version IS NOT NULL
      AND (r.finished_version IS NULL OR t.state <> '{TaskStatus.SUCCEEDED}'
           OR t.partitions_succeeded < t.partition_count)
      AND (r.finished_version IS NULL OR $after IS NULL OR r.requested_version > $after OR t.state_at > $made_at)
    ORDER BY r.requested_version DESC LIMIT 1000
"""
_UNPLANNED = """
    SELECT run_id, partitions, requested_at, requested_by FROM runs
    WHERE requested_version IS NOT NULL AND planned_version IS NULL AND finished_version IS NULL
    ORDER BY requested_version DESC LIMIT 1000
"""
_HELD_BACK = """
    SELECT run_id, held_back, planned_at FROM runs
    WHERE held_back IS NOT NULL AND contains(held_back, $asset_id)
      AND ($after IS NULL OR requested_version > $after OR planned_at > $made_at)
    ORDER BY requested_version DESC LIMIT 1000
"""
_PUBLISHED_BY = """
    SELECT 1 FROM materializations WHERE asset_id = $asset_id AND partition_key = $key AND run_id = $run_id
      AND published_at IS NOT NULL LIMIT 1
"""
_NAMED = 3  # inputs that are missing
_CHECKPOINTS = """
    SELECT checkpoint_id, name, approvers, deadline, requested_at FROM checkpoints
    WHERE run_id = $run_id AND task_key = $task_key AND list_contains(partition_keys, $key)
    ORDER BY requested_version DESC LIMIT 1
"""
_ATTEMPTS = """
    SELECT partition_key, last_attempt_run_id, last_attempt_outcome, attempt_version FROM partition_status
    WHERE asset_id = $asset_id AND partition_key IN (SELECT unnest($keys))
"""


_IDLE = "nothing is at work: it begins when `servo up` does"


class Activity:
    """What runs have to do with one partition."""

    def __init__(self, state: State, asset_key: str, key: PartitionKey) -> None:
        self._state = state
        self._asset_key, self._key = asset_key, key
        self._asset_id = state.catalog.asset_id(asset_key)
        self._definition = state.catalog.spec(asset_key).partitions

    @cached_property
    def _queue(self) -> QueuePosition:
        return QueuePosition(self._state)

    def found(self, row: dict[str, Any]) -> list[Obstacle]:
        """What unfinished runs do, and how the newest attempt since the data was made came to nothing."""
        obstacles = list(self._requested()) if self._state.busy else []
        ended = False
        for task in self._tasks(row):
            if task["finished_at"] is None and not TaskStatus(task["state"]).ended:
                obstacles.append(self._unfinished(task, row))
            elif not ended and (obstacle := self._ended(task, row)) is not None:
                obstacles.append(obstacle)
                ended = True  # the newest says it; what was before it is history
        return [*obstacles, *islice(self._held_back(row), 1)]

    # ── finding ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _since_made(self, row: dict[str, Any]) -> dict[str, Any]:
        """The parameters of queries for what happened since the partition was made last."""
        version = row.get("materialization_version")
        after = None if version is None else version.rpartition(":")[2]
        return {"asset_id": self._asset_id, "after": after, "made_at": row.get("last_materialization_at")}

    def _tasks(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for task in self._state.tables.query(_TASKS, self._since_made(row)).dicts():
            data = canonical.loads(task["partitions"].encode()) if task["partitions"] else None
            if self._key in partitions_of(data, self._definition):
                yield task

    def _held_back(self, row: dict[str, Any]) -> Iterator[Obstacle]:
        """Runs that were to make it because of a `+`, since it was made last, and held it back; the newest first."""
        for run_id, text, at in self._state.tables.query(_HELD_BACK, self._since_made(row)).rows:
            for held in decoders.decode(text, list[HeldBack]):
                if held.asset_id == self._asset_id and self._key in partitions_of(held.partitions, self._definition):
                    reason, lacking = self._lacking(held, at)
                    sentence = f"was held back in {run_id}: {reason}"
                    yield Obstacle(code="HELD_BACK", sentence=sentence, run_id=run_id, at=at, because_of=lacking)

    def _lacking(self, held: HeldBack, at: datetime) -> tuple[str, list[str]]:
        """What of the inputs that a run missed this partition reads, in words, and some of them by name."""
        known, mine = self._state.catalog, self._definition.set_of([self._key])
        reasons, names = [], []
        for one in held.missing:
            spec = known.graph.specs.get(one.asset_key)
            some = None if spec is None else partitions_of(one.partitions, spec.partitions)
            if not some or one.asset_key not in known.graph.upstream(self._asset_key):
                return held.reason, [f"{one.asset_key} {label}".strip() for label in one.examples]
            definition = some.partitions
            some = known.graph.mapping(one.asset_key, self._asset_key).upstream(mine, definition, at) & some
            if some:
                reasons.append(lacking(one.asset_key, some, held_back=one.held_back))
                names += [f"{one.asset_key} {definition.short_key(key)}".strip() for key in islice(some, _NAMED)]
        return "; ".join(reasons) or held.reason, names

    def _requested(self) -> Iterator[Obstacle]:
        for run_id, asked, at, by in self._state.tables.query(_UNPLANNED).rows:
            data = canonical.loads(asked.encode()).get(self._asset_key) if asked else None
            if self._key in partitions_of(data, self._definition):
                why, others = self._queued(run_id, None)
                yield Obstacle(
                    code="QUEUED", sentence=f"asked for by {by}; {why}", run_id=run_id, at=at, because_of=others
                )

    # ── unfinished ───────────────────────────────────────────────────────────────────────────────────────────────

    def _unfinished(self, task: dict[str, Any], row: dict[str, Any]) -> Obstacle:
        common = {"run_id": task["run_id"], "task_key": task["task_key"], "at": task["state_at"]}
        mine = row.get("last_attempt_run_id") == task["run_id"]
        state = task["state"]
        if state == TaskStatus.WAITING_APPROVAL or (mine and row.get("last_attempt_outcome") == Outcome.STAGED):
            return self._waiting(task, common)
        if state == TaskStatus.RETRY_WAIT:
            error = error_of(self._state, row, str(self._key)) if mine else None
            return Obstacle(
                code="RETRY_WAIT",
                sentence=f"attempt {task['attempt']} failed; the next is due at {_at(task['retry_at'])}",
                until=task["retry_at"],
                error=error or task["reason"],
                **common,
            )
        if state == TaskStatus.RUNNING:
            if mine and row.get("last_attempt_outcome") == Outcome.SUCCEEDED:
                return Obstacle(code="RUNNING", sentence="made by a run whose other partitions still run", **common)
            attempt = f", attempt {task['attempt']}" if (task["attempt"] or 0) > 1 else ""
            by = f" on {task['worker']}" if task["worker"] else ""
            return Obstacle(code="RUNNING", sentence=f"is being computed{by}{attempt}", **common)
        open_upstream = self._open_upstream(task)
        if open_upstream:
            return Obstacle(
                code="WAITS_FOR_UPSTREAM",
                sentence=f"its run computes {_few(open_upstream)} first",
                because_of=open_upstream,
                **common,
            )
        why, others = self._queued(task["run_id"], task["task_key"])
        return Obstacle(
            code="READY" if not others and "limit" not in why else "QUEUED", sentence=why, because_of=others, **common
        )

    def _waiting(self, task: dict[str, Any], common: dict[str, Any]) -> Obstacle:
        parameters = {"run_id": task["run_id"], "task_key": task["task_key"], "key": str(self._key)}
        (found,) = self._state.tables.query(_CHECKPOINTS, parameters).dicts() or [{}]
        by = f" by {found['approvers']}" if found.get("approvers") else ""
        until = f", until {_at(found['deadline'])}" if found.get("deadline") else ""
        return Obstacle(
            code="WAITING_APPROVAL",
            sentence=f"is computed, and waits for an approval{by}{until}",
            checkpoint_id=found.get("checkpoint_id"),
            until=found.get("deadline"),
            **common,
        )

    def _open_upstream(self, task: dict[str, Any]) -> list[str]:
        if not task["upstream"]:
            return []
        sql = f"""
            SELECT task_key FROM tasks WHERE run_id = $run_id AND task_key IN (SELECT unnest($keys))
            AND state NOT IN {in_sql(state for state in TaskStatus if state.ended)} ORDER BY task_key
        """
        answer = self._state.tables.query(sql, {"run_id": task["run_id"], "keys": task["upstream"]})
        return [key for (key,) in answer.rows]

    def _queued(self, run_id: str, task_key: str | None) -> tuple[str, list[str]]:
        """Why a run or task waits, in words, and behind what. Limits and workers of the past are not known."""
        if self._state.as_of is not None:
            return "it waits for its turn", []
        return self._queue.of(run_id, task_key)

    # ── ended ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _ended(self, task: dict[str, Any], row: dict[str, Any]) -> Obstacle | None:
        common = {"run_id": task["run_id"], "task_key": task["task_key"], "at": task["state_at"]}
        mine = row.get("last_attempt_run_id") == task["run_id"]
        outcome = row.get("last_attempt_outcome") if mine else None
        if outcome in MADE:
            return None
        if outcome == Outcome.FAILED:
            error = error_of(self._state, row, str(self._key)) or task["reason"]
            return Obstacle(code="FAILED", sentence="the last attempt failed", error=error, **common)
        if outcome == Outcome.CANCELLED or task["state"] == TaskStatus.CANCELLED:
            why = f": {task['cancel_reason']}" if task["cancel_reason"] else ""
            return Obstacle(code="CANCELLED", sentence=f"its run was cancelled{why}", **common)
        if self._was_made_by(task["run_id"]):
            return None  # also where a rollback has made it current again since
        if error_of(self._state, {"attempt_version": task["finished_version"]}, str(self._key)) == FROZEN:
            return Obstacle(code="SKIPPED", sentence=f"was skipped: {FROZEN}", **common)
        culprits = self._culprits(task)
        if task["partitions_unchanged"] and not culprits:
            return Obstacle(code="UNCHANGED", sentence=f"was skipped as {UNCHANGED}", **common)
        of = f": {_few(culprits)} failed" if culprits else f": {task['reason']}" if task["reason"] else ""
        return Obstacle(
            code="SKIPPED", sentence=f"was skipped{of}", because_of=culprits, error=self._culprit_error, **common
        )

    def _was_made_by(self, run_id: str) -> bool:
        """Whether a run published this partition, whatever became of others in the same task."""
        place = {"asset_id": self._asset_id, "key": str(self._key), "run_id": run_id}
        return bool(self._state.tables.query(_PUBLISHED_BY, place).rows)

    _culprit_error: str | None = None

    def _culprits(self, task: dict[str, Any]) -> list[str]:
        """The partitions upstream that failed in the same run, as far up as it was skipped because of them."""
        known, run_id = self._state.catalog, task["run_id"]
        now = task["planned_at"] or self._state.now
        found: list[str] = []
        asked: dict[str, PartitionSet] = {self._asset_key: self._definition.set_of([self._key])}
        for asset_key in reversed(list(known.graph.specs)):  # readers before what they read
            if asset_key not in asked:
                continue
            for upstream in known.graph.upstream(asset_key):
                definition = known.spec(upstream).partitions
                needed = known.graph.mapping(upstream, asset_key).upstream(asked[asset_key], definition, now)
                if not needed or needed.count > 10_000:
                    continue
                asked[upstream] = asked[upstream] | needed if upstream in asked else needed
                parameters = {"asset_id": known.asset_id(upstream), "keys": [str(key) for key in needed]}
                for attempt in self._state.tables.query(_ATTEMPTS, parameters).dicts():
                    if attempt["last_attempt_run_id"] == run_id and attempt["last_attempt_outcome"] == Outcome.FAILED:
                        label = definition.short_key(PartitionKey.parse(attempt["partition_key"]))
                        found.append(f"{upstream} {label}".strip())
                        if self._culprit_error is None:
                            self._culprit_error = error_of(self._state, attempt, attempt["partition_key"])
        return sorted(set(found))


def error_of(state: State, row: dict[str, Any], key: str) -> str | None:
    """What the newest attempt at a partition failed of: the event that said so has the words."""
    version = row.get("attempt_version")
    if version is None:
        return None
    fact = decode(state.event(version.rpartition(":")[2]))
    if not isinstance(fact, TaskFinished) or key not in fact.partitions.keys:
        return None
    place = fact.partitions.keys.index(key)
    return spread(fact.partitions.error, len(fact.partitions))[place] or fact.error


class LackingInput(NamedTuple):
    """Why a partition cannot read an upstream asset, if any of these holds."""

    upstream: str
    absent: PartitionSet  # not there
    marked: PartitionSet  # read, and only marked as materialized
    nothing: bool  # whether its mapping gives it nothing, and is to give some


def lacking_inputs(
    state: State, asset_key: str, key: PartitionKey, inputs: Sequence[InputState]
) -> Iterator[LackingInput]:
    """What a partition with these inputs reads and cannot, for each asset upstream."""
    catalog = state.catalog
    wanted = catalog.spec(asset_key).partitions.set_of([key])
    for upstream in dict.fromkeys(catalog.graph.upstream(asset_key)):
        definition, mapping = catalog.spec(upstream).partitions, catalog.graph.mapping(upstream, asset_key)
        given = [one for one in inputs if one.given and one.asset_key == upstream]
        reads_data = catalog.reads_data(asset_key, upstream)
        yield LackingInput(
            upstream,
            absent=definition.set_of([one.partition_key for one in given if one.current_materialization_id is None]),
            marked=definition.set_of([one.partition_key for one in given if one.state == "marked" and reads_data]),
            nothing=bool(
                without_input(mapping, wanted, definition.set_of([one.partition_key for one in given]), state.now)
            ),
        )


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _at(moment: datetime | None) -> str:
    return "some time" if moment is None else moment.isoformat(timespec="seconds").replace("+00:00", "Z")


class QueuePosition:
    """Why runs and tasks wait, by the same rules that give them to workers."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._limits, self._at_work, self._board = state.queue.limits, state.queue.at_work, state.board

    def of(self, run_id: str, task_key: str | None) -> tuple[str, list[str]]:
        """Why a task does not run, or a run is not planned, in words; and the tasks or runs that it waits behind."""
        run = self._board.runs.get(run_id)
        if run is None:
            return "it waits for its turn", []
        ahead = run if run.request.queue is None else queue_heads(self._board).get(run.request.queue, run)
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

"""The board of backfills: those that have not ended, with their trees, as the ledger's events tell it.

Only the board changes the states of backfills and chunks; controllers read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import ClassVar

from servo.controllers.states import EventBoard, Take
from servo.events import RecordedEvent
from servo.events.automation import BackfillChunkPlanned, BackfillCreated, BackfillStateChanged
from servo.events.columns import Outcome
from servo.events.model import RunCancelRequested, RunFinished, TaskFinished
from servo.partitions import UNPARTITIONED, PartitionSet
from servo.partitions.sets import Slices
from servo.planning.backfills import chunk, chunk_count, selected


class BackfillState(StrEnum):
    """Where a backfill is, as its events say."""

    PENDING = "PENDING"
    WAITING_UPSTREAM = "WAITING_UPSTREAM"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


OVER = frozenset({BackfillState.SUCCEEDED, BackfillState.FAILED, BackfillState.CANCELLED})
GOING = frozenset({BackfillState.PENDING, BackfillState.RUNNING})
"""States in which the next chunk may be planned at once."""


class Shown(StrEnum):
    """States as people see them, where more is known than the recorded state."""

    PAUSED_WITH_FAILURES = "PAUSED_WITH_FAILURES"
    RESUMING = "RESUMING"
    BLOCKED_UPSTREAM_FAILED = "BLOCKED_UPSTREAM_FAILED"
    REPAIRED = "REPAIRED"


@dataclass(slots=True, kw_only=True)
class Chunk:
    """A chunk whose run has not ended."""

    index: int
    run_id: str
    count: int
    cancel_requested: bool = False
    made: dict[str, int] = field(default_factory=dict)  # partitions that are there, by task
    words: dict[str, tuple[int, int, int]] = field(default_factory=dict, compare=False)  # how new that is


@dataclass(kw_only=True)
class Backfill:
    """One backfill from its creation to its end. Of chunks that have ended only the numbers are kept."""

    fact: BackfillCreated
    created_at: datetime
    created_by: str
    position: int
    state: BackfillState
    state_version: int = 1
    state_at: datetime | None = None
    reason: str | None = None
    next_chunk: int = 0  # the first that is not planned
    resumed: bool = False  # since it was resumed no chunk has been planned
    active: dict[str, Chunk] = field(default_factory=dict)  # by run id
    succeeded: int = 0  # partitions, of chunks that have ended
    failed: int = 0  # and were not made, for whatever reason
    cancelled: int = 0  # those of them whose run was cancelled

    @property
    def id(self) -> str:
        return self.fact.backfill_id

    @property
    def root(self) -> str:
        """The backfill whose tree this one is part of."""
        return self.fact.root_backfill_id or self.id

    @property
    def over(self) -> bool:
        return self.state in OVER

    @property
    def is_retry(self) -> bool:
        return self.fact.retry_request_id is not None

    @property
    def chunks(self) -> int:
        """How many chunks it has."""
        return chunk_count(self.fact.total_partitions, self.fact.chunk_size)

    @cached_property
    def partitions(self) -> PartitionSet:
        """Everything that it is to compute, by the definition that it was decided on."""
        if self.fact.definition is None:
            return UNPARTITIONED.empty()
        return selected(self.fact.definition, self.fact.selector)

    @property
    def unplanned(self) -> PartitionSet:
        """The partitions that no chunk was planned for yet."""
        total, planned = self.partitions.count, self.next_chunk * self.fact.chunk_size
        left = max(total - planned, 0)
        return self.partitions.slice(0, left) if self.fact.newest_first else self.partitions.slice(total - left, total)

    @cached_property
    def _slices(self) -> Slices:
        return Slices(self.partitions)

    def chunk(self, index: int) -> PartitionSet:
        return chunk(self._slices, self.fact.chunk_size, index, newest_first=self.fact.newest_first)


class Backfills(EventBoard):
    """Backfills that have not ended, with their trees."""

    def __init__(self, *, position: int = 0, keep_ended: bool = False) -> None:
        super().__init__(position)
        self.jobs: dict[str, Backfill] = {}
        self._keep_ended = keep_ended
        self._of_runs: dict[str, str] = {}  # backfills by the runs of their active chunks
        # Those that are not kept any more: whoever tells of one again tells nothing new. It grows with the trees that
        # end while this process runs, by a short text for each of their jobs, whatever their size: people ask for
        # backfills, and would not fill a memory with them in years.
        self._over: set[str] = set()
        self._retries: dict[str, list[str]] = {}
        self._trees: dict[str, list[str]] = {}

    def begin_with(self, jobs: Iterable[Backfill]) -> Backfills:
        """Go on from what is known already of some backfills, as of this position. Gives itself."""
        for job in jobs:
            self._add(job)
            self._of_runs.update(dict.fromkeys(job.active, job.id))
        return self

    def _pass_over(self, event: RecordedEvent) -> None:
        # Of runs that are nobody's chunk, nothing is even decoded.
        if event.correlation_id in self._of_runs and (take := self.takes_of_runs.get(event.event_type)) is not None:
            self._take(event, take)

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def open(self) -> Iterator[Backfill]:
        """Backfills that have not ended, most urgent first."""
        going_on = (job for job in self.jobs.values() if not job.over)
        return iter(sorted(going_on, key=lambda job: (-job.fact.priority, job.position)))

    def tree(self, root: str) -> list[Backfill]:
        """The whole tree of a root, retries among them; itself first."""
        return [self.jobs[one] for one in self._trees.get(root, ()) if one in self.jobs]

    def has_succeeded(self, backfill_id: str) -> bool:
        """Whether a job gave all that it was to give: by itself, or with a retry of what had failed."""
        job = self.jobs.get(backfill_id)
        if job is None:
            return False
        return job.state is BackfillState.SUCCEEDED or any(self.has_succeeded(one.id) for one in self._repairs(job))

    def may_start(self, job: Backfill) -> bool:
        """Whether everything that a job waits for has succeeded."""
        return all(self.has_succeeded(upstream.backfill_id) for upstream in job.fact.upstreams)

    def blockers(self, job: Backfill) -> list[Backfill]:
        """The jobs upstream, however far, that have failed or were cancelled and that nobody tries again."""
        found: dict[str, Backfill] = {}
        seen, waiting = {job.id}, [job]
        for one in waiting:  # grows while it is walked through
            for upstream in one.fact.upstreams:
                other = self.jobs.get(upstream.backfill_id)
                if other is None or other.id in seen or self.has_succeeded(other.id):
                    continue
                seen.add(other.id)
                if other.over:
                    found.update((lost.id, lost) for lost in self._lost(other))
                    # A retry of what was cancelled before it began may itself have to wait.
                    waiting += (one for one in self.retries(other) if not one.over)
                else:
                    waiting.append(other)
        return list(found.values())

    def retries(self, job: Backfill) -> list[Backfill]:
        """The retries of a job, and those of them, however far."""
        found = [job]
        for one in found:  # grows while it is walked through
            found += (self.jobs[retry] for retry in self._retries.get(one.id, ()) if retry in self.jobs)
        return found[1:]

    def is_waited_for(self, job: Backfill) -> bool:
        """Whether others cannot start without it, or without what it repairs."""
        while job.is_retry and (repaired := self.jobs.get(job.fact.parent_backfill_id or "")) is not None:
            job = repaired
        if self.has_succeeded(job.id):
            return False
        waiting = (one for one in self.tree(job.root) if not one.over)
        return any(upstream.backfill_id == job.id for one in waiting for upstream in one.fact.upstreams)

    def is_paused(self, root: str) -> bool:
        """Whether nothing new is to start in a tree: its root is paused, or has ended and all the others are."""
        above = self.jobs.get(root)
        if above is not None and not above.over:
            return above.state is BackfillState.PAUSED
        going_on = [job for job in self.tree(root) if not job.over]
        return bool(going_on) and all(job.state is BackfillState.PAUSED for job in going_on)

    def shown(self, job: Backfill) -> str:
        """The state as people see it."""
        match job.state:
            case BackfillState.FAILED | BackfillState.CANCELLED if self.has_succeeded(job.id):
                return Shown.REPAIRED
            case BackfillState.PAUSED if job.failed:
                return Shown.PAUSED_WITH_FAILURES
            case BackfillState.WAITING_UPSTREAM if self.blockers(job):
                return Shown.BLOCKED_UPSTREAM_FAILED
            case BackfillState.RUNNING | BackfillState.PENDING if job.resumed and job.next_chunk < job.chunks:
                return Shown.RESUMING
        return job.state

    def _lost(self, job: Backfill) -> list[Backfill]:
        """A job that has ended without success, unless a retry of it goes on; of retries that failed, the last.

        A retry that was cancelled is as if nobody had tried.
        """
        lost = []
        for retry in self._repairs(job):
            left = self._lost(retry) if retry.over else []
            if retry.state is not BackfillState.CANCELLED or left != [retry]:
                lost.append(left)
        if not lost:
            return [job]
        return [] if any(not one for one in lost) else lost[-1]

    def _repairs(self, job: Backfill) -> list[Backfill]:
        """Retries that would give all that is missing: of a job that was cancelled or given up, more is than failed."""
        if job.state not in (BackfillState.FAILED, BackfillState.CANCELLED):
            return []
        retries = [self.jobs[one] for one in self._retries.get(job.id, ()) if one in self.jobs]
        missing = job.fact.total_partitions - job.succeeded
        return [retry for retry in retries if retry.fact.total_partitions >= missing]

    # ── backfills ────────────────────────────────────────────────────────────────────────────────────────────────

    def _created(self, event: RecordedEvent, fact: BackfillCreated) -> None:
        if fact.backfill_id in self.jobs or fact.backfill_id in self._over:
            return
        job = Backfill(
            fact=fact,
            created_at=event.occurred_at,
            created_by=event.actor,
            position=event.position,
            state=BackfillState(fact.state),
            state_at=event.occurred_at,
        )
        self._add(job)

    def _add(self, job: Backfill) -> None:
        self.jobs[job.id] = job
        self._trees.setdefault(job.root, []).append(job.id)
        if job.is_retry and job.fact.parent_backfill_id is not None:
            self._retries.setdefault(job.fact.parent_backfill_id, []).append(job.id)

    def _changed(self, event: RecordedEvent, fact: BackfillStateChanged) -> None:
        job = self.jobs.get(fact.backfill_id)
        if job is None or fact.state_version != job.state_version + 1:
            return
        job.resumed = job.state is BackfillState.PAUSED and fact.state in GOING
        job.state, job.state_version = BackfillState(fact.state), fact.state_version
        job.state_at, job.reason = event.occurred_at, fact.reason
        self._forget(job)

    def _planned(self, _: RecordedEvent, fact: BackfillChunkPlanned) -> None:
        job = self.jobs.get(fact.backfill_id)
        if job is None or fact.chunk_index < job.next_chunk:
            return
        job.next_chunk, job.resumed = fact.chunk_index + 1, False
        job.active[fact.run_id] = Chunk(index=fact.chunk_index, run_id=fact.run_id, count=fact.partition_count)
        self._of_runs[fact.run_id] = job.id

    def _forget(self, job: Backfill) -> None:
        """A tree of which nothing goes on concerns nobody any more."""
        tree = self._trees.get(job.root, [])
        if self._keep_ended or not job.over:
            return
        if any(not self.jobs[one].over or self.jobs[one].active for one in tree if one in self.jobs):
            return
        for one in self._trees.pop(job.root, []):
            self.jobs.pop(one, None)
            self._retries.pop(one, None)
            self._over.add(one)

    # ── their runs ───────────────────────────────────────────────────────────────────────────────────────────────

    def _chunk(self, run_id: str | None) -> tuple[Backfill, Chunk] | None:
        job = self.jobs.get(self._of_runs.get(run_id or "", ""))
        return None if job is None or run_id is None else (job, job.active[run_id])

    def _cancel_requested(self, _: RecordedEvent, fact: RunCancelRequested) -> None:
        if found := self._chunk(fact.run_id):
            found[1].cancel_requested = True

    def _task_finished(self, _: RecordedEvent, fact: TaskFinished) -> None:
        if found := self._chunk(fact.run_id):
            chunk, order = found[1], (fact.attempt, _step(fact), fact.part or 0)
            if order > chunk.words.get(fact.task_key, (-1, 0, 0)):
                # A total of the task, not of the attempt; the newest word counts, since what was staged may be refused.
                chunk.words[fact.task_key] = order
                chunk.made[fact.task_key] = (fact.succeeded_so_far or 0) + len(fact.unchanged)

    def _run_finished(self, _: RecordedEvent, fact: RunFinished) -> None:
        if found := self._chunk(fact.run_id):
            job, chunk = found
            del job.active[chunk.run_id], self._of_runs[chunk.run_id]
            made = chunk.count if fact.outcome is Outcome.SUCCEEDED else sum(chunk.made.values())
            job.succeeded += made
            job.failed += chunk.count - made
            job.cancelled += chunk.count - made if fact.outcome is Outcome.CANCELLED else 0
            self._forget(job)

    takes: ClassVar[Mapping[str, Take]] = {
        BackfillCreated.event_type: _created,
        BackfillChunkPlanned.event_type: _planned,
        BackfillStateChanged.event_type: _changed,
    }
    takes_of_runs: ClassVar[Mapping[str, Take]] = {
        RunCancelRequested.event_type: _cancel_requested,
        TaskFinished.event_type: _task_finished,
        RunFinished.event_type: _run_finished,
    }


def _step(fact: TaskFinished) -> int:
    """How far an attempt has come: at work, waiting for an approval, ended."""
    return (1 if fact.outcome is Outcome.STAGED else 2) if fact.final else 0

"""What must be true of every backfill, told by its events alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from servo.controllers.backfilling import BACKFILLS
from servo.events import RecordedEvent, decode
from servo.events.automation import BackfillChunkPlanned, BackfillCreated, BackfillStateChanged
from servo.events.columns import Outcome
from servo.events.fact import Fact
from servo.events.model import (
    MaterializationPublished,
    RunCancelRequested,
    RunFinished,
    RunRequested,
    TaskFinished,
)
from servo.partitions import Partitions, PartitionSet
from servo.planning.backfills import selected

OVER = {"SUCCEEDED", "FAILED", "CANCELLED"}
MOVES = {
    # At once to the end where it has nothing of its own.
    "PENDING": {"RUNNING", "PAUSED", "CANCELLED", "SUCCEEDED"},
    "WAITING_UPSTREAM": {"RUNNING", "PAUSED", "CANCELLED", "SUCCEEDED"},
    "RUNNING": {"PAUSED", "SUCCEEDED", "FAILED", "CANCELLED"},
    "PAUSED": {"PENDING", "WAITING_UPSTREAM", "RUNNING", "CANCELLED"},
}


@dataclass
class Job:
    """A backfill so far: what it is to make, in the order of its chunks, and what was made of it."""

    fact: BackfillCreated
    state: str
    keys: list[list[str]]  # by chunk
    version: int = 1
    planned: int = 0
    active: dict[str, list[str]] = field(default_factory=dict)  # partition keys, by run
    made: set[str] = field(default_factory=set)
    failed: bool = False
    retries: list[Job] = field(default_factory=list)

    @property
    def all_keys(self) -> set[str]:
        return {key for chunk in self.keys for key in chunk}

    @property
    def all_made(self) -> set[str]:
        """With what was tried again, and again."""
        return self.made.union(*(retry.all_made for retry in self.retries))


class BackfillLaws:
    """Never more chunks than the limit, each planned once and in order, none too early, and an end that is true."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.cancelled: set[str] = set()
        self.seen: Counter[str] = Counter()
        self._of_runs: dict[str, Job] = {}
        self._outcomes: dict[str, dict[str, Outcome]] = {}
        self._to_request: BackfillChunkPlanned | None = None
        self._to_cancel: set[str] = set()

    def take(self, event: RecordedEvent) -> None:
        fact = decode(event)
        assert isinstance(fact, Fact)
        by_itself = event.actor == BACKFILLS
        if self._to_request is not None:
            self._requested(self._to_request, fact)
            self._to_request = None
        match fact:
            case BackfillCreated():
                self._created(fact)
            case BackfillChunkPlanned():
                self._planned(fact)
            case BackfillStateChanged():
                self._changed(fact)
            case RunRequested():
                assert fact.source.kind != "backfill" or fact.run_id in self._of_runs, "a run of no chunk"
            case RunCancelRequested():
                # The runs that were known are stopped with it; others, by whoever decides next.
                self.seen["planned just before it was cancelled"] += fact.run_id in self._to_cancel and by_itself
                self.cancelled.add(fact.run_id)
                self._to_cancel.discard(fact.run_id)
            case TaskFinished() if fact.run_id in self._of_runs:
                self._outcomes[fact.run_id].update(zip(fact.partitions.keys, fact.partitions.outcomes(), strict=True))
            case MaterializationPublished() if fact.run_id in self._of_runs:
                self._outcomes[fact.run_id].update(dict.fromkeys(fact.partitions.keys, Outcome.SUCCEEDED))
            case RunFinished() if fact.run_id in self._of_runs:
                self._ended(fact)
            case _:
                pass

    def _created(self, fact: BackfillCreated) -> None:
        assert fact.backfill_id not in self.jobs, "created twice"
        keys = [] if fact.definition is None else list(map(str, selected(fact.definition, fact.selector)))
        assert len(keys) == fact.total_partitions
        if fact.newest_first:
            keys.reverse()
        size = fact.chunk_size
        chunks = [keys[start : start + size] for start in range(0, len(keys), size)]
        job = self.jobs[fact.backfill_id] = Job(fact, fact.state, chunks)
        if fact.retry_request_id is not None:
            parent = self.jobs[fact.parent_backfill_id or ""]
            assert parent.state in OVER, "a retry of something that goes on"
            assert job.all_keys <= parent.all_keys - parent.made, "a retry of what was made"
            assert parent.state == "CANCELLED" or job.all_keys == parent.all_keys - parent.made
            parent.retries.append(job)
            self.seen["retry of a retry"] += parent.fact.retry_request_id is not None

    def _planned(self, fact: BackfillChunkPlanned) -> None:
        job = self.jobs[fact.backfill_id]
        assert job.state == "RUNNING", f"a chunk was planned while it was {job.state}"
        assert fact.chunk_index == job.planned, "not the next chunk"
        definition = Partitions.from_json(job.fact.definition or {})
        keys = list(map(str, PartitionSet.from_json(definition, fact.partitions)))
        assert sorted(keys) == sorted(job.keys[fact.chunk_index])
        assert len(keys) == fact.partition_count
        assert fact.run_key == f"backfill:{fact.backfill_id}:chunk:{fact.chunk_index}"
        if not job.planned:
            self._require_upstreams(job)
        job.planned += 1
        job.active[fact.run_id] = keys
        assert len(job.active) <= job.fact.max_concurrent_runs, "more than the limit"
        assert fact.run_id not in self._of_runs
        self._of_runs[fact.run_id], self._outcomes[fact.run_id] = job, {}
        self._to_request = fact
        self.seen["limit reached"] += len(job.active) == job.fact.max_concurrent_runs > 1

    def _requested(self, chunk: BackfillChunkPlanned, fact: Fact) -> None:
        assert isinstance(fact, RunRequested), "a chunk without the request of its run"
        assert (fact.run_id, fact.run_key) == (chunk.run_id, chunk.run_key)
        assert fact.request_fingerprint == chunk.request_fingerprint
        assert list((fact.partitions or {}).values()) == [chunk.partitions]
        assert fact.priority == self.jobs[chunk.backfill_id].fact.priority

    def _require_upstreams(self, job: Job) -> None:
        for upstream in job.fact.upstreams:
            other = self.jobs[upstream.backfill_id]
            assert other.state in OVER, f"it did not wait for {upstream.asset_key}"
            assert other.all_made >= other.all_keys, f"it began without all of {upstream.asset_key}"
            self.seen["unblocked by a retry"] += other.state == "FAILED"
            self.seen["unblocked by a retry of what was cancelled"] += other.state == "CANCELLED"

    def _ended(self, fact: RunFinished) -> None:
        job = self._of_runs[fact.run_id]
        self._to_cancel.discard(fact.run_id)
        keys, outcomes = job.active.pop(fact.run_id), self._outcomes[fact.run_id]
        made = {key for key in keys if outcomes.get(key) is Outcome.SUCCEEDED}
        if fact.outcome is Outcome.SUCCEEDED:
            # What something newer has replaced before it was approved need not be made.
            assert all(outcomes[key] in (Outcome.SUCCEEDED, Outcome.SKIPPED) for key in keys)
            made = set(keys)
        job.made |= made
        job.failed |= len(made) < len(keys)
        self.seen["failed while paused"] += job.state == "PAUSED" and len(made) < len(keys)

    def _changed(self, fact: BackfillStateChanged) -> None:
        job = self.jobs[fact.backfill_id]
        assert fact.state_version == job.version + 1
        assert fact.state in MOVES[job.state], f"from {job.state} to {fact.state}"
        if fact.state in ("SUCCEEDED", "FAILED"):
            assert not job.active, "it ended while a chunk was active"
            assert job.planned == len(job.keys), "it ended before its last chunk"
            assert (fact.state == "FAILED") == job.failed
            assert (fact.state == "SUCCEEDED") == (job.made == job.all_keys)
        if fact.state == "SUCCEEDED" and not job.keys:
            self._require_upstreams(job)
        if job.state == "PAUSED" and fact.state in ("PENDING", "WAITING_UPSTREAM"):
            assert not job.planned
        if fact.state == "CANCELLED":
            self._to_cancel |= job.active.keys() - self.cancelled
            self.seen["cancelled with runs"] += bool(self._to_cancel)
        self.seen[f"{job.state} → {fact.state}"] += 1
        job.state, job.version = fact.state, fact.state_version

    # ── at the end ───────────────────────────────────────────────────────────────────────────────────────────────

    def check_the_end(self) -> None:
        assert not self._to_cancel, "cancelled, and a run of it was neither asked to stop nor ended"
        for job in self.jobs.values():
            assert job.state in OVER, f"{job.fact.name} is {job.state} for ever"
            assert not job.active, "a run of it never ended"

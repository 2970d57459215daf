"""The workers of a simulated world, and their mishaps."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta

from servo.assets.spec import Retry
from servo.controllers import Board, Claim, ready
from servo.controllers.decisions import next_attempt
from servo.errors import AppendConflict, Conflict, FencedOut, IdempotencyMismatch
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.fact import Fact
from servo.events.model import (
    CheckpointRequested,
    RunStarted,
    TaskFinished,
    TaskRetryScheduled,
    TaskStarted,
)
from servo.ledger import Condition
from tests.simulation.ground import Actor, Ground


class Job:
    """An attempt at work in a worker."""

    def __init__(self, claim: Claim, worker: str, position: int, retry: Retry) -> None:
        self.claim = claim
        self.worker = worker
        self.position = position
        self.retry = retry
        self.left = list(claim.keys)
        self.failed = bool(claim.failed_before)
        self.settled: list[str] = []  # what failed here in a way that trying again does not mend
        self.retryable = False
        self.made = claim.succeeded_before
        self.part = 0
        self.last_word = False


class Worker(Actor):
    """Claims, computes and commits; crashes, and pauses so long that others give it up for lost."""

    def __init__(self, world: Ground, name: str) -> None:
        super().__init__(world, name)
        self.life = 1
        self.paused_until: datetime | None = None
        self.job: Job | None = None

    @property
    def id(self) -> str:
        return f"{self.name}.{self.life}"

    def step(self) -> None:
        world, chance = self.world, self.random.random()
        if self.paused_until is not None:
            if world.now < self.paused_until:
                return
            self.paused_until = None
            if self.job is not None:
                self._work(self.job)  # it does not know yet that it was away
                return
        world.heartbeats[self.id] = world.now
        if chance < 0.02:
            world.seen["crash"] += 1
            self.job, self.board = None, Board()
            self.life += 1
            self.paused_until = world.now + timedelta(seconds=self.random.randint(0, 30))
        elif chance < 0.04:
            self.paused_until = world.now + timedelta(seconds=self.random.randint(5, 60))
        elif self.job is None:
            self._claim()
        elif chance < 0.7:
            self._work(self.job)

    def _claim(self) -> None:
        self.look()
        world = self.world
        claim = next(iter(ready(self.board, world.catalog, world.now, world.limits)), None)
        if claim is None:
            return
        run = self.board.runs[claim.run_id]
        facts: list[Fact] = [] if run.started else [RunStarted(run_id=run.run_id, source=run.request.source)]
        facts.append(
            TaskStarted(
                run_id=claim.run_id,
                task_key=claim.task_key,
                attempt=claim.attempt,
                asset_id=claim.asset_id,
                asset_key=claim.asset_key,
                partition_count=claim.partitions.count,
                worker=self.id,
            )
        )
        try:
            position = world.append(facts, f"worker:{self.id}", Condition(position=self.board.position))
        except Conflict:
            world.seen["claim refused"] += 1
            return
        self._require_inputs(claim)
        self.job = Job(claim, self.id, position, world.catalog.spec(claim.asset_key).retry)

    def _require_inputs(self, claim: Claim) -> None:
        """No partition is computed before the upstream partitions that its mapping names are there."""
        known, partitions = self.world.catalog, claim.partitions.partitions
        run_tasks = self.board.runs[claim.run_id].tasks.values()
        for upstream in known.graph.upstream(claim.asset_key):
            mapping, there = known.graph.mapping(upstream, claim.asset_key), self.world.current(upstream)
            computed = {key for task in run_tasks if task.asset_key == upstream for key in task.succeeded}
            planned = {
                str(key)
                for task in run_tasks
                if task.asset_key == upstream
                for key in known.spec(upstream)
                .partitions.empty()
                .from_json(known.spec(upstream).partitions, task.partitions)
            }
            for key in claim.keys:
                read = mapping.upstream(partitions.set_of([key]), known.spec(upstream).partitions, claim.planned_at)
                for one in map(str, read):
                    assert one in there, f"{claim.task_key} {key} reads {upstream} {one}, which is not there"
                    assert one not in planned or one in computed, f"{claim.task_key} {key} did not wait for {one}"

    def _work(self, job: Job) -> None:
        """Compute some partitions and record them; at the end, how the attempt ended."""
        if self.random.random() < 0.01:
            self._give_back(job)
            return
        count = self.random.randint(min(1, len(job.left)), len(job.left))
        done, job.left = job.left[:count], job.left[count:]
        # Mostly the last word comes with the last partition; sometimes after it, when it can be lost by itself.
        job.last_word = not job.left and (not done or self.random.random() < 0.7)
        waits = self.world.catalog.spec(job.claim.asset_key).approval is not None
        good = Outcome.STAGED if waits else Outcome.SUCCEEDED
        outcomes = [Outcome.FAILED if self.random.random() < 0.12 else good for _ in done]
        outcomes.sort(key=lambda outcome: outcome is Outcome.FAILED)  # what was made comes first
        for key, outcome in zip(done, outcomes, strict=True):
            if outcome is Outcome.FAILED:
                job.failed = True
                if self.random.random() < 0.8:
                    job.retryable = True
                else:
                    job.settled.append(key)
        facts = self._facts(job, done, outcomes)
        try:
            self._commit(job, facts)
        except FencedOut:
            self.world.seen["fenced"] += 1
            self.job = None
            if self.random.random() < 0.5:
                self.life += 1  # begins anew under another name
        else:
            if job.last_word:
                self.job = None

    def _facts(self, job: Job, keys: list[str], outcomes: list[Outcome]) -> list[Fact]:
        claim, final = job.claim, job.last_word
        retry_at = None
        if final and job.failed:
            retry_at = next_attempt(
                job.retry,
                claim.attempt,
                retryable=job.retryable,
                lost_before=claim.lost_before,
                now=self.world.now,
                fraction=self.random.random(),
            )
        ends = final and retry_at is None
        waits = self.world.catalog.spec(claim.asset_key).approval is not None
        good = Outcome.STAGED if waits and ends else Outcome.SUCCEEDED
        skipped = list(claim.skipped) if ends else []
        job.part += 1
        job.made += len(keys) - outcomes.count(Outcome.FAILED)
        mint = self.world.mint.next(count=len(keys) + len(skipped) + 1)
        facts: list[Fact] = [
            TaskFinished(
                run_id=claim.run_id,
                task_key=claim.task_key,
                attempt=claim.attempt,
                asset_id=claim.asset_id,
                asset_key=claim.asset_key,
                outcome=Outcome.FAILED if job.failed else good,
                partitions=PartitionOutcomes(
                    keys=keys + skipped,
                    outcome=outcomes + [Outcome.SKIPPED] * len(skipped),
                    first_materialization_id=mint,
                ),
                part=None if ends else job.part,
                final=ends,
                succeeded_so_far=job.made,
                worker=job.worker,
                error="it went wrong" if job.failed else None,
            )
        ]
        staged = outcomes.count(Outcome.STAGED)
        if staged:
            facts.append(self._checkpoint(claim, keys[:staged], mint))
        if retry_at is not None:
            self.world.seen["settled"] += bool(job.settled)
            facts.append(
                TaskRetryScheduled(
                    run_id=claim.run_id,
                    task_key=claim.task_key,
                    attempt=claim.attempt,
                    retry_at=retry_at,
                    settled=job.settled,
                )
            )
        return facts

    def _checkpoint(self, claim: Claim, keys: list[str], first: str) -> CheckpointRequested:
        approval = self.world.catalog.spec(claim.asset_key).approval
        assert approval is not None
        return CheckpointRequested(
            checkpoint_id=self.world.mint.next(),
            name=claim.asset_key,
            run_id=claim.run_id,
            task_key=claim.task_key,
            asset_id=claim.asset_id,
            asset_key=claim.asset_key,
            partitions=PartitionOutcomes(keys=keys, outcome=Outcome.STAGED, first_materialization_id=first),
            approvers=approval.approvers,
            deadline=None if approval.deadline is None else self.world.now + approval.deadline,
            on_deadline=approval.on_deadline,
        )

    def _give_back(self, job: Job) -> None:
        claim, now = job.claim, self.world.now
        again = TaskRetryScheduled(run_id=claim.run_id, task_key=claim.task_key, attempt=claim.attempt, retry_at=now)
        with suppress(FencedOut):
            self._commit(job, [again])
        self.job = None

    def _commit(self, job: Job, facts: list[Fact]) -> None:
        """Append while the attempt is this worker's to make; otherwise nothing of it is recorded."""
        claim = job.claim
        while True:
            condition = Condition(position=job.position, subjects=frozenset({claim.run_id}))
            try:
                job.position = self.world.append(facts, f"worker:{job.worker}", condition)
            except AppendConflict:
                self.look(surely=True)
                job.position = self.board.position
                if self.board.holds(claim.run_id, claim.task_key, claim.attempt, job.worker):
                    continue
                task, run = self.board.task(claim.run_id, claim.task_key), self.board.runs.get(claim.run_id)
                if run is not None and run.cancel_requested and task is not None and task.worker == job.worker:
                    self._cancelled(job)
                    return
                raise FencedOut(f"{claim.task_key} is no longer ours") from None
            except IdempotencyMismatch:
                raise FencedOut(f"somebody else recorded the end of {claim.task_key}") from None
            else:
                return

    def _cancelled(self, job: Job) -> None:
        """The run was cancelled: what was not recorded by now is given up."""
        claim, task = job.claim, self.board.task(job.claim.run_id, job.claim.task_key)
        assert task is not None
        reported = task.succeeded | task.failed | task.staged
        job.left, job.last_word = [], True
        self.world.append(
            [
                TaskFinished(
                    run_id=claim.run_id,
                    task_key=claim.task_key,
                    attempt=claim.attempt,
                    asset_id=claim.asset_id,
                    asset_key=claim.asset_key,
                    outcome=Outcome.CANCELLED,
                    partitions=PartitionOutcomes(
                        keys=[key for key in claim.keys if key not in reported], outcome=Outcome.CANCELLED
                    ),
                    succeeded_so_far=len(task.succeeded),
                    worker=job.worker,
                )
            ],
            f"worker:{job.worker}",
            Condition(position=self.board.position, subjects=frozenset({claim.run_id})),
        )
        self.world.seen["cancelled at work"] += 1

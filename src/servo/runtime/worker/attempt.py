"""Attempts at tasks: what is published and recorded of one, and whether another one follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from threading import Lock
from types import MappingProxyType
from typing import TypeVar

from servo.assets.spec import AssetSpec
from servo.controllers.decisions import next_attempt
from servo.controllers.dispatch import UNCHANGED, Claim
from servo.errors import ServoError, StorageFailed, TaskError, WorkCancelled
from servo.events.columns import (
    MADE,
    Calls,
    CallTotals,
    CheckOutcomes,
    GivenPartitions,
    InputPartitions,
    Outcome,
    PartitionOutcomes,
    Samples,
    Verdict,
)
from servo.events.fact import Fact
from servo.events.model import CheckpointRequested, TaskFinished, TaskRetryScheduled
from servo.execution.protocol import Call, CheckResult, Input, Order, PartitionResult, Place, Storage
from servo.ids import ulid_range
from servo.runtime.wiring import Project
from servo.runtime.worker.fence import Fence
from servo.status.plans import FROZEN


class Attempt:
    """Publishes and records what an executor reports, in few events. Threads of the executor may share it."""

    def __init__(
        self,
        project: Project,
        storage: Storage,
        fence: Fence,
        claim: Claim,
        spec: AssetSpec,
        *,
        application: Callable[[], str | None] = lambda: None,
        published: Callable[[Place], None] = lambda _: None,
        unchanged: Sequence[str] = (),
        frozen: Sequence[str] = (),
    ) -> None:
        self._project = project
        self._storage = storage
        self._fence = fence
        self._claim = claim
        self._spec = spec  # as it was deployed, until the code that is run is known
        self._inputs: tuple[Input, ...] = ()
        self._edges: Mapping[str, list[list[int]] | None] = {}
        self._application = application  # what Spark calls itself, which is known once it has started
        self._published = published  # called with what became current
        self._unchanged = list(unchanged)  # beside the claim: current as they are, or frozen with data
        self._frozen = dict.fromkeys(frozen, FROZEN)  # why each of these is skipped
        self._lock = Lock()
        self._positions = {key: number for number, key in enumerate(claim.keys)}
        # The newest group waits for the next one or the end, so that a task of one group is one event.
        self._held: list[PartitionResult] = []
        # The first id of what is held, once any of it was moved: recorded again, it is where it was moved to.
        self._first: str | None = None
        self._results: dict[str, PartitionResult] = {}  # the newest result of each partition, recorded or held
        self._succeeded = claim.succeeded_before  # and recorded
        self._totals = CallTotals()  # of what is recorded
        self._part = 0

    def of(self, order: Order) -> None:
        """Take the order, which is known once the definitions and the inputs were found."""
        self._spec, self._inputs, self._edges = order.asset.spec, order.inputs, order.edges

    def commit(self, results: Sequence[PartitionResult]) -> None:
        """Publish and record what was held so far, and hold these.

        What needs an approval is held until the end: people are asked once about all of it, not about every part.
        """
        waiting = [one.staged for one in results if one.outcome is Outcome.STAGED and one.staged is not None]
        if waiting:
            self._storage.seal(waiting)
        with self._lock:
            if self._held and self._spec.approval is None:
                self._record(final=False)
            self._hold(results)

    def end(self, problem: ServoError | None) -> Outcome | None:
        """Record the rest and how the attempt ended; None if there will be another one."""
        with self._lock:
            for _ in range(2):
                try:
                    return self._end(problem)
                except (WorkCancelled, StorageFailed) as late:
                    # Out of space, or cancelled, or both, at the very end: that is how it ended, then.
                    problem = late
            return self._end(problem)

    def hand_back(self, reason: str, retry_at: datetime | None = None, *, session_lost: bool = False) -> None:
        """Give the task to another worker, at once or later, and not by its own fault; unless it was cancelled."""
        with self._lock:
            # What failed is tried again, by another worker; but not what was recorded, and trying does not mend.
            held, self._held = self._held, [result for result in self._held if result.outcome in MADE]
            recorded = {result.key for result in self._failed if not result.retryable} - {one.key for one in held}
            settled = sorted(recorded) if session_lost else []
            again = self._retry(retry_at or self._project.clock(), reason, settled=settled, session_lost=session_lost)
            try:
                try:
                    self._record(again, final=False)
                except StorageFailed:
                    self._held.clear()
                    self._record(again, final=False)
            except WorkCancelled as cancelled:
                self._held = held
                self._end(cancelled)

    @property
    def untouched(self) -> bool:
        """Whether there is no result of any partition yet."""
        return not self._results

    def _end(self, problem: ServoError | None) -> Outcome | None:
        left = [key for key in self._claim.keys if key not in self._results]
        if isinstance(problem, WorkCancelled):
            self._fail_held(Outcome.CANCELLED, problem)
            self._hold([unmade(key, Outcome.CANCELLED, problem) for key in left])
            return self._last(Outcome.CANCELLED, problem.message)
        if left:
            problem = problem or TaskError("the executor said nothing about it", hint="run it again")
            self._hold([unmade(key, Outcome.FAILED, problem) for key in left])
        failed = self._failed
        skipped = self._unchanged or self._frozen
        if skipped and not self._results and not self._claim.succeeded_before and not self._claim.failed_before:
            current = any(key not in self._frozen for key in self._unchanged)
            reasons = [UNCHANGED] * current + [FROZEN] * bool(self._frozen)
            return self._last(Outcome.SKIPPED, "; or ".join(reasons))
        if not failed and self._spec.approval is not None:
            return self._last(Outcome.STAGED, None)
        if not failed and self._claim.failed_before:
            return self._last(Outcome.FAILED, self._claim.failure or "some of it failed in an earlier attempt")
        if not failed:
            return self._last(Outcome.SUCCEEDED, None)
        retry_at = next_attempt(
            self._spec.retry,
            self._claim.attempt,
            retryable=any(result.retryable for result in failed),
            lost_before=self._claim.lost_before,
            now=self._project.clock(),
            fraction=self._project.fraction(),
        )
        if retry_at is None:
            return self._last(Outcome.FAILED, failed[0].error)
        settled = [result for result in failed if not result.retryable]
        why = (settled or failed)[0].error  # of what is not tried again, nobody says it later
        self._record(self._retry(retry_at, why, settled=[result.key for result in settled]), final=False)
        return None

    def _last(self, outcome: Outcome, reason: str | None) -> Outcome:
        self._record(final=True, outcome=outcome, error=reason)
        return outcome

    # ── what is held ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _failed(self) -> list[PartitionResult]:
        return [result for result in self._results.values() if result.outcome is Outcome.FAILED]

    def _hold(self, results: Sequence[PartitionResult]) -> None:
        self._held += results
        self._results.update((result.key, result) for result in results)

    def _fail_held(self, outcome: Outcome, problem: ServoError) -> None:
        """Give up what is held: it is not published."""
        held, self._held, self._first = self._held, [], None
        self._hold([unmade(one.key, outcome, problem) if one.outcome in MADE else one for one in held])

    def _record(self, *more: Fact, final: bool, outcome: Outcome | None = None, error: str | None = None) -> None:
        """Publish and record what is held, together with other facts. Where that is refused, it is held as before."""
        facts: list[Fact] = []
        if self._held or final:
            try:
                facts = self._finished(self._held, final=final, outcome=outcome, error=error)
            except StorageFailed as problem:
                self._fail_held(Outcome.FAILED, problem)
                raise
        self._fence.append([*facts, *more], despite_cancel=outcome is Outcome.CANCELLED)
        self._succeeded += made(self._held)
        self._totals = totals(self._totals, calls_of(self._held))
        self._held, self._first = [], None
        for fact in facts:
            if isinstance(fact, TaskFinished):
                self._notify_published(fact.partitions)

    def _notify_published(self, recorded: PartitionOutcomes) -> None:
        rows = zip(recorded.keys, recorded.outcomes(), recorded.materialization_ids(), strict=True)
        current = [(key, name) for key, outcome, name in rows if outcome is Outcome.SUCCEEDED and name is not None]
        if current:
            key, name = current[-1]
            self._published(Place(asset_id=self._claim.asset_id, key=key, materialization_id=name))

    def _retry(
        self, retry_at: datetime, reason: str | None, *, settled: Sequence[str] = (), session_lost: bool = False
    ) -> TaskRetryScheduled:
        return TaskRetryScheduled(
            run_id=self._claim.run_id,
            task_key=self._claim.task_key,
            attempt=self._claim.attempt,
            retry_at=retry_at,
            reason=reason,
            settled=list(settled),
            session_lost=session_lost,
        )

    # ── facts ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _finished(
        self, results: list[PartitionResult], *, final: bool, outcome: Outcome | None = None, error: str | None = None
    ) -> list[Fact]:
        """Move what was made to its final place; give the facts that make it current once they are recorded."""
        claim = self._claim
        results = sorted(results, key=lambda result: result.outcome not in MADE)
        unchanged = self._unchanged if final else []
        skipped = [*claim.skipped, *unchanged] if final else []
        if self._first is None:
            # For all that may be said together with what is held, so that it can be said in other company as well.
            together = len(claim.keys) + len(claim.skipped) + len(self._unchanged)
            self._first = self._project.mint(max(together, 1))
        first = self._first
        ids = ulid_range(first, len(results))
        self._storage.publish(
            [
                (result.staged, Place(asset_id=claim.asset_id, key=result.key, materialization_id=materialization_id))
                for result, materialization_id in zip(results, ids, strict=True)
                if result.staged is not None and result.outcome in MADE
            ]
        )
        partitions = outcomes(results, skipped, first, self._frozen)
        listed = calls_of(results)
        so_far = totals(self._totals, listed)
        inputs = [one for source in self._inputs if (one := self._read(source, results, listed)) is not None]
        if outcome is None:
            outcome = Outcome.FAILED if any(one.outcome is Outcome.FAILED for one in results) else Outcome.SUCCEEDED
        self._part += 1
        finished = TaskFinished(
            run_id=claim.run_id,
            task_key=claim.task_key,
            attempt=claim.attempt,
            asset_id=claim.asset_id,
            asset_key=claim.asset_key,
            outcome=outcome,
            partitions=partitions,
            part=None if final else self._part,
            final=final,
            code_version=claim.code_version,
            inputs=inputs,
            checks=checks(results),
            succeeded_so_far=self._succeeded + made(results),
            failed_so_far=len(self._failed),
            worker=self._fence.worker,
            spark_application_id=self._application(),
            error=error,
            calls=calls(results, listed, len(skipped), self._given_to(inputs, listed)) if listed else None,
            samples=samples(listed),
            call_totals=None if so_far == CallTotals() else so_far,
            unchanged=unchanged,
        )
        staged = [result for result in results if result.outcome is Outcome.STAGED]
        return [finished, self._checkpoint(outcomes(staged, [], first))] if staged else [finished]

    def _checkpoint(self, partitions: PartitionOutcomes) -> CheckpointRequested:
        """The checkpoint for exactly these partitions, with these hashes."""
        approval = self._spec.approval
        assert approval is not None
        deadline = None if approval.deadline is None else self._project.clock() + approval.deadline
        return CheckpointRequested(
            checkpoint_id=self._project.mint(),
            name=f"{self._claim.asset_key} by {approval.approvers}",
            run_id=self._claim.run_id,
            task_key=self._claim.task_key,
            asset_id=self._claim.asset_id,
            asset_key=self._claim.asset_key,
            partitions=partitions,
            approvers=approval.approvers,
            four_eyes=approval.four_eyes,
            deadline=deadline,
            on_deadline=approval.on_deadline,
            escalate_to=approval.escalate_to if approval.on_deadline == "escalate" else None,
        )

    def _read(self, source: Input, results: list[PartitionResult], listed: Sequence[Call]) -> InputPartitions | None:
        """Which partitions of an upstream went into what this event speaks of, or were given to the calls."""
        reads = [self._mapped(source, result.key) if result.outcome in MADE else [] for result in results]
        given = [index for call in listed for index in self._given(source, call)]
        return InputPartitions.of_reads(
            source.asset_id, source.asset_key, source.keys, source.materialization_ids, reads, given=given
        )

    def _given_to(self, inputs: Sequence[InputPartitions], listed: Sequence[Call]) -> list[GivenPartitions]:
        """The inputs that each call was given, where one call was for several partitions."""
        if all(len(call.keys) == 1 for call in listed):
            return []
        sources = {source.asset_key: source for source in self._inputs}
        found = []
        for one in inputs:
            source, places = sources[one.asset_key], {key: place for place, key in enumerate(one.keys)}
            given = [[places[source.keys[index]] for index in self._given(source, call)] for call in listed]
            found.append(GivenPartitions.of_indexes(one.asset_key, given))
        return found

    def _given(self, source: Input, call: Call) -> Iterable[int]:
        """The indexes of the inputs that a call was given: all that the mapping names for its partitions."""
        return dict.fromkeys(index for key in call.keys for index in self._mapped(source, key))

    def _mapped(self, source: Input, key: str) -> Sequence[int]:
        """The indexes of the inputs that the mapping names for a partition."""
        edges, position = self._edges.get(source.asset_key), self._positions[key]
        if edges is not None:
            return edges[position]
        return [position] if position < len(source.keys) else []


# ── results of partitions as the columns of an event ─────────────────────────────────────────────────────────────────


T = TypeVar("T")
NO_REASONS: Mapping[str, str] = MappingProxyType({})


def made(results: Sequence[PartitionResult]) -> int:
    return sum(result.outcome in MADE for result in results)


def unmade(key: str, outcome: Outcome, problem: ServoError) -> PartitionResult:
    """The result of a partition that was not made."""
    return PartitionResult(key=key, outcome=outcome, error=str(problem), retryable=getattr(problem, "retryable", True))


def outcomes(
    results: list[PartitionResult], skipped: list[str], first: str, reasons: Mapping[str, str] = NO_REASONS
) -> PartitionOutcomes:
    """Results and skipped partitions as columns; `reasons` say why one was skipped."""
    staged = [result.staged for result in results] + [None] * len(skipped)
    return PartitionOutcomes(
        keys=[result.key for result in results] + skipped,
        outcome=_column([result.outcome for result in results] + [Outcome.SKIPPED] * len(skipped)),
        first_materialization_id=first,
        rows=_column([None if one is None else one.rows for one in staged]),
        bytes=_column([None if one is None else one.bytes for one in staged]),
        files=_column([None if one is None else one.files for one in staged]),
        content_hash=_column([None if one is None else one.content_hash for one in staged]),
        error=_column([result.error for result in results] + [reasons.get(key) for key in skipped]),
    )


def _column(values: list[T]) -> T | list[T]:
    """A column, or its one value if all are equal."""
    return values[0] if values and all(value == values[0] for value in values) else values


def checks(results: list[PartitionResult]) -> list[CheckOutcomes]:
    """Results of each check, over the partitions that it looked at."""
    found: dict[str, list[tuple[str, CheckResult]]] = {}
    for result in results:
        for check in result.checks:
            found.setdefault(check.name, []).append((result.key, check))
    return [
        CheckOutcomes(
            name=name,
            keys=[key for key, _ in rows],
            passed=_column([check.passed for _, check in rows]),
            blocking=rows[0][1].blocking,
            observed=_column([check.observed for _, check in rows]),
        )
        for name, rows in found.items()
    ]


# From good to bad.
_VERDICTS = (Verdict.EQUAL, Verdict.CLOSE, Verdict.NOT_DETERMINISTIC, Verdict.FAILED_ALONE, Verdict.DIFFERENT)


def calls_of(results: Sequence[PartitionResult]) -> list[Call]:
    """The calls that computed several partitions, or that returned rows of others; each once."""
    found = {id(result.call): result.call for result in results if result.call is not None}
    return [call for call in found.values() if len(call.keys) > 1 or call.rows_left_out]


def calls(
    results: Sequence[PartitionResult], listed: Sequence[Call], skipped: int, given: list[GivenPartitions]
) -> Calls:
    """The calls as columns; `skipped` partitions follow the results, and nothing computed them."""
    numbers = {id(call): number for number, call in enumerate(listed)}
    return Calls(
        call=_column([numbers.get(id(result.call)) for result in results] + [None] * skipped),  # type: ignore[arg-type]
        partition_count=_column([len(call.keys) for call in listed]),
        rows_left_out=_column([call.rows_left_out for call in listed]),
        left_out_example=_column([call.left_out_example for call in listed]),
        given=given,
    )


def samples(listed: Sequence[Call]) -> Samples | None:
    taken = [sample for call in listed for sample in call.samples]
    if not taken:
        return None
    return Samples(
        keys=[sample.key for sample in taken],
        verdict=_column([sample.verdict for sample in taken]),
        content_hash=_column([sample.content_hash for sample in taken]),
        remark=_column([sample.remark for sample in taken]),
    )


def totals(before: CallTotals, listed: Sequence[Call]) -> CallTotals:
    """The totals with some more calls."""
    taken = [sample for call in listed for sample in call.samples]
    verdicts = {before.verdict, *(sample.verdict for sample in taken)}
    return CallTotals(
        rows_left_out=before.rows_left_out + sum(call.rows_left_out for call in listed),
        partitions_sampled=before.partitions_sampled + len(taken),
        verdict=next((one for one in reversed(_VERDICTS) if one in verdicts), None),
    )

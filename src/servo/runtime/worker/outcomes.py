"""Results of partitions as the columns of an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from servo.errors import ServoError
from servo.events.columns import (
    MADE,
    Calls,
    CallTotals,
    CheckOutcomes,
    GivenPartitions,
    Outcome,
    PartitionOutcomes,
    Samples,
    Verdict,
)
from servo.execution.protocol import Call, CheckResult, PartitionResult

T = TypeVar("T")
NO_REASONS: Mapping[str, str] = MappingProxyType({})


def made(results: Sequence[PartitionResult]) -> int:
    return sum(result.outcome in MADE for result in results)


def unmade(key: str, outcome: Outcome, problem: ServoError) -> PartitionResult:
    """A partition of which nothing came."""
    return PartitionResult(key=key, outcome=outcome, error=str(problem), retryable=getattr(problem, "retryable", True))


def outcomes(
    results: list[PartitionResult], skipped: list[str], first: str, whys: Mapping[str, str] = NO_REASONS
) -> PartitionOutcomes:
    """The columns of what was tried and what was skipped, where there is a special reason with it."""
    staged = [result.staged for result in results] + [None] * len(skipped)
    return PartitionOutcomes(
        keys=[result.key for result in results] + skipped,
        outcome=_column([result.outcome for result in results] + [Outcome.SKIPPED] * len(skipped)),
        first_materialization_id=first,
        rows=_column([None if one is None else one.rows for one in staged]),
        bytes=_column([None if one is None else one.bytes for one in staged]),
        files=_column([None if one is None else one.files for one in staged]),
        content_hash=_column([None if one is None else one.content_hash for one in staged]),
        error=_column([result.error for result in results] + [whys.get(key) for key in skipped]),
    )


def _column(values: list[T]) -> T | list[T]:
    """One value if it holds for all."""
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

"""Results of partitions as the columns of an event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from servo.errors import ServoError
from servo.events.columns import MADE, CheckOutcomes, Outcome, PartitionOutcomes
from servo.execution.protocol import CheckResult, PartitionResult

T = TypeVar("T")


def made(results: Sequence[PartitionResult]) -> int:
    return sum(result.outcome in MADE for result in results)


def unmade(key: str, outcome: Outcome, problem: ServoError) -> PartitionResult:
    """A partition of which nothing came."""
    return PartitionResult(key=key, outcome=outcome, error=str(problem), retryable=getattr(problem, "retryable", True))


def outcomes(results: list[PartitionResult], skipped: list[str], first: str) -> PartitionOutcomes:
    staged = [result.staged for result in results] + [None] * len(skipped)
    return PartitionOutcomes(
        keys=[result.key for result in results] + skipped,
        outcome=_column([result.outcome for result in results] + [Outcome.SKIPPED] * len(skipped)),
        first_materialization_id=first,
        rows=_column([None if one is None else one.rows for one in staged]),
        bytes=_column([None if one is None else one.bytes for one in staged]),
        files=_column([None if one is None else one.files for one in staged]),
        content_hash=_column([None if one is None else one.content_hash for one in staged]),
        error=_column([result.error for result in results] + [None] * len(skipped)),
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

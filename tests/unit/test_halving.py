"""Finding what spoils a batch: every good partition comes out well, and a hopeless one is given up soon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, combinations

import pytest

from servo.events.columns import Outcome
from servo.execution.batch import Divisible, halve
from servo.execution.protocol import CheckResult, PartitionResult


def _closed(_: int) -> str:
    return "the landing zone is closed"


class Field:
    """Partitions of which some spoil every attempt that they are part of; remembers what was tried."""

    def __init__(self, count: int, poison: Sequence[int], error: Callable[[int], str] = _closed) -> None:
        self.count, self.poison, self.error = count, frozenset(poison), error
        self.tried: list[list[int]] = []
        self.warnings: list[str] = []

    def attempt(self, indexes: list[int]) -> list[PartitionResult]:
        self.tried.append(list(indexes))
        for index in indexes:
            if index in self.poison:
                raise Divisible(OSError(self.error(index)), self.error(index))
        return [PartitionResult(key=str(index), outcome=Outcome.SUCCEEDED) for index in indexes]

    def failed(self, indexes: Sequence[int], failure: BaseException) -> list[PartitionResult]:
        return [PartitionResult(key=str(index), outcome=Outcome.FAILED, error=str(failure)) for index in indexes]

    def warn(self, indexes: Sequence[int], what: str) -> None:
        self.warnings.append(f"{len(indexes)}: {what}")

    def run(self, attempt: Callable[[list[int]], list[PartitionResult]] | None = None) -> set[int]:
        """The partitions that failed; each must have come out once."""
        results = list(chain.from_iterable(halve(self.count, attempt or self.attempt, self.failed, self.warn)))
        assert sorted(int(result.key) for result in results) == list(range(self.count))
        return {int(result.key) for result in results if result.outcome is Outcome.FAILED}


@pytest.mark.parametrize(
    "poison",
    [
        [],
        [17],
        range(8),  # a run of them at the front
        range(22, 30),
        [*range(8), 29],  # and the far end, too
        [*range(8), 14, 22, 29],
        range(29),  # only the last is good
        range(0, 30, 2),
    ],
)
def test_the_poison_alone_fails_though_it_fails_alike(poison: Sequence[int]) -> None:
    assert Field(30, poison).run() == {*poison}


def test_one_that_comes_out_well_spares_all_that_are_good() -> None:
    """Of every set of poison among nine: either exactly that fails, or nothing was found to work at all."""
    given_up = 0
    for poison in chain.from_iterable(combinations(range(9), size) for size in range(10)):
        field = Field(9, poison)
        failed = field.run()
        assert failed == {*poison} or failed == {*range(9)}
        if failed != {*poison}:
            given_up += 1
            assert len(poison) > 5, "so few are no reason to give up"
            assert any("given up" in warning for warning in field.warnings)
    assert given_up < 20


def test_a_partition_fails_only_after_it_was_tried() -> None:
    field = Field(30, range(8))
    field.run()
    assert all([index] in field.tried for index in range(8))


@pytest.mark.parametrize("count", [30, 12_000])
def test_what_fails_everywhere_is_given_up_after_a_few_attempts(count: int) -> None:
    field = Field(count, range(count))
    assert field.run() == {*range(count)}
    assert len(field.tried) < 5 * count.bit_length()
    assert [count - 1] in field.tried, "the far end was tried before"


def test_failures_that_differ_are_each_partitions_own() -> None:
    field = Field(30, range(29), error=lambda index: f"no file {index}")
    assert field.run() == {*range(29)}


def test_what_a_check_refused_was_computed() -> None:
    """The last is refused by a check: the others' failure is their own then, and the good one among them is found."""
    field = Field(30, [index for index in range(29) if index != 16])
    checks = (CheckResult(name="rows", passed=False, blocking=True),)

    def attempt(indexes: list[int]) -> list[PartitionResult]:
        made = field.attempt(indexes)
        return [
            PartitionResult(key=one.key, outcome=Outcome.FAILED, checks=checks) if one.key == "29" else one
            for one in made
        ]

    assert field.run(attempt) == {*range(30)} - {16}


def test_another_failure_is_not_halved() -> None:
    def lost(indexes: list[int]) -> list[PartitionResult]:
        raise ConnectionError("the session is gone")

    with pytest.raises(ConnectionError):
        Field(3, []).run(lost)


def test_nothing_to_do() -> None:
    assert Field(0, []).run() == set()

"""Finds the partitions that spoil an attempt at many, by halving; all others come out well.

This file knows no Spark: what an attempt is, is up to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from servo.execution.protocol import Outcome, PartitionResult

__all__ = ["Divisible", "halve"]

Attempt: TypeAlias = Callable[[list[int]], list[PartitionResult]]
Failed: TypeAlias = Callable[[Sequence[int], BaseException], list[PartitionResult]]
Warn: TypeAlias = Callable[[Sequence[int], str], None]

# So many partitions fail alone and alike with nothing done, and it may be the code or the world, not some partition.
_ALIKE = 3


class Divisible(Exception):  # noqa: N818 (it is caught below, and by nobody else)
    """The user's failure at several partitions at once: fewer at a time may tell the good from the bad."""

    def __init__(self, cause: BaseException, line: str) -> None:
        super().__init__(line)
        self.cause = cause


def halve(count: int, attempt: Attempt, failed: Failed, warn: Warn) -> Iterator[list[PartitionResult]]:
    """The results of all partitions, each once, as they come: one group if nothing fails.

    `attempt` raises Divisible where fewer at a time may do better, `failed` makes results of such a failure, and `warn`
    is told what is done about it.
    """
    return _Search(count, attempt, failed, warn).results()


class _Search:
    """What is still to be tried, and what the failures so far have in common.

    A group of several is given up only if nothing at all came out well: neither single ones from its neighbourhood, nor
    samples of everything that waits, nor any other group. Until that is known it is set aside, and one success brings
    it back: then there are good ones, and each that is not must be found out by itself.
    """

    def __init__(self, count: int, attempt: Attempt, failed: Failed, warn: Warn) -> None:
        self._attempt, self._failed, self._warn = attempt, failed, warn
        self._waiting = [list(range(count))] if count else []
        self._aside: list[tuple[list[int], Divisible]] = []
        self._works = False  # something came out well
        self._alike: list[str] = []  # what single ones failed with
        self._sampled = False

    def results(self) -> Iterator[list[PartitionResult]]:
        while self._waiting:
            indexes = self._waiting.pop()
            made = self._try(indexes)
            if isinstance(made, list):
                yield made
            elif not self._is_suspicious(made):
                self._split(indexes, made)
            elif self._sampled:
                self._aside.append((indexes, made))
            else:
                self._sampled = True
                self._waiting.append(indexes)  # whatever the samples leave of it
                yield from self._sample()
        for indexes, failure in self._aside:
            self._warn(indexes, f"{failure}; given up, since all that was tried failed alike")
            yield self._failed(indexes, failure.cause)

    def _try(self, indexes: list[int]) -> list[PartitionResult] | Divisible:
        """The results, also those of a single one that failed; or why several failed."""
        try:
            made = self._attempt(indexes)
        except Divisible as failure:
            if len(indexes) > 1:
                return failure
            self._alike.append(str(failure))
            return self._failed(indexes, failure.cause)
        # What a check refuses was computed all the same.
        if any(one.outcome is not Outcome.FAILED or one.checks for one in made):
            self._works = True
            aside, self._aside = self._aside, []
            for group, reason in reversed(aside):
                self._split(group, reason)
        else:
            self._alike += {one.error or "" for one in made}
        return made

    def _is_suspicious(self, failure: Divisible) -> bool:
        return not self._works and len(self._alike) >= _ALIKE and {*self._alike} == {str(failure)}

    def _sample(self) -> Iterator[list[PartitionResult]]:
        """Single ones from all over what waits, the far end first, until one is unlike those before.

        There are as many as halving takes steps.
        """
        everything = sorted(index for group in self._waiting for index in group)
        number = len(everything).bit_length()
        for step in range(number, 0, -1):
            index = everything[step * len(everything) // number - 1]
            self._waiting = [rest for group in self._waiting if (rest := [one for one in group if one != index])]
            made = self._try([index])
            if isinstance(made, list):  # as it always is of a single one
                yield made
            if self._works or len({*self._alike}) > 1:
                return

    def _split(self, indexes: list[int], failure: Divisible) -> None:
        half = len(indexes) // 2
        self._waiting += [indexes[half:], indexes[:half]]
        self._warn(indexes, f"{failure}; trying {half} at a time")

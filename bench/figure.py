"""One measured figure, and how to measure it on a noisy machine."""

from __future__ import annotations

import json
import math
import operator
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

_TERM = re.compile(r"(value|ratio) (<=?|>=?) ([0-9.]+)")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A value, with the ratio to a baseline that was taken in the same run.

    `aim` says what they should be: `value < 2`, or `value < 2, ratio <= 3`.
    """

    id: str
    value: float
    unit: str
    size: int
    ratio: float | None = None
    baseline: str | None = None
    aim: str | None = None

    def __post_init__(self) -> None:
        self.missed_by()  # an aim that cannot be read fails here, not after an hour

    def missed_by(self) -> float:
        """By which part of the aim it is missed: 0 where it is met or there is none, 0.2 where it is a fifth off."""
        worst = 0.0
        for term in self.aim.split(", ") if self.aim else ():
            parsed = _TERM.fullmatch(term)
            if parsed is None:
                raise ValueError(f"the aim {term!r} of {self.id} is not like 'value < 2'")
            actual, limit = self.ratio if parsed[1] == "ratio" else self.value, float(parsed[3])
            if actual is None:
                raise ValueError(f"the aim of {self.id} is a ratio, and it has none")
            if not _COMPARE[parsed[2]](actual, limit):
                larger, smaller = max(actual, limit), min(actual, limit)
                worst = max(worst, larger / smaller - 1 if smaller > 0 else math.inf)
        return worst

    def line(self) -> str:
        rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in vars(self).items()}
        return json.dumps({name: value for name, value in rounded.items() if value is not None})


def seconds(work: Callable[[], object]) -> float:
    """How long it takes, once."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def median(work: Callable[[], object], *, times: int) -> float:
    """How long it takes, as a rule."""
    return statistics.median(seconds(work) for _ in range(times))


def in_turns(*works: Callable[[], object], times: int) -> list[list[float]]:
    """Seconds that each work took in so many rounds. Another one is first in each: what a job leaves warms the next."""
    taken: list[list[float]] = [[] for _ in works]
    for number in range(times):
        for place in range(len(works)):
            chosen = (number + place) % len(works)
            taken[chosen].append(seconds(works[chosen]))
    return taken


def alternating(one: Callable[[], object], other: Callable[[], object], *, times: int) -> tuple[float, float]:
    """Medians of two works that take turns, so that the machine's moods hit both alike."""
    pairs = [(seconds(one), seconds(other)) for _ in range(times)]
    return statistics.median(first for first, _ in pairs), statistics.median(second for _, second in pairs)

"""One measured figure, and how to measure it on a noisy machine."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A value, with the ratio to a baseline that was taken in the same run; `aim` says what one of them should be."""

    id: str
    value: float
    unit: str
    size: int
    ratio: float | None = None
    baseline: str | None = None
    aim: str | None = None

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


def alternating(one: Callable[[], object], other: Callable[[], object], *, times: int) -> tuple[float, float]:
    """Medians of two works that take turns, so that the machine's moods hit both alike."""
    pairs = [(seconds(one), seconds(other)) for _ in range(times)]
    return statistics.median(first for first, _ in pairs), statistics.median(second for _, second in pairs)

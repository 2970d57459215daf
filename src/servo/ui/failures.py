"""Failures of one cause as one line: how many partitions of an asset, which, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import NamedTuple

__all__ = ["Failure", "FailureGroup", "grouped", "ranges"]

_MOST_RANGES = 3


class Failure(NamedTuple):
    """One partition that failed. `partition` is what people type for it; empty for the only one of an asset."""

    asset_key: str
    partition: str
    reason: str


class FailureGroup(NamedTuple):
    """Partitions of one asset that failed for one reason."""

    asset_key: str
    partitions: list[str]
    reason: str

    def where(self) -> str:
        """`shop/orders 2025-02-01`, or `shop/orders: 28 partitions (2025-02-01..2025-02-28)`."""
        if len(self.partitions) == 1:
            return f"{self.asset_key} {self.partitions[0]}".rstrip()
        return f"{self.asset_key}: {len(self.partitions):,} partitions ({ranges(self.partitions)})"


def grouped(failures: Iterable[Failure]) -> list[FailureGroup]:
    """Failures by asset and reason, in the order of the first of each.

    Reasons that differ in nothing but the partition that they name are one: it is left out of them.
    """
    groups: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        common = failure.reason.replace(failure.partition, "…") if failure.partition else failure.reason
        groups.setdefault((failure.asset_key, common), []).append(failure)
    return [
        FailureGroup(
            asset_key=asset_key,
            partitions=sorted({failure.partition for failure in same}, key=_in_order),
            reason=same[0].reason if len({failure.reason for failure in same}) == 1 else common,
        )
        for (asset_key, common), same in groups.items()
    ]


def ranges(partitions: Sequence[str]) -> str:
    """Partitions in few words: `2025-02-01..2025-02-28`, `eu, us`, `2025-01, 2025-03..2025-05 and 12 more`."""
    runs: list[list[str]] = []
    for partition in partitions:
        if runs and _next(runs[-1][-1]) == partition:
            runs[-1].append(partition)
        else:
            runs.append([partition])
    shown = runs[:_MOST_RANGES]
    texts = [text for run in shown for text in ([f"{run[0]}..{run[-1]}"] if len(run) > 1 else run)]
    hidden = len(partitions) - sum(map(len, shown))
    return ", ".join(texts) + (f" and {hidden:,} more" if hidden else "")


def _in_order(partition: str) -> tuple[int, str]:
    return (int(partition) if partition.isascii() and partition.isdigit() else 0, partition)


def _next(partition: str) -> str | None:
    """The day after a day, the month after a month, the number after a number; None after anything else."""
    try:
        if partition.isascii() and partition.isdigit():
            return str(int(partition) + 1)
        if len(partition) == len("2025-01"):
            return f"{(date.fromisoformat(f'{partition}-28') + timedelta(days=4)):%Y-%m}"
        return (date.fromisoformat(partition) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return None

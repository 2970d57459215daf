"""All partitions at once: counted, as a strip for each asset, and as a grid of one."""

from __future__ import annotations

from datetime import datetime

import msgspec

from servo.answers.grids import AssetGrid, AssetStrip
from servo.runtime.grids import grid_of, strip_of
from servo.runtime.partitions import PartitionBook, summary_of
from servo.runtime.wiring import Project

__all__ = ["picture", "strips"]


def strips(project: Project, *, cells: int, as_of: datetime | str | None) -> list[AssetStrip]:
    """Of each asset, in the order of the graph; without cells, counted alone."""
    return [
        AssetStrip(**msgspec.structs.asdict(summary_of(states)), strip=strip_of(states, cells) if cells else [])
        for states in PartitionBook(project).states(as_of=as_of).values()
    ]


def picture(project: Project, asset: str, *, as_of: datetime | str | None) -> AssetGrid:
    (states,) = PartitionBook(project).states([asset], as_of=as_of).values()
    return AssetGrid(**msgspec.structs.asdict(summary_of(states)), grid=grid_of(states))

"""Partitions as cells of a picture, counted by kind."""

from __future__ import annotations

import msgspec

from servo.answers.partitions import AssetSummary

Cell = dict[str, int]
"""How many of each kind."""

KINDS = (
    "failed",  # the last attempt failed, and there is no data
    "failed_kept",  # the last attempt failed, and the data of before is there
    "waiting_approval",
    "missing",
    "stale",
    "running",
    "queued",
    "frozen",
    "materialized",
)
"""What one cell can be: each partition is exactly one of these. What people must look at first comes first."""


class GridRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row: what it is about, its cells (None where no partition can be), and all of them together."""

    label: str
    cells: list[Cell | None]
    counts: Cell


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of cells under columns."""

    columns: list[str]
    rows: list[GridRow]
    folded: bool  # whether a cell may be more than one partition
    unit: str = ""  # what a cell is: hour, day, month, …


class AssetStrip(AssetSummary, frozen=True, kw_only=True):
    """The partitions of one asset, counted: all of them, and in the cells of a strip, oldest first."""

    strip: list[Cell] = []


class Summaries(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions of all assets, counted; assets in the order of the graph."""

    assets: list[AssetStrip]


class AssetGrid(AssetSummary, frozen=True, kw_only=True):
    """The partitions of one asset, counted: all of them, and in the cells of a picture."""

    grid: Grid

"""Rows of partitions that a call was not asked for: left out and counted, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from servo.assets import Asset
from servo.errors import InvalidInput, OutputRefused
from servo.execution.hashing import named
from servo.partitions import Partitions

__all__ = ["LeftOut", "rows_left_out"]

_COUNT = "servo_rows"
# Rows of more partitions than this, none of which was asked for, are too many to look at one by one.
_MOST = 200_000


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows were left out of what a call returned, and the partition of some of them."""

    rows: int = 0
    example: str | None = None


def rows_left_out(asset: Asset, partitions: Partitions, others: DataFrame, asked: str) -> LeftOut:
    """Count the rows of other partitions. OutputRefused if some belong to no partition, or if the asset is strict."""
    found = others.groupBy(*(named(name) for name in partitions.names)).agg(F.count(F.lit(1)).alias(_COUNT))
    groups = found.limit(_MOST + 1).collect()
    key = asset.spec.key
    if len(groups) > _MOST:
        raise OutputRefused(
            f"{key} was asked for {asked}, and returned rows of more than {_MOST:,} other partitions",
            hint="return rows of the partitions asked for alone: context.partitions lists them",
        )
    strays = [row for row in groups if not _is_partition(partitions, row)]
    if strays:
        count = sum(row[_COUNT] for row in strays)
        raise OutputRefused(
            f"{key} returned {_rows(count)} of no partition that it has, such as {_shown(strays)}",
            hint="leave such rows out, or declare partitions that cover them",
        )
    count = sum(row[_COUNT] for row in groups)
    example = _shown(groups) if groups else None
    if count and asset.spec.strict:
        raise OutputRefused(
            f"{key} was asked for {asked}, and returned {_rows(count)} of other partitions, such as {example}",
            hint="return rows of the partitions asked for alone, or declare the asset without strict=True",
        )
    return LeftOut(rows=count, example=example)


def _is_partition(partitions: Partitions, row: Row) -> bool:
    try:
        return partitions.key(_values(row)) in partitions
    except InvalidInput:
        return False


def _values(row: Row) -> dict[str, Any]:
    """Dimensions as keys have them: Spark gives times in the zone of this process."""
    return {
        name: value.astimezone(UTC) if isinstance(value, datetime) else value
        for name, value in row.asDict().items()
        if name != _COUNT
    }


def _shown(groups: list[Row]) -> str:
    return min(_one(_values(row)) for row in groups)


def _one(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in values.items())


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"

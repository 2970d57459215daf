"""The project's projections inside a Spark session."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from servo.runtime.settings import load_settings
from servo.runtime.states import columns_at
from servo.runtime.wiring import open_workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_views(
    spark: SparkSession, *, project: str | Path | None = None, as_of: datetime | str | None = None
) -> list[str]:
    """Register every table as a temporary view, as of the ledger's head now or of a moment or event id; their names.

    `project` is the folder with the settings, the current one by default.
    """
    # Spark and Arrow are for those who come with a session.
    from servo.execution.spark_projections import register_views  # noqa: PLC0415

    with open_workspace(load_settings(None if project is None else Path(project))) as opened:
        snapshot = opened.reader.snapshot(fresh=True, as_of=as_of)
        return register_views(spark, snapshot, columns_at(opened, snapshot, as_of))

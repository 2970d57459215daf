"""What `import servo` offers for a Spark session: the data of assets (`servo.read`), and the projections as views."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from servo.operations.assets.materializations import places
from servo.operations.fields import parse_moment
from servo.runtime.settings import load_settings
from servo.runtime.states import columns_at, state_of
from servo.runtime.wiring import open_workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(
    asset: str,
    partitions: str | Sequence[str] = (),
    *,
    as_of: datetime | str | None = None,
    spark: SparkSession | None = None,
    folder: str | Path | None = None,
) -> DataFrame:
    """The rows of an asset, of all its partitions or of some, with a typed column for every dimension.

    They are exactly those that were current: `as_of` is a time, an event id, or a text of either. The session is the
    active one unless given; the project is that of the current folder unless given.

    Inside the function of an asset it is refused: what that reads is declared as an input.
    """
    # Spark comes with this import, and a project's files that import servo.read need not wait for it.
    from servo.execution.reading import frame_of, session_to_read  # noqa: PLC0415

    session = session_to_read(asset, spark)
    moment = parse_moment(as_of) if isinstance(as_of, str) else as_of
    wanted = [partitions] if isinstance(partitions, str) else list(partitions)
    with open_workspace(load_settings(None if folder is None else Path(folder))) as project:
        found, _ = places(state_of(project, moment), asset, wanted)
        return frame_of(session, project.storage, found)


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

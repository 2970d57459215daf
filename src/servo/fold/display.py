"""The status of a partition as people see it, one of four, and overlays of what is going on with it.

Data and attempts are two halves (see `PartitionStatusRow`): a failed attempt says something about an attempt and hides
nothing. Which came later is told by the versions of the halves and not by their times, since the versions also order
what happened at the very same moment, and a rollback makes older data current later.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from servo.events.columns import Outcome
from servo.fold.rows import Kind


class Status(StrEnum):
    """The status of a partition, the most urgent first."""

    MATERIALIZED_BUT_LAST_ATTEMPT_FAILED = "MATERIALIZED_BUT_LAST_ATTEMPT_FAILED"
    NEVER_MATERIALIZED = "NEVER_MATERIALIZED"
    STALE = "STALE"
    MATERIALIZED = "MATERIALIZED"


class Overlay(StrEnum):
    """Work or a state that goes on beside the status."""

    RUNNING = "running"
    QUEUED = "queued"
    WAITING_APPROVAL = "waiting_approval"
    FROZEN = "frozen"


FAILED = (
    f"last_attempt_outcome = '{Outcome.FAILED}'"
    " AND (materialization_version IS NULL OR attempt_version > materialization_version)"
)
"""SQL on `partition_status`: whether the newest attempt failed, and nothing was made current since."""


def marked_sql(table: str = "") -> str:
    """SQL on `partition_status`: whether the partition was marked as materialized, so that it holds no data."""
    at = f"{table}." if table else ""
    return (
        f"{at}materialization_id IS NOT NULL AND {at}last_materialization_run_id IS NULL"
        f" AND {at}last_materialization_code_version IS NULL AND {at}content_hash IS NULL"
    )


MARKED = marked_sql()

MATERIALIZED = "materialization_version IS NOT NULL"
"""SQL on `partition_status`: whether there is data, or the partition was marked as materialized."""


ADDED = {"status": Kind.TEXT, "overlays": Kind.TEXTS}
"""Columns that `partition_status` has wherever it is queried, after those of its files."""


def status_sql(stale: str) -> str:
    """The status of a row of `partition_status` as an SQL expression; `stale` is one that is true where it is stale."""
    return (
        f"CASE WHEN NOT ({MATERIALIZED}) THEN '{Status.NEVER_MATERIALIZED}'"
        f" WHEN {FAILED} THEN '{Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED}'"
        f" WHEN {stale} THEN '{Status.STALE}' ELSE '{Status.MATERIALIZED}' END"
    )


def is_marked(row: Mapping[str, Any]) -> bool:
    """Whether a partition was marked as materialized, of its row by column. The same as `MARKED`."""
    made_by = (row.get(name) for name in ("last_materialization_run_id", "last_materialization_code_version"))
    return row.get("materialization_id") is not None and not any(made_by) and row.get("content_hash") is None


def display_status(*, made: bool, failed: bool, stale: bool) -> Status:
    """The status of a partition of which it is known whether `MATERIALIZED` and `FAILED` hold. The same as
    `status_sql`: a failed attempt beats staleness, for people have to look at that first."""
    if not made:
        return Status.NEVER_MATERIALIZED
    if failed:
        return Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED
    return Status.STALE if stale else Status.MATERIALIZED

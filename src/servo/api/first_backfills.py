"""Backfills that were asked for, as the ledger has them: one answer for whoever asks first and whoever asks again."""

from __future__ import annotations

from typing import Any

from servo.answers.backfills import Backfilled
from servo.runtime.wiring import Project

__all__ = ["recorded"]

_WARNINGS = """
    SELECT warnings FROM backfills WHERE backfill_id = $id OR (root_backfill_id = $id AND retry_request_id IS NULL)
    ORDER BY backfill_id
"""
_PATIENCE = 30.0


def recorded(project: Project, made: Backfilled) -> dict[str, Any]:
    rows = project.reader.query(_WARNINGS, {"id": made.backfill_id}, fresh=True, timeout=_PATIENCE).rows
    return {
        "backfill_id": made.backfill_id,
        "name": made.name,
        "event_id": made.event_id,
        "total_partitions": made.total_partitions,
        "jobs": dict(sorted(made.jobs.items())),
        "duplicate": made.duplicate,
        "warnings": list(dict.fromkeys(warning for (warnings,) in rows for warning in warnings or ())),
    }

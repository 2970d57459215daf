"""Run keys that were used for two different things: the first has the run, the others got none."""

from __future__ import annotations

from datetime import datetime

import msgspec

from servo.runtime.wiring import Project

__all__ = ["RunConflict", "run_conflicts"]

_PATIENCE = 60.0  # seconds for the tail to be folded
_CONFLICTS = """
    SELECT run_key, conflicts.run_id, status AS run_status, source_kind, source_id, source_detail,
           conflicts.requested_by, detected_at, existing_fingerprint, conflicting_fingerprint, conflicting_event_id
    FROM run_key_conflicts AS conflicts LEFT JOIN runs USING (run_key)
    WHERE conflict_version IS NOT NULL AND conflict_version < coalesce($before, 'a')
    AND ($run_key IS NULL OR run_key = $run_key)
    ORDER BY conflict_version DESC LIMIT $limit
"""


class RunConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A request under a run key that stands for something else. It was recorded, and started nothing."""

    run_key: str
    run_id: str | None  # of the run that has the key
    run_status: str | None
    source_kind: str | None
    source_id: str | None
    source_detail: str | None
    requested_by: str | None  # who asked for the other thing
    detected_at: datetime
    existing_fingerprint: str
    conflicting_fingerprint: str
    conflicting_event_id: str


def run_conflicts(
    project: Project, *, run_key: str | None = None, before: str | None = None, limit: int = 50
) -> list[RunConflict]:
    """Conflicts, newest first. `before`: the id of the conflicting event of the last one that was seen."""
    parameters = {"run_key": run_key, "before": before, "limit": limit}
    rows = project.reader.query(_CONFLICTS, parameters, fresh=True, timeout=_PATIENCE).dicts()
    return [RunConflict(**row) for row in rows]

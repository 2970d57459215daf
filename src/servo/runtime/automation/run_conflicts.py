"""Run keys that were used for two different things: the first has the run, the others got none."""

from __future__ import annotations

from servo.answers.runs import RunConflict
from servo.runtime.wiring import Project

__all__ = ["run_conflicts"]

_PATIENCE = 60.0  # seconds for the tail to be folded
_CONFLICTS = """
    SELECT run_key, conflicts.run_id, status AS run_status, source_kind, source_id, source_detail,
           conflicts.requested_by, detected_at, existing_fingerprint, conflicting_fingerprint, conflicting_event_id
    FROM run_key_conflicts AS conflicts LEFT JOIN runs USING (run_key)
    WHERE conflict_version IS NOT NULL AND conflict_version < coalesce($before, 'a')
    AND ($run_key IS NULL OR run_key = $run_key)
    ORDER BY conflict_version DESC LIMIT $limit
"""


def run_conflicts(
    project: Project, *, run_key: str | None = None, before: str | None = None, limit: int = 50
) -> list[RunConflict]:
    """Conflicts, newest first. `before`: the id of the conflicting event of the last one that was seen."""
    parameters = {"run_key": run_key, "before": before, "limit": limit}
    rows = project.reader.query(_CONFLICTS, parameters, fresh=True, timeout=_PATIENCE).dicts()
    return [RunConflict(**row) for row in rows]

"""The newest current version of each asset."""

from __future__ import annotations

from servo.execution.protocol import Place
from servo.fold.display import MARKED
from servo.runtime.wiring import Project

__all__ = ["NewestVersions"]

_NEWEST = f"""
    SELECT partition_key, materialization_id FROM partition_status
    WHERE asset_id = $asset_id AND materialization_id IS NOT NULL AND NOT ({MARKED})
    ORDER BY materialization_id DESC LIMIT 1
"""
_PATIENCE = 60.0  # seconds for the tail to be folded


class NewestVersions:
    """The newest current version of each asset, which tells its columns. Threads may share it.

    Looked up once and then remembered: a worker that is alone knows what it has published itself. Whoever learns that
    somebody else has published says so.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._known: dict[str, Place | None] = {}

    def of(self, asset_id: str) -> Place | None:
        known = self._known
        if asset_id not in known:
            known[asset_id] = self._found(asset_id)
        return known[asset_id]

    def published(self, place: Place) -> None:
        """This one is current now."""
        before = self._known.get(place.asset_id)
        if before is None or before.materialization_id < place.materialization_id:
            self._known[place.asset_id] = place

    def forget(self) -> None:
        """Others have published."""
        self._known = {}

    def _found(self, asset_id: str) -> Place | None:
        rows = self._project.reader.query(_NEWEST, {"asset_id": asset_id}, fresh=True, timeout=_PATIENCE).rows
        return Place(asset_id=asset_id, key=rows[0][0], materialization_id=rows[0][1]) if rows else None

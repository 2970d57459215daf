"""What commands have done: what changes something, by the services of the project in this folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from servo.answers.sensors import Accepted
    from servo.runtime.wiring import Project

__all__ = ["Doing"]


class Doing:
    """A part of `servo.cli.services.Services`."""

    _opened: Project

    def before_waiting(self) -> Callable[[], None]:
        """Who waits here may have to start a worker: what would keep that from working is said before all else."""
        opened = self._opened

        def require() -> None:
            from servo.runtime.embedded import require_workable

            require_workable(opened)

        return require

    # ── partitions ───────────────────────────────────────────────────────────────────────────────────────────────

    def mark(self, asset: str, partitions: Sequence[str], *, as_what: str, reason: str, actor: str) -> dict[str, Any]:
        from servo.runtime.marking import mark

        return mark(self._opened, asset, partitions, as_what=as_what, reason=reason, actor=actor)

    def accept_code(self, asset: str, versions: Sequence[str], *, reason: str, actor: str) -> dict[str, Any]:
        """The folder's code is deployed first, where that is another."""
        from servo.runtime.accepting_code import accept_code
        from servo.runtime.cataloguing import deployed_catalog

        known = deployed_catalog(self._opened, actor=actor)
        return accept_code(self._opened, known, asset, versions, reason=reason, actor=actor)

    def change_values(self, dimension: str, *, added: Sequence[str], removed: Sequence[str], actor: str) -> str:
        """The id of the event."""
        from servo.runtime.dynamics import change_partitions

        return change_partitions(self._opened, dimension, added=added, removed=removed, actor=actor)

    # ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────

    def send(
        self, named: str, data: bytes, *, message_id: str | None, attributes: dict[str, str], actor: str
    ) -> Accepted:
        from servo.cli.sensor_evaluating import message_of, sensing

        with sensing(self._opened, named) as (name, asked):
            return asked.accept(name, message_of(self._opened, message_id, data, attributes), actor=actor)

"""What commands have done: what changes something, by the services of the project in this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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

    # ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────

    def send(
        self, named: str, data: bytes, *, message_id: str | None, attributes: dict[str, str], actor: str
    ) -> Accepted:
        from servo.cli.sensor_evaluating import message_of, sensing

        with sensing(self._opened, named) as (name, asked):
            return asked.accept(name, message_of(self._opened, message_id, data, attributes), actor=actor)

"""Resolves names of sensors and schedules to ids: a name, an id, or how an id begins."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from servo.api.threads import Threads
from servo.errors import NotFound
from servo.runtime.deployed_state import look
from servo.runtime.wiring import Project

__all__ = ["NameResolver"]

_MOST = 1_000


class NameResolver:
    """Caches name → id, so that a burst of messages costs one look-up. Belongs to the server's event loop.

    A stale entry only affects fair sharing of threads.
    """

    def __init__(self, project: Project, threads: Threads) -> None:
        self._project = project
        self._threads = threads
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def id_of(self, kind: str, called: str) -> str | None:
        """The id, or None where nothing is called so."""
        known = self._known.get((kind, called))
        if known is None:
            known = await self._threads.answer(partial(self._find, kind, called))
        if known is not None:
            self._known[kind, called] = known
            self._known.move_to_end((kind, called))
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        return known

    def _find(self, kind: str, called: str) -> str | None:
        state = look(self._project)
        try:
            return (state.sensor(called) if kind == "sensor" else state.schedule(called)).id
        except NotFound:
            return None

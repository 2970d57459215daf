"""Which sensor or schedule is meant, however it is called: by its name, its id, or how its id begins."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from servo.api.threads import Threads
from servo.errors import NotFound
from servo.runtime.deployed_state import look
from servo.runtime.wiring import Project

__all__ = ["Meant"]

_MOST = 1_000


class Meant:
    """Ids by what somebody called them. Belongs to the server's event loop.

    Who was meant once is taken to be meant still, so that not every message is looked up twice: it is for sharing out
    threads, where one that has been made anew under an old name may as well have the share of the old one.
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

"""Recording what was decided on a look at backfills, while others write all the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from servo.errors import AppendConflict, BackfillConflict
from servo.events import Proposal, RecordedEvent
from servo.ledger.protocol import Condition, Receipt
from servo.runtime.wiring import Project

__all__ = ["Patience", "append_unless"]

_SECONDS = 30.0
_PAUSE_SECONDS = 0.05


class Patience:
    """For whoever looks again and again because others were first: not for ever."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._until = time.monotonic() + _SECONDS

    def pause(self) -> None:
        """Wait a little before the next look, or give up in a line."""
        if time.monotonic() >= self._until:
            raise BackfillConflict(
                f"{self._what} was changed by others again and again, so nothing was done to it",
                hint="look with `servo backfill status` and try again",
            )
        time.sleep(_PAUSE_SECONDS)


def append_unless(
    project: Project,
    proposals: Sequence[Proposal],
    position: int,
    bears: Callable[[RecordedEvent], bool],
    patience: Patience,
) -> list[Receipt] | None:
    """Record it unless something that bears on it happened after `position`: then None, and one must look again.

    What bears on it may be about a backfill that nobody knew of, so the condition is on the whole ledger. Whatever
    else is written meanwhile is read and passed over: that is soon done, however much it is.
    """
    while True:
        try:
            return project.ledger.append(proposals, Condition(position=position))
        except AppendConflict:
            before = position
        for event in project.history.events(position):
            position = event.position
            if bears(event):
                return None
        if position == before:  # it was written, and cannot be read yet
            patience.pause()

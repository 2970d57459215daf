"""Recording what was decided on a look at the whole ledger, while others write to it all the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from servo.errors import AppendConflict, Conflict
from servo.events import Proposal, RecordedEvent
from servo.ledger.protocol import Condition, Receipt
from servo.runtime.requesting import Answer, append_answered
from servo.runtime.wiring import Project

__all__ = ["Patience", "append_unless"]

_SECONDS = 30.0
_PAUSE_SECONDS = 0.02


class Patience:
    """For whoever looks again and again because others were first: not for ever."""

    def __init__(self, what: str, kind: type[Conflict] = Conflict) -> None:
        self._what = what
        self._kind = kind
        self._until = time.monotonic() + _SECONDS

    def pause(self) -> None:
        """Wait a little before the next look, or give up in a line."""
        if time.monotonic() >= self._until:
            raise self._kind(
                f"{self._what} was changed by others again and again, so nothing was done to it",
                hint="look again, and try again",
            )
        time.sleep(_PAUSE_SECONDS)


def append_unless(
    project: Project,
    proposals: Sequence[Proposal],
    position: int,
    bears: Callable[[RecordedEvent], bool],
    patience: Patience,
    *,
    answer: Answer | None = None,
) -> list[Receipt] | None:
    """Record it unless something that bears on it happened after `position`: then None, and one must look again.

    What bears on it may be about something that nobody knew of, so the condition is on the whole ledger. Whatever
    else is written meanwhile is read and passed over: that is soon done, however much it is. `answer`: what whoever
    asked for it is answered.
    """
    while True:
        try:
            return append_answered(project, proposals, Condition(position=position), answer=answer)
        except AppendConflict:
            before = position
        for event in project.history.events(position):
            position = event.position
            if bears(event):
                return None
        if position == before:  # it was written, and cannot be read yet
            patience.pause()

"""Appends of many threads in one transaction: whoever comes first records what all who wait want recorded.

A commit costs the same for one event as for a hundred, and so does waiting for the interpreter at each step towards it.
So nobody queues for a transaction of its own. Each append is decided by itself, on what those before it in the group
did: one that is refused changes nothing for the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Event, Lock

from servo.errors import AppendOutcomeUnknown
from servo.ledger.protocol import Condition, Receipt
from servo.ledger.recording import Draft

__all__ = ["Group", "Turn"]

_MOST_TOGETHER = 64  # appends
_MOST_DRAFTS = 2_000


class Turn:
    """One append: what it wants recorded, and what came of it."""

    def __init__(self, drafts: Sequence[Draft], condition: Condition | None) -> None:
        self.drafts = drafts
        self.condition = condition
        self.receipts: list[Receipt] = []
        self.problem: BaseException | None = None
        self.leads = False
        self.called = Event()  # it is done, or it is its turn to lead


class Group:
    """The appends that wait. `together` records some of them: all in one transaction, or none.

    It says in each turn what came of it. What it raises came of all that it has said nothing else of.
    """

    def __init__(self, together: Callable[[Sequence[Turn]], None]) -> None:
        self._together = together
        self._waiting: deque[Turn] = deque()
        self._lock = Lock()
        self._led = False

    def append(self, turn: Turn) -> list[Receipt]:
        with self._lock:
            self._waiting.append(turn)
            turn.leads, self._led = not self._led, True
        if not turn.leads:
            turn.called.wait()
        if turn.leads:
            self._lead()
        if turn.problem is not None:
            raise turn.problem
        return turn.receipts

    def _lead(self) -> None:
        turns = self._next()
        try:
            self._together(turns)
        except Exception as problem:  # noqa: BLE001 (each is told)
            _blame(turns, problem)
        except BaseException:
            # Whoever leads is being stopped, which is not for the others to be.
            _blame(turns, AppendOutcomeUnknown("the append was interrupted", hint="repeat it"))
            raise
        finally:
            with self._lock:
                self._led = bool(self._waiting)
                if self._led:
                    self._waiting[0].leads = True
                    self._waiting[0].called.set()
            for turn in turns:
                turn.called.set()

    def _next(self) -> list[Turn]:
        """Those that come first, the leader among them: as many as go together well."""
        turns: list[Turn] = []
        drafts = 0
        with self._lock:
            while self._waiting and len(turns) < _MOST_TOGETHER:
                drafts += len(self._waiting[0].drafts)
                if turns and drafts > _MOST_DRAFTS:
                    break
                turns.append(self._waiting.popleft())
        return turns


def _blame(turns: Sequence[Turn], problem: BaseException) -> None:
    for turn in turns:
        if turn.problem is None:
            turn.problem = problem

"""A cache of answers by question and state, so that projections are not asked the same twice.

Only what follows from the state alone is kept, under the event that the state ends with. The next append makes it
another state, so nothing here is ever out of date.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

__all__ = ["AnswerCache"]

_MOST_BYTES = 8 * 1024 * 1024
_LARGEST = 256 * 1024


class AnswerCache:
    """The newest answers of one server, up to so many bytes. Threads share it."""

    def __init__(self, most: int = _MOST_BYTES) -> None:
        self._most = most
        self._answers: OrderedDict[Hashable, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def of(self, question: Hashable, answer: Callable[[], bytes]) -> bytes:
        with self._lock:
            known = self._answers.get(question)
            if known is not None:
                self._answers.move_to_end(question)
                return known
        found = answer()
        if len(found) <= _LARGEST:
            self._keep(question, found)
        return found

    def _keep(self, question: Hashable, answer: bytes) -> None:
        with self._lock:
            if question in self._answers:
                return
            self._answers[question] = answer
            self._bytes += len(answer)
            while self._bytes > self._most:
                _, old = self._answers.popitem(last=False)
                self._bytes -= len(old)

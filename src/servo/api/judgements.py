"""What was judged stale, for who walks over it page by page: it is judged at once, and not for every page anew."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from threading import Lock

from servo.status.stale_list import StaleRows

__all__ = ["Judgements"]

_MOST = 4
_MOST_ROWS = 100_000
_GOOD_FOR = timedelta(minutes=1)


class Judgements:
    """The newest of one server. Threads share it.

    A first page is always judged anew. Those after it are of the same judgement, as long as nothing was recorded since
    and it is not old: what nobody has made in time goes stale with nothing recorded.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[Hashable, tuple[datetime, StaleRows]] = OrderedDict()

    def of(self, question: Hashable, now: datetime, judge: Callable[[], StaleRows], *, goes_on: bool) -> StaleRows:
        with self._lock:
            judged_at, kept = self._kept.get(question, (now, None))
        if goes_on and kept is not None and now - judged_at <= _GOOD_FOR:
            return kept
        found = judge()
        with self._lock:
            self._kept[question] = (now, found)
            self._kept.move_to_end(question)
            while len(self._kept) > _MOST or (self._kept and self._rows() > _MOST_ROWS):
                self._kept.popitem(last=False)
        return found

    def _rows(self) -> int:
        return sum(len(judged.rows) for _, judged in self._kept.values())

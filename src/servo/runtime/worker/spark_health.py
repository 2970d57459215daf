"""Whether a worker's Spark is fit to be given tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock
from weakref import WeakSet

from servo.errors import EnvironmentProblem

__all__ = ["SparkHealth"]

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 10.0  # while Spark does not answer
_MOST_LOSSES = 5  # sessions in a row, before it is the worker that seems to be at fault
_LOSS_PAUSE_SECONDS = 60.0  # then, and twice as long each time that follows
_LONGEST_PAUSE_SECONDS = 900.0
_AWAY = "its Spark does not answer"


class SparkHealth:
    """Takes note of what becomes of tasks, and says when no further one should be taken. Threads share it.

    Without Spark, tasks could only fail, so none is taken until it answers. A worker that loses one session after the
    other, with several tasks and without computing anything in between, takes none for a while and then tries a single
    one. A session counts once, however many tasks it carried. `problem` says why the worker takes no task, for its
    lease and so for `/readyz`, which anybody may ask: the log has the rest.
    """

    def __init__(self, check: Callable[[], None], *, losses: int = 0) -> None:
        """`losses`: of sessions in a row, by the processes that this one takes the place of."""
        self._check = check
        self._lock = Lock()
        self._resumes_at: float | None = None
        self._is_away = False
        self._losses = losses
        # The run and the task that lost a session; of those before, only that there were some is known.
        self._losers: set[tuple[str, str]] = {("", str(number)) for number in range(losses)}
        self._lost_sessions: WeakSet[object] = WeakSet()  # while a task that used one may still report it
        self._problem: str | None = None
        if losses >= _MOST_LOSSES:
            self._pause_for_losses()

    @property
    def losses(self) -> int:
        return self._losses

    @property
    def problem(self) -> str | None:
        """Why no task is taken; None when the pause is over, also before the worker has room for another task."""
        resumes_at = self._resumes_at
        if resumes_at is None or (time.monotonic() >= resumes_at and not self._is_away):
            return None
        return self._problem

    def unreachable(self) -> None:
        """Spark did not answer."""
        with self._lock:
            self._is_away = True
            self._pause(_PAUSE_SECONDS, _AWAY)

    def session_lost(self, run_id: str, task_key: str, problem: str, session: object | None = None) -> None:
        """A session ended while a task was at work. Without the session, every report counts as another one."""
        with self._lock:
            self._losers.add((run_id, task_key))
            if session is not None:
                if session in self._lost_sessions:
                    return
                self._lost_sessions.add(session)
            self._losses += 1
            if self._losses < _MOST_LOSSES or len(self._losers) == 1:
                return  # one task alone is given up before long
            seconds = self._pause_for_losses()
            log.error(
                "no task is taken for %.0f s: %s; the last time, %s",
                seconds,
                self._problem,
                problem,
                extra={"action": "worker.unfit"},
            )

    def worked(self) -> None:
        """A task used Spark and did not lose its session, whatever became of the task."""
        if self._losses or self._problem is not None:
            with self._lock:
                self._losses, self._problem = 0, None
                self._losers.clear()

    @property
    def on_trial(self) -> bool:
        """Whether a single task is to show that Spark works again."""
        return self._losses >= _MOST_LOSSES and len(self._losers) > 1

    def may_work(self) -> bool:
        """Whether a task may be taken. Looks again after a while; what seems to be there again is tried."""
        with self._lock:
            if self._is_paused():
                return False
            was_away = self._is_away
        if was_away:
            try:
                self._check()  # it may wait for the network: tasks that end meanwhile must not wait for it
            except EnvironmentProblem as problem:
                log.warning("no task is taken: %s", problem, extra={"action": "worker.sparkless"})
                self.unreachable()
                return False
        with self._lock:
            if self._is_paused():
                return False  # a task met trouble during the check
            self._is_away, self._resumes_at, self._problem = False, None, None
            return True

    def _pause_for_losses(self) -> float:
        """For how many seconds no task is taken."""
        again = self._losses - _MOST_LOSSES
        seconds = min(_LOSS_PAUSE_SECONDS * 2.0**again, _LONGEST_PAUSE_SECONDS)
        self._pause(seconds, f"it lost its Spark session {self._losses} times in a row")
        return seconds

    def _is_paused(self) -> bool:
        return self._resumes_at is not None and time.monotonic() < self._resumes_at

    def _pause(self, seconds: float, problem: str) -> None:
        """Pause for at least so many seconds; a longer pause stays, with its problem."""
        until = time.monotonic() + seconds
        is_longer = self._resumes_at is None or until > self._resumes_at
        if is_longer:
            self._resumes_at = until
        if is_longer or self._problem is None:
            self._problem = problem

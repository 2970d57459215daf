"""The loop that control, driver and worker share: one pass after another, under a lease."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from threading import Event, Thread
from typing import ClassVar

from servo.controllers.decisions import Decision
from servo.errors import PASSING, Conflict, ServoError
from servo.ledger.leases import Heartbeat, Holder, Kind
from servo.ledger.protocol import Condition
from servo.runtime.loop.tracker import Tracker
from servo.runtime.wiring import Project

__all__ = ["ServiceLoop", "ServiceThread"]

log = logging.getLogger(__name__)

_TROUBLE_SECONDS = 1.0
_LONGEST_REST_SECONDS = 0.2


class ServiceLoop(ABC):
    """Makes one pass after another until told to stop, whenever something was appended or is due.

    The lease is renewed by a thread of its own. When it is lost, the loop goes on under another id: what was begun
    under the old one is others' now. Trouble that passes by itself is logged and waited out.
    """

    kind: ClassVar[Kind]
    trouble: ClassVar[str]  # what cannot be done while there is trouble, for the log
    rest: ClassVar[float] = 0.0  # after a pass, as a multiple of its duration: every append wakes the loop

    def __init__(self, project: Project, tracker: Tracker) -> None:
        self._project = project
        self._tracker = tracker
        self.holder = self._new_holder()

    def run(self, stop: Event) -> None:
        """Go on until told to stop, or until there is nothing more to do."""
        while not stop.is_set() and not self._is_over():
            self.holder = self._new_holder()
            try:
                with Heartbeat(self._project.leases, self.holder, self._project.settings.worker) as heartbeat:
                    self._hold(heartbeat, stop)
            except PASSING as problem:
                self._wait_out(problem, stop)

    def _hold(self, heartbeat: Heartbeat, stop: Event) -> None:
        """Make passes under one lease."""
        try:
            while not stop.is_set() and not heartbeat.lost.is_set():
                began = time.monotonic()
                try:
                    heartbeat.tell(self._detail())
                    if not self._pass():
                        return
                    # Appends come by the thousand where there is much to do: others need the processor too.
                    stop.wait(min((time.monotonic() - began) * self.rest, _LONGEST_REST_SECONDS))
                    if (seconds := self._pause()) > 0:
                        self._tracker.wait(seconds)
                except PASSING as problem:
                    self._wait_out(problem, stop)
        finally:
            self._hand_back()

    def _append(self, *decisions: Decision) -> bool:
        """Record decisions, all or none; False where somebody was first: then the next pass looks again."""
        subjects = frozenset().union(*(decision.subjects for decision in decisions))
        condition = Condition(position=min(decision.position for decision in decisions), subjects=subjects)
        try:
            self._project.ledger.append([one for decision in decisions for one in decision.proposals], condition)
        except Conflict as first:
            log.debug("%s", first, extra={"action": f"{self.kind}.conflict"})
            return False
        return True

    def _wait_out(self, problem: ServoError, stop: Event) -> None:
        if not self._is_mending(problem):
            told, action = "%s at the moment; it is tried again: %s", f"{self.kind}.trouble"
            log.warning(told, self.trouble, problem, extra={"action": action})
        stop.wait(_TROUBLE_SECONDS)

    def _new_holder(self) -> Holder:
        return Holder.here(self.kind, self._project.mint())

    # ── what each service does ───────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _pass(self) -> bool:
        """Do what can be done now. False gives the lease back."""

    @abstractmethod
    def _pause(self) -> float:
        """Seconds until something is due by itself."""

    def _detail(self) -> str:
        """What the lease says about this service: why it cannot work, or nothing."""
        return ""

    def _hand_back(self) -> None:  # noqa: B027 (only a worker has something to hand back)
        """Give up what was begun under the lease, which is about to end."""

    def _is_over(self) -> bool:
        """Whether there is nothing more to do, under any lease."""
        return False

    def _is_mending(self, problem: ServoError) -> bool:  # noqa: ARG002 (for those that can mend something)
        """Whether something is done against a trouble already, so that there is nothing to warn of."""
        return False


class ServiceThread(Thread):
    """A service loop in a daemon thread. When it ends, it sets `stop`."""

    def __init__(self, loop: ServiceLoop, stop: Event) -> None:
        super().__init__(name=loop.kind, daemon=True)
        self._loop = loop
        self._stop_asked = stop
        self._problem: BaseException | None = None

    def run(self) -> None:
        try:
            self._loop.run(self._stop_asked)
        except BaseException as problem:
            unforeseen = not isinstance(problem, ServoError)
            level, action = logging.ERROR if unforeseen else logging.DEBUG, f"{self.name}.ended"
            log.log(level, "the %s loop ended", self.name, exc_info=unforeseen, extra={"action": action})
            self._problem = problem
        finally:
            self._stop_asked.set()

    def require_well(self) -> None:
        """Raise what ended the loop."""
        if self._problem is not None:
            raise self._problem

"""The driver: ticks schedules and polls sensors when they are due, in a loop or in one pass.

Several drivers may be running at the same time. Ticks are recorded on condition, so that one driver is first and the
others look again. A sensor is asked by the driver that its id falls to among those alive (`may_ask`), and its cursor is
compared and swapped: should two ask it after all, one comes too late.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import datetime
from hashlib import sha256
from threading import Event

import msgspec

from servo.answers.automations import Accepted
from servo.controllers.automation_boards import ScheduleState, SensorState
from servo.controllers.decisions import Decision
from servo.controllers.scheduling import Filling, NotYet, decide
from servo.events.automation import ScheduleTicked
from servo.events.model import RunRequested
from servo.ids import ulid_time
from servo.ledger.leases import Heartbeat
from servo.operations.automations.ticks import wanted_by
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.runtime.evaluation.pool import Evaluation, EvaluatorPool
from servo.runtime.loop.sensors import FoundNothing, Sensing
from servo.runtime.loop.service_loop import AutomationTracker, ServiceLoop, take_polls
from servo.runtime.states import state_of
from servo.runtime.wiring import Project

__all__ = ["Driver", "PassReport", "may_ask", "one_pass"]

log = logging.getLogger(__name__)


_LONGEST_PAUSE = 1.0  # seconds: clocks jump, and somebody may want it to stop
_ANSWER_SECONDS = 0.02  # between two looks at whether the function of a schedule has answered
_POLLS_AT_ONCE = 24
_FUNCTIONS_AT_ONCE = 8  # of schedules: sensors that hang must not keep them waiting
_UNASKED_SECONDS = 5.0  # until somebody is asked again, after nobody could be
_TOGETHER = 500  # schedules whose ticks are recorded in one append


class PassReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass did, and when there is something to do again."""

    ticks: int = 0
    skipped: int = 0
    failed: int = 0
    evaluations: int = 0
    runs: int = 0
    next_due: datetime | None = None

    def __add__(self, later: PassReport) -> PassReport:
        """Add up two passes; `next_due` is of the later one."""
        counts = ("ticks", "skipped", "failed", "evaluations", "runs")
        sums = {name: getattr(self, name) + getattr(later, name) for name in counts}
        return PassReport(**sums, next_due=later.next_due)


class _PollOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a poll. `by_other`: another driver was first, and the sensor was not asked."""

    at: datetime  # as it is kept beside the ledger
    accepted: Accepted | None = None
    found_nothing: bool = False
    by_other: bool = False


class Driver(ServiceLoop):
    """Ticks schedules and polls sensors. Belongs to one thread; evaluations have their own."""

    kind = "driver"
    trouble = "Schedules and sensors cannot be looked at"
    rest = 2.0
    _tracker: AutomationTracker

    def __init__(self, project: Project, evaluators: EvaluatorPool) -> None:
        super().__init__(project, AutomationTracker(project))
        self._evaluators = evaluators
        self._sensing = Sensing(project, evaluators)
        self._deployed_at = self._tracker.deployed_at
        self._polls = ThreadPoolExecutor(_POLLS_AT_ONCE, thread_name_prefix="poll")
        self._functions = ThreadPoolExecutor(_FUNCTIONS_AT_ONCE, thread_name_prefix="function")
        self._polling: dict[str, Future[_PollOutcome]] = {}  # of sensors
        polls = project.polls.all()
        self._seen = {sensor_id: poll.asked_at for sensor_id, poll in polls.items()}  # when each was last asked
        take_polls(self._tracker.sensors, polls)
        self._answers: dict[tuple[str, datetime], Future[Evaluation]] = {}  # of functions of schedules
        self._retry_at: dict[tuple[str, datetime], float] = {}

    def run(self, stop: Event) -> None:
        """Go on until told to stop."""
        if self._tracker.sensors.sensors:
            self._evaluators.warm_up()
        try:
            super().run(stop)
        finally:
            self.close()

    def _pass(self) -> bool:
        self.step()
        return True

    def close(self) -> None:
        for threads in (self._polls, self._functions):
            threads.shutdown(wait=False, cancel_futures=True)

    def step(self) -> PassReport:
        """Do what is due now: ticks are recorded when this returns, evaluations have begun."""
        tracker = self._tracker
        self._collect_polls()
        if tracker.deployed_at != self._deployed_at:
            self._deployed_at = tracker.deployed_at
            self._evaluators.renew(tracker.deployed_at)
        self._answers = {place: asked for place, asked in self._answers.items() if self._is_open(*place)}
        self._retry_at = {place: at for place, at in self._retry_at.items() if self._is_open(*place)}
        report = self._tick()
        begun = self._poll()
        return msgspec.structs.replace(report, evaluations=begun, next_due=self.next_due())

    # ── schedules ────────────────────────────────────────────────────────────────────────────────────────────────

    def _tick(self) -> PassReport:
        tracker, project = self._tracker, self._project
        now = project.clock()
        due = tracker.schedules.next_due()
        if due is None or due > now:
            return PassReport()
        state = state_of(project, catalog=tracker.catalog)
        known_fills: dict[tuple[tuple[str, ...], str | None, datetime], Filling] = {}
        coming: dict[str, PartitionSet] = {}  # what the ticks of this pass ask for

        def fill(schedule: ScheduleState, moment: datetime) -> Filling:
            answer = self._answer(schedule, moment)
            if answer is not None:
                return wanted_by(state, schedule, moment, evaluation=answer, coming=coming)
            # A thousand schedules at one moment are few different questions.
            definition = schedule.definition
            key = (tuple(definition.asset_selection), definition.settings.get("partitions"), moment)
            if key not in known_fills:
                known_fills[key] = wanted_by(state, schedule, moment, coming=coming)
            return known_fills[key]

        decisions = list(decide(tracker.schedules, tracker.catalog, now, fill, project.run_id))
        recorded = [decision for some in _batches(decisions) for decision in self._record(some)]
        tracker.refresh()
        facts = [fact for decision in recorded for fact in decision.facts]
        ticks = [fact.status for fact in facts if isinstance(fact, ScheduleTicked)]
        return PassReport(
            ticks=len(ticks),
            skipped=ticks.count("SKIPPED"),
            failed=ticks.count("FAILED"),
            runs=sum(isinstance(fact, RunRequested) for fact in facts),
        )

    def _answer(self, schedule: ScheduleState, moment: datetime) -> Evaluation | None:
        """The answer of a schedule's function, which is asked beside the loop; NotYet until it is there."""
        if not schedule.definition.settings.get("function"):
            return None
        place = (schedule.id, moment)
        if time.monotonic() < self._retry_at.get(place, 0.0):
            raise NotYet
        if place not in self._answers:
            self._answers[place] = self._functions.submit(
                self._evaluators.ask_schedule, schedule.definition, moment, self._project.clock()
            )
        if not self._answers[place].done():
            raise NotYet
        answer = self._answers.pop(place).result()
        if answer.unasked:
            # Definitions that do not load are mended, and processes that are busy get free: it is not its fault.
            log.warning(
                "The function of schedule %s could not be asked and is asked again in %g s: %s",
                schedule.definition.name,
                _UNASKED_SECONDS,
                answer.error,
                extra={"action": "driver.unasked"},
            )
            self._retry_at[place] = time.monotonic() + _UNASKED_SECONDS
            raise NotYet
        return answer

    def _is_open(self, schedule_id: str, moment: datetime) -> bool:
        """Whether a schedule has still to tick for a moment."""
        schedule = self._tracker.schedules.schedules.get(schedule_id)
        return schedule is not None and moment > schedule.since

    def _record(self, decisions: Sequence[Decision]) -> list[Decision]:
        """Record decisions in one append; those that somebody else was first with are looked at again."""
        if self._append(*decisions):
            return list(decisions)
        return [decision for decision in decisions if self._append(decision)] if len(decisions) > 1 else []

    # ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _poll(self) -> int:
        """Ask the sensors that are due and fall to this driver; give how many."""
        due = [one for one in self._tracker.sensors.due(self._project.clock()) if one.id not in self._polling]
        mine = self._own_sensors(due) if due else []
        for sensor in mine:
            state = msgspec.structs.replace(sensor)
            self._polling[sensor.id] = self._polls.submit(
                self._ask, state, self._tracker.catalog, self._tracker.position, self._seen.get(sensor.id)
            )
        return len(mine)

    def _ask(self, sensor: SensorState, known: Catalog, position: int, seen: datetime | None) -> _PollOutcome:
        """Ask a sensor, unless another driver has done so since it was `seen` to be asked."""
        now, polls = self._project.clock(), self._project.polls
        if not polls.begin(sensor.id, now, seen):
            other = polls.all().get(sensor.id)
            return _PollOutcome(at=now if other is None else other.asked_at, by_other=True)
        answer = self._sensing.poll(sensor, known, position)
        if isinstance(answer, FoundNothing):
            return _PollOutcome(at=answer.at, found_nothing=True)
        return _PollOutcome(at=now, accepted=answer)

    def _tell_board(self, sensor_id: str, asked: _PollOutcome) -> None:
        """Tell the board what no event says."""
        self._seen[sensor_id] = asked.at
        if asked.by_other or asked.found_nothing:
            self._tracker.sensors.asked(sensor_id, asked.at, found_nothing=asked.found_nothing)

    def _own_sensors(self, due: list[SensorState]) -> list[SensorState]:
        drivers = {holder.id for holder in self._project.leases.live() if holder.kind == "driver"} | {self.holder.id}
        now, usual = self._project.clock(), self._project.settings.sensors.timeout_seconds
        return [
            one
            for one in due
            if may_ask(self.holder.id, drivers, one.id, now, one.definition.settings.get("timeout_seconds") or usual)
        ]

    def _collect_polls(self) -> list[_PollOutcome]:
        """Collect the polls that have ended, and bring the board up to date."""
        over = {sensor_id: asked for sensor_id, asked in self._polling.items() if asked.done()}
        self._tracker.refresh()
        for sensor_id, asked in over.items():
            del self._polling[sensor_id]
            if (problem := asked.exception()) is not None:
                told = "What a sensor found could not be recorded; it is asked again: %s"
                log.warning(told, problem, extra={"action": "driver.evaluation"})
            else:
                self._tell_board(sensor_id, asked.result())
        return [asked.result() for asked in over.values() if asked.exception() is None]

    def finish(self) -> list[Accepted]:
        """Wait for the evaluations that have begun, and give their outcomes. Raises what one of them raised."""
        begun = list(self._polling.values())
        wait(begun)
        answered = self._collect_polls()
        for asked in begun:
            asked.result()
        return [one.accepted for one in answered if one.accepted is not None]

    # ── when next ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def answering(self) -> bool:
        """Whether the function of a schedule is being asked."""
        return bool(self._answers)

    @property
    def waiting(self) -> bool:
        """Whether the function of a schedule could not be asked, and is to be asked again."""
        return bool(self._retry_at)

    def next_due(self) -> datetime | None:
        """When there is something to do again."""
        now = self._project.clock()
        times = (self._tracker.schedules.next_due(), self._tracker.sensors.next_due())
        return min((max(time, now) for time in times if time is not None), default=None)

    def _pause(self) -> float:
        if self.answering:
            return _ANSWER_SECONDS
        now = self._project.clock()
        tick, poll = self._tracker.schedules.next_due(), self._tracker.sensors.next_due()
        # A sensor that is due and was not asked is somebody else's, or is being asked.
        times = [] if poll is None or poll <= now else [poll]
        times += [] if tick is None or (tick <= now and self.waiting) else [tick]
        return min([_LONGEST_PAUSE, *(max((time - now).total_seconds(), 0.0) for time in times)])


def one_pass(project: Project, evaluators: EvaluatorPool) -> PassReport:
    """Do all that is due now, and wait until it is done."""
    driver = Driver(project, evaluators)
    try:
        with Heartbeat(project.leases, driver.holder, project.settings.worker):
            done = driver.step()
            while driver.answering:
                Event().wait(_ANSWER_SECONDS)
                done += driver.step()
            accepted = driver.finish()
            return done + PassReport(
                failed=sum(one.status == "FAILED" for one in accepted),
                runs=sum(len(one.started) for one in accepted),
                next_due=driver.next_due(),
            )
    finally:
        driver.close()


def _batches(decisions: list[Decision]) -> Iterator[list[Decision]]:
    for first in range(0, len(decisions), _TOGETHER):
        yield decisions[first : first + _TOGETHER]


# ── drivers that share the sensors ───────────────────────────────────────────────────────────────────────────────────
#
# A sensor falls to one of the drivers that are alive, by its id and theirs: all who know the same drivers agree, and
# few sensors move when one leaves. Whoever comes is not counted before it has been there for as long as an evaluation
# may take, and does not ask before it has been counted for as long again: by then, whatever its predecessor was asking
# has ended. A driver that is killed takes its evaluations with it. Should two ask after all, the cursor decides.


def may_ask(driver: str, drivers: Collection[str], sensor_id: str, now: datetime, timeout: float) -> bool:
    """Whether a sensor is this driver's to ask. Drivers are known by ULIDs, which tell since when they are there."""
    return all(_owner(drivers, sensor_id, now, age) == driver for age in (timeout, 2 * timeout))


def _owner(drivers: Collection[str], sensor_id: str, now: datetime, age: float) -> str:
    """The owner of a sensor among the drivers of at least this age; where there is none, the first that came."""
    settled = [driver for driver in drivers if (now - ulid_time(driver)).total_seconds() >= age]
    return max(settled, key=lambda driver: _weight(driver, sensor_id)) if settled else min(drivers)


def _weight(driver: str, sensor_id: str) -> bytes:
    return sha256(f"{driver}:{sensor_id}".encode()).digest()

"""Evaluators of sensors and of the functions of schedules, in processes of their own.

What hangs, exits, or eats memory there stops nothing here, and nobody else's evaluation.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import datetime
from threading import Condition
from typing import Self

from servo.assets.evaluation import Asked, Evaluation, Made, Message, Question
from servo.controllers.automation_boards import SensorState
from servo.events.definitions import ScheduleDefinition
from servo.planning.deployed import DECLARED
from servo.runtime.evaluation.zygote import Evaluator, LostError, UnavailableError, Zygote
from servo.runtime.processes.children import exit_text
from servo.runtime.settings import Settings

__all__ = ["Asked", "Evaluation", "EvaluatorPool", "Question"]

log = logging.getLogger(__name__)

_MOST = 64  # at work at the same time: sensors that poll, functions of schedules, and messages
_AGAIN_SECONDS = 10.0  # between two attempts to load definitions that do not load


class EvaluatorPool:
    """Processes that answer questions, each one at a time; any thread may ask.

    So many as `processes` says are kept for the next question. Where all are at work, another one is made.
    """

    def __init__(self, settings: Settings, *, processes: int | None = None) -> None:
        self._settings = settings
        self._kept = settings.sensors.processes if processes is None else processes
        self._most = max(_MOST, self._kept)
        self._changed = Condition()
        self._zygote: Zygote | None = None
        self._retired: list[Zygote] = []  # still needed for questions that are under way
        self._idle: list[Evaluator] = []
        self._busy = 0
        self._closed = False
        self._renewed_at = 0

    def ask_schedule(self, definition: ScheduleDefinition, at: datetime, now: datetime) -> Evaluation:
        """Ask the function of a schedule for a moment."""
        timeout = float(self._settings.sensors.timeout_seconds)
        return self.evaluate(
            Question(kind="schedule", name=definition.name, now=now, scheduled_for=at, timeout=timeout)
        )

    def ask_sensor(self, sensor: SensorState, now: datetime, message: Message | None = None) -> Evaluation:
        """Ask a sensor, about a message or about its cursor."""
        name, settings = sensor.definition.name, sensor.definition.settings
        made = None
        if DECLARED not in settings:
            made = Made(select=settings["select"], watch=settings.get("watch"), partitions=settings.get("partitions"))
        return self.evaluate(
            Question(
                kind="sensor",
                name=name,
                sensor_id=sensor.id,
                now=now,
                cursor=sensor.cursor,
                message=message,
                made=made,
                timeout=float(settings.get("timeout_seconds") or self._settings.sensors.timeout_seconds),
            )
        )

    def evaluate(self, question: Question) -> Evaluation:
        """Ask a question. Never raises for what the user's code does: the evaluation has the error."""
        began = time.monotonic()
        try:
            try:
                return self._ask_evaluator(question, began + question.timeout)
            except LostError as lost:  # before it was asked: another one can be
                log.warning("%s; another one is started and asked instead", lost, extra={"action": "evaluator.lost"})
                return self._ask_evaluator(question, began + question.timeout)
        except UnavailableError as problem:
            seconds = time.monotonic() - began
            return Evaluation(error=str(problem), unasked=True, cursor=question.cursor, seconds=seconds)

    def _ask_evaluator(self, question: Question, until: float) -> Evaluation:
        zygote = self._wait_for_turn(until)
        evaluator: Evaluator | None = None
        try:
            evaluator = self._take_evaluator(zygote)
            evaluation = evaluator.ask(question)
            if evaluation.error is not None and self._closed:
                raise UnavailableError("it was stopped: Servo is closing")
            return evaluation
        finally:
            self._release(zygote, evaluator)

    @property
    def closed(self) -> bool:
        return self._closed

    def warm_up(self) -> None:
        """Begin to load the definitions, so that the first question need not wait so long."""
        with self._changed, suppress(UnavailableError):
            if not self._closed:
                self._current_zygote()

    def renew(self, position: int | None = None) -> None:
        """Answer the next question by the changed definitions. Those under way go on.

        `position`: that of the deployment. Of several who have seen the same one, the first does it.
        """
        with self._changed:
            if position is not None:
                if position <= self._renewed_at:
                    return
                self._renewed_at = position
            if self._zygote is None or self._closed:
                return
            idle = self._retire(self._zygote)
            self._zygote = None
        self._close(idle)
        with self._changed:
            # At once, so that the next question need not wait so long. Whoever asks is told if it cannot be.
            try:
                if self._zygote is None and not self._closed:
                    self._zygote = Zygote(self._settings)
            except UnavailableError:
                pass

    def close(self) -> None:
        """End all processes. Questions under way are answered with an error."""
        with self._changed:
            self._closed = True
            zygotes = [*self._retired, *([] if self._zygote is None else [self._zygote])]
            idle, self._idle, self._retired, self._zygote = self._idle, [], [], None
            self._changed.notify_all()
        for zygote in zygotes:
            zygote.close()
        for evaluator in idle:
            evaluator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _wait_for_turn(self, until: float) -> Zygote:
        """Wait for a turn; give the zygote of the question."""
        with self._changed:
            while self._busy >= self._most and not self._closed:
                left = until - time.monotonic()
                if left <= 0:
                    raise UnavailableError(f"all {self._most} processes that evaluate were at work all the time")
                self._changed.wait(left)
            if self._closed:
                raise UnavailableError("nothing is evaluated any more: Servo is closing")
            zygote = self._current_zygote()
            zygote.users += 1
            self._busy += 1
            return zygote

    def _current_zygote(self) -> Zygote:
        zygote = self._zygote
        if zygote is not None and zygote.failed_at is not None:
            # Mended definitions are found also where nobody says so.
            stale = time.monotonic() >= zygote.failed_at + _AGAIN_SECONDS
        else:
            stale = zygote is not None and zygote.is_lost
        if zygote is not None and stale:
            for evaluator in self._retire(zygote):
                evaluator.close()  # with the process that forked them they are gone, or there are none
            self._zygote = zygote = None
        if zygote is None:
            self._zygote = zygote = Zygote(self._settings)
        return zygote

    def _retire(self, zygote: Zygote) -> list[Evaluator]:
        """Let a zygote go once its last question is answered; give its idle children."""
        mine = [one for one in self._idle if one.zygote is zygote]
        self._idle = [one for one in self._idle if one.zygote is not zygote]
        self._retired.append(zygote)
        return mine

    def _take_evaluator(self, zygote: Zygote) -> Evaluator:
        while True:
            with self._changed:
                mine = [one for one in self._idle if one.zygote is zygote]
                if not mine:
                    break
                evaluator = mine[-1]  # the one that worked last is the warmest
                self._idle.remove(evaluator)
            if evaluator.is_there:
                return evaluator
            how = exit_text(evaluator.end())
            if not zygote.is_lost:  # else it is gone with the process that forked it, and that is told
                log.warning(
                    "a process that evaluates sensors and schedules %s while nothing was asked of it;"
                    " another one takes its place",
                    how,
                    extra={"action": "evaluator.lost"},
                )
            self._close([evaluator])
        return zygote.fork()

    def _release(self, zygote: Zygote, evaluator: Evaluator | None) -> None:
        with self._changed:
            kept = (
                evaluator is not None
                and evaluator.usable
                and zygote is self._zygote
                and not self._closed
                and len(self._idle) < self._kept
            )
            if kept and evaluator is not None:
                self._idle.append(evaluator)
        if evaluator is not None and not kept:
            self._close([evaluator])
        with self._changed:
            zygote.users -= 1
            self._busy -= 1
            self._changed.notify()
        self._close([])

    def _close(self, evaluators: list[Evaluator]) -> None:
        """Close evaluators, and retired zygotes that no question needs any more."""
        for one in evaluators:
            one.end()
            one.close()
        with self._changed:
            done = [one for one in self._retired if one.users == 0]
            self._retired = [one for one in self._retired if one.users > 0]
        for zygote in done:
            zygote.close()

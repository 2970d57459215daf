"""Ticks of schedules that people ask for."""

from __future__ import annotations

from servo.answers.schedules import Ticked
from servo.operations.moments import moment
from servo.operations.schedules.requests import TriggerSchedule
from servo.runtime.serving import Call, serves_change


@serves_change(TriggerSchedule)
def trigger(call: Call, request: TriggerSchedule) -> Ticked:
    at = moment(request.at, "at")
    return call.user_code.ticking.trigger(request.schedule, request_id=call.key, at=at, actor=call.actor)

"""Decisions: pure functions of what is going on and the moment, to facts that the control loop appends."""

from servo.controllers.board import Board
from servo.controllers.decisions import Decision, retry_lost_tasks
from servo.controllers.dispatch import Claim, Limits, decide, next_wake, ready, unplanned
from servo.controllers.requests import request, retry_selection
from servo.controllers.states import RunState, TaskState

__all__ = [
    "Board",
    "Claim",
    "Decision",
    "Limits",
    "RunState",
    "TaskState",
    "decide",
    "next_wake",
    "ready",
    "request",
    "retry_lost_tasks",
    "retry_selection",
    "unplanned",
]

"""Whether what declared schedules say of partitions can be meant: `servo check` tells, and not the night."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from servo.assets.loading import Definitions
from servo.assets.selection import select
from servo.assets.spec import Problem
from servo.assets.syntax import parse, terms
from servo.errors import InvalidInput
from servo.runtime.automation.filling import LATEST

__all__ = ["unfillable"]


def unfillable(definitions: Definitions, now: datetime) -> Iterator[Problem]:
    """Schedules whose text of partitions does not fit what they select. Statuses are known only in a ledger."""
    for schedule in definitions.schedules.values():
        text = schedule.partitions
        asks = any(term.what.startswith("status:") for term in terms(parse(schedule.select)))
        if text is None or text == LATEST or asks:
            continue
        try:
            select(definitions.graph, schedule.select, now=now, partitions=text)
        except InvalidInput as problem:
            message = f"schedule {schedule.name}: partitions {text!r:.80}: {problem.message}"
            yield Problem(message=message, hint=problem.hint, source=schedule.source)

"""What a run's calls left out, and what was compared of its batches, as its events tell it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from servo.events import RecordedEvent, decode
from servo.events.columns import MADE, spread
from servo.events.model import TaskFinished

__all__ = ["rows_left_out", "samples_taken"]


def rows_left_out(events: Iterable[RecordedEvent]) -> list[dict[str, Any]]:
    """For each task whose function returned rows of other partitions: how many, an example, and what came out empty."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for fact in _finished(events):
        calls = fact.calls
        if calls is None:
            continue
        task = {"task_key": fact.task_key, "asset_key": fact.asset_key, "rows": 0, "example": None, "empty": []}
        count = len(fact.partitions)
        columns = zip(
            fact.partitions.keys, fact.partitions.outcomes(), spread(fact.partitions.rows, count), strict=True
        )
        counted = set()
        for place, (key, outcome, rows) in enumerate(columns):
            number = calls.of_output(place)
            left_out = 0 if number is None else calls.rows_left_out_by(number)
            if number is None or not left_out:
                continue
            one = found.setdefault((fact.task_key, fact.attempt), task)
            if number not in counted:
                counted.add(number)
                one["rows"] += left_out
                one["example"] = one["example"] or calls.example_of(number)
            if outcome in MADE and rows == 0:
                one["empty"].append(key)
    return list(found.values())


def samples_taken(events: Iterable[RecordedEvent]) -> list[dict[str, Any]]:
    """Every partition of a batch that was computed alone as well, and how both compared."""
    return [
        {
            "task_key": fact.task_key,
            "asset_key": fact.asset_key,
            "partition_key": key,
            "verdict": verdict.value,
            "remark": remark,
        }
        for fact in _finished(events)
        if fact.samples is not None
        for key, verdict, remark in zip(
            fact.samples.keys,
            spread(fact.samples.verdict, len(fact.samples.keys)),
            spread(fact.samples.remark, len(fact.samples.keys)),
            strict=True,
        )
    ]


def _finished(events: Iterable[RecordedEvent]) -> list[TaskFinished]:
    return [fact for event in events if isinstance(fact := decode(event), TaskFinished)]

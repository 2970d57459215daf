"""Looks for what is new to a watch since a cursor, at most so much at a time, nothing twice."""

from __future__ import annotations

from servo.assets.evaluation import WatchResult
from servo.assets.watches import BuiltIn, NewFiles, NewPartitions, NewRows, RunEnded
from servo.errors import InvalidInput
from servo.runtime.watches.files import new_files
from servo.runtime.watches.ledger_events import ended_runs, new_partitions
from servo.runtime.watches.rows import new_rows
from servo.runtime.wiring import Project

__all__ = ["look"]


def look(watch: object, cursor: str | None, project: Project, *, sensor_id: str | None = None) -> WatchResult:
    """What is new, and the cursor from which to look the next time; `cursor` itself where nothing has changed.

    What lies beyond the limit is found at the next look. `sensor_id` is that of the sensor which asks: the end of a
    run that it had asked for itself is nothing new to it.
    """
    match watch:
        case NewFiles():
            return new_files(watch, cursor, project)
        case NewPartitions():
            return new_partitions(watch, cursor, project)
        case RunEnded():
            return ended_runs(watch, cursor, project, sensor_id=sensor_id)
        case NewRows():
            return new_rows(watch, cursor, project)
    what = watch.kind if isinstance(watch, BuiltIn) else type(watch).__name__
    raise InvalidInput(
        f"nobody knows how to watch {what!r:.60}", hint="use NewFiles, NewPartitions, RunEnded or NewRows"
    )

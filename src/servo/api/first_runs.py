"""Runs that are asked for over HTTP: under one key one run, and the first answer whenever it is asked for again.

What a body means may be another matter tomorrow (`latest`, what is stale): the body itself is remembered with the run,
by its fingerprint, and whoever repeats it is given the run that it became.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from servo.answers.runs import Requested
from servo.errors import Conflict, InvalidInput, NotFound
from servo.events import RecordedEvent, decode
from servo.events.model import RunRequested
from servo.operations.decision import other_request
from servo.runtime.cataloguing import counted
from servo.runtime.requesting import event_of
from servo.runtime.wiring import Project

__all__ = ["once"]

_FIRST = "SELECT event_id FROM run_key_index WHERE run_key = $run_key"
_PATIENCE = 30.0


def once(
    project: Project, key: str, same: Callable[[RunRequested], bool], ask: Callable[[], Requested]
) -> dict[str, Any]:
    """The run of this key: a new one, or the one that was asked for first, if it is of the same request.

    It is asked for at once, as most often it is new. Where that is refused, the key may be why, or that what was asked
    for under it cannot be asked for any more.
    """
    try:
        made = ask()
    except (Conflict, InvalidInput, NotFound):
        first = None if project.unbegun else _first(project, key)
        if first is None:
            raise
    else:
        if not made.duplicate:
            return _answer(made)
        first = _first(project, key)
        assert first is not None
    event, fact = first
    if not same(fact):
        raise other_request(key, fact.run_id)
    return _answer(_requested(project, event, fact))


def _first(project: Project, key: str) -> tuple[RecordedEvent, RunRequested] | None:
    rows = project.reader.query(_FIRST, {"run_key": f"manual:{key}"}, fresh=True, timeout=_PATIENCE).rows
    if not rows:
        return None
    event = event_of(project, rows[0][0])
    fact = decode(event)
    assert isinstance(fact, RunRequested)
    return event, fact


def _requested(project: Project, event: RecordedEvent, fact: RunRequested) -> Requested:
    return Requested(
        run_id=fact.run_id,
        run_key=fact.run_key,
        event_id=event.event_id,
        position=event.position,
        accepted_at=event.occurred_at,
        duplicate=True,
        assets=counted(project, event, fact.partitions),
    )


def _answer(made: Requested) -> dict[str, Any]:
    return {
        "run_id": made.run_id,
        "run_key": made.run_key,
        "event_id": made.event_id,
        "position": made.position,
        "duplicate": made.duplicate,
        # In one order, whoever asks: the first answer has that of the graph.
        "assets": {key: count for key, count in sorted(made.assets.items()) if count},
    }

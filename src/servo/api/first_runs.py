"""Runs that are asked for over HTTP: under one key one run, and the first answer whenever it is asked for again.

What a body means may be another matter tomorrow (`latest`, what is stale): the body itself is remembered with the run,
by its fingerprint, and whoever repeats it is given the run that it became.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from servo.api.desk import event_of
from servo.errors import Conflict, InvalidInput, NotFound
from servo.events import RecordedEvent, decode
from servo.events.model import RunRequested
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.runtime.cataloguing import recorded_catalog
from servo.runtime.runs import RETRY_OF, Requested
from servo.runtime.wiring import Project

__all__ = ["REQUEST", "once"]

REQUEST = "servo.request"
"""The tag by which a run remembers what was asked for over HTTP."""

_FIRST = "SELECT event_id FROM run_key_index WHERE run_key = $run_key"
_PATIENCE = 30.0


def once(
    project: Project,
    key: str,
    same: Callable[[RunRequested], bool],
    ask: Callable[[], Requested],
    *,
    ask_again: bool = False,
) -> dict[str, Any]:
    """The run of this key: the one that was asked for first, if it is of the same request, or a new one.

    `ask_again`: also where there is one, since only the service can tell whether it is of the same request.
    """
    position = project.ledger.head().position
    first = _first(project, key)
    if first is not None and ask_again and same(first[1]):
        ask()
    if first is None:
        try:
            made = ask()
        except Conflict:
            first = _first(project, key)  # somebody was quicker with the same key
            if first is None:
                raise
        else:
            overtaken = made.duplicate or _is_taken(project, made, position)
            first = _first(project, key) if overtaken else None
            if first is None:
                return _answer(made, duplicate=False)
    event, fact = first
    if not same(fact):
        raise Conflict(
            f"the idempotency key {key!r:.80} was used for another request, {fact.run_id}",
            hint="give this one another key",
        )
    return _answer(_requested(project, event, fact), duplicate=True)


def _is_taken(project: Project, made: Requested, after: int) -> bool:
    """Whether another request was recorded under the key between our look and our append."""
    events = project.history.events(after, made.position - 1) if made.position - 1 > after else ()
    return any(event.correlation_id == made.run_id for event in events)


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
        assets=_counts(project, event, fact),
    )


def _counts(project: Project, event: RecordedEvent, fact: RunRequested) -> dict[str, int]:
    """How many partitions of each asset: by today's definitions where these have them all, else by those of the day."""
    try:
        return _counted(recorded_catalog(project), fact)
    except (InvalidInput, NotFound):
        return _counted(recorded_catalog(project, as_of=event.event_id), fact)


def _counted(known: Catalog, fact: RunRequested) -> dict[str, int]:
    return {
        key: PartitionSet.from_json(known.spec(key).partitions, data).count
        for key, data in (fact.partitions or {}).items()
    }


def _answer(made: Requested, *, duplicate: bool) -> dict[str, Any]:
    return {
        "run_id": made.run_id,
        "run_key": made.run_key,
        "event_id": made.event_id,
        "position": made.position,
        "duplicate": duplicate,
        # In one order, whoever asks: the first answer has that of the graph.
        "assets": {key: count for key, count in sorted(made.assets.items()) if count},
    }


def is_retry_of(fact: RunRequested, run_id: str) -> bool:
    return fact.tags.get(RETRY_OF) == run_id

"""The run that a key already stands for.

Most often the request itself is remembered under its key, and nobody looks here. Otherwise the run is of long ago, so
that the ledger has forgotten the key, or of an earlier version, which recorded less than this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from servo.errors import Conflict, InvalidInput, NotFound
from servo.events import RecordedEvent, decode
from servo.events.access import RequestAccepted
from servo.events.fact import Fact
from servo.events.model import RunRequested
from servo.operations.handling import Decision, other_request
from servo.operations.operation import Change, action_of, answer_type, fingerprint_of
from servo.operations.runs.requests import RetryRun
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.status.state import State

__all__ = ["answer_of", "decided_once", "is_same_run", "run_key_of"]

A = TypeVar("A")

_BY_KEY = "SELECT event_id FROM run_key_index WHERE run_key = $value"
_BY_RUN = "SELECT event_id FROM run_key_index WHERE run_id = $value"


def run_key_of(key: str) -> str:
    """The key of the run that a person asks for under an idempotency key."""
    return f"manual:{key}"


def answer_of(state: State, fields: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
    """What is answered to a request for a run. Earlier versions recorded no answer: then its event says all of it."""
    where = {"event_id": event.event_id, "position": event.position}
    if fields:
        return fields | where
    fact = decode(event)
    assert isinstance(fact, RunRequested)
    assets = _counted(state, event, fact.partitions or {})
    shown = {key: count for key, count in sorted(assets.items()) if count}
    return {"run_id": fact.run_id, "run_key": fact.run_key, "assets": shown} | where


def _counted(state: State, event: RecordedEvent, asked: Mapping[str, Any]) -> dict[str, int]:
    """How many partitions of each asset an event asked for: by today's definitions where these have them all, else by
    those of its day."""

    def count(known: Catalog) -> dict[str, int]:
        sets = {key: PartitionSet.from_json(known.spec(key).partitions, data) for key, data in asked.items()}
        return {key: some.count for key, some in sets.items()}

    try:
        return count(state.catalog)
    except (InvalidInput, NotFound):
        return count(state.at(event.event_id).catalog)


def decided_once(state: State, request: Change[A], fingerprint: str, decide: Callable[[], Decision[A]]) -> Decision[A]:
    """The decision on a run whose request the ledger does not remember: a new run, or the one that its key stands for.

    Most often it is new, so it is decided without a look. Where it is refused, the reason may be that there is a run of
    this key: what was asked for then may mean another thing today (`latest`, what is stale), or cannot be asked for any
    more. `fingerprint`: of the request, as earlier versions recorded it with the run.
    """
    if state.key is None:
        return decide()
    mine: Fact | None = None
    try:
        decision = decide()
        if decision.facts:
            mine = decision.facts[decision.main]
            if decision.begins not in state.begun:
                return decision
        if (event := _first_request(state, state.key)) is None:
            # New all the same: the archive may speak of it, and does not.
            return msgspec.structs.replace(decision, begins=None, subjects=state.begun or None)
    except (Conflict, InvalidInput, NotFound):
        if (event := _first_request(state, state.key)) is None:
            raise
    first = decode(event)
    assert isinstance(first, RunRequested)
    accepted, body = _accepted_with(state, event), _body_of(state, first)
    same_kind = isinstance(request, RetryRun) is (first.retry_of is not None)
    same_words = same_kind and (body == fingerprint or accepted == fingerprint_of(action_of(request), request))
    # The command line of an earlier version recorded no words, and compared what they mean.
    without_words = accepted is None and body is None and is_same_run(first, mine)
    if not same_words and not without_words:
        raise other_request(state.key, first.run_id)
    fields = answer_of(state, {}, event) | {"accepted_at": event.occurred_at, "duplicate": True}
    answer = answer_type(type(request))(**fields)
    return Decision(answer=answer, recorded=event.event_id, note=without_words)


def is_same_run(first: RunRequested, mine: Fact | None) -> bool:
    """Whether two requests of one run key ask for the same, whatever their trace and actor.

    A run that computes all of it is right for who wants what is stale, and not the other way round.
    """

    def wishes(fact: RunRequested) -> tuple[object, ...]:
        return fact.request_fingerprint, fact.priority, fact.tags, fact.accept_schema, fact.queue, fact.retry_of

    if not isinstance(mine, RunRequested):
        return False
    return wishes(first) == wishes(mine) and (mine.only_stale or not first.only_stale)


def _first_request(state: State, key: str) -> RecordedEvent | None:
    return _event_of(state, _BY_KEY, run_key_of(key))


def _event_of(state: State, sql: str, value: str) -> RecordedEvent | None:
    rows = [] if state.recorded is None else state.recorded.query(sql, {"value": value}).rows
    return state.event(rows[0][0]) if rows else None


def _body_of(state: State, fact: RunRequested) -> str | None:
    """The fingerprint of the body by which a run was asked for in an earlier version, unless a retry inherited it."""
    if fact.retry_of is None or fact.body_fingerprint is None:
        return fact.body_fingerprint
    event = _event_of(state, _BY_RUN, fact.retry_of)
    first = None if event is None else decode(event)
    inherited = isinstance(first, RunRequested) and first.body_fingerprint == fact.body_fingerprint
    return None if inherited else fact.body_fingerprint


def _accepted_with(state: State, event: RecordedEvent) -> str | None:
    """The fingerprint of the request that was recorded just before what it caused, if that has one."""
    fact = next((decode(one) for one in state.history.read(event.position - 2, 1)), None)
    return fact.fingerprint if isinstance(fact, RequestAccepted) and fact.request_id == state.key else None

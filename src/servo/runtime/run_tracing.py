"""Where the trace of a run goes on: it is no part of what was asked for, so asking again must not make it another."""

from __future__ import annotations

import msgspec

from servo.errors import IdempotencyMismatch
from servo.events import Proposal, decode
from servo.events.model import RunRequested
from servo.ledger.protocol import Receipt
from servo.runtime.requesting import Answer, append_answered
from servo.runtime.wiring import Project

__all__ = ["append_request"]

_FIRST = "SELECT event_id FROM run_key_index WHERE run_key = $run_key"


def append_request(project: Project, proposal: Proposal, *, answer: Answer, known: int | None) -> Receipt:
    """Record a request for a run, or find that it is there: `known` is the position of the first one of its run key.

    Who repeats a request is in another trace. It is the same request all the same, in the trace of the first.
    """
    if known is not None:
        return _append(project, _as_first(project, proposal, known), answer)
    try:
        return _append(project, proposal, answer)
    except IdempotencyMismatch:
        rows = project.reader.query(_FIRST, {"run_key": _request(proposal).run_key}, fresh=True, timeout=30.0).rows
        if not rows:
            raise
        return _append(project, _as_first(project, proposal, project.history.find(rows[0][0])), answer)


def _as_first(project: Project, proposal: Proposal, position: int) -> Proposal:
    first = next((decode(event) for event in project.history.read(position - 1, 1)), None)
    if not isinstance(first, RunRequested):
        return proposal
    fact = msgspec.structs.replace(_request(proposal), traceparent=first.traceparent)
    if fact.retry_of is not None and fact.body_fingerprint is None:
        # In an earlier version a retry had the fingerprint of the body by which the first run was asked for.
        fact = msgspec.structs.replace(fact, body_fingerprint=first.body_fingerprint)
    if first.request_fingerprint == fact.request_fingerprint:
        # What is asked for is in the fingerprint; an earlier version of Servo recorded less beside it. A run that
        # computes all of it is right for who wants what is stale, and not the other way round.
        only_stale = fact.only_stale and first.only_stale
        fact = msgspec.structs.replace(fact, added=first.added, asset_ids=first.asset_ids, only_stale=only_stale)
    return msgspec.structs.replace(proposal, fact=fact)


def _append(project: Project, proposal: Proposal, answer: Answer) -> Receipt:
    (receipt,) = append_answered(project, [proposal], answer=answer)
    return receipt


def _request(proposal: Proposal) -> RunRequested:
    assert isinstance(proposal.fact, RunRequested)
    return proposal.fact

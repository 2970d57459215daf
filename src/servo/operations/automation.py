"""What changes of schedules and sensors share."""

from __future__ import annotations

from servo.answers.automations import Changed
from servo.errors import IdempotencyMismatch, InvalidInput
from servo.events.fact import Fact
from servo.events.model import DEFINITIONS
from servo.operations.handling import Decision, Seen, require_version
from servo.planning.catalog import DeployedAutomation
from servo.status.state import State

__all__ = ["created_before", "require_not_declared", "require_seen", "switched"]


def switched(state: State, one: DeployedAutomation, fact: Fact | None, *, enabled: bool) -> Decision[Changed]:
    """Record a pause, a resumption or a deletion; without a fact, it is so already.

    A tick or an evaluation in between is no obstacle. A deployment is: it may say something new of it.
    """
    return Decision(
        facts=() if fact is None else (fact,),
        answer=Changed(
            id=one.id,
            name=one.name,
            version=one.version if fact is None else one.version + 1,
            enabled=enabled,
            event_id=None,
            accepted_at=state.now,
        ),
        subjects=frozenset({one.id, DEFINITIONS}),
        seen=Seen(name=one.name, version=one.version),
    )


def require_seen(one: DeployedAutomation, expected: int | None) -> None:
    """Refuse a change of one that is not at the expected version."""
    require_version(Seen(name=one.name, version=one.version), expected)


def require_not_declared(one: DeployedAutomation, verb: str) -> None:
    """Refuse to change what code declares: the next deployment would change it back."""
    if one.is_declared:
        where = f" at {one.declared_at}" if one.declared_at else ""
        raise InvalidInput(
            f"{one.name} is declared by code{where}: it is not {verb} by hand",
            hint="change it there; it can be paused and resumed from here",
        )


def created_before(
    state: State, definition: object, first: object, answer: Changed, event_id: str, *, what: str
) -> Decision[Changed]:
    """The answer to a creation whose key was used before: the same thing, or a mismatch where it was another."""
    if first != definition:
        raise IdempotencyMismatch(
            f"the request id {state.key!r:.80} was used for another {what}",
            idempotency_key=state.key or "",
            hint="give this one another id",
        )
    return Decision(answer=answer, recorded=event_id)

"""Changing a schedule or sensor on condition that nobody else changed it, while it goes on ticking."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from servo.answers.automation import Changed
from servo.errors import AppendConflict, IdempotencyMismatch
from servo.events import Proposal
from servo.events.fact import Fact
from servo.events.model import DEFINITIONS
from servo.ledger.protocol import Condition
from servo.runtime.appending import Patience
from servo.runtime.deployed_state import DeployedAutomation, DeployedState, look
from servo.runtime.requesting import append_answered
from servo.runtime.wiring import Project

__all__ = ["change", "require_version"]


def require_version(name: str, actual: int, expected: int | None, *, what: str = "version") -> None:
    if expected is not None and actual != expected:
        raise AppendConflict(
            f"{name} is at {what} {actual}, not at {expected} as expected",
            expected=expected,
            actual=actual,
            hint="somebody else changed it: look again",
        )


def change(
    project: Project,
    find: Callable[[DeployedState], DeployedAutomation],
    decide: Callable[[DeployedAutomation], tuple[Fact | None, bool]],
    *,
    expected_version: int | None,
    actor: str,
) -> Changed:
    """Record what `decide` says of the one that is found, and whether it is on after that; or None: it is so already.

    A tick in between is no obstacle. Another change is a conflict: whoever decided did not know of it.
    """
    patience: Patience | None = None
    first: int | None = None
    while True:
        state = look(project)
        one = find(state)
        require_version(one.definition.name, one.version, expected_version if first is None else first)
        first = one.version
        fact, enabled = decide(one)
        now = project.clock()
        if fact is None:
            return _changed(one, one.version, enabled, None, now, duplicate=True)
        done = _changed(one, one.version + 1, enabled, None, now, duplicate=False)
        try:
            (receipt,) = append_answered(
                project,
                [Proposal(fact=fact, occurred_at=now, actor=actor)],
                # A deployment may say something new of it, and is told under its own story.
                Condition(position=state.position, subjects=frozenset({one.id, DEFINITIONS})),
                answer=done,
            )
        except (AppendConflict, IdempotencyMismatch):
            patience = patience or Patience(one.definition.name)
            patience.pause()
            continue
        return msgspec.structs.replace(done, event_id=receipt.event_id, duplicate=receipt.duplicate)


def _changed(
    one: DeployedAutomation, version: int, enabled: bool, event_id: str | None, now: datetime, *, duplicate: bool
) -> Changed:
    return Changed(
        id=one.id,
        name=one.definition.name,
        version=version,
        enabled=enabled,
        event_id=event_id,
        accepted_at=now,
        duplicate=duplicate,
    )

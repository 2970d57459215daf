"""What a change comes to: the facts to record, on which condition, and what is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from servo.errors import AppendConflict, IdempotencyMismatch
from servo.events import RecordedEvent
from servo.events.fact import Fact
from servo.events.model import (
    DefinitionsDeployed,
    DynamicPartitionsChanged,
    MaterializationPublished,
    PartitionsMarked,
    RolledBack,
    TaskFinished,
)

__all__ = ["Decision", "Seen", "changes_partitions", "other_request", "require_version"]

A = TypeVar("A")


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a thing that a decision was made on."""

    name: str
    version: int
    what: str = "version"


class Decision(msgspec.Struct, Generic[A], frozen=True, kw_only=True):
    """Facts and their answer. Without facts there is nothing to do, and it is answered that it is so already.

    The facts are recorded only if nothing that matters has happened since the state was taken; else the state is taken
    and the change decided again. What matters is any event about `subjects`, or any event for which `conflicts` holds.
    `begins`: the subject that the facts begin. If anything was ever recorded about it, that matters too, and the next
    state says so (`State.begun`): a change that makes something new need not look whether it is there.
    With none of these, the facts' own idempotency keys decide.

    `main`: which of the facts the answer is about. `seen`: if the thing has another version by the time that it is
    decided again, somebody else changed it, and that is a conflict. `recorded`: the event that did the same before;
    `note`: an earlier version recorded it without the words of the request, which are remembered from here on.
    """

    answer: A
    facts: Sequence[Fact] = ()
    subjects: frozenset[str] | None = None
    conflicts: Callable[[RecordedEvent], bool] | None = None
    begins: str | None = None
    main: int = 0
    seen: Seen | None = None
    recorded: str | None = None
    note: bool = False


_CHANGING_PARTITIONS = frozenset(
    kind.event_type
    for kind in (
        DefinitionsDeployed,
        DynamicPartitionsChanged,
        MaterializationPublished,
        PartitionsMarked,
        RolledBack,
        TaskFinished,
    )
)


def changes_partitions(event: RecordedEvent) -> bool:
    """Whether an event may change which partitions there are, or what is current of them."""
    return event.event_type in _CHANGING_PARTITIONS


def require_version(seen: Seen, expected: int | None) -> None:
    """Refuse a change of a thing that is not at the expected version."""
    if expected is not None and seen.version != expected:
        raise AppendConflict(
            f"{seen.name} is at {seen.what} {seen.version}, not at {expected} as expected",
            expected=expected,
            actual=seen.version,
            hint="somebody else changed it: look again",
        )


def other_request(key: str, what: str) -> IdempotencyMismatch:
    return IdempotencyMismatch(
        f"the idempotency key {key!r:.80} was used for another request, {what}",
        hint="give this one another key",
        idempotency_key=key,
    )

"""Approvals: checkpoints that wait for a person, who may decide, what a decision says, and what ends a checkpoint by
itself.

    REQUESTED ─► APPROVED     a member of the role agreed: exactly what was staged is published
              ─► REJECTED     a member of the role did not: the task fails, and nothing is published
              ─► EXPIRED      nobody decided before the deadline: the same
              ─► SUPERSEDED   newer versions of all its partitions were made meanwhile: the same
              ─► CANCELLED    its run came to an end without it

At the deadline it may also be handed to another role, once, and then waits on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Protocol

import msgspec

from servo import canonical
from servo.controllers.states import RunState
from servo.errors import Conflict, InvalidInput, NotAllowed
from servo.events.columns import InputPartitions, Outcome, PartitionOutcomes, spread
from servo.events.fact import Fact
from servo.events.lifecycles import CheckpointStatus
from servo.events.model import (
    CheckpointDecided,
    CheckpointExpired,
    CheckpointRequested,
    MaterializationPublished,
    TaskFinished,
)
from servo.ids import ulid_offset

_PERSON = "person:"


# ── checkpoints ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Staged output that nobody has decided on yet."""

    asked: CheckpointRequested
    requested_at: datetime
    position: int
    escalated_to: str | None = None
    # Partitions of which a newer version was made while this one waited, and what made it.
    overtaken: dict[str, str] = {}

    @property
    def checkpoint_id(self) -> str:
        return self.asked.checkpoint_id

    @property
    def run_id(self) -> str:
        return self.asked.run_id

    @property
    def left(self) -> list[str]:
        """The partitions that can still be approved, in the order in which they were staged."""
        return [key for key in self.asked.partitions.keys if key not in self.overtaken]

    @property
    def deadline(self) -> datetime | None:
        """When it ends or is handed on by itself; what was handed on waits for as long as it takes."""
        return None if self.escalated_to is not None else self.asked.deadline


class _Place(msgspec.Struct, frozen=True):
    """Where a partition waits, and as which materialization."""

    checkpoint_id: str
    materialization_id: str | None


class OpenCheckpoints:
    """The checkpoints of unfinished runs, found by their id, by their run, and by the partitions that wait in them."""

    def __init__(self) -> None:
        self._open: dict[str, Checkpoint] = {}
        self._of_run: dict[str, dict[str, None]] = {}
        self._places: dict[tuple[str, str], _Place] = {}

    def __iter__(self) -> Iterator[Checkpoint]:
        return iter(self._open.values())

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, checkpoint_id: object) -> bool:
        return checkpoint_id in self._open

    def copy(self) -> OpenCheckpoints:
        other = OpenCheckpoints()
        other._open = dict(self._open)
        other._of_run = {run_id: dict(names) for run_id, names in self._of_run.items()}
        other._places = dict(self._places)
        return other

    def get(self, checkpoint_id: str) -> Checkpoint | None:
        return self._open.get(checkpoint_id)

    def of(self, run_id: str) -> list[Checkpoint]:
        """The checkpoints of one run, oldest first."""
        return [self._open[name] for name in self._of_run.get(run_id, ())]

    def open(self, checkpoint: Checkpoint) -> None:
        asked, name = checkpoint.asked, checkpoint.checkpoint_id
        self._open[name] = checkpoint
        self._of_run.setdefault(checkpoint.run_id, {})[name] = None
        for key, made in zip(asked.partitions.keys, asked.partitions.materialization_ids(), strict=True):
            self._places[asked.asset_id, key] = _Place(name, made)

    def close(self, checkpoint_id: str | None) -> Checkpoint | None:
        """Take away a checkpoint that has ended, and give it."""
        checkpoint = None if checkpoint_id is None else self._open.pop(checkpoint_id, None)
        if checkpoint is None:
            return None
        others = self._of_run[checkpoint.run_id]
        del others[checkpoint.checkpoint_id]
        if not others:
            del self._of_run[checkpoint.run_id]
        for key in checkpoint.asked.partitions.keys:
            place = self._places.get((checkpoint.asked.asset_id, key))
            if place is not None and place.checkpoint_id == checkpoint_id:
                del self._places[checkpoint.asked.asset_id, key]
        return checkpoint

    def close_all(self, run_id: str) -> None:
        for checkpoint in self.of(run_id):
            self.close(checkpoint.checkpoint_id)

    def hand_on(self, checkpoint_id: str, role: str) -> None:
        """Hand a checkpoint to another role; that happens once."""
        checkpoint = self._open.get(checkpoint_id)
        if checkpoint is not None and checkpoint.escalated_to is None:
            self._open[checkpoint_id] = msgspec.structs.replace(checkpoint, escalated_to=role)

    def overtake(
        self, asset_id: str, made: Iterable[tuple[str, str | None]], by: str, *, surely: bool
    ) -> list[tuple[Checkpoint, list[str]]]:
        """Other versions of these partitions were made; gives the checkpoints that lose partitions to them.

        Who is not `surely` news may be an old fact that is told again: then only a younger materialization overtakes.
        """
        lost: dict[str, list[str]] = {}
        for key, materialization_id in made:
            place = self._places.get((asset_id, key))
            if place is None or not (surely or _is_younger(materialization_id, place.materialization_id)):
                continue
            del self._places[asset_id, key]
            lost.setdefault(place.checkpoint_id, []).append(key)
        for name, keys in lost.items():
            checkpoint = self._open[name]
            overtaken = {**checkpoint.overtaken, **dict.fromkeys(keys, by)}
            self._open[name] = msgspec.structs.replace(checkpoint, overtaken=overtaken)
        return [(self._open[name], keys) for name, keys in lost.items()]


def _is_younger(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one > other


# ── who ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Roles(Protocol):
    """The members of roles: from a project's settings, or from the tokens of HTTP clients."""

    def named(self, role: str) -> Collection[str] | None:
        """The names of those who have a role; None where nobody has said who they are."""
        ...


class Members(msgspec.Struct, frozen=True):
    """Roles as the settings name them."""

    of: Mapping[str, Collection[str]] = {}

    def named(self, role: str) -> Collection[str] | None:
        return self.of.get(role)


def name_of(actor: str) -> str:
    """The name of an actor: of a person, or of a token."""
    return actor.removeprefix(_PERSON)


def require_allowed(checkpoint: Checkpoint, actor: str, roles: Roles, *, requested_by: str, approve: bool) -> None:
    """Refuse who may not decide this. Of a role that nobody is named for, everybody is who can write the ledger.

    What was handed on is for the role that it was handed to; if nobody is named for that, it stays with those before.
    """
    asked = checkpoint.asked
    role, named = next(
        (
            (one, names)
            for one in (checkpoint.escalated_to, asked.approvers)
            if one and (names := roles.named(one)) is not None
        ),
        (checkpoint.escalated_to or asked.approvers, None),
    )
    what = f"checkpoint {checkpoint.checkpoint_id} of {asked.asset_key}"
    if named is not None and name_of(actor) not in named:
        raise NotAllowed(
            f"{name_of(actor)} may not decide on {what}: that is for {role}",
            hint=f"{role}: {', '.join(sorted(named)) or 'nobody'}; see [approvals] of the settings",
        )
    if approve and asked.four_eyes and name_of(actor) == name_of(requested_by):
        raise NotAllowed(
            f"{name_of(actor)} asked for the run, and may not approve {what}: that takes four eyes",
            hint=f"somebody else of {role} must look at it",
        )


# ── decisions ────────────────────────────────────────────────────────────────────────────────────────────────────


def require_open(checkpoint: Checkpoint, run: RunState) -> None:
    """Refuse to decide on what nobody waits for any more, although nothing says so yet."""
    if run.cancel_requested:
        raise Conflict(f"{run.run_id} was cancelled, and its checkpoints with it", hint="ask for a new run")
    if not checkpoint.left:
        raise Conflict(
            f"checkpoint {checkpoint.checkpoint_id} was {_superseded(checkpoint)}",
            hint="decide on the newer one: servo checkpoint list",
        )


def digest(partitions: Sequence[tuple[str, str | None]]) -> str:
    """One hash for all that is decided on: that of the only partition, or of all keys with their hashes."""
    if len(partitions) == 1 and partitions[0][1] is not None:
        return partitions[0][1]
    return sha256(canonical.dumps({"v": 1, "partitions": [list(one) for one in sorted(partitions)]})).hexdigest()


def content(checkpoint: Checkpoint) -> list[tuple[str, str | None]]:
    """What can still be approved: keys with their content hashes."""
    partitions = checkpoint.asked.partitions
    hashes = zip(partitions.keys, spread(partitions.content_hash, len(partitions)), strict=True)
    return [(key, content_hash) for key, content_hash in hashes if key not in checkpoint.overtaken]


def require_hash(checkpoint: Checkpoint, expected: str) -> None:
    """Refuse to approve anything but what was looked at."""
    actual = digest(content(checkpoint))
    if expected != actual:
        raise Conflict(
            f"checkpoint {checkpoint.checkpoint_id} holds {actual}, and not {expected!r:.80}",
            hint=f"look at it again: servo checkpoint show {checkpoint.checkpoint_id}",
        )


def approved(
    checkpoint: Checkpoint, staged: TaskFinished, *, reason: str | None, publication_ids: Sequence[str]
) -> list[Fact]:
    """The decision and the publication of exactly what was staged; one for each stretch of consecutive ids."""
    decided = CheckpointDecided(
        checkpoint_id=checkpoint.checkpoint_id, decision=CheckpointStatus.APPROVED, reason=reason
    )
    parts = zip(stretches(checkpoint), publication_ids, strict=True)
    return [decided, *(_publication(checkpoint, staged, part, name) for part, name in parts)]


def rejected(checkpoint: Checkpoint, *, reason: str) -> list[Fact]:
    if not reason.strip():
        raise InvalidInput("a rejection without a reason helps nobody", hint="say why: --reason …")
    return [
        CheckpointDecided(checkpoint_id=checkpoint.checkpoint_id, decision=CheckpointStatus.REJECTED, reason=reason)
    ]


def stretches(checkpoint: Checkpoint) -> list[range]:
    """Which of the partitions to publish, as stretches without a gap: their ids follow one another."""
    found: list[range] = []
    for index, key in enumerate(checkpoint.asked.partitions.keys):
        if key in checkpoint.overtaken:
            continue
        if found and found[-1].stop == index:
            found[-1] = range(found[-1].start, index + 1)
        else:
            found.append(range(index, index + 1))
    return found


def _publication(
    checkpoint: Checkpoint, staged: TaskFinished, part: range, publication_id: str
) -> MaterializationPublished:
    asked, partitions = checkpoint.asked, checkpoint.asked.partitions
    first = partitions.first_materialization_id
    keys = partitions.keys[part.start : part.stop]
    return MaterializationPublished(
        publication_id=publication_id,
        asset_id=asked.asset_id,
        asset_key=asked.asset_key,
        partitions=PartitionOutcomes(
            keys=keys,
            outcome=Outcome.SUCCEEDED,
            first_materialization_id=None if first is None else ulid_offset(first, part.start),
            rows=_cut(partitions.rows, part),
            bytes=_cut(partitions.bytes, part),
            files=_cut(partitions.files, part),
            content_hash=_cut(partitions.content_hash, part),
        ),
        run_id=asked.run_id,
        task_key=asked.task_key,
        checkpoint_id=asked.checkpoint_id,
        code_version=staged.code_version,
        inputs=[one for source in staged.inputs if (one := _read(source, staged, keys)) is not None],
    )


def _cut(column: Any, part: range) -> Any:
    return column[part.start : part.stop] if isinstance(column, list) else column


def _read(source: InputPartitions, staged: TaskFinished, keys: list[str]) -> InputPartitions | None:
    """The part of an attempt's input that went into these partitions."""
    if keys == staged.partitions.keys:
        return source
    place = {key: index for index, key in enumerate(staged.partitions.keys)}
    reads = [source.of_output(place[key]) for key in keys]
    return InputPartitions.of_reads(source.asset_id, source.asset_key, source.keys, source.materialization_ids, reads)


# ── by itself ────────────────────────────────────────────────────────────────────────────────────────────────────


def overdue(checkpoint: Checkpoint, now: datetime) -> CheckpointExpired | None:
    """The end or escalation of a checkpoint whose deadline has come."""
    asked, deadline = checkpoint.asked, checkpoint.deadline
    if deadline is None or deadline > now:
        return None
    escalated = (asked.escalate_to or "admin") if asked.on_deadline == "escalate" else None
    return CheckpointExpired(checkpoint_id=asked.checkpoint_id, escalated_to=escalated)


def endings(run: RunState, checkpoints: Sequence[Checkpoint], now: datetime) -> Iterator[CheckpointExpired]:
    """What ends the checkpoints of a run, or hands them on, without a decision."""
    for checkpoint in checkpoints:
        if run.cancel_requested:
            why = "the run was cancelled" + (f": {run.cancel_reason}" if run.cancel_reason else "")
            yield _ended(checkpoint, CheckpointStatus.CANCELLED, why)
        elif not checkpoint.left:
            yield _ended(checkpoint, CheckpointStatus.SUPERSEDED, _superseded(checkpoint))
        elif (late := overdue(checkpoint, now)) is not None:
            yield late


def left_over(checkpoints: Sequence[Checkpoint], decided: Collection[str]) -> Iterator[CheckpointExpired]:
    """The end of those that outlive their run, and of which nothing was said."""
    for checkpoint in checkpoints:
        if checkpoint.checkpoint_id not in decided:
            yield _ended(checkpoint, CheckpointStatus.CANCELLED, "its run has ended")


def _ended(checkpoint: Checkpoint, outcome: CheckpointStatus, why: str) -> CheckpointExpired:
    return CheckpointExpired(checkpoint_id=checkpoint.checkpoint_id, outcome=outcome, reason=why)


def _superseded(checkpoint: Checkpoint) -> str:
    return f"superseded by {', '.join(sorted(set(checkpoint.overtaken.values())))}"

"""Checkpoints that wait for a person: what was staged, by whom it may be approved, and what has overtaken it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from servo.events.model import CheckpointRequested


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
        """Those of one run, oldest first."""
        return [self._open[name] for name in self._of_run.get(run_id, ())]

    def open(self, checkpoint: Checkpoint) -> None:
        asked, name = checkpoint.asked, checkpoint.checkpoint_id
        self._open[name] = checkpoint
        self._of_run.setdefault(checkpoint.run_id, {})[name] = None
        for key, made in zip(asked.partitions.keys, asked.partitions.materialization_ids(), strict=True):
            self._places[asked.asset_id, key] = _Place(name, made)

    def close(self, checkpoint_id: str | None) -> Checkpoint | None:
        """It has come to an end; gives what it was."""
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
        """It waits for somebody else from now on; that happens once."""
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

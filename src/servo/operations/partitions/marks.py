"""Marks that people put on partitions: made elsewhere, frozen, thawed. An event with their name and reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from servo.answers.partitions import Marked
from servo.errors import Conflict, InvalidInput
from servo.events.columns import PartitionOutcomes
from servo.events.model import PartitionsMarked
from servo.operations.decision import Decision, changes_partitions
from servo.partitions import PartitionKey, PartitionSet
from servo.planning.catalog import Catalog
from servo.status.current import current
from servo.status.state import State

__all__ = ["decide_mark", "thawed"]

_MOST = 100_000  # partitions of one event


def decide_mark(state: State, asset: str, partitions: Sequence[str], *, mark: str, reason: str) -> Decision[Marked]:
    """Record it of all these partitions at once; nothing of them is computed or touched.

    Only what has no data can be marked as materialized: a mark must not hide what was computed.
    """
    if not reason.strip():
        raise InvalidInput("no reason is given", hint="say why: whoever looks at it later will ask")
    known = state.catalog
    key = known.graph.resolve(asset)
    wanted = _wanted(state, key, partitions)
    keys = [str(one) for one in wanted]
    makes = mark == "materialized"
    if makes:
        _require_none(state, key, wanted, keys)
    fact = PartitionsMarked(
        mark_id=state.new_id(),
        asset_id=known.asset_id(key),
        asset_key=key,
        mark=mark.upper(),
        partitions=PartitionOutcomes(
            keys=keys, first_materialization_id=state.new_id(count=len(keys)) if makes else None
        ),
        reason=reason,
    )
    return Decision(
        facts=(fact,),
        # Its event has the keys.
        answer=Marked(mark_id=fact.mark_id, asset_key=key, mark=fact.mark, described=wanted.describe()),
        # Whatever is published meanwhile is not hidden either.
        conflicts=changes_partitions if makes else None,
    )


def thawed(state: State, known: Catalog, frozen: Mapping[str, PartitionSet], reason: str) -> list[PartitionsMarked]:
    """That partitions are not frozen any more, and why: one fact for each asset."""
    return [
        PartitionsMarked(
            mark_id=state.new_id(),
            asset_id=known.asset_id(key),
            asset_key=key,
            mark="THAWED",
            partitions=PartitionOutcomes(keys=[str(one) for one in some]),
            reason=reason,
        )
        for key, some in frozen.items()
    ]


def _wanted(state: State, key: str, partitions: Sequence[str]) -> PartitionSet:
    definition = state.catalog.spec(key).partitions
    if not partitions and definition.dimensions:
        raise InvalidInput(f"{key} is partitioned, and no partition is named", hint="name them, or a range A..B")
    wanted = definition.empty() if partitions else definition.set_of([PartitionKey()])
    for text in partitions:
        wanted = wanted | definition.parse_set(text, state.now)
    if not wanted:
        raise InvalidInput(f"{key}: none of its partitions is named", hint="see `servo partition list`")
    if wanted.count > _MOST:
        raise InvalidInput(f"{wanted.count:,} partitions at once", hint=f"mark up to {_MOST:,} at a time")
    return wanted


def _require_none(state: State, key: str, wanted: PartitionSet, keys: list[str]) -> None:
    there = current(state.tables, state.catalog.asset_id(key), keys)
    first = next((one for one in wanted if str(one) in there), None)
    if first is not None:
        label = wanted.partitions.label(first)
        raise Conflict(
            f"{key} {label} has data, which a mark would hide".replace("  ", " "),
            hint="to keep it as it is, whatever happens upstream, mark it as frozen",
        )

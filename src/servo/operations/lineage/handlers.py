"""Changes of what was made from partitions: to declare it stale, and to make it anew.

Lineage itself and audit reports are answered in modules of their own, which declare their handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from servo import canonical
from servo.answers.backfills import Backfilled
from servo.answers.lineage import Invalidated, InvalidatedSet, Rematerialized
from servo.errors import Conflict, IdempotencyMismatch, InvalidInput, InvalidPartition
from servo.events import RecordedEvent, decode
from servo.events.columns import PartitionSet as KeySet
from servo.events.model import PartitionsInvalidated
from servo.fold.evolve import evolve
from servo.fold.partition_rows import (
    AssetDefinitionRow,
    DynamicPartitionRow,
    LineageRow,
    PartitionStatusRow,
    RollbackRow,
)
from servo.fold.rows import Row
from servo.lineage.walk import Node
from servo.operations.backfills.facts import STALE_CAUSE
from servo.operations.backfills.handlers import created_before, decide_creation, recorded_backfill
from servo.operations.backfills.requests import BackfillFields
from servo.operations.handling import Decision, decides
from servo.operations.lineage import audit, lineages
from servo.operations.lineage.lineages import Lineage, lineage_of, wanted_partitions
from servo.operations.lineage.requests import Invalidate, Rematerialize
from servo.partitions import PartitionKey, PartitionSet
from servo.status.staleness import stale_partitions
from servo.status.state import State

__all__ = ["audit", "lineages"]

_CHUNK_SIZE = 100  # partitions of an asset that are made anew in one run


# ── declaring stale ──────────────────────────────────────────────────────────────────────────────────────────────


def _invalidation(_: State, __: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
    """The answer to an invalidation, from its event."""
    fact = decode(event)
    assert isinstance(fact, PartitionsInvalidated)
    answer: dict[str, Any] = msgspec.to_builtins(_invalidated(fact))
    return answer


def _never_still(request: Invalidate) -> Conflict:
    return Conflict(
        f"nothing was declared stale: what is made from {request.asset} changed again and again meanwhile",
        hint="wait for the runs that are at work, or cancel them, and try again: servo run list --status RUNNING",
    )


@decides(Invalidate, recall=_invalidation, given_up=_never_still)
def invalidate(state: State, request: Invalidate) -> Decision[Invalidated]:
    """Declare stale everything that was made from these partitions; with `itself`, them as well."""
    if not request.reason.strip():
        raise InvalidInput("an invalidation needs a reason", hint="say why, for those who find it stale")
    asset_key, wanted = _named(state, request)
    fingerprint = _fingerprint(asset_key, request, reason=request.reason)
    if (before := _declared_before(state, fingerprint)) is not None:
        return before
    lineage = lineage_of(state, "downstream", request.asset, request.partitions)
    fact = PartitionsInvalidated(
        invalidation_id=state.key or state.new_id(),
        sets=_sets(lineage.nodes if request.itself else lineage.found),
        reason=request.reason,
        downstream_of=_sets(lineage.start)[0],
        request_fingerprint=fingerprint,
    )
    if not fact.sets:
        return Decision(answer=msgspec.structs.replace(_invalidated(fact), invalidation_id=None))
    # The partitions are recorded once: `recall` takes them from the event. Publications have other subjects than this,
    # so every event since is looked at.
    answer = msgspec.structs.replace(_invalidated(fact), partition_keys=[], invalidated=[])
    return Decision(facts=(fact,), answer=answer, conflicts=_conflicts_with(lineage, wanted))


def _declared_before(state: State, fingerprint: str) -> Decision[Invalidated] | None:
    """The same invalidation, declared under this key by a version that recorded no answers."""
    if state.key is None:
        return None
    event = state.recorded_under(PartitionsInvalidated(invalidation_id=state.key, sets=[], reason=""))
    if event is None:
        return None
    fact = decode(event)
    assert isinstance(fact, PartitionsInvalidated)
    if fact.request_fingerprint != fingerprint:
        raise IdempotencyMismatch(
            f"the request id {state.key!r:.80} was used for another invalidation, {event.event_id}",
            idempotency_key=state.key,
            hint="give this one another id",
        )
    return Decision(answer=_invalidated(fact), recorded=event.event_id)


def _invalidated(fact: PartitionsInvalidated) -> Invalidated:
    cause = fact.downstream_of
    assert cause is not None
    return Invalidated(
        invalidation_id=fact.invalidation_id,
        event_id=None,
        asset_key=cause.asset_key,
        partition_keys=cause.keys,
        reason=fact.reason,
        total=sum(len(some.keys) for some in fact.sets),
        invalidated=[InvalidatedSet(asset_key=some.asset_key, partition_keys=some.keys) for some in fact.sets],
    )


def _sets(nodes: Sequence[Node]) -> list[KeySet]:
    by_asset: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        by_asset.setdefault((node.asset_key, node.asset_id), []).append(node.partition_key)
    return [
        KeySet(asset_id=asset_id, asset_key=asset_key, keys=sorted(keys))
        for (asset_key, asset_id), keys in sorted(by_asset.items())
    ]


def _conflicts_with(lineage: Lineage, wanted: PartitionSet) -> Callable[[RecordedEvent], bool]:
    """Whether an event conflicts with a walk downstream: it writes what the walk has read, or would read now."""
    places, start_id = {node.place for node in lineage.nodes}, lineage.start[0].asset_id

    def is_read(row: Row) -> bool:
        match row:
            case LineageRow():
                return (row.upstream_asset_id, row.upstream_partition_key) in places
            case PartitionStatusRow():
                if row.materialization_version is None:
                    return False
                begins = row.asset_id == start_id and PartitionKey.parse(row.partition_key) in wanted
                return begins or (row.asset_id, row.partition_key) in places
            # An earlier version may be current again, which had read one of them; names and partitions may be others.
            case RollbackRow() | AssetDefinitionRow() | DynamicPartitionRow():
                return True
        return False

    return lambda event: any(map(is_read, evolve(event, decode(event))))


# ── making anew ──────────────────────────────────────────────────────────────────────────────────────────────────


def _rematerialization(state: State, recorded: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
    """The recorded answer; of a version that recorded none, from the backfill that the event created."""
    if recorded:
        return recorded
    assert event.correlation_id is not None
    return msgspec.structs.asdict(recorded_backfill(state, event.correlation_id))


@decides(Rematerialize, recall=_rematerialization)
def rematerialize(state: State, request: Rematerialize) -> Decision[Rematerialized]:
    """Create a backfill of everything stale that was made from these partitions, in order.

    What is stale for no other reason than that its upstream is stale is part of it.
    """
    asset_key, _ = _named(state, request)
    backfill = BackfillFields(assets=(asset_key,), chunk_size=_CHUNK_SIZE, priority=request.priority)
    cause = f"{STALE_CAUSE}{_fingerprint(asset_key, request)[:16]}"
    if (before := created_before(state, backfill, cause=cause)) is not None:
        return _as_rematerialized(before)
    lineage = lineage_of(state, "downstream", request.asset, request.partitions)
    chosen = _stale(state, lineage.nodes if request.itself else lineage.found)
    if not chosen:
        return Decision(answer=Rematerialized())
    return _as_rematerialized(decide_creation(state, backfill, cause=cause, chosen=chosen))


def _as_rematerialized(made: Decision[Backfilled]) -> Decision[Rematerialized]:
    answer = Rematerialized(**msgspec.structs.asdict(made.answer))
    return Decision(answer=answer, facts=made.facts, conflicts=made.conflicts, recorded=made.recorded)


def _stale(state: State, nodes: Sequence[Node]) -> dict[str, PartitionSet]:
    """Of these partitions those that are stale, as the definitions in force have them; others cannot be made."""
    places = {node.place for node in nodes}
    keys = sorted({node.asset_key for node in nodes if node.asset_key in state.catalog.graph})
    stale: dict[str, list[PartitionKey]] = {}
    for one in stale_partitions(state, keys, transitive=True) if keys else ():
        asset_key = state.local.catalog.asset_key(one.asset_id)
        if asset_key is not None and (one.asset_id, one.partition_key) in places:
            stale.setdefault(asset_key, []).append(PartitionKey.parse(one.partition_key))
    definitions = {key: state.local.catalog.spec(key).partitions for key in stale}
    chosen = {
        key: definitions[key].set_of(one for one in some if one in definitions[key]) for key, some in stale.items()
    }
    return {key: some for key, some in chosen.items() if some}


# ── which partitions ─────────────────────────────────────────────────────────────────────────────────────────────


def _named(state: State, request: Invalidate | Rematerialize) -> tuple[str, PartitionSet]:
    """The asset's key and the partitions; a change of a whole asset has to say `all`."""
    asset_key = state.catalog.graph.resolve(request.asset)
    definition = state.catalog.spec(asset_key).partitions
    wanted = wanted_partitions(definition, request.partitions, state.now)
    if wanted is None:
        names = ", ".join(definition.names)
        raise InvalidPartition(f"{request.asset} has partitions by {names}: name some", hint="or say `all`")
    return asset_key, wanted


def _fingerprint(asset_key: str, request: Invalidate | Rematerialize, reason: str | None = None) -> str:
    """The hash of what is asked for, in the words of who asks: which partitions that means may change."""
    return canonical.sha256_hex(
        {"asset": asset_key, "partitions": list(request.partitions), "itself": request.itself, "reason": reason}
    )

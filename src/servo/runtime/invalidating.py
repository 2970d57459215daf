"""Declaring stale what was made from partitions, and making it anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from servo import canonical
from servo.answers.backfills import Backfilled
from servo.answers.lineage import Invalidated, InvalidatedSet
from servo.errors import Conflict, IdempotencyMismatch, InvalidInput, InvalidPartition
from servo.events import Proposal, decode
from servo.events.columns import PartitionSet as KeySet
from servo.events.model import PartitionsInvalidated
from servo.ledger.protocol import Receipt
from servo.lineage.walking import Node
from servo.partitions import PartitionKey, PartitionSet
from servo.planning.catalog import Catalog
from servo.runtime.appending import Patience, append_unless
from servo.runtime.backfill_planning import STALE_CAUSE, BackfillRequest
from servo.runtime.backfills import Backfills
from servo.runtime.cataloguing import recorded_catalog
from servo.runtime.lineage_conflict import LineageConflict
from servo.runtime.lineages import Lineage, Lineages, wanted_partitions
from servo.runtime.requesting import recorded_under
from servo.runtime.states import state_of
from servo.runtime.wiring import Project
from servo.status.staleness import stale_partitions

__all__ = ["Invalidation"]

_CHUNK_SIZE = 100  # partitions of an asset that are made anew in one run
_LOOKS = 20  # at the lineage, each after something of it had changed


class Invalidation:
    """What people do to the lineage of one workspace."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def invalidate(
        self,
        asset: str,
        partitions: Sequence[str] = (),
        *,
        reason: str,
        itself: bool = False,
        request_id: str | None = None,
        actor: str,
    ) -> Invalidated:
        """Declare stale everything that was made from these partitions; with `itself`, them as well.

        The same request id again gives the first answer again, whatever was made meanwhile; with another request it
        is refused.
        """
        if not reason.strip():
            raise InvalidInput("an invalidation needs a reason", hint="say why, for those who find it stale")
        asset_key, wanted = self._named(asset, partitions)
        asked = _fingerprint(asset_key, partitions, itself=itself, reason=reason)
        first = None if request_id is None else self._first_use(request_id)
        for _ in range(_LOOKS):
            if first is not None:
                return _again(first, asked)
            found = Lineages(self._project).downstream(asset, partitions)
            fact = self._fact(found, reason, request_id, asked, itself=itself)
            if not fact.sets:
                return _answer(fact, None)
            try:
                receipt = self._append(fact, actor, found.watermark.position, LineageConflict(found, wanted))
            except IdempotencyMismatch:
                receipt = None  # somebody else was first with this request id
            if receipt is not None and not receipt.duplicate:
                return _answer(fact, receipt.event_id)
            if request_id is not None:
                first = self._first_use(request_id)
        raise Conflict(
            f"nothing was declared stale: what is made from {found.asset_key} changed again and again meanwhile",
            hint="wait for the runs that are at work, or cancel them, and try again: servo run list --status RUNNING",
        )

    def rematerialize(
        self,
        asset: str,
        partitions: Sequence[str] = (),
        *,
        itself: bool = False,
        priority: int = 0,
        request_id: str | None = None,
        actor: str,
        before: Callable[[], None] = lambda: None,
    ) -> Backfilled | None:
        """Ask for a backfill of everything stale that was made from these partitions, in order; None if nothing is.

        What is stale for no other reason than that its upstream is stale is part of it. The same request id again
        gives the first answer again, whatever is stale by then; with another request it is refused.
        """
        asset_key, _ = self._named(asset, partitions)
        cause = f"{STALE_CAUSE}{_fingerprint(asset_key, partitions, itself=itself)[:16]}"
        asked = BackfillRequest(assets=(asset_key,), chunk_size=_CHUNK_SIZE, priority=priority, cause=cause)

        def choose(known: Catalog) -> dict[str, PartitionSet]:
            found = Lineages(self._project).downstream(asset, partitions)
            chosen = _chosen(known, self._stale(found.nodes if itself else found.found))
            if not chosen:
                raise _NothingStale
            return chosen

        try:
            return Backfills(self._project).create(
                asked, request_id=request_id, actor=actor, before=before, choose=choose
            )
        except _NothingStale:
            return None

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _named(self, asset: str, partitions: Sequence[str]) -> tuple[str, PartitionSet]:
        """The asset's key, and which partitions: nobody who changes something means a whole asset by saying nothing."""
        known = recorded_catalog(self._project)
        asset_key = known.graph.resolve(asset)
        definition = known.spec(asset_key).partitions
        wanted = wanted_partitions(definition, partitions, self._project.clock())
        if wanted is None:
            names = ", ".join(definition.names)
            raise InvalidPartition(f"{asset} has partitions by {names}: name some", hint="or say `all`")
        return asset_key, wanted

    def _append(
        self, fact: PartitionsInvalidated, actor: str, position: int, conflict: LineageConflict
    ) -> Receipt | None:
        """Record what was decided at a position, unless anything happened since that bears on it: then look again.

        Publications have other subjects than this, so the condition is on the whole ledger.
        """
        proposal = Proposal(fact=fact, occurred_at=self._project.clock(), actor=actor)
        receipts = append_unless(
            self._project, [proposal], position, conflict.with_event, Patience("the lineage"), answer={}
        )
        return None if receipts is None else receipts[0]

    def _fact(
        self, found: Lineage, reason: str, request_id: str | None, asked: str, *, itself: bool
    ) -> PartitionsInvalidated:
        return PartitionsInvalidated(
            invalidation_id=request_id or self._project.mint(),
            sets=_sets(found.nodes if itself else found.found),
            reason=reason,
            downstream_of=_sets(found.start)[0],
            request_fingerprint=asked,
        )

    def _first_use(self, request_id: str) -> tuple[str, PartitionsInvalidated] | None:
        """What was declared under this id."""
        event = recorded_under(self._project, PartitionsInvalidated(invalidation_id=request_id, sets=[], reason=""))
        if event is None:
            return None
        fact = decode(event)
        assert isinstance(fact, PartitionsInvalidated)
        return event.event_id, fact

    def _stale(self, nodes: Sequence[Node]) -> dict[str, list[str]]:
        """Of these partitions those that are stale, by asset id."""
        places = {node.place for node in nodes}
        known = recorded_catalog(self._project)
        keys = sorted({node.asset_key for node in nodes if node.asset_key in known.graph})
        found: dict[str, list[str]] = {}
        for one in stale_partitions(state_of(self._project), keys, transitive=True) if keys else ():
            if (one.asset_id, one.partition_key) in places:
                found.setdefault(one.asset_id, []).append(one.partition_key)
        return found


class _NothingStale(Exception):  # noqa: N818 (it is no error)
    """There is nothing to make anew."""


def _fingerprint(asset_key: str, partitions: Sequence[str], *, itself: bool, reason: str | None = None) -> str:
    """What somebody asked for, in their words: which partitions that means may be another matter tomorrow."""
    return canonical.sha256_hex(
        {"asset": asset_key, "partitions": list(partitions), "itself": itself, "reason": reason}
    )


def _sets(nodes: Sequence[Node]) -> list[KeySet]:
    by_asset: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        by_asset.setdefault((node.asset_key, node.asset_id), []).append(node.partition_key)
    return [
        KeySet(asset_id=asset_id, asset_key=asset_key, keys=sorted(keys))
        for (asset_key, asset_id), keys in sorted(by_asset.items())
    ]


def _answer(fact: PartitionsInvalidated, event_id: str | None, *, duplicate: bool = False) -> Invalidated:
    cause = fact.downstream_of
    assert cause is not None
    return Invalidated(
        invalidation_id=None if event_id is None else fact.invalidation_id,
        event_id=event_id,
        duplicate=duplicate,
        asset_key=cause.asset_key,
        partition_keys=cause.keys,
        reason=fact.reason,
        total=sum(len(some.keys) for some in fact.sets),
        invalidated=[InvalidatedSet(asset_key=some.asset_key, partition_keys=some.keys) for some in fact.sets],
    )


def _again(first: tuple[str, PartitionsInvalidated], asked: str) -> Invalidated:
    """The first answer, if this is the same request."""
    event_id, said = first
    if said.request_fingerprint != asked:
        raise IdempotencyMismatch(
            f"the request id {said.invalidation_id!r:.80} was used for another invalidation, {event_id}",
            idempotency_key=said.invalidation_id,
            hint="give this one another id",
        )
    return _answer(said, event_id, duplicate=True)


def _chosen(known: Catalog, stale: dict[str, list[str]]) -> dict[str, PartitionSet]:
    """Those partitions as the definitions in force have them; what they no longer have cannot be made."""
    wanted: dict[str, PartitionSet] = {}
    for asset_id, keys in stale.items():
        asset_key = known.asset_key(asset_id)
        if asset_key is not None:
            definition = known.spec(asset_key).partitions
            some = definition.set_of(key for key in map(PartitionKey.parse, keys) if key in definition)
            if some:
                wanted[asset_key] = some
    return wanted

"""The status of partitions, what is stale, and what people state about them: made elsewhere, frozen, thawed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from servo.answers.partitions import (
    AssetGrid,
    AssetStrip,
    AssetSummary,
    DimensionChanged,
    Marked,
    OutdatedPartition,
    PartitionView,
    PartitionWhy,
    Summaries,
)
from servo.errors import Conflict, InvalidInput, InvalidPartition
from servo.events import RecordedEvent, decode
from servo.events.columns import PartitionOutcomes
from servo.events.model import DynamicPartitionsChanged, PartitionsMarked
from servo.operations.fields import moment
from servo.operations.handling import Decision, Found, answers, changes_partitions, decides, lists
from servo.operations.partitions.requests import (
    ChangeValues,
    ExplainPartition,
    GetGrid,
    GetPartition,
    ListPartitions,
    ListPartitionsOf,
    ListStale,
    MarkPartitions,
    Summarize,
    SummarizeAsset,
)
from servo.operations.partitions.why import Why
from servo.partitions import PartitionKey, PartitionSet
from servo.planning.catalog import Catalog
from servo.status.asset_status import AssetStatus, asset_statuses
from servo.status.grids import grid_of, strip_of
from servo.status.keysets import current
from servo.status.partitions import one_partition, partition_page, typed_key
from servo.status.selections import StaleRows, stale_rows
from servo.status.state import State

_MOST = 100_000  # partitions of one event


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


# ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────


@lists(ListPartitions, place=lambda _: "", place_type=str)
def list_partitions(state: State, request: ListPartitions, after: str | None) -> Found[PartitionView]:
    return _page(state, request, None, after)


@lists(ListPartitionsOf, place=lambda _: "", place_type=str)
def list_partitions_of(state: State, request: ListPartitionsOf, after: str | None) -> Found[PartitionView]:
    return _page(state, request, request.asset, after)


def _page(
    state: State, request: ListPartitions | ListPartitionsOf, asset: str | None, after: str | None
) -> Found[PartitionView]:
    page = partition_page(
        state,
        asset,
        statuses=[status for text in request.status for status in text.split(",")],
        partitions=request.partitions,
        since=moment(request.since, "since"),
        until=moment(request.until, "until"),
        limit=request.limit,
        cursor=after,
    )
    return Found(items=page.partitions, more={"total": page.total}, next_place=page.cursor)


@lists(ListStale, place=lambda one: (one.asset_key, one.partition_key), place_type=tuple[str, str])
def list_stale(state: State, request: ListStale, after: tuple[str, str] | None) -> Found[OutdatedPartition]:
    stale = _judged(state, request, goes_on=after is not None)
    more = {"total": len(stale.rows), "assets": stale.assets}
    return Found(items=stale.page(request.limit + 1, after=after), more=more)


_MOST_KEPT = 4  # judgements
_MOST_ROWS = 100_000  # of all of them
_GOOD_FOR = timedelta(minutes=1)


class _Kept(msgspec.Struct, frozen=True):
    """What was judged stale, for the pages after the first."""

    question: tuple[Any, ...]
    at: datetime
    judged: StaleRows


def _judged(state: State, request: ListStale, *, goes_on: bool) -> StaleRows:
    """All that is stale. A first page is always judged anew; those after it are of the same judgement, as long as
    nothing was recorded since and it is not old: what nobody has made in time goes stale with nothing recorded."""
    now, question = state.now, (request.select, request.transitive, state.as_of)
    kept: tuple[_Kept, ...] = state.snapshot.recall(_Kept) or ()
    if goes_on:
        for known in kept:
            if known.question == question and now - known.at <= _GOOD_FOR:
                return known.judged
    judged = stale_rows(state, list(request.select), transitive=request.transitive)
    newest, rows = [_Kept(question, now, judged)], len(judged.rows)
    for known in kept:
        rows += len(known.judged.rows)
        if known.question != question and len(newest) < _MOST_KEPT and rows <= _MOST_ROWS:
            newest.append(known)
    state.snapshot.remember(_Kept, tuple(newest) if len(judged.rows) <= _MOST_ROWS else kept)
    return judged


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────


@answers(Summarize)
def summarize(state: State, request: Summarize) -> Summaries:
    strips = [
        AssetStrip(**msgspec.structs.asdict(one.summary()), strip=strip_of(one, request.cells) if request.cells else [])
        for one in asset_statuses(state).values()
    ]
    return Summaries(assets=strips)


@answers(SummarizeAsset)
def summarize_asset(state: State, request: SummarizeAsset) -> AssetSummary:
    return _status(state, request.asset).summary()


@answers(GetGrid)
def get_grid(state: State, request: GetGrid) -> AssetGrid:
    found = _status(state, request.asset)
    return AssetGrid(**msgspec.structs.asdict(found.summary()), grid=grid_of(found))


def _status(state: State, asset: str) -> AssetStatus:
    key = state.catalog.graph.resolve(asset)
    return asset_statuses(state, [key])[key]


@answers(GetPartition)
def get_partition(state: State, request: GetPartition) -> PartitionView:
    key = state.catalog.graph.resolve(request.asset)
    return one_partition(state, key, typed_key(state, key, request.partition)).view


@answers(ExplainPartition)
def explain_partition(state: State, request: ExplainPartition) -> PartitionWhy:
    return Why(state).partition(request.asset, request.partition)


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _with_keys(_: State, answer: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
    """The answer with the keys of the partitions, which only its event has."""
    fact = decode(event)
    assert isinstance(fact, PartitionsMarked)
    return answer | {"partitions": list(fact.partitions.keys)}


@decides(MarkPartitions, recall=_with_keys)
def mark_partitions(state: State, request: MarkPartitions) -> Decision[Marked]:
    """Record it of all these partitions at once; nothing of them is computed or touched.

    Only what has no data can be marked as materialized: a mark must not hide what was computed.
    """
    if not request.reason.strip():
        raise InvalidInput("no reason is given", hint="say why: whoever looks at it later will ask")
    known = state.catalog
    key = known.graph.resolve(request.asset)
    wanted = _wanted(state, key, request.partitions)
    keys = [str(one) for one in wanted]
    makes = request.mark == "materialized"
    if makes:
        _require_none(state, key, wanted, keys)
    fact = PartitionsMarked(
        mark_id=state.new_id(),
        asset_id=known.asset_id(key),
        asset_key=key,
        mark=request.mark.upper(),
        partitions=PartitionOutcomes(
            keys=keys, first_materialization_id=state.new_id(count=len(keys)) if makes else None
        ),
        reason=request.reason,
    )
    return Decision(
        facts=(fact,),
        # Its event has the keys.
        answer=Marked(mark_id=fact.mark_id, asset_key=key, mark=fact.mark, described=wanted.describe()),
        # Whatever is published meanwhile is not hidden either.
        conflicts=changes_partitions if makes else None,
    )


@decides(ChangeValues)
def change_values(state: State, request: ChangeValues) -> Decision[DimensionChanged]:
    """Add values to a dynamic dimension, or take them away.

    What was computed for a value that is taken away stays; it is only no longer asked for.
    """
    added, removed = list(request.added), list(request.removed)
    if not added and not removed:
        raise InvalidInput("added: no value is given", hint="give values to add, or to remove", field="added")
    there = _values(state.local.catalog, request.dimension)
    for value in (*added, *removed):
        PartitionKey.of({request.dimension: value})  # raises where no key can hold it
    unknown = next((value for value in removed if value not in there), None)
    if unknown is not None:
        raise InvalidPartition(
            f"{request.dimension} has no value {unknown!r:.80}", hint=f"it has {', '.join(sorted(there)) or 'none yet'}"
        )
    fact = DynamicPartitionsChanged(change_id=state.new_id(), dimension=request.dimension, added=added, removed=removed)
    answer = DimensionChanged(event_id="", dimension=request.dimension, added=added, removed=removed)
    return Decision(facts=(fact,), answer=answer)


def _values(known: Catalog, dimension: str) -> set[str]:
    names = {
        one.name for spec in known.graph.specs.values() for one in spec.partitions.dimensions if one.kind == "dynamic"
    }
    if dimension not in names:
        hint = f"there are {', '.join(sorted(names))}" if names else 'declare one: Dynamic("customer")'
        raise InvalidPartition(f"no asset has a dynamic dimension {dimension!r:.80}", hint=hint)
    return set(known.dynamic.get(dimension, ()))

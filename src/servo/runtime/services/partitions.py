"""The status of partitions, what is stale, and what people state about them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from servo.answers.grids import AssetGrid, Summaries
from servo.answers.partitions import AssetSummary, DimensionChanged, Marked, OutdatedPartition, PartitionView
from servo.answers.why import PartitionWhy
from servo.errors import InvalidInput
from servo.events import RecordedEvent, decode
from servo.events.model import PartitionsMarked
from servo.operations.handling import Found
from servo.operations.moments import moment
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
from servo.runtime.dynamics import change_partitions
from servo.runtime.marks import mark
from servo.runtime.partition_book import PartitionBook
from servo.runtime.serving import Call, serves_change, serves_list, serves_question
from servo.runtime.states import state_of
from servo.runtime.why import Why
from servo.runtime.wiring import Project
from servo.status.stale_list import StaleRows, stale_rows

AsOf = datetime | str | None

# ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────


@serves_list(ListPartitions, place=lambda _: "", place_type=str)
def list_partitions(project: Project, request: ListPartitions, after: str | None, as_of: AsOf) -> Found[PartitionView]:
    return _page(project, request, None, after, as_of)


@serves_list(ListPartitionsOf, place=lambda _: "", place_type=str)
def list_partitions_of(
    project: Project, request: ListPartitionsOf, after: str | None, as_of: AsOf
) -> Found[PartitionView]:
    return _page(project, request, request.asset, after, as_of)


def _page(
    project: Project, request: ListPartitions | ListPartitionsOf, asset: str | None, after: str | None, as_of: AsOf
) -> Found[PartitionView]:
    page = PartitionBook(project).page(
        asset,
        statuses=[status for text in request.status for status in text.split(",")],
        partitions=request.partitions,
        since=moment(request.since, "since"),
        until=moment(request.until, "until"),
        limit=request.limit,
        cursor=after,
        as_of=as_of,
    )
    return Found(items=page.partitions, more={"total": page.total}, next_place=page.cursor)


@serves_list(ListStale, place=lambda one: (one.asset_key, one.partition_key), place_type=tuple[str, str])
def list_stale(
    project: Project, request: ListStale, after: tuple[str, str] | None, as_of: AsOf
) -> Found[OutdatedPartition]:
    found = _judged(project, request, as_of, goes_on=after is not None).page(request.limit + 1, after=after)
    return Found(items=found.partitions, more={"total": found.total, "assets": found.assets})


_MOST_KEPT = 4  # judgements
_MOST_ROWS = 100_000  # of all of them
_GOOD_FOR = timedelta(minutes=1)


class _Kept(msgspec.Struct, frozen=True):
    """What was judged stale, for the pages after the first."""

    question: tuple[Any, ...]
    at: datetime
    judged: StaleRows


def _judged(project: Project, request: ListStale, as_of: AsOf, *, goes_on: bool) -> StaleRows:
    """All that is stale. A first page is always judged anew; those after it are of the same judgement, as long as
    nothing was recorded since and it is not old: what nobody has made in time goes stale with nothing recorded."""
    state = state_of(project, as_of)
    now = project.clock()
    question = (request.select, request.transitive, as_of)
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


@serves_question(Summarize)
def summarize(project: Project, request: Summarize, as_of: AsOf) -> Summaries:
    return Summaries(assets=PartitionBook(project).strips(cells=request.cells, as_of=as_of))


@serves_question(SummarizeAsset)
def summarize_asset(project: Project, request: SummarizeAsset, as_of: AsOf) -> AssetSummary:
    (found,) = PartitionBook(project).summary([request.asset], as_of=as_of)
    return found


@serves_question(GetGrid)
def get_grid(project: Project, request: GetGrid, as_of: AsOf) -> AssetGrid:
    return PartitionBook(project).grid(request.asset, as_of=as_of)


@serves_question(GetPartition)
def get_partition(project: Project, request: GetPartition, as_of: AsOf) -> PartitionView:
    return PartitionBook(project).one(request.asset, request.partition, as_of=as_of)


@serves_question(ExplainPartition)
def explain_partition(project: Project, request: ExplainPartition, as_of: AsOf) -> PartitionWhy:
    return Why(project).partition(request.asset, request.partition, as_of=as_of)


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _with_keys(_: Project, answer: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
    """The answer with the keys of the partitions, which only its event has."""
    fact = decode(event)
    assert isinstance(fact, PartitionsMarked)
    return answer | {"partitions": list(fact.partitions.keys)}


@serves_change(MarkPartitions, finish=_with_keys)
def mark_partitions(call: Call, request: MarkPartitions) -> Marked:
    return mark(
        call.project,
        request.asset,
        request.partitions,
        as_what=request.mark,
        reason=request.reason,
        actor=call.actor,
    )


@serves_change(ChangeValues)
def change_values(call: Call, request: ChangeValues) -> DimensionChanged:
    if not request.added and not request.removed:
        raise InvalidInput("added: no value is given", hint="give values to add, or to remove", field="added")
    event_id = change_partitions(
        call.project, request.dimension, added=request.added, removed=request.removed, actor=call.actor
    )
    return DimensionChanged(
        event_id=event_id, dimension=request.dimension, added=[*request.added], removed=[*request.removed]
    )

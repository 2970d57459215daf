"""Watches of the ledger itself: partitions of an asset that became current, and runs that have ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from servo.assets.evaluation import MOST_ITEMS, EndedRun, FoundPartitions, WatchResult
from servo.assets.selection import assets_of
from servo.assets.watches import NewPartitions, RunEnded, position_of
from servo.errors import InvalidInput
from servo.events import RecordedEvent, UnknownEvent, decode
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.model import (
    Event,
    MaterializationPublished,
    PartitionsMarked,
    RolledBack,
    RunFinished,
    RunRequested,
    TaskFinished,
)
from servo.partitions import PartitionKey, Partitions
from servo.planning.catalog import Catalog
from servo.runtime.deploying import recorded_catalog
from servo.runtime.wiring import Project

__all__ = ["ended_runs", "new_partitions"]

_PUBLISHING = frozenset(
    kind.event_type for kind in (TaskFinished, MaterializationPublished, RolledBack, PartitionsMarked)
)
_MOST_EVENTS = 20_000  # that one look reads
_MOST_KEYS = 100_000  # of one look: beyond it the next event has to wait
_Published = TaskFinished | MaterializationPublished | RolledBack | PartitionsMarked
_ASSETS = "SELECT run_id, asset_selection FROM runs WHERE run_id IN (SELECT unnest($run_ids))"


def _events_after(project: Project, after: int) -> Iterator[RecordedEvent]:
    """The events after a position, oldest first, up to where the ledger ends now, but no more than one look reads."""
    head = project.ledger.head().position
    if after > head:
        hint = "reset the cursor: the ledger may be another one than it was"
        raise InvalidInput(f"the cursor is at position {after}, and the ledger ends at {head}", hint=hint)
    return project.history.events(after, min(head, after + _MOST_EVENTS))


def new_partitions(
    watch: NewPartitions, cursor: str | None, project: Project, *, limit: int = MOST_ITEMS
) -> WatchResult:
    """Sets of partitions that became current after the cursor; without one, from now on."""
    if cursor is None:
        return WatchResult(cursor=str(project.ledger.head().position))
    asset: _Asset | None = None
    items: list[FoundPartitions] = []
    keys = 0
    after = position_of(cursor)
    for event in _events_after(project, after):
        if len(items) == limit or keys >= _MOST_KEYS:
            return WatchResult(items=items, cursor=str(after), more=True)
        if event.event_type in _PUBLISHING and (fact := _current(decode(event))) is not None:
            # Looked up only where something was published: most of the time nothing was.
            asset = asset or _Asset(recorded_catalog(project), watch.asset)
            item = asset.item(event, *fact)
            if item is not None:
                items.append(item)
                keys += len(item.keys)
        after = event.position
    # Moved on only where something was found, or so far that reading it again would take long.
    read = after - position_of(cursor)
    return WatchResult(
        items=items, cursor=str(after) if items or read > MOST_ITEMS else cursor, more=read >= _MOST_EVENTS
    )


def _current(fact: Event | UnknownEvent) -> tuple[_Published, list[str]] | None:
    """The partitions that a fact makes current."""
    match fact:
        case RolledBack(partitions=earlier):
            keys = earlier.keys
        case PartitionsMarked(mark="MATERIALIZED") | TaskFinished() | MaterializationPublished():
            keys = _succeeded(fact.partitions)
        case _:
            return None
    return (fact, keys) if keys else None


def _succeeded(partitions: PartitionOutcomes) -> list[str]:
    return [
        key for key, outcome in zip(partitions.keys, partitions.outcomes(), strict=True) if outcome is Outcome.SUCCEEDED
    ]


class _Asset:
    """The asset that is watched, by its id: it may have had another name when something was published."""

    def __init__(self, known: Catalog, name: str) -> None:
        self.key = known.graph.resolve(name)
        self._id = known.asset_id(self.key)
        self._definition = known.spec(self.key).partitions

    def item(self, event: RecordedEvent, fact: _Published, keys: list[str]) -> FoundPartitions | None:
        if fact.asset_id != self._id:
            return None
        run_id = getattr(fact, "run_id", None)
        return FoundPartitions(
            key=str(event.position),
            values={
                "asset": self.key,
                "position": str(event.position),
                **({} if run_id is None else {"run_id": run_id}),
                **(_values(self._definition, keys[0]) if len(keys) == 1 else {}),
            },
            asset_key=self.key,
            keys=tuple(keys),
            labels=tuple([self._definition.short_key(PartitionKey.parse(key)) for key in keys]),
            run_id=run_id,
            position=event.position,
            at=event.occurred_at,
        )


def _values(definition: Partitions, key: str) -> dict[str, str]:
    """The text that people type for each dimension of a partition."""
    values = PartitionKey.parse(key).values
    return {one.name: one.show(values[one.name]) for one in definition.dimensions if one.name in values}


# ── runs that have ended ─────────────────────────────────────────────────────────────────────────────────────────────


def ended_runs(
    watch: RunEnded, cursor: str | None, project: Project, *, sensor_id: str | None = None, limit: int = MOST_ITEMS
) -> WatchResult:
    """Runs that ended in a way that is watched, after the cursor; without one, from now on."""
    if cursor is None:
        return WatchResult(cursor=str(project.ledger.head().position))
    before = after = position_of(cursor)
    ended: list[tuple[RecordedEvent, RunFinished]] = []
    assets: dict[str, list[str]] = {}  # of runs that were asked for in what is read anyway
    more = False
    for event in _events_after(project, after):
        if len(ended) == limit:
            more = True
            break
        if event.event_type == RunRequested.event_type and isinstance(asked := decode(event), RunRequested):
            assets.setdefault(asked.run_id, asked.asset_selection)
        if event.event_type == RunFinished.event_type and isinstance(fact := decode(event), RunFinished):
            own = sensor_id is not None and (fact.source.kind, fact.source.id) == ("sensor", sensor_id)
            if fact.outcome.value in watch.status and not own:
                ended.append((event, fact))
        after = event.position
    items = _items(watch, project, ended, assets)
    moved = bool(ended) or after - before > MOST_ITEMS
    more = more or after - before >= _MOST_EVENTS
    return WatchResult(items=items, cursor=str(after) if moved else cursor, more=more)


def _items(
    watch: RunEnded,
    project: Project,
    ended: list[tuple[RecordedEvent, RunFinished]],
    assets: dict[str, list[str]],
) -> list[EndedRun]:
    assets = {**assets, **_assets(project, {fact.run_id for _, fact in ended} - assets.keys())}
    wanted = None
    if watch.select is not None and ended:
        wanted = assets_of(recorded_catalog(project).graph, watch.select)
    found = []
    for event, fact in ended:
        mine = assets.get(fact.run_id, [])
        if wanted is None or not wanted.isdisjoint(mine):
            found.append(_item(event, fact, mine))
    return found


def _assets(project: Project, run_ids: Iterable[str]) -> dict[str, list[str]]:
    asked = sorted(run_ids)
    if not asked:
        return {}
    answer = project.query(_ASSETS, {"run_ids": asked})
    return {run_id: list(selection or ()) for run_id, selection in answer.rows}


def _item(event: RecordedEvent, fact: RunFinished, assets: list[str]) -> EndedRun:
    return EndedRun(
        key=fact.run_id,
        values={"run_id": fact.run_id, "status": fact.outcome.value},
        run_id=fact.run_id,
        status=fact.outcome.value,
        assets=tuple(assets),
        source_kind=fact.source.kind,
        source_id=fact.source.id,
        reason=fact.reason,
        position=event.position,
        at=event.occurred_at,
    )

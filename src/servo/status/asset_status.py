"""The partitions of an asset by status and overlay, as sets: nothing is listed that need not be, so a million cost like
a few. And the columns of `partition_status` that no file holds, for SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import msgspec

from servo import canonical
from servo.answers.partitions import AssetSummary
from servo.errors import InvalidInput
from servo.events.columns import Outcome
from servo.events.lifecycles import TaskStatus, in_sql
from servo.fold.display import FAILED, MARKED, MATERIALIZED, Overlay, Status
from servo.partitions import Partitions, PartitionSet
from servo.status.keysets import Stored, partitions_where, status_rows, stored
from servo.status.staleness import stale_columns, stale_sets
from servo.status.state import UNFINISHED, State

if TYPE_CHECKING:
    import pyarrow as pa

    from servo.projections import Snapshot
    from servo.projections.computed_columns import Computed

_MADE, _FAILED, _FROZEN, _MARKED, _SINCE = 1, 2, 4, 8, 16
_CHANGED_AT = "greatest(last_attempt_at, last_materialization_at, invalidated_at)"

FILTERS = (
    "materialized",
    "stale",
    "failed",
    "missing",
    "never_materialized",
    "running",
    "queued",
    "waiting_approval",
    "frozen",
    "undefined",
)
"""The words that lists can be filtered by."""


class AssetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions of one asset by status. Each that is not undefined has exactly one."""

    asset_key: str
    asset_id: str
    definition: Partitions
    expected: PartitionSet  # whose windows have ended, whether or not anything is known of them
    statuses: dict[Status, PartitionSet]
    overlays: dict[Overlay, PartitionSet]
    attempt_failed: PartitionSet  # also of those without data
    marked: PartitionSet  # as materialized, so that they hold no data
    changed: PartitionSet | None = None  # in the time that was asked about, if any was
    undefined: int = 0  # rows of partitions that the definition does not have any more

    @property
    def missing(self) -> PartitionSet:
        """The partitions that are expected and have no data."""
        return self.expected & self.statuses[Status.NEVER_MATERIALIZED]

    @property
    def made(self) -> PartitionSet:
        """The partitions that have data, or are marked as if they had."""
        kept, stale = self.statuses[Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED], self.statuses[Status.STALE]
        return self.statuses[Status.MATERIALIZED] | kept | stale

    @property
    def all(self) -> PartitionSet:
        """Every partition that is expected, or that something is known of."""
        return reduce(or_, self.statuses.values(), self.expected)

    def having(self, word: str) -> PartitionSet:
        """The partitions that one of the words of `FILTERS` means; `undefined` ones are no partitions."""
        match word:
            case "missing":
                return self.missing
            case "failed":
                return self.attempt_failed
            case "never_materialized" | "stale" | "materialized":
                return self.statuses[Status(word.upper())]
            case "undefined":
                return self.definition.empty()
        return self.overlays.get(Overlay(word), self.definition.empty())

    def summary(self) -> AssetSummary:
        """The partitions counted by status and overlay."""
        return AssetSummary(
            asset_key=self.asset_key,
            expected=self.expected.count,
            total=self.all.count,
            statuses={status.value: self.statuses[status].count for status in Status},
            missing=self.missing.count,
            attempt_failed=self.attempt_failed.count,
            overlays={one.value: self.overlays[one].count for one in Overlay if one in self.overlays},
            undefined=self.undefined,
        )


def asset_statuses(
    state: State,
    asset_keys: Sequence[str] | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    stale: Mapping[str, PartitionSet] | None = None,
) -> dict[str, AssetStatus]:
    """The partitions of these assets, or of all, by status; by asset key, in the order of the graph.

    `since`, `until`: the time in which the last thing happened to partitions that count as changed. `stale`: the stale
    ones, where they are known already.
    """
    catalog = state.catalog
    keys = list(catalog.graph.specs) if asset_keys is None else list(asset_keys)
    definitions = {catalog.asset_id(key): catalog.spec(key).partitions for key in keys}
    flags, parameters = [MATERIALIZED, FAILED, "frozen", MARKED], {}
    if since is not None or until is not None:
        flags.append(
            f"($since IS NULL OR {_CHANGED_AT} >= $since) AND ($until IS NULL OR {_CHANGED_AT} < $until)"
            f" AND {_CHANGED_AT} IS NOT NULL"
        )
        parameters = {"since": since, "until": until}
    rows = (
        stored(state.tables, definitions, flags, parameters=parameters)
        if parameters
        else status_rows(state, definitions, flags)
    )
    busy = overlays_of(state, keys)
    if stale is None:
        stale = stale_sets(state, keys)
    return {
        key: _status(state, key, rows[catalog.asset_id(key)], busy[key], stale.get(key), changes=bool(parameters))
        for key in keys
    }


def _status(
    state: State,
    asset_key: str,
    rows: Stored,
    busy: dict[Overlay, PartitionSet],
    outdated: PartitionSet | None,
    *,
    changes: bool,
) -> AssetStatus:
    definition = state.catalog.spec(asset_key).partitions
    expected = definition.everything(state.now)
    made, failed = rows.of(definition, having=_MADE), rows.of(definition, having=_FAILED)
    stale = (outdated or definition.empty()) & made - failed
    known = reduce(or_, busy.values(), rows.of(definition))
    frozen = rows.of(definition, having=_FROZEN)
    return AssetStatus(
        asset_key=asset_key,
        asset_id=state.catalog.asset_id(asset_key),
        definition=definition,
        expected=expected,
        statuses={
            Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED: made & failed,
            Status.NEVER_MATERIALIZED: (expected | known) - made,
            Status.STALE: stale,
            Status.MATERIALIZED: made - failed - stale,
        },
        overlays={**busy, **({Overlay.FROZEN: frozen} if frozen else {})},
        attempt_failed=failed,
        marked=rows.of(definition, having=_MARKED),
        changed=rows.of(definition, having=_SINCE) if changes else None,
        undefined=rows.outside,
    )


def require_filters(words: Iterable[str]) -> tuple[str, ...]:
    """Parse words that lists can be filtered by; the long names of statuses are taken too."""
    filters = []
    for word in words:
        plain = word.strip().lower().replace("-", "_")
        plain = "failed" if plain == "materialized_but_last_attempt_failed" else plain
        if plain not in FILTERS:
            raise InvalidInput(f"there is no status {word!r:.40}", hint=f"use {', '.join(FILTERS)}", field="status")
        filters.append(plain)
    return tuple(filters)


# ── overlays ─────────────────────────────────────────────────────────────────────────────────────────────────────


_RUNS = f"SELECT DISTINCT partitions FROM runs WHERE {UNFINISHED} AND planned_version IS NULL"
_OVERLAYS = {
    TaskStatus.PLANNED: Overlay.QUEUED,
    TaskStatus.RETRY_WAIT: Overlay.QUEUED,
    TaskStatus.RUNNING: Overlay.RUNNING,
    TaskStatus.WAITING_APPROVAL: Overlay.WAITING_APPROVAL,
}
_TASKS = f"""
    FROM tasks t JOIN runs r USING (run_id)
    WHERE r.requested_version IS NOT NULL AND r.finished_version IS NULL
      AND t.state IN {in_sql(_OVERLAYS)}
"""
_WAITING = f"SELECT DISTINCT t.asset_id, t.state, t.partitions {_TASKS} AND t.started_version IS NULL"
_BEGUN = f"SELECT t.run_id, t.asset_id, t.state, t.partitions {_TASKS} AND t.started_version IS NOT NULL"
_DONE, _STAGED = 1, 2


def overlays_of(state: State, asset_keys: Iterable[str]) -> dict[str, dict[Overlay, PartitionSet]]:
    """The partitions of some assets, by key, that are running, queued, or waiting for an approval.

    Of an unfinished task, partitions that it has made have no overlay, and those that it has staged wait already.
    """
    found: dict[str, dict[Overlay, PartitionSet]] = {key: {} for key in asset_keys}
    if not state.busy:
        return found
    names = {state.catalog.asset_id(key): key for key in found}
    definitions = {asset_id: state.catalog.spec(key).partitions for asset_id, key in names.items()}

    def add(asset_id: str, overlay: Overlay, some: PartitionSet) -> None:
        if some:
            mine = found[names[asset_id]]
            mine[overlay] = mine[overlay] | some if overlay in mine else some

    for (requested,) in state.tables.query(_RUNS).rows:
        for key, data in (canonical.loads(requested.encode()) if requested else {}).items():
            asset_id = state.catalog.asset_ids.get(key, key)
            if asset_id in definitions:
                add(asset_id, Overlay.QUEUED, partitions_of(data, definitions[asset_id]))
    for asset_id, task_state, text in state.tables.query(_WAITING).rows:
        if asset_id in definitions:
            add(asset_id, _OVERLAYS[task_state], _partitions_of_task(text, definitions[asset_id]))
    begun: dict[str, list[tuple[str, TaskStatus, str | None]]] = {}
    for run_id, asset_id, task_state, text in state.tables.query(_BEGUN).rows:
        if asset_id in definitions:
            begun.setdefault(run_id, []).append((asset_id, task_state, text))
    for run_id, tasks in begun.items():
        attempted = _attempted(state, run_id, {asset_id: definitions[asset_id] for asset_id, _, _ in tasks})
        for asset_id, task_state, text in tasks:
            definition, tried = definitions[asset_id], attempted[asset_id]
            wanted = _partitions_of_task(text, definition)
            staged = tried.of(definition, having=_STAGED) & wanted
            add(asset_id, Overlay.WAITING_APPROVAL, staged)
            # What failed beside something that waits for a person has ended; it is the task that has not.
            if task_state != TaskStatus.WAITING_APPROVAL:
                add(asset_id, _OVERLAYS[task_state], wanted - tried.of(definition, having=_DONE) - staged)
    return found


def _attempted(state: State, run_id: str, definitions: Mapping[str, Partitions]) -> dict[str, Stored]:
    """The partitions that a run has made or staged so far, by asset id; cached until something happens to one."""
    return state.snapshot.derived(
        ("attempted", run_id, *definitions.items()),
        {"partition_status"},
        lambda: stored(
            state.tables,
            definitions,
            [f"last_attempt_outcome = '{outcome}'" for outcome in (Outcome.SUCCEEDED, Outcome.STAGED)],
            where="last_attempt_run_id = $run_id",
            parameters={"run_id": run_id},
        ),
    )


def _partitions_of_task(text: str | None, definition: Partitions) -> PartitionSet:
    return partitions_of(canonical.loads(text.encode()) if text else None, definition)


def partitions_of(data: Any, definition: Partitions) -> PartitionSet:
    """The partitions that a plan or a request names, as far as the definition still has them."""
    if not data:
        return definition.empty()
    try:
        return PartitionSet.from_json(definition, data, clip=True)
    except InvalidInput:
        return definition.empty()  # its dimensions have changed since


# ── columns of `partition_status` ────────────────────────────────────────────────────────────────────────────────

_FROZEN_KEYS = "SELECT asset_id, partition_key FROM partition_status WHERE frozen"


def status_columns(snapshot: Snapshot, look: Callable[[], State]) -> Computed:
    """The columns of one snapshot that no file holds. `look` gives its state when one is first read."""
    # DuckDB and Arrow come with these imports.
    from servo.projections.arrow import table_of  # noqa: PLC0415
    from servo.projections.computed_columns import OVERLAYS, STALE, Computed  # noqa: PLC0415

    state = cache(look)
    nothing = snapshot.watermark.occurred_at is None  # was recorded by then

    def stale() -> pa.Table:
        return table_of(STALE, []) if nothing else stale_columns(state())

    def overlays() -> pa.Table:
        return table_of(OVERLAYS, [] if nothing else _overlays(state()))

    return Computed(stale=stale, overlays=overlays)


def _overlays(state: State) -> list[tuple[Any, ...]]:
    """The partitions that have a row and an overlay: asset id, key, and the overlays in their order."""
    found: dict[tuple[str, str], list[str]] = {}
    busy = {key: some for key, some in overlays_of(state, state.catalog.graph.specs).items() if some}
    there = partitions_where(state, busy, "true")
    for asset_key, overlays in busy.items():
        for overlay in (one for one in Overlay if one in overlays):
            for key in overlays[overlay] & there[asset_key]:
                found.setdefault((state.catalog.asset_id(asset_key), str(key)), []).append(overlay.value)
    for asset_id, key in state.tables.query(_FROZEN_KEYS).rows:
        found.setdefault((asset_id, key), []).append(Overlay.FROZEN.value)
    return [(*place, overlays) for place, overlays in found.items()]

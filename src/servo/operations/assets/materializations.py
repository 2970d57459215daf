"""The data of assets: rows, a bounded number at a time, all versions of a partition, and going back to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from servo import decoders
from servo.answers.assets import Held, Materialization, Rollback, Rows
from servo.answers.values import plain
from servo.errors import Conflict, DataNotFound, InvalidInput, NotFound
from servo.events import RecordedEvent, decode
from servo.events.columns import EarlierMaterializations
from servo.events.model import RolledBack
from servo.execution.protocol import Place, Storage
from servo.ids import is_ulid
from servo.operations.assets.requests import ListMaterializations, ReadData, RollBack
from servo.operations.checkpoints.handlers import find_checkpoint, staged_data
from servo.operations.fields import parse_moment
from servo.operations.handling import (
    Decision,
    Found,
    Outside,
    answers,
    changes_partitions,
    decides,
    lists,
    other_request,
)
from servo.partitions import PartitionKey, PartitionSet
from servo.status.keysets import Current, current
from servo.status.plans import frozen_among
from servo.status.removals import removed_key, require_set
from servo.status.state import State


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of an asset, and exactly which materializations they are from."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    total_rows: int | None
    materializations: list[Current]


def places(state: State, asset: str, partitions: Sequence[str] = ()) -> tuple[list[Place], list[Current]]:
    """The current materializations of an asset, in the order of their keys."""
    known = state.catalog
    key = known.graph.resolve(asset)
    definition, asset_id = known.spec(key).partitions, known.asset_id(key)
    wanted = named_partitions(state, key, partitions, asset)
    found = current(state.tables, asset_id, None if wanted is None else map(str, wanted))
    if wanted is not None:
        absent = next((one for one in wanted if str(one) not in found), None)
        if absent is not None:
            when = "" if state.as_of is None else f" as of {state.as_of}"
            raise DataNotFound(
                f"{key} {definition.label(absent)} has no data{when}".replace("  ", " "),
                hint=f"materialize it: servo materialize '{asset}@{definition.short_key(absent)}'",
            )
        marked = next((one for one in wanted if found[str(one)].marked), None)
        if marked is not None:
            raise DataNotFound(
                f"{key} {definition.label(marked)} was marked as materialized, and holds no data".replace("  ", " "),
                hint=f"materialize it for real: servo materialize '{asset}@{definition.short_key(marked)}'",
            )
    found = {name: one for name, one in found.items() if not one.marked}
    if not found:
        which = "" if not definition.dimensions else "@latest"
        raise DataNotFound(f"{key} has no data", hint=f"materialize it: servo materialize {asset}{which}")
    chosen = [found[one] for one in sorted(found)]
    return [Place(asset_id=asset_id, key=one.key, materialization_id=one.materialization_id) for one in chosen], chosen


def named_partitions(state: State, key: str, partitions: Sequence[str], asset: str) -> PartitionSet | None:
    """The partitions that people name, each by itself or as a range; None where they name none."""
    wanted: PartitionSet | None = None
    for text in partitions:
        some = require_set(state, key, text, asset=asset)
        wanted = some if wanted is None else wanted | some
    return wanted


def rows_of(storage: Storage, places: list[Place], chosen: list[Current], limit: int | None, offset: int = 0) -> Table:
    """The rows of exactly these materializations, without Spark; after so many of them, and at most so many."""
    columns: list[str] = []
    rows: list[tuple[Any, ...]] = []
    total = 0
    for batch in storage.read(places):
        columns = columns or list(batch.schema.names)
        begin = min(max(offset - total, 0), batch.num_rows)
        total += batch.num_rows
        wanted = batch.slice(begin) if limit is None else batch.slice(begin, max(limit - len(rows), 0))
        rows += zip(*(wanted.column(name).to_pylist() for name in columns), strict=True)
        if limit is not None and len(rows) >= limit:
            break
    complete = limit is None or len(rows) < limit
    return Table(columns=columns, rows=rows, total_rows=total if complete else None, materializations=chosen)


def staged_rows(
    storage: Storage, state: State, checkpoint_id: str, limit: int | None, offset: int = 0
) -> tuple[str, Table]:
    """The asset and the rows of a checkpoint: what would be published, or was to be. Without Spark."""
    row = find_checkpoint(state, checkpoint_id)
    chosen = [Current(key=key, materialization_id=name, content_hash=one) for key, name, one in staged_data(row)]
    where = [Place(asset_id=row["asset_id"], key=one.key, materialization_id=one.materialization_id) for one in chosen]
    return row["asset_key"], rows_of(storage, where, chosen, limit, offset)


def table_shown(asset: str, found: Table) -> Rows:
    """Rows, and what they are from. Values are left as they are, to be formatted where they are shown."""
    return Rows(
        asset_key=asset,
        columns=list(found.columns),
        rows=[list(row) for row in found.rows],
        total_rows=found.total_rows,
        materializations=[
            Held(partition_key=one.key, materialization_id=one.materialization_id, content_hash=one.content_hash)
            for one in found.materializations
        ],
    )


_MOST_PARTITIONS = 1_000


def _read(outside: Outside, state: State, request: ReadData) -> Rows:
    """What is stored of the rows that are asked for; one more than fits tells whether there are more."""
    if (request.asset is None) == (request.checkpoint is None):
        raise InvalidInput("asset: give it, or a checkpoint instead", field="asset")
    if request.checkpoint is not None and (request.partition or state.as_of is not None):
        raise InvalidInput(
            "checkpoint: what waits in one is all of it, and of no other time", hint="give it alone", field="checkpoint"
        )
    if request.checkpoint is not None:
        return table_shown(*staged_rows(outside.storage, state, request.checkpoint, request.limit + 1, request.offset))
    assert request.asset is not None
    return table_shown(state.catalog.graph.resolve(request.asset), _rows(outside, state, request.asset, request))


@answers(ReadData, evidence=_read)
def read(_: State, request: ReadData, shown: Rows) -> Rows:
    rows = [[plain(cell) for cell in row] for row in shown.rows[: request.limit]]
    return msgspec.structs.replace(shown, rows=rows)


def _rows(outside: Outside, state: State, asset: str, request: ReadData) -> Table:
    """Rows of partitions that are few enough to say of each which materialization it is."""
    where, chosen = places(state, asset, request.partition)
    if len(chosen) > _MOST_PARTITIONS:
        raise InvalidInput(
            f"partition: {len(chosen):,} partitions of {asset} have data, and rows are shown of {_MOST_PARTITIONS:,}",
            hint="name some of them",
        )
    return rows_of(outside.storage, where, chosen, request.limit + 1, request.offset)


# ── versions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


_HISTORY = """
    SELECT m.partition_key, m.materialization_id, m.published_at, m.made_at, m.run_id, m.code_version, m.rows, m.bytes,
           m.files, m.content_hash, m.materialization_id = s.materialization_id AS current
    FROM materializations m
    LEFT JOIN partition_status s ON s.asset_id = m.asset_id AND s.partition_key = m.partition_key
    WHERE m.asset_id = $asset_id AND m.partition_key IN (SELECT unnest($keys))
      AND m.published_at IS NOT NULL
    ORDER BY m.partition_key, m.materialization_id DESC
"""
_SHORTEST_ID = 8


@lists(ListMaterializations, place=lambda one: one.materialization_id, place_type=str)
def list_materializations(state: State, request: ListMaterializations, after: str | None) -> Found[Materialization]:
    """Every version of a partition that was ever published, the newest first.

    Also of one that was removed from the definition: then each row says when, and by whom.
    """
    key = state.catalog.graph.resolve(request.asset)
    removed = None
    try:
        one = state.catalog.spec(key).partitions.parse_key(request.partition)
    except InvalidInput:
        found = removed_key(state, key, request.partition)
        if found is None:
            raise
        one, removed = found
    rows = _history(state, state.catalog.asset_id(key), [str(one)])
    if not rows:
        raise DataNotFound(f"{key} {request.partition} has no data".replace("  ", " "), hint="materialize it")
    gone = {
        "removed_at": None if removed is None else removed.removed_at,
        "removed_by": None if removed is None else removed.removed_by,
    }
    items = [row | gone for row in rows if after is None or row["materialization_id"] < after]
    return Found(items=[decoders.convert(row, Materialization) for row in items])


def _history(state: State, asset_id: str, keys: list[str]) -> list[dict[str, Any]]:
    return state.tables.query(_HISTORY, {"asset_id": asset_id, "keys": keys}).dicts()


# ── going back ───────────────────────────────────────────────────────────────────────────────────────────────────


def _rolled_back(_: State, __: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
    fact = decode(event)
    assert isinstance(fact, RolledBack)
    back = zip(fact.partitions.keys, fact.partitions.materialization_ids, strict=True)
    return {
        "event_id": event.event_id,
        "rollback_id": fact.rollback_id,
        "asset": fact.asset_key,
        "partitions": [{"partition_key": name, "materialization_id": made} for name, made in back],
    }


def _found(outside: Outside, state: State, request: RollBack) -> RolledBack | RecordedEvent:
    """What was rolled back under this key; else what would be, whose files are there: nothing becomes current whose
    files are gone."""
    if state.key is not None:
        # Of so long ago that the ledger has forgotten the key, or from before it kept requests.
        none = EarlierMaterializations(keys=[], materialization_ids=[], run_ids=[], materialized_at=[])
        probe = RolledBack(rollback_id=state.key, asset_id="", asset_key="", partitions=none, reason="")
        if (before := state.recorded_under(probe)) is not None:
            return before
    fact = _going_back(state, request)
    require_files(outside.storage, fact)
    return fact


def require_files(storage: Storage, fact: RolledBack) -> None:
    """Refuse to make current what has lost its files."""
    some = fact.partitions
    for key, materialization_id in zip(some.keys, some.materialization_ids, strict=True):
        storage.schema(Place(asset_id=fact.asset_id, key=key, materialization_id=materialization_id))


@decides(RollBack, evidence=_found, recall=_rolled_back)
def roll_back(state: State, request: RollBack, found: RolledBack | RecordedEvent) -> Decision[Rollback]:
    """Make earlier materializations current again: of a moment, a given one, or the one before each.

    What is current already stays as it is, stale or not; without any event where that is all of them.
    """
    if isinstance(found, RecordedEvent):
        fact = decode(found)
        assert isinstance(fact, RolledBack)
        if (fact.asset_key, fact.reason) != (state.catalog.graph.resolve(request.asset), request.reason):
            raise other_request(state.key or "", found.event_id)
        answer = decoders.convert(_rolled_back(state, {}, found), Rollback)
        return Decision(answer=answer, recorded=found.event_id)
    if not found.partitions.keys:
        return Decision(answer=Rollback(event_id=None, rollback_id=None, asset=found.asset_key, partitions=[]))
    # Its event has the partitions. Decided on what is there now: if that changes meanwhile, it is looked at again.
    answer = Rollback(event_id=None, rollback_id=found.rollback_id, asset=found.asset_key, partitions=[])
    return Decision(answer=answer, facts=(found,), conflicts=changes_partitions)


def _going_back(state: State, request: RollBack) -> RolledBack:
    known, asset = state.catalog, request.asset
    key = known.graph.resolve(asset)
    definition, asset_id = known.spec(key).partitions, known.asset_id(key)
    wanted = named_partitions(state, key, request.partitions, asset) or definition.set_of([PartitionKey()])
    keys = [str(one) for one in wanted]
    frozen = frozen_among(state, {key: wanted})
    if frozen:
        raise Conflict(
            f"{key} {frozen[key].describe()} is frozen, and stays as it is".replace("  ", " "),
            hint=f"thaw it first: servo partition mark {asset} … --as thawed --reason …",
        )
    history: dict[str, list[dict[str, Any]]] = {one: [] for one in keys}
    for row in _history(state, asset_id, keys):
        history[row["partition_key"]].append(row)
    then = _then(state, asset_id, keys, request.to)
    names = {one: f"{key} {definition.label(PartitionKey.parse(one))}".strip() for one in keys}
    earlier = [_earlier(rows, then.get(one), request.to, names[one]) for one, rows in history.items()]
    back = [row for row in earlier if not row["current"]]
    return RolledBack(
        rollback_id=state.key or state.new_id(),
        asset_id=asset_id,
        asset_key=key,
        partitions=EarlierMaterializations(
            keys=[row["partition_key"] for row in back],
            materialization_ids=[row["materialization_id"] for row in back],
            run_ids=[row["run_id"] for row in back],
            materialized_at=[row["published_at"] for row in back],
            code_version=[row["code_version"] for row in back],
            content_hash=[row["content_hash"] for row in back],
        ),
        reason=request.reason,
    )


def _then(state: State, asset_id: str, keys: Sequence[str], to: str | None) -> dict[str, str]:
    """What to go back to, by partition key, where that was said: one id for all, or what was current then."""
    if to is None:
        return {}
    if is_ulid(to):
        return dict.fromkeys(keys, to)
    if to.isalnum() and len(to) >= _SHORTEST_ID and to.startswith("0"):
        return _begins(state, asset_id, list(keys), to.upper())
    try:
        was = current(state.at(parse_moment(to)).tables, asset_id, keys)
    except NotFound:
        return {}  # nothing was recorded by then
    return {key: one.materialization_id for key, one in was.items()}


def _begins(state: State, asset_id: str, keys: list[str], start: str) -> dict[str, str]:
    """The materializations of these partitions whose id begins so, as a table shows it where it is narrow."""
    found: dict[str, str] = {}
    for row in _history(state, asset_id, keys):
        if row["materialization_id"].startswith(start):
            if row["partition_key"] in found:
                raise DataNotFound(f"several materializations begin with {start}", hint="give more of the id")
            found[row["partition_key"]] = row["materialization_id"]
    return found


def _earlier(rows: list[dict[str, Any]], then: str | None, to: str | None, what: str) -> dict[str, Any]:
    """The version to go back to, of those of one partition, which come newest first."""
    now = next((number for number, row in enumerate(rows) if row["current"]), None)
    if now is None:
        raise DataNotFound(f"{what} has no data to roll back", hint="materialize it")
    earlier = rows[now + 1 :] if to is None else [row for row in rows if row["materialization_id"] == then]
    if not earlier:
        wanted = "earlier version" if to is None else f"version {to}" if is_ulid(to) else f"version of {to}"
        raise DataNotFound(f"{what} has no {wanted}", hint="see `servo partition history`")
    return earlier[0]

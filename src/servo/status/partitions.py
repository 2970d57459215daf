"""Lists of partitions, page by page; and everything about one, with its inputs: what was read, and what is current."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from servo import decoders
from servo.answers.partitions import InputState, PartitionView, Reason
from servo.errors import InvalidInput, InvalidPartition
from servo.fold.display import FAILED, Overlay, Status, display_status, is_marked, marked_sql
from servo.fold.rows import Kind
from servo.fold.staleness import NEAR, input_state_sql
from servo.partitions import Dimension, Dynamic, PartitionKey, Partitions, PartitionSet, partition_id, regions
from servo.partitions.definitions import OPEN
from servo.partitions.regions import Region
from servo.status.asset_status import AssetStatus, asset_statuses, overlays_of, require_filters
from servo.status.removals import removed_key
from servo.status.staleness import reasons_on, stale_partitions
from servo.status.staleness_query import StalenessQuery
from servo.status.state import State

if TYPE_CHECKING:
    from servo.projections.workbench import Workbench

MOST = 1_000
"""Partitions on one page of a list, at most."""

_ROWS = f"""
    SELECT partition_key, last_materialization_run_id, last_materialization_at, last_materialization_code_version,
           last_attempt_run_id, last_attempt_at, last_attempt_outcome, materialization_id, content_hash,
           invalidated_at, invalidated_by, invalidation_reason, frozen,
           materialization_version, attempt_version, freeze_version, {FAILED} AS failed
    FROM partition_status
    WHERE asset_id = $asset_id AND partition_key >= $first AND partition_key <= $last
      AND partition_key IN (SELECT unnest($keys))
"""
_KEYS = """
    SELECT partition_key FROM partition_status
    WHERE asset_id = $asset_id AND partition_key > $after ORDER BY partition_key LIMIT 10000
"""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list, the length of the list, and the cursor of the next page."""

    partitions: list[PartitionView]
    total: int
    cursor: str | None = None


class OnePartition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition, its row of `partition_status`, and its inputs."""

    view: PartitionView
    row: dict[str, Any]
    inputs: list[InputState]


# ── a list ───────────────────────────────────────────────────────────────────────────────────────────────────────


def partition_page(
    state: State,
    asset: str | None = None,
    *,
    statuses: Sequence[str] = (),
    partitions: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page:
    """Partitions of an asset, or of all by their keys, each in the order of its definition.

    Partitions that the definition does not have any more come after those that it has; they are listed where no
    partitions are named. `since` and `until` are about the last time that anything happened to a partition.
    """
    wanted = require_filters(statuses)
    if not 1 <= limit <= MOST:
        raise InvalidInput(f"a page of {limit} partitions", hint=f"ask for 1 to {MOST:,}")
    place = None if cursor is None else place_of(cursor)
    graph = state.catalog.graph
    keys = sorted(graph.specs) if asset is None else [graph.resolve(asset)]
    listing = asset_statuses(state, keys, since=since, until=until)
    found: list[PartitionView] = []
    total = 0
    for key, status in listing.items():
        chosen = _chosen(status, wanted, partitions, state.now, lenient=asset is None)
        gone = partitions is None and status.changed is None and (not wanted or "undefined" in wanted)
        total += chosen.count + (status.undefined if gone else 0)
        # One more than asked for tells whether there is more.
        room = limit + 1 - len(found)
        if room <= 0 or (place is not None and key < place.asset_key):
            continue
        here = place if place is not None and place.asset_key == key else None
        keys_here = [str(one) for one in after(chosen, here).slice(0, room)]
        if gone and status.undefined and len(keys_here) < room:
            keys_here += _strangers(state, status, here, room - len(keys_here))
        found += _views(state, status, keys_here)
    more = len(found) > limit
    found = found[:limit]
    last = text_of(_place(listing[found[-1].asset_key], found[-1])) if more else None
    return Page(partitions=found, total=total, cursor=last)


def _chosen(
    status: AssetStatus, wanted: Sequence[str], partitions: str | None, now: datetime, *, lenient: bool
) -> PartitionSet:
    chosen = status.all
    if wanted:
        chosen = status.definition.empty()
        for word in wanted:
            chosen = chosen | status.having(word)
    if partitions is not None:
        try:
            chosen = chosen & status.definition.parse_set(partitions, now)
        except InvalidInput:
            if not lenient:
                raise
            chosen = status.definition.empty()  # days say nothing about other assets' regions
    return chosen if status.changed is None else chosen & status.changed


def _strangers(state: State, status: AssetStatus, here: Place | None, room: int) -> list[str]:
    """Keys of rows that the definition does not have, in the order of their texts."""
    begin = here.partition_key if here is not None and here.undefined else None
    found: list[str] = []
    parameters = {"asset_id": status.asset_id, "after": begin or ""}
    # The empty key, of an asset that had no partitions once, is greater than nothing.
    candidates = list(_rows(state, status.asset_id, [""])) if begin is None and status.definition.dimensions else []
    while len(found) < room:
        candidates += [key for (key,) in state.tables.query(_KEYS, parameters).rows]
        if not candidates:
            break
        found += [key for key in candidates if PartitionKey.parse(key) not in status.definition]
        parameters["after"] = candidates[-1]
        candidates = []
    return found[:room]


def _views(state: State, status: AssetStatus, keys: Sequence[str]) -> list[PartitionView]:
    if not keys:
        return []
    rows = _rows(state, status.asset_id, keys)
    outdated = status.statuses[Status.STALE] | status.statuses[Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED]
    reasons: dict[str, list[Reason]] = {}
    parsed_keys = [PartitionKey.parse(key) for key in keys]
    points = [status.definition.find(key) for key in parsed_keys]
    if outdated and any(outdated.has(point) for point in points):
        found = stale_partitions(state, [status.asset_key], only={status.asset_key: keys})
        reasons = {one.partition_key: list(one.reasons) for one in found}
    asset = _Asset.of(state, status.asset_key, status.overlays)
    return [
        _view(asset, key, point, rows.get(text, {}), reasons.get(text, []))
        for text, key, point in zip(keys, parsed_keys, points, strict=True)
    ]


def _place(status: AssetStatus, view: PartitionView) -> Place:
    key = PartitionKey.parse(view.partition_key)
    point = [] if view.undefined else list(status.definition.point(key))
    return Place(asset_key=view.asset_key, partition_key=view.partition_key, point=point, undefined=view.undefined)


# ── one ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def one_partition(state: State, asset_key: str, key: str) -> OnePartition:
    """One partition by its canonical key; no other is looked at."""
    parsed = PartitionKey.parse(key)
    row = _rows(state, state.catalog.asset_id(asset_key), [key]).get(key) or {}
    reasons, inputs = _reasons_and_inputs(state, asset_key, parsed, row)
    asset = _Asset.of(state, asset_key, overlays_of(state, [asset_key])[asset_key])
    view = _view(asset, parsed, asset.definition.find(parsed), row, reasons)
    return OnePartition(view=view, row=row, inputs=inputs)


def typed_key(state: State, asset_key: str, partition: str) -> str:
    """The canonical key of what a person typed. Of a partition that the definition no longer has, where it has a row:
    its data and events are there."""
    try:
        return str(state.catalog.spec(asset_key).partitions.parse_key(partition))
    except InvalidInput as problem:
        text = None
        try:
            text = str(PartitionKey.parse(partition))
        except InvalidInput:
            if removed := removed_key(state, asset_key, partition):
                text = str(removed[0])
        if text is not None and _rows(state, state.catalog.asset_id(asset_key), [text]):
            return text
        raise InvalidPartition(f"{asset_key}: {problem.message}", hint=problem.hint) from None


def _rows(state: State, asset_id: str, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    # The first and the last key, as plain values, let most of a file be passed over.
    span = {"first": min(keys), "last": max(keys)}
    answer = state.tables.query(_ROWS, {"asset_id": asset_id, "keys": list(keys), **span})
    return {row["partition_key"]: row for row in answer.dicts()}


class _Asset(NamedTuple):
    """What the views of all partitions of one asset need."""

    key: str
    id: str
    definition: Partitions
    expected: PartitionSet
    overlays: Sequence[tuple[Overlay, PartitionSet]]  # but for those that rows tell: what is frozen

    @classmethod
    def of(cls, state: State, key: str, overlays: Mapping[Overlay, PartitionSet]) -> _Asset:
        definition = state.catalog.spec(key).partitions
        busy = [(one, overlays[one]) for one in Overlay if one is not Overlay.FROZEN and one in overlays]
        return cls(key, state.catalog.asset_id(key), definition, definition.everything(state.now), busy)


def _view(
    asset: _Asset, key: PartitionKey, point: tuple[int, ...] | None, row: Mapping[str, Any], reasons: list[Reason]
) -> PartitionView:
    window = None if point is None else asset.definition.window_at(point)
    made = row.get("materialization_version") is not None
    status = display_status(made=made, failed=bool(row.get("failed")), stale=bool(reasons))
    overlays = [one for one, partitions in asset.overlays if partitions.has(point)]
    return PartitionView(
        asset_key=asset.key,
        partition_key=str(key),
        partition=asset.definition.short_key(key),
        partition_id=partition_id(asset.id, key),
        status=status.value,
        overlays=[*overlays, *([Overlay.FROZEN] if row.get("frozen") else [])],
        missing=status is Status.NEVER_MATERIALIZED and asset.expected.has(point),
        undefined=point is None,
        window_start=None if window is None else window.start,
        window_end=None if window is None else window.end,
        stale_since=min((since for _, since in reasons), default=None),
        stale_reason_code=reasons[0].code if reasons else None,
        stale_reasons=reasons,
        **{name: row[name] for name in _SHOWN if name in row},
    )


_SHOWN = (
    "materialization_id",
    "last_materialization_at",
    "last_materialization_run_id",
    "last_materialization_code_version",
    "content_hash",
    "last_attempt_outcome",
    "last_attempt_at",
    "last_attempt_run_id",
)


# ── where a list goes on ─────────────────────────────────────────────────────────────────────────────────────────


class Place(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The last partition of a page, and where it stood in its definition."""

    asset_key: str
    partition_key: str
    point: list[int] = []
    undefined: bool = False


def text_of(place: Place) -> str:
    """A place as an opaque text for a URL."""
    return urlsafe_b64encode(msgspec.json.encode(place)).rstrip(b"=").decode()


def place_of(text: str) -> Place:
    """The place that `text_of` wrote."""
    try:
        return decoders.decode(urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)), Place)
    except (ValueError, msgspec.DecodeError):
        raise InvalidInput(f"{text!r:.60} is no cursor", hint="pass the one that came with the page before") from None


def after(partitions: PartitionSet, place: Place | None) -> PartitionSet:
    """The partitions of a set that come after a place, in the order of their definition."""
    if place is None:
        return partitions
    if place.undefined:
        return partitions.partitions.empty()  # all that are defined come before those that are not
    passed = _rank(partitions.region, _point(partitions, place), partitions.partitions.depth)
    return partitions.slice(passed, partitions.count)


def _point(partitions: PartitionSet, place: Place) -> list[int]:
    """Where the partition of a place stands in the definition of today, or what came right before it."""
    values = PartitionKey.parse(place.partition_key).values
    point: list[int] = []
    for number, dimension in enumerate(partitions.partitions.dimensions):
        found = dimension.locate(values[dimension.name]) if dimension.name in values else None
        if found is None:
            # It was taken away: all that stood before it has been shown, with whatever else they have.
            before = _before(dimension, values.get(dimension.name), place.point[number : number + 1])
            return [*point, before, *[OPEN] * (partitions.partitions.depth - number - 1)]
        point.append(found)
    return point


def _before(dimension: Dimension, value: object, remembered: list[int]) -> int:
    if isinstance(dimension, Dynamic) and isinstance(value, str):
        return bisect_left(dimension.values, value) - 1
    return (remembered[0] if remembered else 0) - 1


def _rank(region: Region, point: list[int], depth: int) -> int:
    """How many points of a region do not come after a point."""
    if depth == 0:
        return int(bool(region))
    passed = 0
    for low, high, inner in region:
        size = regions.count(inner, depth - 1)
        if high <= point[0]:
            passed += (high - low) * size
            continue
        if low <= point[0]:
            passed += (point[0] - low) * size + _rank(inner, point[1:], depth - 1)
        break
    return passed


# ── inputs ───────────────────────────────────────────────────────────────────────────────────────────────────────

_InputKey = tuple[str, str]  # asset id and partition key

_READ_INPUTS = """
    SELECT upstream_asset_id, upstream_partition_key, upstream_asset_key, upstream_materialization_id FROM near_lineage
"""
_NAMED = {"asset_id": Kind.TEXT, "partition_key": Kind.TEXT, "read_id": Kind.TEXT}
_INPUTS = f"""
    SELECT asset_id, partition_key, {input_state_sql()} AS state, read_id AS read_materialization_id,
           read_hash AS read_content_hash, read_run_id, read_made_at, current_id AS current_materialization_id,
           current_hash AS current_content_hash, current_run_id, current_made_at
    FROM (
      SELECT named.asset_id, named.partition_key, named.read_id,
             coalesce(made.content_hash, same.content_hash) AS read_hash,
             coalesce(made.run_id, same.last_materialization_run_id) AS read_run_id,
             coalesce(made.made_at, same.last_materialization_at) AS read_made_at,
             now.materialization_version AS current_version,
             now.materialization_id AS current_id, now.content_hash AS current_hash,
             now.last_materialization_run_id AS current_run_id, now.last_materialization_at AS current_made_at,
             {marked_sql("now")} AS input_marked
      FROM named_inputs AS named LEFT JOIN near_materializations AS made ON made.materialization_id = named.read_id
      LEFT JOIN near_partition_status AS now ON now.asset_id = named.asset_id
        AND now.partition_key = named.partition_key AND now.materialization_version IS NOT NULL
      LEFT JOIN near_partition_status AS same ON same.materialization_id = named.read_id
    )
"""


def _reasons_and_inputs(
    state: State, asset_key: str, key: PartitionKey, row: Mapping[str, Any]
) -> tuple[list[Reason], list[InputState]]:
    """The reasons for which a partition with this row of `partition_status` is stale, and its inputs, which were read
    or are given, by their keys; neither where the definition does not have it.

    The inputs of a frozen partition are compared too; it is stale by none of them.
    """
    if key not in state.catalog.spec(asset_key).partitions:
        return [], []
    reasons: list[Reason] = []
    changed: dict[_InputKey, datetime] = {}
    read: dict[_InputKey, str] = {}
    given = _given(state, asset_key, key)
    names = {asset_id: name for name, asset_id in state.catalog.asset_ids.items()}
    with state.workbench() as bench:
        at_hand: set[str] = set()  # tables whose rows of what is given are on the bench
        if row.get("materialization_version") is not None and not is_marked(row):
            only = {asset_key: [str(key)]}
            query = StalenessQuery(bench, state.catalog, [asset_key], state.now, only, frozen=True)
            query.answer(transitive=False)
            reasons, changed = reasons_on(bench, asset_key), query.changed_inputs()
            at_hand = query.gathered
            for asset_id, upstream_key, name, read_id in bench.rows(_READ_INPUTS) if "lineage" in at_hand else ():
                read[asset_id, upstream_key] = read_id
                names.setdefault(asset_id, name)
        inputs = [
            InputState(
                asset_key=names[one["asset_id"]],
                given=place in given,
                changed_at=changed.get(place),
                **(one | {"state": "removed"} if place in changed and place not in given else one),
            )
            for one in _compared(bench, given, read, at_hand)
            for place in [(one["asset_id"], one["partition_key"])]
        ]
    inputs.sort(key=lambda one: (one.asset_key, one.partition_key))
    return [] if row.get("frozen") else reasons, inputs


def _given(state: State, asset_key: str, key: PartitionKey) -> set[_InputKey]:
    """The inputs that the mappings give to a partition, by asset id and key."""
    catalog, asked = state.catalog, state.catalog.spec(asset_key).partitions.set_of([key])
    return {
        (catalog.asset_id(upstream), str(one))
        for upstream in catalog.graph.upstream(asset_key)
        for one in catalog.graph.mapping(upstream, asset_key).upstream(
            asked, catalog.spec(upstream).partitions, state.now
        )
    }


def _compared(
    bench: Workbench, given: set[_InputKey], read: Mapping[_InputKey, str], at_hand: set[str]
) -> list[dict[str, Any]]:
    """What was read and what is current of inputs. `at_hand`: tables whose rows of what is given are gathered already;
    of `materializations` those of inputs that are not what was read, and no others are needed."""
    places = [*given, *(place for place in read if place not in given)]
    if not places:
        return []
    for table in NEAR if len(places) > len(given) else NEAR.keys() - at_hand:
        if table != "lineage":
            bench.near(table, NEAR[table], places, None if table == "partition_status" else list(read.values()))
    named = [(*place, read.get(place)) for place in places]
    bench.lay("named_inputs", _NAMED, [list(column) for column in zip(*named, strict=True)])
    return bench.query(_INPUTS).dicts()

"""Sets of partitions straight from the projections, without a Python object for each partition.

A million rows come back as few: partitions that lie evenly one after another on a time grid are one stretch, and those
that have the same values in all other dimensions are one group. Rows that the definition does not have are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from servo.fold.display import MARKED
from servo.partitions import Dimension, PartitionKey, Partitions, PartitionSet, regions
from servo.partitions.clocks import Clock
from servo.partitions.regions import Axis, Box
from servo.partitions.windows import DAY, moment_of

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers
    from servo.status.state import State

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LINE = "\n"
_FEW_KEYS = 10_000  # so many are worth naming one by one
_THERE = "materialization_id IS NOT NULL"
_CURRENT = f"""
    SELECT partition_key, materialization_id, content_hash, {MARKED} AS marked FROM partition_status
    WHERE asset_id = $asset_id AND {_THERE}
"""
_CURRENT_AMONG = f"{_CURRENT} AND partition_key IN (SELECT unnest($keys))"
_FEW = 50  # ticks of a clock that tell how far they are apart


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one asset: sets by class, and how many rows are `outside` of the definition."""

    sets: dict[int, PartitionSet] = {}
    outside: int = 0

    def of(self, definition: Partitions, *, having: int = 0, lacking: int = 0) -> PartitionSet:
        """The partitions whose class has all bits of `having` and none of `lacking`."""
        found = definition.empty()
        for number, some in self.sets.items():
            if number & having == having and not number & lacking:
                found = found | some
        return found


def stored(
    snapshot: Answers,
    definitions: Mapping[str, Partitions],
    flags: Sequence[str],
    *,
    table: str = "partition_status",
    where: str = "true",
    parameters: Mapping[str, Any] | None = None,
) -> dict[str, Stored]:
    """The rows of a table of partitions, of these assets, by asset id. The class of a row has bit n if flag n holds.

    `table`, `flags` and `where` are SQL of our own; what comes from outside goes in by `parameters`.
    """
    shapes: dict[_Shape, list[str]] = {}
    for asset_id, definition in definitions.items():
        shapes.setdefault(_shape(definition), []).append(asset_id)
    found = {asset_id: _Gathering(definition) for asset_id, definition in definitions.items()}
    for shape, asset_ids in shapes.items():
        answer = snapshot.query(_query(shape, flags, table, where), {**(parameters or {}), "asset_ids": asset_ids})
        for row in answer.rows:
            found[row[0]].take(*row[1:])
    return {asset_id: one.done() for asset_id, one in found.items()}


def status_rows(
    state: State, definitions: Mapping[str, Partitions], flags: Sequence[str], *, where: str = "true"
) -> dict[str, Stored]:
    """The rows of `partition_status`, cached until something happens to a partition."""
    snapshot, names = state.snapshot, {one: (one, kind, where, *flags) for one, kind in definitions.items()}
    kept: dict[str, Stored | None] = {asset_id: snapshot.recall(name) for asset_id, name in names.items()}
    missing = {asset_id: definitions[asset_id] for asset_id, rows in kept.items() if rows is None}
    found = stored(state.tables, missing, flags, where=where)
    for asset_id, rows in found.items():
        snapshot.remember(names[asset_id], rows, tables={"partition_status"})
    return {asset_id: kept[asset_id] or found[asset_id] for asset_id in definitions}


def partitions_where(state: State, asset_keys: Iterable[str], condition: str) -> dict[str, PartitionSet]:
    """The defined partitions of each of these assets whose rows of `partition_status` meet a condition (SQL)."""
    definitions = {key: state.catalog.spec(key).partitions for key in asset_keys}
    ids = {key: state.catalog.asset_id(key) for key in definitions}
    rows = status_rows(state, {ids[key]: one for key, one in definitions.items()}, [], where=f"({condition})")
    return {key: rows[ids[key]].of(definition) for key, definition in definitions.items()}


def present(state: State, needed: Mapping[str, PartitionSet]) -> dict[str, PartitionSet]:
    """Of the partitions that a plan needs from outside, those that have data or are marked."""
    many = partitions_where(state, [key for key, some in needed.items() if some.count > _FEW_KEYS], _THERE)
    found = {key: some & needed[key] for key, some in many.items()}
    for asset_key in needed.keys() - many.keys():
        wanted = needed[asset_key]
        keys = current(state.tables, state.catalog.asset_id(asset_key), map(str, wanted))
        found[asset_key] = wanted.partitions.set_of(list(keys))
    return found


class _Shape(NamedTuple):
    """What definitions have in common that one query can ask for together."""

    names: tuple[str, ...]
    lead: str | None
    step: int | None  # seconds from one window of a clock to the next, as a rule


def _shape(definition: Partitions) -> _Shape:
    lead = _lead(definition)
    names = tuple(sorted(definition.names))
    # A name that stands in SQL is one, whatever another version of Servo may have let pass.
    assert all(_NAME.fullmatch(name) for name in names), names
    return _Shape(names, None if lead is None else lead.name, _step(lead) if isinstance(lead, Clock) else None)


def _lead(definition: Partitions) -> Dimension | None:
    """The dimension with the most values, as a rule: a clock's, else another time's, else the first."""
    dimensions = definition.dimensions
    clocks = [dimension for dimension in dimensions if isinstance(dimension, Clock)]
    times = [dimension for dimension in dimensions if dimension.timed]
    return next(iter([*clocks, *times, *dimensions]), None)


def _step(clock: Clock) -> int:
    first = clock.bounds()[0]
    ticks = [clock.grid.tick(first + number) for number in range(_FEW)]
    return min(after - before for before, after in pairwise(ticks))


def _query(shape: _Shape, flags: Sequence[str], table: str, where: str) -> str:
    """Rows of (asset_id, class, inside, own, moments, count): of keys with other dimensions only the count.

    `inside` has the other dimensions, a line for each combination; `own` the values of the lead, or else `moments` the
    first and the last, in seconds, of a stretch that has one every step.
    """
    class_ = " + ".join(f"CASE WHEN {flag} THEN {1 << bit} ELSE 0 END" for bit, flag in enumerate(flags)) or "0"
    parts = {name: f"split_part(partition_key, ',', {place})" for place, name in enumerate(shape.names, start=1)}
    if len(parts) == 1:
        parts = dict.fromkeys(parts, "partition_key")
    # What an earlier definition left behind may have other dimensions.
    commas = f"length(partition_key) - length(replace(partition_key, ',', '')) = {len(parts) - 1}"
    named = [f"starts_with({text}, '{name}=')" for name, text in parts.items()]
    fits = " AND ".join([commas, *named]) if parts else "partition_key = ''"
    rest = " || ',' || ".join(text for name, text in parts.items() if name != shape.lead)
    own = "''" if shape.lead is None else parts[shape.lead]
    chosen = f"""
        WITH chosen AS (
            SELECT asset_id, {class_} AS class, {fits} AS fits, {own} AS own, {rest or "''"} AS rest
            FROM {table} WHERE asset_id IN (SELECT unnest($asset_ids)) AND {where}
        ), strangers AS (
            SELECT asset_id, class, NULL, NULL, NULL, count(*) FROM chosen WHERE NOT fits GROUP BY ALL
        ), grouped AS ({_GROUPED if rest else _ALONE})"""
    if shape.step is None:
        return f"""{chosen}
            SELECT asset_id, class, inside, list(own), NULL, count(*) FROM grouped GROUP BY ALL
            UNION ALL SELECT * FROM strangers"""
    assert shape.lead is not None
    value = f"CAST(substr(own, {len(shape.lead) + 4}, 26) AS TIMESTAMP)"
    alike = "asset_id, class, inside, timed, phase" if rest else "asset_id, class, timed, phase"
    # One that has all before it in its stretch is as many steps after the first as there are rows between them.
    return f"""{chosen}, placed AS (
            SELECT *, timed AND epoch_us(at_) % 1000000 = 0 AS whole, epoch_us(at_) // 1000000 AS second FROM (
                SELECT *, starts_with(own, '{shape.lead}=t:') AS timed,
                    CASE WHEN starts_with(own, '{shape.lead}=t:') THEN {value} END AS at_
                FROM grouped
            )
        ), phased AS (
            SELECT asset_id, class, inside, coalesce(whole, false) AS timed, second,
                second % {shape.step} AS phase, second // {shape.step} AS number FROM placed
        ), numbered AS (
            SELECT *, number - row_number() OVER (PARTITION BY {alike} ORDER BY number) AS stretch FROM phased
        )
        SELECT asset_id, class, inside, NULL, CASE WHEN timed THEN [min(second), max(second)] ELSE [] END, count(*)
        FROM numbered GROUP BY asset_id, class, inside, timed, phase, stretch
        UNION ALL SELECT * FROM strangers"""


_GROUPED = f"""
    SELECT asset_id, class, own, string_agg(rest, '{_LINE}' ORDER BY rest) AS inside
    FROM chosen WHERE fits GROUP BY ALL
"""
_ALONE = "SELECT asset_id, class, own, '' AS inside FROM chosen WHERE fits"


class _Gathering:
    """The rows of one asset, as they come back."""

    def __init__(self, definition: Partitions) -> None:
        self._definition = definition
        self._lead = _lead(definition)
        self._boxes: dict[int, list[Box]] = {}
        self._rows: dict[int, int] = {}
        self._bounds = definition.box([dimension.bounds() for dimension in definition.dimensions])
        self._known: dict[str, int | None] = {}
        self._insides: dict[str, tuple[list[tuple[int, ...]], int]] = {}
        self._even: dict[tuple[int, int, int], bool] = {}

    def take(
        self, class_: int, inside: str | None, own: list[str] | None, moments: list[int] | None, count: int
    ) -> None:
        if inside is None:
            self._rows[class_] = self._rows.get(class_, 0) + count
            return
        points, lines = self._inside(inside)
        self._rows[class_] = self._rows.get(class_, 0) + count * lines
        if self._lead is None:
            self._boxes.setdefault(class_, []).append(())
            return
        axis = regions.normal(self._stretch(moments, count) if own is None else self._places(own))
        if axis:
            self._boxes.setdefault(class_, []).extend(self._boxed(axis, point) for point in points)

    def done(self) -> Stored:
        sets, outside = {}, 0
        for class_, rows in self._rows.items():
            region = regions.from_boxes(self._boxes.get(class_, []), self._definition.depth)
            some = PartitionSet(partitions=self._definition, region=region) & self._bounds
            if some:
                sets[class_] = some
            outside += max(0, rows - some.count)
        return Stored(sets=sets, outside=outside)

    def _boxed(self, axis: Axis, point: tuple[int, ...]) -> Box:
        rest = iter(point)
        return tuple([axis if one is self._lead else _only(next(rest)) for one in self._definition.dimensions])

    def _places(self, texts: Iterable[str]) -> Iterator[tuple[int, int]]:
        for text in texts:
            place = self._place(self._lead, text)
            if place is not None:
                yield place, place + 1

    def _place(self, dimension: Dimension | None, text: str) -> int | None:
        """The ordinal of `name=tag:value`."""
        if text not in self._known:
            assert dimension is not None
            self._known[text] = dimension.locate(PartitionKey.parse(text).dimensions[0][1])
        return self._known[text]

    def _inside(self, text: str) -> tuple[list[tuple[int, ...]], int]:
        """The ordinals in all other dimensions, in the definition's order, and how many rows they were."""
        if text not in self._insides:
            others = [one for one in self._definition.dimensions if one is not self._lead]
            points = []
            lines = text.split(_LINE)
            for line in lines:
                texts = {part.partition("=")[0]: part for part in line.split(",")} if others else {}
                places = [self._place(one, texts[one.name]) for one in others]
                if None not in places:
                    points.append(tuple(place for place in places if place is not None))
            self._insides[text] = points, len(lines)
        return self._insides[text]

    def _stretch(self, moments: list[int] | None, count: int) -> Iterator[tuple[int, int]]:
        """The ordinals of moments that lie evenly: one range where the grid does so too."""
        if not moments:
            return  # no moments of a clock at all
        clock = self._lead
        assert isinstance(clock, Clock)
        first, last = moments
        every = (last - first) // (count - 1) if count > 1 else 0
        begin, end = clock.locate(moment_of(first)), clock.locate(moment_of(last))
        if begin is not None and end == begin + count - 1 and self._evenly(first, begin, count, every):
            yield begin, end + 1
            return
        for number in range(count):
            place = clock.locate(moment_of(first + number * every))
            if place is not None:
                yield place, place + 1

    def _evenly(self, first: int, begin: int, count: int, every: int) -> bool:
        """Whether the grid has all of these moments, which begin and end on it and are as many as it has.

        A cron's days are alike but for those on which the clocks change: a day and the changes are looked at.
        """
        if count <= 2:
            return True
        clock = self._lead
        assert isinstance(clock, Clock)
        local, tick = clock.local(), clock.grid.tick
        a_day = min(count, DAY // every + 2)
        name = ((first + local.offset(first)) % DAY, every, a_day)
        if name not in self._even:
            self._even[name] = all(tick(begin + number) == first + number * every for number in range(a_day))
        if not self._even[name]:
            return False
        last = first + (count - 1) * every
        for change in local.changes(last + 1):
            if change.at <= first:
                continue
            nearest = (change.at - first) // every
            for number in range(max(nearest - 2, 0), min(nearest + 3, count)):
                if tick(begin + number) != first + number * every:
                    return False
        return True


def _only(place: int) -> Axis:
    return ((place, place + 1),)


# ── current materializations ─────────────────────────────────────────────────────────────────────────────────────


class Current(msgspec.Struct, frozen=True, kw_only=True):
    """The current materialization of a partition: what its readers are given."""

    key: str
    materialization_id: str
    content_hash: str | None = None
    marked: bool = False  # as materialized by hand, so that there is no data


def current(tables: Answers, asset_id: str, keys: Iterable[str] | None = None) -> dict[str, Current]:
    """The current materializations of an asset, by partition key: all, or those of some partitions."""
    wanted = None if keys is None else list(keys)
    parameters: dict[str, object] = {"asset_id": asset_id}
    sql = _CURRENT
    if wanted is not None and len(wanted) <= _FEW_KEYS:
        sql, parameters = _CURRENT_AMONG, {"asset_id": asset_id, "keys": wanted}
    among = None if wanted is None else set(wanted)
    return {
        key: Current(key=key, materialization_id=materialization_id, content_hash=content_hash, marked=bool(marked))
        for key, materialization_id, content_hash, marked in tables.query(sql, parameters).rows
        if among is None or key in among
    }

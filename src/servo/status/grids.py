"""The partitions of an asset as a grid of cells that fits a page: a month in a row, a day in a cell, and so on.

Where there are more partitions than cells, a cell counts several. Nothing is listed: cells are ranges of the
definition, and what is in them is counted by the algebra of sets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import date

from servo.answers.partitions import KINDS, Cell, Grid, GridRow
from servo.fold.display import Overlay, Status
from servo.partitions import Dimension, PartitionSet, regions
from servo.partitions.calendars import TimeDimension
from servo.partitions.clocks import Clock
from servo.partitions.windows import DAY, EPOCH_DAY, LocalTime
from servo.status.asset_status import AssetStatus

_MOST_ROWS = 31
_Range = tuple[int, int]


def kinds_of(states: AssetStatus) -> dict[str, PartitionSet]:
    """Every partition by the one kind that it is shown as: what goes on before what is."""
    nothing = states.definition.empty()
    never = states.statuses[Status.NEVER_MATERIALIZED]
    in_order = (
        ("running", states.overlays.get(Overlay.RUNNING, nothing)),
        ("waiting_approval", states.overlays.get(Overlay.WAITING_APPROVAL, nothing)),
        ("queued", states.overlays.get(Overlay.QUEUED, nothing)),
        ("failed", never & states.attempt_failed),
        ("failed_kept", states.statuses[Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED]),
        ("frozen", states.overlays.get(Overlay.FROZEN, nothing)),
        ("stale", states.statuses[Status.STALE]),
        ("missing", never),
        ("materialized", states.statuses[Status.MATERIALIZED]),
    )
    taken, found = nothing, {}
    for kind, some in in_order:
        found[kind] = some - taken
        taken = taken | some
    return {kind: found[kind] for kind in KINDS}


def strip_of(states: AssetStatus, cells: int) -> list[Cell]:
    """All partitions in order, in so many cells or fewer."""
    everything = states.all
    total = everything.count
    if not total:
        return []
    kinds = kinds_of(states)
    lead = _time_of(states)
    if lead is not None:
        low, high = _bounds(everything, lead)
        ranges = _cut(low, high, cells)
        return [cell or {} for cell in _cells(kinds, lead, ranges)]
    return [
        {kind: count for kind, some in kinds.items() if (count := (some & part).count)}
        for part in (everything.slice(low, high) for low, high in _cut(0, total, cells))
    ]


def grid_of(states: AssetStatus, most_rows: int = _MOST_ROWS) -> Grid:
    """The partitions of an asset as rows and columns."""
    everything = states.all
    kinds = kinds_of(states)
    lead = _time_of(states)
    if not everything:
        return Grid(columns=[], rows=[], folded=False)
    if lead is None:
        return _of_values(states, kinds, everything)
    dimension = states.definition.dimensions[lead]
    assert isinstance(dimension, TimeDimension)
    low, high = _bounds(everything, lead)
    unit, columns, rows = _calendar(dimension, low, high, most_rows)
    flat = [one for _, cells in rows for one in cells]
    counted = iter(_cells(kinds, lead, flat))
    found = []
    for label, cells in rows:
        filled = [cell if begin < end else None for (begin, end), cell in zip(cells, counted, strict=False)]
        found.append(GridRow(label=label, cells=filled, counts=_sum(filled)))
    folded = any(sum(cell.values()) > 1 for row in found for cell in row.cells if cell)
    return Grid(columns=columns, rows=[row for row in found if row.counts], folded=folded, unit=unit)


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _time_of(states: AssetStatus) -> int | None:
    places = (place for place, one in enumerate(states.definition.dimensions) if isinstance(one, TimeDimension))
    return next(places, None)


def _calendar(
    dimension: TimeDimension, low: int, high: int, most_rows: int
) -> tuple[str, list[str], list[tuple[str, list[_Range]]]]:
    """The unit, the columns and the rows of the finest calendar that fits: labels and ranges of ordinals."""
    local = dimension.local()
    first, last = local.day(dimension.span(low)[0]), local.day(dimension.span(high - 1)[0])
    if dimension.kind == "weekly":
        return "week", [str(week) for week in range(1, 54)], list(_weeks(dimension, local, first, last))
    finest = 0 if isinstance(dimension, Clock) and _many_a_day(dimension, low, high) else 1
    finest = 2 if dimension.kind == "monthly" else finest
    begin, end = date.fromordinal(first), date.fromordinal(last)
    sizes = (
        last - first + 1,
        (end.year - begin.year) * 12 + end.month - begin.month + 1,
        end.year - begin.year + 1,
    )
    level = next((one for one in range(finest, 3) if sizes[one] <= most_rows), 3)
    match level:
        case 0:
            return "hour", [f"{hour:02d}" for hour in range(24)], list(_hours(dimension, local, first, last))
        case 1:
            return "day", [str(day) for day in range(1, 32)], list(_days(dimension, local, begin, end))
        case 2:
            return "month", _MONTHS, list(_months(dimension, local, begin.year, end.year))
    return "year", [str(year) for year in range(10)], list(_years(dimension, local, begin.year, end.year))


_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def _many_a_day(clock: Clock, low: int, high: int) -> bool:
    """Whether windows are shorter than a day."""
    begin, end = clock.span(low)
    return end - begin < DAY or (high - low > 1 and clock.span(high - 1)[0] - begin < (high - low - 1) * DAY)


def _first_from(dimension: TimeDimension, local: LocalTime, seconds: int) -> int:
    """The first ordinal whose window begins at or after a moment."""
    place = dimension.at(seconds, local)
    return place + (dimension.start_of(place, local) < seconds) if place >= 0 else 0


def _between(dimension: TimeDimension, local: LocalTime, moments: Sequence[int]) -> list[_Range]:
    """The ordinals between each moment and the next, no more than the definition has."""
    first, last = dimension.bounds()
    places = [max(first, min(_first_from(dimension, local, moment), last)) for moment in moments]
    return [(places[number], places[number + 1]) for number in range(len(places) - 1)]


def _hours(dimension: TimeDimension, local: LocalTime, first: int, last: int) -> Iterator[tuple[str, list[_Range]]]:
    for day in range(first, last + 1):
        walls = [(day - EPOCH_DAY) * DAY + hour * 3600 for hour in range(25)]
        moments = [local.first_moment(wall) for wall in walls]
        yield date.fromordinal(day).isoformat(), _between(dimension, local, moments)


def _days(dimension: TimeDimension, local: LocalTime, begin: date, end: date) -> Iterator[tuple[str, list[_Range]]]:
    month = begin.replace(day=1)
    while month <= end:
        following = date(month.year + month.month // 12, month.month % 12 + 1, 1)
        moments = [local.midnight(day) for day in range(month.toordinal(), following.toordinal() + 1)]
        yield f"{month:%Y-%m}", _between(dimension, local, moments)
        month = following


def _weeks(dimension: TimeDimension, local: LocalTime, first: int, last: int) -> Iterator[tuple[str, list[_Range]]]:
    for year in range(date.fromordinal(first).isocalendar().year, date.fromordinal(last).isocalendar().year + 1):
        monday = date.fromisocalendar(year, 1, 1).toordinal()
        weeks = date(year, 12, 28).isocalendar().week
        yield str(year), _between(dimension, local, [local.midnight(monday + 7 * week) for week in range(weeks + 1)])


def _months(dimension: TimeDimension, local: LocalTime, first: int, last: int) -> Iterator[tuple[str, list[_Range]]]:
    for year in range(first, last + 1):
        days = [date(year, month, 1) for month in range(1, 13)] + [date(year + 1, 1, 1)]
        yield str(year), _between(dimension, local, [local.midnight(day.toordinal()) for day in days])


def _years(dimension: TimeDimension, local: LocalTime, first: int, last: int) -> Iterator[tuple[str, list[_Range]]]:
    for decade in range(first // 10 * 10, last + 1, 10):
        moments = [local.midnight(date(year, 1, 1).toordinal()) for year in range(decade, decade + 11)]
        yield f"{decade}s", _between(dimension, local, moments)


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────

_ACROSS = 40  # cells of a row where nothing but the order of values makes the rows


def _of_values(states: AssetStatus, kinds: dict[str, PartitionSet], everything: PartitionSet) -> Grid:
    """Without time: the first dimension down and the second across, or one value after another."""
    dimensions = states.definition.dimensions
    if not dimensions:
        cell = {kind: 1 for kind, some in kinds.items() if some}
        return Grid(columns=[], rows=[GridRow(label="", cells=[cell], counts=cell)], folded=False)
    low, high = dimensions[0].bounds()
    if len(dimensions) == 1 and high - low > _MOST_ROWS:
        rows = []
        for begin, end in _cut(low, high, -(-(high - low) // _ACROSS)):
            cells: list[Cell | None] = list(_cells(kinds, 0, [(one, one + 1) for one in range(begin, end)]))
            rows.append(GridRow(label=dimensions[0].label(begin), cells=cells, counts=_sum(cells)))
        return Grid(columns=[], rows=rows, folded=False, unit=dimensions[0].name)
    ranges = [(one, one + 1) for one in range(low, high)]
    if len(ranges) > _MOST_ROWS:
        ranges = _cut(low, high, _MOST_ROWS)
    across = _columns(dimensions[1]) if len(dimensions) > 1 else None
    rows = []
    for begin, end in ranges:
        inside = {kind: some & _slab(everything, 0, begin, end) for kind, some in kinds.items()}
        cells = list(_cells(inside, 0, [(begin, end)] if across is None else across[1], at=0 if across is None else 1))
        rows.append(GridRow(label=_label(dimensions[0], begin, end), cells=cells, counts=_sum(cells)))
    folded = any(sum(cell.values()) > 1 for row in rows for cell in row.cells if cell)
    return Grid(columns=[] if across is None else across[0], rows=rows, folded=folded, unit="")


def _columns(dimension: Dimension) -> tuple[list[str], list[_Range]]:
    low, high = dimension.bounds()
    ranges = _cut(low, high, min(high - low, 12))
    return [dimension.label(begin) for begin, _ in ranges], ranges


def _label(dimension: Dimension, begin: int, end: int) -> str:
    return dimension.label(begin) if end - begin == 1 else f"{dimension.label(begin)}…"


def _slab(some: PartitionSet, place: int, low: int, high: int) -> PartitionSet:
    spans = [dimension.bounds() for dimension in some.partitions.dimensions]
    spans[place] = (low, high)
    return some.partitions.box(spans)


# ── counting ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _cells(
    kinds: dict[str, PartitionSet], lead: int, ranges: Sequence[_Range], *, at: int | None = None
) -> Iterator[Cell]:
    """How many of each kind are in each range of one dimension; the ranges ascend and do not overlap."""
    cells: list[Cell] = [{} for _ in ranges]
    ends = [end for _, end in ranges]
    for kind, some in kinds.items():
        for box in regions.boxes(some.region, some.partitions.depth):
            place = lead if at is None else at
            others = 1
            for number, axis in enumerate(box):
                if number != place:
                    others *= sum(high - low for low, high in axis)
            for low, high in box[place]:
                for number in range(bisect_right(ends, low), len(ranges)):
                    begin, end = ranges[number]
                    if begin >= high:
                        break
                    inside = min(high, end) - max(low, begin)
                    if inside > 0:
                        cells[number][kind] = cells[number].get(kind, 0) + inside * others
    return iter(cells)


def _bounds(some: PartitionSet, place: int) -> _Range:
    spans = [span for box in regions.boxes(some.region, some.partitions.depth) for span in box[place]]
    return min(low for low, _ in spans), max(high for _, high in spans)


def _cut(low: int, high: int, parts: int) -> list[_Range]:
    """A range in so many parts of nearly the same length, or fewer where it is short."""
    parts = max(1, min(parts, high - low))
    edges = [low + (high - low) * number // parts for number in range(parts + 1)]
    return [(edges[number], edges[number + 1]) for number in range(parts)]


def _sum(cells: Sequence[Cell | None]) -> Cell:
    total: Cell = {}
    for cell in cells:
        for kind, count in (cell or {}).items():
            total[kind] = total.get(kind, 0) + count
    return total

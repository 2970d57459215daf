"""Sets of partitions from the table in one query are what one would get row by row; cursors pass over nothing."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from servo.partitions import Cron, Daily, Dynamic, Hourly, Monthly, PartitionKey, Partitions, Static, Weekly
from servo.status.keysets import stored
from servo.status.partitions import Place, after, place_of, text_of

NOW = datetime(2025, 6, 1, tzinfo=UTC)
# Zones with a change of the clocks in the middle of the time that is used, one of them by half an hour.
ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe")
TIMES = [
    Daily("time", start="2025-01-05", end="2025-05-01"),
    Weekly("time", start="2025-01-05", end="2025-05-01"),
    Monthly("time", start="2024-01", end="2025-05"),
    *(Hourly("time", start="2025-03-28", end="2025-04-08", timezone=zone) for zone in ZONES),
    *(Cron("time", "*/20 * * * *", start="2025-03-29", end="2025-04-07", timezone=zone) for zone in ZONES),
    # As many an hour as the one above, and not evenly.
    Cron("time", "0,10,40 * * * *", start="2025-03-29", end="2025-04-07"),
    Cron("time", "*/30 9-17 * * 1-5", start="2025-03-20", end="2025-04-10", timezone="Europe/Berlin"),
]
LISTED = [Static("kind", ["a", "b", "ü,=x"]), Static("shard", [1, 2, 30]), Dynamic("name", ["p", "q"])]
DEFINITIONS = [
    Partitions(),
    *(Partitions.of(one) for one in (*TIMES, *LISTED)),
    *(Partitions((one, other)) for one in TIMES for other in LISTED),
    *(Partitions((other, one)) for one in TIMES[3:] for other in LISTED[:2]),
    Partitions((LISTED[0], TIMES[3], LISTED[1])),
]


class Table:
    """The one table that is asked, in memory."""

    def __init__(self, rows: list[tuple[str, str, bool]]) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("CREATE TABLE partition_status (asset_id VARCHAR, partition_key VARCHAR, odd BOOLEAN)")
        if rows:
            self._connection.executemany("INSERT INTO partition_status VALUES (?, ?, ?)", rows)

    def query(self, sql: str, parameters: dict[str, Any]) -> SimpleNamespace:
        return SimpleNamespace(rows=self._connection.execute(sql, parameters).fetchall())


@st.composite
def keys_of(draw: st.DrawFn, definition: Partitions) -> list[PartitionKey]:
    """Stretches and single ones of a definition, in no order."""
    everything = definition.everything(NOW)
    found = definition.empty()
    for _ in range(draw(st.integers(0, 3))):
        low = draw(st.integers(0, everything.count))
        found = found | everything.slice(low, low + draw(st.integers(0, 200)))
    for _ in range(draw(st.integers(0, 2))):
        low = draw(st.integers(0, everything.count))
        found = found - everything.slice(low, low + draw(st.integers(0, 5)))
    return draw(st.permutations(list(found))) if found.count < 40 else list(found)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_one_query_is_what_row_by_row_gives(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(DEFINITIONS), min_size=1, max_size=3))
    rows: list[tuple[str, str, bool]] = []
    expected: dict[str, dict[int, set[str]]] = {}
    outside: dict[str, int] = {}
    for number, definition in enumerate(chosen):
        mine = f"asset{number}"
        # Rows of this definition, and of another one that it may have been once.
        other = data.draw(st.sampled_from([definition, *DEFINITIONS]))
        keys = {*data.draw(keys_of(definition)), *data.draw(keys_of(other))}
        keys |= {PartitionKey.of({"time": date(2025, 2, 3)}), PartitionKey()} if data.draw(st.booleans()) else set()
        expected[mine], outside[mine] = {0: set(), 1: set()}, 0
        for place, key in enumerate(sorted(keys)):
            odd = place % data.draw(st.sampled_from([3, 7, 1000])) == 0
            rows.append((mine, str(key), odd))
            if key in definition:
                expected[mine][int(odd)].add(str(key))
            else:
                outside[mine] += 1
    definitions = {f"asset{number}": one for number, one in enumerate(chosen)}
    found = stored(Table(rows), definitions, ["odd"])  # type: ignore[arg-type]  # asks like a snapshot
    for mine, definition in definitions.items():
        for odd, keys_there in expected[mine].items():
            naive = definition.set_of(map(PartitionKey.parse, keys_there))
            assert found[mine].of(definition, having=odd, lacking=1 - odd) == naive
        assert found[mine].outside == outside[mine]


def test_a_stretch_that_only_begins_and_ends_on_the_grid_is_looked_at_moment_by_moment() -> None:
    """As many moments as the grid has, from one tick to another, and not its ticks."""
    uneven = Partitions.of(Cron("time", "0,10,40 * * * *", start="2025-03-01"))
    even = Cron("time", "0,20,40 * * * *", start="2025-03-01")
    keys = [str(PartitionKey.of({"time": even.value(even.bounds()[0] + number)})) for number in range(300)]
    found = stored(Table([("a", key, False) for key in keys]), {"a": uneven}, [])["a"]  # type: ignore[arg-type]
    assert (found.of(uneven).count, found.outside) == (200, 100)
    howe = Partitions.of(Hourly("time", start="2024-01-01", timezone="Australia/Lord_Howe"))
    moments = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=number) for number in range(8784)]
    keys = [str(PartitionKey.of({"time": moment})) for moment in moments]
    found = stored(Table([("a", key, False) for key in keys]), {"a": howe}, [])["a"]  # type: ignore[arg-type]
    assert found.of(howe) == howe.set_of(key for key in map(PartitionKey.parse, keys) if key in howe)
    assert found.outside > 0


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_pages_pass_over_nothing_and_repeat_nothing(data: st.DataObject) -> None:
    """Whatever is added or taken away between two pages: what was there all the time comes exactly once."""
    definition = data.draw(st.sampled_from(DEFINITIONS))
    some = definition.set_of(data.draw(keys_of(definition)))
    always, seen = some, []
    place: Place | None = None
    for _ in range(10_000):
        page = after(some, place).slice(0, data.draw(st.integers(1, 50)))
        if not page:
            break
        seen += list(page)
        last = seen[-1]
        place = place_of(text_of(Place(asset_key="a", partition_key=str(last), point=list(definition.point(last)))))
        added, taken = (definition.set_of(data.draw(keys_of(definition))) for _ in range(2))
        some = (some | added) - taken
        always = always - taken
    assert len(seen) == len(set(seen))
    assert set(always) <= set(seen)


def test_a_page_goes_on_where_the_value_it_ended_with_was_taken_away() -> None:
    before, later = (
        Partitions.of(Dynamic("name", ["a", "c", "e"])),
        Partitions.of(Dynamic("name", ["a", "b", "d", "e"])),
    )
    key = before.parse_key("c")
    place = Place(asset_key="a", partition_key=str(key), point=list(before.point(key)))
    assert [later.label(one) for one in after(later.everything(NOW), place)] == ["d", "e"]

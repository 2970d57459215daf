"""Pictures and trees: they fit, they read without colours, and they say what is in them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from servo.fold.display import Overlay, Status
from servo.partitions import Cron, Daily, Hourly, Monthly, Partitions, PartitionSet, Static, Weekly
from servo.status.asset_status import AssetStatus
from servo.status.grids import grid_of, strip_of
from servo.ui.marks import Line, Node, Span, drawn, width
from servo.ui.pictures import heatmap, strip

NOW = datetime(2025, 4, 20, tzinfo=UTC)


def states(definition: Partitions, *, stale: str = "", failed: str = "", made: str = "all") -> AssetStatus:
    def some(text: str) -> PartitionSet:
        return definition.parse_set(text, NOW) if text else definition.empty()

    expected, there, late, lost = definition.everything(NOW), some(made), some(stale), some(failed)
    return AssetStatus(
        asset_key="shop/orders",
        asset_id="a1",
        definition=definition,
        expected=expected,
        statuses={
            Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED: there & lost,
            Status.NEVER_MATERIALIZED: expected - there,
            Status.STALE: (there & late) - lost,
            Status.MATERIALIZED: there - late - lost,
        },
        overlays={Overlay.RUNNING: definition.empty()},
        marked=definition.empty(),
        attempt_failed=lost,
    )


def text(line: Line) -> str:
    return "".join(span.text for span in line).rstrip()


def test_days_are_a_calendar() -> None:
    days = Partitions.of(Daily("date", start="2025-02-03"))
    found = states(days, made="2025-02-03..2025-04-10", stale="2025-03-02", failed="2025-03-01")
    lines = [text(line) for line in heatmap(grid_of(found), 120)]
    assert lines[0].split() == [str(day) for day in range(1, 32, 2)]
    assert lines[1] == "2025-02      " + "● " * 26 + "        26●"
    assert lines[2].startswith("2025-03  ✗ ◐ ● ●")
    assert lines[2].endswith("1✗ 1◐ 29●")
    assert lines[3].startswith("2025-04  " + "● " * 10 + "· " * 9)
    assert lines[-1] == "● materialized   ◐ stale   · missing   ✗ failed, data kept"
    # The number of a day stands above its cell.
    assert lines[0].index("3", 12) == lines[2].index("◐") + 2


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    ("definition", "unit"),
    [
        (Partitions.of(Daily("date", start="2025-01-01")), "day"),
        (Partitions.of(Daily("date", start="1980-01-01")), "year"),
        (Partitions.of(Daily("date", start="2015-01-01")), "month"),
        (Daily("date", start="2025-01-01") * Static("region", [f"r{n}" for n in range(300)]), "day"),
        (Partitions.of(Hourly("hour", start="2025-03-25", timezone="Europe/Berlin")), "hour"),
        (Partitions.of(Cron("t", "*/5 * * * *", start="2025-04-01")), "hour"),
        (Partitions.of(Cron("t", "*/5 * * * *", start="1970-01-01")), "year"),
        (Partitions.of(Weekly("week", start="2019-01-01")), "week"),
        (Partitions.of(Monthly("month", start="2001-01")), "month"),
        (Partitions.of(Static("region", ["eu", "us"])), ""),
        (Partitions.of(Static("n", list(range(500)))), "n"),
        (Static("a", ["x", "y"]) * Static("b", [f"v{n}" for n in range(40)]), ""),
        (Partitions(), ""),
    ],
)
def test_every_picture_fits_and_counts_all(definition: Partitions, unit: str, columns: int) -> None:
    found = states(definition)
    grid = grid_of(found)
    lines = heatmap(grid, columns)
    assert grid.unit == unit
    assert max(width(line) - (line[-1].text.endswith(" ") if line else 0) for line in lines) <= columns + 3
    assert all(len(text(line)) <= columns for line in lines)
    assert len(lines) <= 40
    assert sum(row.counts["materialized"] for row in grid.rows) == found.all.count
    assert sum(sum(cell.values()) for cell in strip_of(found, 24)) == found.all.count
    assert 1 <= width(strip(strip_of(found, 24))) <= 24


def test_a_cell_of_many_tells_how_many_are_not_as_they_should_be() -> None:
    definition = Daily("date", start="2025-04-01") * Static("region", ["ap", "eu", "us"])
    found = states(definition, stale="2025-04-02,eu|us", failed="2025-04-03,eu")
    april = text(heatmap(grid_of(found), 120)[1])
    assert april.split()[1:5] == ["●", "2◐", "1✗", "●"]
    # The worst of each part of time is what a strip shows.
    assert text(strip(strip_of(found, 19)))[:4] == "●◐✗●"


def test_days_on_which_the_clocks_change_are_whole() -> None:
    hours = Partitions.of(Hourly("hour", start="2025-03-29", end="2025-04-01", timezone="Europe/Berlin"))
    rows = {row.label: row for row in grid_of(states(hours)).rows}
    assert [sum(row.counts.values()) for row in rows.values()] == [24, 23, 24]
    assert [number for number, cell in enumerate(rows["2025-03-30"].cells) if not cell] == [2]


def test_a_tree_breaks_between_words_and_keeps_names_whole() -> None:
    name = "run_" + "x" * 26
    inner = Node([Span("made by "), Span(name, "red"), Span(" a while ago, and then once more")], [Node([Span("why")])])
    lines = [text(line) for line in drawn(Node([Span("shop/orders", bold=True)], [inner, Node([Span("end")])]), 40)]
    assert lines == [
        "shop/orders",
        "├─ made by",
        f"│  │ {name} a",
        "│  │ while ago, and then once more",
        "│  └─ why",
        "└─ end",
    ]

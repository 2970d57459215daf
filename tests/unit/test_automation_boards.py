"""What drivers know of schedules and sensors loses nothing: neither who could not be told, nor what nobody has seen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import pytest

from servo.controllers.automation_boards import ScheduleState, SensorBoard
from servo.controllers.scheduling import decide
from servo.controllers.sensing import Occasion, answered
from servo.errors import LedgerUnavailable
from servo.events.automation import SensorCreated
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.definitions import SensorDefinition, Source
from servo.events.fact import Fact
from servo.events.model import MaterializationPublished, RunFinished
from servo.partitions import PartitionSet
from tests.support.clockwork import SHOP, Clockwork, run_id_of

SENSOR = "01JHMN00000000000000000N01"


def test_a_ledger_that_is_away_for_a_moment_makes_no_schedule_be_forgotten() -> None:
    shop = Clockwork("2025-01-15T12:00")
    for number in range(3):
        shop.create("0 * * * *", schedule_id=f"01JHMN00000000000000000S0{number}", name=f"s{number}")
    board = shop.at("2025-01-15T13:00").look()

    def away(_: ScheduleState, __: datetime) -> Mapping[str, PartitionSet]:
        raise LedgerUnavailable("the ledger is away")

    with pytest.raises(LedgerUnavailable):
        list(decide(board, SHOP, shop.now, away, run_id_of))
    assert len(shop.tick(board)) == 3


def published(number: int) -> MaterializationPublished:
    return MaterializationPublished(
        publication_id=f"p{number}",
        asset_id=SHOP.asset_id("shop/orders"),
        asset_key="shop/orders",
        partitions=PartitionOutcomes(
            keys=["date=d:2025-01-01"],
            outcome=Outcome.SUCCEEDED,
            first_materialization_id=f"01JGFJJZ00000000000000000{number}",
        ),
    )


def ended() -> RunFinished:
    return RunFinished(run_id="run_1", outcome=Outcome.FAILED, source=Source(kind="manual", id="ada"))


@pytest.mark.parametrize(
    ("watch", "happens", "other"),
    [
        ({"kind": "new_partitions", "asset": "orders"}, published(1), ended()),
        ({"kind": "run_ended", "status": ["FAILED"]}, ended(), published(1)),
    ],
)
def test_what_happens_while_a_watch_looks_is_looked_at_next(
    watch: dict[str, object], happens: Fact, other: Fact
) -> None:
    sensor = SensorDefinition(
        sensor_id=SENSOR, version=1, name="summed", kind="poll", min_interval_seconds=1, settings={"watch": watch}
    )
    shop = Clockwork("2025-01-15T12:00", SensorCreated(definition=sensor))
    board = SensorBoard()

    def looked() -> bool:
        """Whether somebody has to ask it, a minute later."""
        state = board.take(shop.ledger.read(0, 1_000)).sensors[SENSOR]
        shop.at(f"2025-01-15T12:{shop.now.minute + 1:02d}")
        return state.pollable(shop.now)

    def nothing_seen() -> None:
        """An evaluation that saw nothing is recorded."""
        state = board.sensors[SENSOR]
        occasion = Occasion(trigger="poll", poll_epoch=round(shop.now.timestamp() * 1000))
        shop.record(*answered(state, occasion, [], SHOP, run_id_of, cursor="1"))

    assert looked()
    nothing_seen()  # and its cursor begins here
    looked()
    nothing_seen()
    assert not looked()  # it waits for something to happen
    shop.record(other)
    assert not looked()
    shop.record(published(2) if watch["kind"] == "new_partitions" else _another_end())
    assert looked()
    # Whoever looked before this was recorded has not seen it, and says so afterwards.
    shop.record(happens)
    nothing_seen()
    assert looked()
    nothing_seen()
    assert not looked()


def _another_end() -> RunFinished:
    return RunFinished(run_id="run_2", outcome=Outcome.FAILED, source=Source(kind="manual", id="ada"))


def test_a_clock_that_goes_back_neither_stops_a_sensor_nor_lets_it_be_asked_without_a_pause() -> None:
    sensor = SensorDefinition(sensor_id=SENSOR, version=1, name="looks", kind="poll", min_interval_seconds=30)
    shop = Clockwork("2025-01-15T12:00", SensorCreated(definition=sensor))
    board = SensorBoard()

    def asked(moment: str) -> bool:
        """Whether it is due then; if so, it is asked."""
        state = board.take(shop.at(moment).ledger.read(0, 1_000)).sensors[SENSOR]
        if not state.pollable(shop.now):
            return False
        occasion = Occasion(trigger="poll", poll_epoch=round(shop.now.timestamp() * 1000))
        shop.record(*answered(state, occasion, [], SHOP, run_id_of))
        return True

    assert [asked(f"2025-01-15T12:00:{second:02d}") for second in (0, 1, 29, 30)] == [True, False, False, True]
    assert [asked(f"2025-01-15T11:00:{second:02d}") for second in (0, 1, 29, 30)] == [True, False, False, True]

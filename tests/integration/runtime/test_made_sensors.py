"""Sensors that people make without code: watches and messages, with a template for the partitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servo.errors import Conflict, ServoError
from servo.operations.automations.requests import CreateSensor
from servo.runtime.loop.sensors import FoundNothing
from tests.support.automatic import Automatic, automatic
from tests.support.operating import Sensors
from tests.support.workshop import ME

DEFINITIONS = """
import servo
from servo import Daily, asset

@asset(partitions=Daily("date", start="2025-01-01"))
def orders(context): ...

@asset
def lookup(context): ...

@servo.sensor(kind="push")
def coded(context): ...
"""
FILES = {"kind": "new_files", "pattern": "landing/{date}/*.json"}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Automatic]:
    with automatic(tmp_path, DEFINITIONS) as found:
        yield found


def make(shop: Automatic, request_id: str | None = None, **said: Any) -> Any:
    asked = CreateSensor(**{"name": "made", "select": "orders", **said})
    return Sensors(shop.project).create(asked, request_id=request_id, actor=ME)


def test_a_watch_that_somebody_made_is_polled(shop: Automatic) -> None:
    made = make(shop, watch=FILES)
    root = shop.project.settings.root
    for day in ("2025-01-02", "2031-01-01"):
        (root / "landing" / day).mkdir(parents=True)
        (root / "landing" / day / "a.json").write_text("{}")
    done = shop.poll("made")
    assert (done.sensor_id, done.status) == (made.id, "TRIGGERED")
    (asked,) = shop.requests
    assert "2025-01-02" in str(asked.partitions)
    # A day that has not begun keeps nothing else waiting, and is told of.
    assert "2031-01-01" in done.reason
    shop.later(seconds=40)
    assert isinstance(shop.poll("made"), FoundNothing)


def test_messages_say_which_partitions(shop: Automatic) -> None:
    make(shop, partitions="{day}")
    assert shop.send("made", "m1", b'{"day": "2025-01-02"}').status == "TRIGGERED"
    assert shop.send("made", "m2", b"", day="2025-01-03").status == "TRIGGERED"
    for number, (data, why) in enumerate(
        [(b"{}", "day"), (b"nonsense", "JSON"), (b'{"day": "2025-01-01..2025-01-09"}', "several")]
    ):
        failed = shop.send("made", f"bad{number}", data)
        assert failed.status == "FAILED"
        assert why in failed.reason
    assert ["2025-01-02" in str(asked.partitions) for asked in shop.requests] == [True, False]


def test_the_same_request_is_the_same_sensor(shop: Automatic) -> None:
    first, again = make(shop, "r1", watch=FILES), make(shop, "r1", watch=FILES)
    assert (again.id, again.event_id, again.duplicate) == (first.id, first.event_id, True)
    with pytest.raises(Conflict, match="another request"):
        make(shop, "r1", watch=FILES, select="lookup", name="other")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"name": "Made"}, "name"),
        ({"name": "coded", "partitions": "{day}"}, "already"),
        ({"select": "nobody"}, "nobody"),
        ({"select": " "}, "nothing"),
        ({"watch": {"kind": "magic"}}, "not a watch"),
        ({"watch": {"kind": "new_files", "pattern": "../x/*"}}, "leads out"),
        ({"watch": FILES, "partitions": "{hour}"}, "hour"),
        ({"watch": {"kind": "new_files", "pattern": "landing/*.json"}}, "date"),
        ({"partitions": "{day"}, "brace"),
        ({"watch": FILES, "min_interval_seconds": 0}, "min_interval"),
        ({"timeout_seconds": 10**9}, "timeout"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_written(
    shop: Automatic, said: dict[str, Any], why: str
) -> None:
    before = shop.project.ledger.head().position
    with pytest.raises(ServoError, match=why):
        make(shop, **said)
    assert shop.project.ledger.head().position == before


def test_what_was_made_goes_on_when_code_is_deployed_and_can_be_deleted(shop: Automatic) -> None:
    make(shop, watch=FILES)
    sensors = Sensors(shop.project)
    sensors.pause("made", actor=ME)
    sensors.resume("made", actor=ME)
    sensors.delete("made", actor=ME)
    assert [one.name for one in sensors.list()] == ["coded"]
    with pytest.raises(ServoError, match="declared by code"):
        sensors.delete("coded", actor=ME)

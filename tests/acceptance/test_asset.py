"""`servo asset`, from outside."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.support import Folder
from tests.acceptance.test_check import EXAMPLE, write


@pytest.fixture
def example(empty: Folder) -> Folder:
    write(empty, EXAMPLE)
    empty.variables["SERVO_NAMESPACE"] = "sales"
    return empty


def test_lists_assets_upstreams_first(example: Folder) -> None:
    header, *lines = example.ok("asset", "list").splitlines()
    assert header.split("\t") == ["asset", "partitions", "count", "upstreams", "group", "code version"]
    cells = [line.split("\t") for line in lines]
    assert [row[0] for row in cells] == ["sales/raw_orders", "sales/orders", "sales/revenue", "sales/month_report"]
    assert cells[2][1] == "daily date (Europe/Berlin) × region (eu, us)"
    assert int(cells[2][2]) == 2 * int(cells[1][2]) > 600
    assert [row[3] for row in cells] == ["", "raw_orders", "orders", "revenue"]
    assert cells[2][5] == "2"
    assert len(cells[1][5]) == 12
    assert [path.name for path in example.path.iterdir()] == ["definitions.py"]


def test_lists_as_json(example: Folder) -> None:
    assets = example.json("asset", "list")["assets"]
    orders = assets[1]
    assert orders["asset_key"] == "sales/orders"
    assert orders["partitions"] == [
        {"kind": "daily", "name": "date", "start": "2025-01-01", "timezone": "Europe/Berlin"}
    ]
    assert (orders["upstream"], orders["downstream"]) == (["sales/raw_orders"], ["sales/revenue"])
    assert (orders["batch"], orders["file"], orders["line"]) == (True, "definitions.py", 13)


def test_shows_one(example: Folder) -> None:
    shown = dict(line.split(None, 1) for line in example.ok("asset", "show", "orders").splitlines())
    assert shown["asset"] == "sales/orders"
    assert "sales/raw_orders (as raw_orders): the same" in shown["upstream"]
    assert "sales/revenue: the same" in shown["downstream"]
    text = example.ok("asset", "show", "sales.orders")
    assert "declared at   definitions.py:13\n" in text
    assert "check         unique(order_id), blocking\n" in text
    report = example.ok("asset", "show", "sales/month_report")
    assert "sales/revenue (as revenue): date: those that overlap, region: all\n" in report
    assert "by finance, not by whoever asked for the run" in report
    assert "3 attempts, after 30 s, then 2 times as long, at most 15 min" in example.ok("asset", "show", "raw_orders")


def test_shows_one_as_json(example: Folder) -> None:
    shown = example.json("asset", "show", "revenue")
    assert shown["upstream"] == [
        {"asset_key": "sales/orders", "mapping": {"kind": "by_dimension", "mappings": {}}, "parameter": "orders"}
    ]
    assert shown["freshness_seconds"] == 93600
    assert shown["retry"]["attempts"] == 1
    orders = example.json("asset", "show", "orders")
    assert [check["name"] for check in orders["checks"]] == ["not_null(order_id)", "unique(order_id)"]


def test_says_which_asset_was_probably_meant(example: Folder) -> None:
    assert "there is no asset 'ordrs' (did you mean orders?)" in example.fails(3, "asset", "show", "ordrs")
    done = example.servo("asset", "show", "nothing", "--json")
    assert (done.returncode, done.stdout) == (3, "")
    assert json.loads(done.stderr)["error"]["code"] == "asset-not-found"


def test_what_a_module_prints_does_not_mix_with_the_answer(empty: Folder) -> None:
    write(empty, "import servo\nprint('hello')\n@servo.asset\ndef a(): ...\n")
    done = empty.servo("asset", "list", "--json")
    assert [asset["asset_key"] for asset in json.loads(done.stdout)["assets"]] == ["default/a"]
    assert done.stderr == "hello\n"


def test_lists_five_hundred_within_reason(empty: Folder) -> None:
    lines = ["from servo import Daily, asset", 'days = Daily("date", start="2020-01-01")']
    for number in range(500):
        upstream = f"t{number // 2}" if number else "context"
        lines += [
            "@asset(partitions=days)",
            f"def t{number}({upstream}):",
            f"    return {upstream}.where('x > {number}')",
        ]
    write(empty, "\n".join(lines) + "\n")
    listed = empty.ok("asset", "list")
    assert listed.count("\n") == 501

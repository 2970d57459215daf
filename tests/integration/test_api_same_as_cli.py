"""What the API answers is what the command line says with `--json` in the same project."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import commands
from tests.support.served import House, house


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("shop")) as found:
        found.made("orders", "revenue", partitions="2025-01-08")
        found.made("totals")
        found.made("filing", partitions="2025-01-01")
        found.post("/backfills", {"assets": ["orders"], "partitions": "2025-01-01..2025-01-03", "name": "history"})
        found.plant.ended("history")
        found.post("/schedules/nightly/trigger", {"at": "2025-01-10T06:00:00Z"})
        found.post("/lineage/invalidate", {"asset": "orders", "partitions": ["2025-01-08"], "reason": "corrected"})
        found.plant.until(
            lambda: (
                all(run["status"] == "SUCCEEDED" for run in found.items("/runs") if run["partitions"] != 1)
                and len(found.items("/runs", status="SUCCEEDED")) == len(found.items("/runs")) - 1
            ),
            "all but what waits for a person has ended",
        )
        yield found


def said(shop: House, *command: str) -> Any:
    done = commands.servo([*command, "--json"], cwd=shop.project.settings.root, env=os.environ)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def without(*names: str) -> Callable[[Any], Any]:
    """What follows from the time of day is of the moment that it was asked in."""

    def left(value: Any) -> Any:
        if isinstance(value, list):
            return [left(one) for one in value]
        if isinstance(value, dict):
            return {name: left(one) for name, one in value.items() if name not in names}
        return value

    return left


READS: list[tuple[list[str], str, dict[str, Any], Callable[[Any], Any]]] = [
    (["run", "list"], "/runs", {}, lambda told: told["runs"]),
    (["run", "conflicts"], "/conflicts", {}, lambda told: told["conflicts"]),
    (["backfill", "list"], "/backfills", {}, lambda told: told["backfills"]),
    (["backfill", "status", "history"], "/backfills/history/tree", {}, lambda told: told),
    (["backfill", "chunks", "history"], "/backfills/history/chunks", {}, lambda told: told["chunks"]),
    (["schedule", "list"], "/schedules", {}, lambda told: told["schedules"]),
    (["schedule", "show", "nightly"], "/schedules/nightly", {}, lambda told: told),
    (["schedule", "ticks", "nightly"], "/schedules/nightly/ticks", {}, lambda told: told["ticks"]),
    (["sensor", "list"], "/sensors", {}, lambda told: told["sensors"]),
    (["sensor", "show", "uploads"], "/sensors/uploads", {}, lambda told: told),
    (["sensor", "evals", "uploads"], "/sensors/uploads/evals", {}, lambda told: told["evals"]),
    (["asset", "list"], "/assets", {}, lambda told: sorted(told["assets"], key=lambda one: one["asset_key"])),
    (["asset", "show", "revenue"], "/assets/shop/revenue", {}, lambda told: told),
    (["asset", "why", "revenue"], "/assets/revenue/why", {}, lambda told: told),
    (["partition", "list", "orders"], "/assets/orders/partitions", {}, lambda told: told["partitions"]),
    (["partition", "list"], "/partitions", {}, lambda told: told["partitions"]),
    (["partition", "stale"], "/partitions/stale", {}, lambda told: told["partitions"]),
    (["partition", "status", "orders", "2025-01-08"], "/assets/orders/partitions/2025-01-08", {}, lambda told: told),
    (["partition", "why", "revenue", "2025-01-08"], "/assets/revenue/partitions/2025-01-08/why", {}, lambda told: told),
    (
        ["partition", "history", "totals"],
        "/materializations",
        {"asset": "totals"},
        lambda told: told["materializations"],
    ),
    (
        ["lineage", "upstream", "revenue", "2025-01-08"],
        "/lineage/upstream",
        {"asset": "revenue", "partition": "2025-01-08"},
        lambda told: told,
    ),
    (
        ["lineage", "graph", "orders", "2025-01-08"],
        "/lineage/graph",
        {"asset": "orders", "partition": "2025-01-08"},
        lambda told: told,
    ),
    (["lineage", "graph"], "/lineage/graph", {}, lambda told: told),
    (["checkpoint", "list"], "/checkpoints", {}, lambda told: told["checkpoints"]),
]


@pytest.mark.parametrize(("command", "path", "query", "picked"), READS, ids=[" ".join(one[0]) for one in READS])
def test_a_read_says_the_same(
    shop: House, command: list[str], path: str, query: dict[str, Any], picked: Callable[[Any], Any]
) -> None:
    answer = shop.get(path, fresh=True, **query)
    shown = answer["data"] if "data" in answer else answer["items"]
    timeless = without("next_at", "now")
    assert timeless(shown) == timeless(picked(said(shop, *command)))


def test_a_run_and_its_tasks_say_the_same(shop: House) -> None:
    for run in shop.items("/runs"):
        assert shop.data(f"/runs/{run['run_id']}") == said(shop, "run", "show", run["run_id"])
    (waiting,) = shop.items("/checkpoints")
    told = said(shop, "checkpoint", "show", waiting["checkpoint_id"])
    assert shop.data(f"/checkpoints/{waiting['checkpoint_id']}") == told

"""A backfill on a ledger in PostgreSQL with two control loops: each chunk becomes one run, and all is made once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from servo.events.automation import BackfillChunkPlanned, BackfillStateChanged
from servo.events.model import RunRequested
from tests.support.idle import at_work
from tests.support.workshop import deployed_workshop

pytest_plugins = ("tests.contract.fixtures",)

ASSETS = """
from servo import Daily, asset

days = Daily("date", start="2025-01-01", end="2025-02-01")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days)
def clean(raw): ...
"""


def test_two_control_loops_plan_each_chunk_once(tmp_path: Path, new_database: Callable[[], str]) -> None:
    with deployed_workshop(tmp_path, ASSETS, toml=f'ledger = "{new_database()}"\n') as shop:
        made = shop.create("clean", start="2025-01-01", end="2025-01-31", include_upstream=True, request_id="january")
        again = shop.create("clean", start="2025-01-01", end="2025-01-31", include_upstream=True, request_id="january")
        assert (again.backfill_id, again.duplicate) == (made.backfill_id, True)
        with at_work(shop, controls=2, workers=2):
            tree = shop.ended(made.name)
        assert (tree.succeeded, tree.partitions, tree.failed) == (62, 62, 0)
        planned = Counter((fact.backfill_id, fact.chunk_index) for fact in shop.facts(BackfillChunkPlanned))
        assert (len(planned), set(planned.values())) == (8, {1})
        assert len(shop.facts(RunRequested)) == 8
        ends = [fact.backfill_id for fact in shop.facts(BackfillStateChanged) if fact.state == "SUCCEEDED"]
        assert sorted(ends) == sorted(job.backfill_id for job in tree.jobs)

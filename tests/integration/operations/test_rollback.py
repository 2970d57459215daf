"""Going back to what is current already changes nothing; everything is real but Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.integration.runtime.test_runs_attempts import DEFINITIONS, begin
from tests.support.operating import Invalidation
from tests.support.questions import PartitionBook
from tests.support.workshop import ME, Workshop, spark_workshop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with spark_workshop(tmp_path, DEFINITIONS) as shop:
        yield shop


def test_going_back_to_what_is_current_changes_nothing(shop: Workshop) -> None:
    begun = begin(shop, "plain")
    begun.attempt.commit(begun.made(*begun.keys))
    begun.attempt.end(None)
    # A little later than what was recorded: an event may be written a moment after it happened.
    then = shop.project.clock() + timedelta(milliseconds=2)
    time.sleep(0.01)
    again = begin(shop, "plain", "w2")
    again.attempt.commit(again.made(*again.keys[:1]))
    again.attempt.hand_back("enough")
    first, second = "2025-01-01", "2025-01-02"
    [newer, older] = shop.data.materializations("plain", first)
    Invalidation(shop.project).invalidate("plain", [f"{first}..{second}"], reason="wrong", itself=True, actor=ME)
    head = shop.head()

    def status(day: str) -> tuple[str, str | None]:
        view = PartitionBook(shop.project).one("plain", day)
        return view.status, view.materialization_id

    for to in (newer["materialization_id"], newer["materialization_id"][:20], shop.project.clock().isoformat()):
        done = shop.data.rollback("plain", [first], to=to, reason="as it is", actor=ME)
        assert done == {"event_id": None, "rollback_id": None, "asset": "shop/plain", "partitions": []}
    assert (shop.head(), status(first)) == (head, ("STALE", newer["materialization_id"]))
    said = shop.servo("partition", "rollback", "plain", first, "--to", newer["materialization_id"], "--reason", "x")
    assert (said.returncode, said.stdout) == (0, "nothing was rolled back: that is what is current of shop/plain\n"), (
        said
    )

    # Of several, only those that were another then.
    done = shop.data.rollback("plain", [f"{first}..{second}"], to=then.isoformat(), reason="as then", actor=ME)
    assert done["partitions"] == [{"partition_key": begun.keys[0], "materialization_id": older["materialization_id"]}]
    assert status(second)[0] == "STALE"

"""How two things said about a row become one."""

from __future__ import annotations

import pytest

from servo.fold import merge
from servo.fold.partition_rows import PartitionStatusRow
from servo.fold.tables import RunKeyRow
from tests.support.recording import at

SCOPE = {"tenant_id": "acme", "workspace_id": "main"}


def status(row_version: str, asset_key: str = "shop/orders", **said: object) -> PartitionStatusRow:
    return PartitionStatusRow(
        **SCOPE, asset_id="a1", partition_key="", row_version=row_version, asset_key=asset_key, **said
    )


def test_each_group_keeps_its_newest_whole() -> None:
    made = status("1", materialization_version="9", materialization_id="m9", content_hash=None)
    remade = status("2", materialization_version="8", materialization_id="m8", content_hash="h8")
    tried = status("3", attempt_version="7", last_attempt_run_id="r7", last_attempt_at=at(7))
    expected = status(
        "3",
        materialization_version="9",
        materialization_id="m9",
        content_hash=None,  # the older one's hash is not mixed in
        attempt_version="7",
        last_attempt_run_id="r7",
        last_attempt_at=at(7),
    )
    assert merge(merge(made, remade), tried) == merge(tried, merge(remade, made)) == expected


def test_what_first_was_said_stays() -> None:
    def key(version: str, run: str) -> RunKeyRow:
        return RunKeyRow(**SCOPE, run_key="k", run_id=run, first_version=version, row_version=version)

    for one, other in ((key("1", "r1"), key("2", "r2")), (key("2", "r2"), key("1", "r1"))):
        merged = merge(one, other)
        assert (merged.run_id, merged.first_version, merged.row_version) == ("r1", "1", "2")


def test_columns_in_no_group_follow_the_newest_event() -> None:
    old, new = status("1", "shop/orders", frozen=True, freeze_version="1"), status("2", "shop/sales")
    for merged in (merge(old, new), merge(new, old)):
        assert (merged.asset_key, merged.row_version, merged.frozen) == ("shop/sales", "2", True)


@pytest.mark.parametrize("version", ["attempt_version", "materialization_version", "sweep_version"])
def test_a_group_that_nobody_speaks_of_stays_empty(version: str) -> None:
    assert getattr(merge(status("1"), status("2")), version) is None

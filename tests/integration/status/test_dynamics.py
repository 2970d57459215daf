"""Values of dynamic dimensions, added and removed by a person."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from servo.errors import DataNotFound, InvalidPartition
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.deploying import recorded_catalog
from tests.support.operating import Runs
from tests.support.questions import Data, PartitionBook, change_partitions
from tests.support.telling import Telling

ME = "person:tester"
DEFINITIONS = """
from servo import Dynamic, asset

@asset(partitions=Dynamic("customer"))
def bills(context):
    return context.spark.range(1)
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "definitions.py").write_text(DEFINITIONS)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}
    return open_workspace(load_settings(tmp_path, clean), create=True)


def _known(project: Project) -> int:
    return recorded_catalog(project).spec("default/bills").partitions.everything(datetime(2026, 1, 1, tzinfo=UTC)).count


def test_values_come_and_go(project: Project) -> None:
    with project:
        change_partitions(project, "customer", added=["acme", "umbrella"], actor=ME)
        assert _known(project) == 2
        assert Runs(project).plan(["bills@acme"]).partition_count == 1
        change_partitions(project, "customer", removed=["umbrella"], actor=ME)
        assert _known(project) == 1
        with pytest.raises(InvalidPartition):
            Runs(project).plan(["bills@umbrella"])


def test_what_cannot_be_meant_is_refused(project: Project) -> None:
    with project:
        change_partitions(project, "customer", added=["acme"], actor=ME)
        head = project.ledger.head().position
        with pytest.raises(InvalidPartition, match="no asset has a dynamic dimension 'region'"):
            change_partitions(project, "region", added=["eu"], actor=ME)
        with pytest.raises(InvalidPartition, match="customer has no value 'initech'"):
            change_partitions(project, "customer", removed=["initech"], actor=ME)
        assert project.ledger.head().position == head


def test_of_a_removed_value_it_is_said_when_and_by_whom_and_how_to_read_it(tmp_path: Path) -> None:
    definitions = """
from servo import Dynamic, Static, asset

@asset(partitions=Dynamic("customer"))
def bills(context): ...

@asset(partitions=Static("region", ["eu", "us"]))
def orders(context): ...
"""
    told = Telling(tmp_path)
    told.deploy(definitions)
    change_partitions(told.project, "customer", added=["acme", "bolt"], actor=ME)
    told._known = recorded_catalog(told.project)
    told.materialized("first", bills="acme", orders="eu")
    data = Data(told.project)
    change_partitions(told.project, "customer", removed=["acme"], actor=ME)
    told.deploy(definitions.replace('"eu", ', ""))
    for asset, partition, who in (("bills", "acme", ME), ("orders", "eu", "a deployment of ")):
        with pytest.raises(
            InvalidPartition, match=f"shop/{asset} {partition} was removed at .* by {who}.*kept"
        ) as said:
            data.read(asset, [partition])
        assert said.value.hint is not None
        before = said.value.hint.rpartition("--as-of ")[2]
        places, _ = data.places(asset, [partition], as_of=datetime.fromisoformat(before))
        assert len(places) == 1, "the remedy works"
        (version,) = data.materializations(asset, partition)
        assert (version["current"], version["removed_at"] is not None) == (True, True)
        assert PartitionBook(told.project).one(asset, partition).undefined
    with pytest.raises(InvalidPartition, match="initech") as unknown:
        data.read("bills", ["initech"])
    assert "removed" not in unknown.value.message
    with pytest.raises(DataNotFound):
        data.materializations("bills", "bolt")
    told.close()

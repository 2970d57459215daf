"""Values of dynamic dimensions, added and removed by a person."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from servo.errors import InvalidPartition
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.deploying import catalog
from servo.runtime.dynamics import change_partitions
from servo.runtime.runs import Runs

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
    return catalog(project).spec("default/bills").partitions.everything(datetime(2026, 1, 1, tzinfo=UTC)).count


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

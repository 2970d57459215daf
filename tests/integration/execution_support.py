"""An executor with a storage of its own, and a worker's part of the work: publishing what it reports."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from servo.assets import Asset
from servo.clock import system_clock
from servo.events.columns import Outcome
from servo.execution.executor import Executor
from servo.execution.protocol import Input, Order, PartitionResult, Place
from servo.execution.spark import session
from servo.execution.storage import ParquetStorage
from servo.ids import UlidFactory
from servo.ledger.protocol import Workspace
from servo.partitions import PartitionKey, Partitions

MINT = UlidFactory(system_clock, os.urandom)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("local[2]") as started:
        yield started


class Kitchen:
    """Carries out orders and remembers what is current, like a worker and a ledger would."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder = folder
        self.spark = spark
        self.storage = ParquetStorage(str(folder), Workspace("acme", "main"), mint=MINT.next)
        self.executor = Executor(self.storage, lambda: spark)
        self.log = logging.getLogger("tests.execution")
        self.current: dict[str, dict[str, Place]] = {}
        self.groups: list[list[PartitionResult]] = []

    def run(
        self,
        asset: Asset,
        partitions: Iterable[str] = ("",),
        *,
        inputs: Sequence[Input] = (),
        edges: Mapping[str, list[list[int]] | None] | None = None,
        has: Partitions | None = None,
        **options: Any,
    ) -> dict[str, PartitionResult]:
        """Results by the partitions as they were asked for; what succeeded is published. `has`: the asset's partitions,
        with the values of dynamic dimensions."""
        definition = has or asset.spec.partitions
        keys = {text: str(definition.parse_key(text) if text else PartitionKey()) for text in partitions}
        order = Order(
            **{
                "run_id": f"run_{MINT.next().lower()}",
                "task_key": asset.spec.key,
                "attempt": 1,
                "asset": asset,
                "asset_id": self.asset_id(asset),
                "keys": tuple(keys.values()),
                "inputs": tuple(inputs),
                "edges": dict(edges or {}),
                "previous": self.newest(asset),
                "partitions": has,
                **options,
            }
        )
        results: dict[str, PartitionResult] = {}
        self.groups = []

        def commit(group: Sequence[PartitionResult]) -> None:
            self.groups.append(list(group))
            moves = []
            for result in group:
                assert result.key not in results, "a partition was reported twice"
                results[result.key] = result
                if result.outcome in (Outcome.SUCCEEDED, Outcome.STAGED):
                    assert result.staged is not None
                    place = Place(asset_id=order.asset_id, key=result.key, materialization_id=MINT.next())
                    moves.append((result.staged, place))
                    self.current.setdefault(order.asset_id, {})[result.key] = place
            self.storage.publish(moves)

        self.executor.execute(order, commit=commit, log=self.log)
        return {text: results[key] for text, key in keys.items()}

    def asset_id(self, asset: Asset) -> str:
        return f"id-{asset.spec.name}"

    def newest(self, asset: Asset) -> Place | None:
        places = self.current.get(self.asset_id(asset), {}).values()
        return max(places, key=lambda place: place.materialization_id, default=None)

    def input(self, asset: Asset, partitions: Iterable[str] = ("",), parameter: str | None = None) -> Input:
        """What is current of these partitions, to be read by another asset."""
        definition: Partitions = asset.spec.partitions
        keys = [str(definition.parse_key(text) if text else PartitionKey()) for text in partitions]
        places = self.current.get(self.asset_id(asset), {})
        return Input(
            parameter=parameter or asset.spec.name,
            asset_id=self.asset_id(asset),
            asset_key=asset.spec.key,
            partitions=definition,
            keys=tuple(keys),
            materialization_ids=tuple(places[key].materialization_id for key in keys),
            newest=self.newest(asset),
        )

    def rows(self, asset: Asset, *partitions: str) -> list[dict[str, Any]]:
        """The current rows, read without Spark."""
        definition = asset.spec.partitions
        places = self.current.get(self.asset_id(asset), {})
        keys = [str(definition.parse_key(text)) for text in partitions] or sorted(places)
        return [row for batch in self.storage.read([places[key] for key in keys]) for row in batch.to_pylist()]

    def leftovers(self) -> list[Path]:
        """Files that are staged and that nobody will publish."""
        return [path for path in self.folder.rglob("*") if "_staging" in path.parts and path.is_file()]


@pytest.fixture
def kitchen(tmp_path: Path, spark: SparkSession) -> Kitchen:
    # Spark takes brackets for a pattern, and a path with a space is no URI.
    return Kitchen(tmp_path / "a folder [x]", spark)

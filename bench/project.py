"""A workspace on disk with many partitions, made through the ledger like any other."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path

from servo.clock import system_clock
from servo.events import Proposal
from servo.events.columns import InputPartitions, Outcome, PartitionOutcomes
from servo.events.model import TaskFinished
from servo.ids import UlidFactory, ulid_range
from servo.ledger import Workspace, open_ledger
from servo.ledger.history import History
from servo.projections import Reader, Store
from servo.projections.compactor import Compactor

SET = 1_000
PER_ASSET = 100_000
_REGIONS = ["ZXUtY2VudHJhbA", "ZXUtd2VzdA", "dXMtZWFzdA", "dXMtd2VzdA", "YXAtc291dGg"]
_mint = UlidFactory(system_clock, os.urandom).next


class Project:
    """A ledger, its projections and a reader in a folder of their own."""

    def __init__(self, url: str | None = None) -> None:
        # Removed with the process at the latest.
        self._folder = tempfile.TemporaryDirectory(prefix="servo-bench-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        self.ledger = open_ledger(url or f"sqlite:{self.folder / 'ledger.db'}", Workspace("bench", "main"))
        self.history = History(self.ledger, None)
        self.store = Store(self.folder / "projections")
        self.reader = Reader(self.store, self.history, clock=system_clock)
        self.partitions = 0

    def compactor(self) -> Compactor:
        return Compactor(self.store, self.history, clock=system_clock, mint=_mint)

    def record(self, count: int, *, lineage: bool = False) -> None:
        """Append sets until so many more partitions are materialized."""
        proposals = list(sets(self.partitions, count, lineage=lineage))
        for start in range(0, len(proposals), 20):
            self.ledger.append(proposals[start : start + 20])
        self.partitions += count

    def files(self, table: str) -> list[str]:
        return [str(self.store.path(table, file)) for file in self.store.current().tables[table]]

    def settle(self) -> None:
        """One file per table, as after a replay."""
        compactor = self.compactor()
        compactor.replay()
        compactor.close()


@cache
def million() -> Project:
    """A million partitions, folded and settled; made once for all benchmarks of a run."""
    project = Project()
    project.record(1_000_000)
    project.settle()
    return project


def sets(first: int, count: int, *, lineage: bool = False) -> Iterator[Proposal]:
    """Tasks of a thousand partitions each: days by region, a hundred thousand to an asset."""
    for number in range(first // SET, (first + count) // SET):
        asset = number * SET // PER_ASSET
        keys = [_key(index) for index in range(number * SET % PER_ASSET, number * SET % PER_ASSET + SET)]
        yield _finished(asset, keys, lineage=lineage)


def single(index: int) -> Proposal:
    """A run that materialized one partition again."""
    return _finished(index // PER_ASSET, [_key(index % PER_ASSET)], lineage=False)


@cache
def _key(index: int) -> str:
    day = date(1970, 1, 1) + timedelta(days=index // len(_REGIONS))
    return f"date=d:{day},region=s:{_REGIONS[index % len(_REGIONS)]}"


def _finished(asset: int, keys: list[str], *, lineage: bool) -> Proposal:
    count = len(keys)
    inputs = []
    if lineage:
        inputs = [
            InputPartitions(
                asset_id=f"01930a0b-1234-7abc-8def-{asset:012d}",
                asset_key=f"landing/source_{asset}",
                keys=keys,
                materialization_ids=ulid_range(_mint(count=count), count),
            )
        ]
    return Proposal(
        fact=TaskFinished(
            run_id=f"run_{os.urandom(13).hex()}",
            task_key=f"sales/asset_{asset}",
            attempt=1,
            asset_id=f"01930a0b-1234-7abc-9def-{asset:012d}",
            asset_key=f"sales/asset_{asset}",
            outcome=Outcome.SUCCEEDED,
            code_version="3f1c2a",
            partitions=PartitionOutcomes(
                keys=keys,
                first_materialization_id=_mint(count=count),
                rows=[int.from_bytes(os.urandom(2)) for _ in range(count)],
                bytes=[int.from_bytes(os.urandom(3)) for _ in range(count)],
                files=1,
                content_hash=[os.urandom(16).hex() for _ in range(count)],
            ),
            inputs=inputs,
        ),
        occurred_at=datetime.now(UTC),
        actor="worker:bench",
    )

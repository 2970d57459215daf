"""Whatever the ledger accepts can be folded: an append-only ledger could never be rid of it."""

from __future__ import annotations

from typing import Any

import pytest

from servo.errors import InvalidInput, ServoError
from servo.events.columns import CheckOutcomes, InputPartitions, Outcome, PartitionOutcomes, PartitionSet
from servo.events.definitions import AssetDefinition, PlannedTask, Source
from servo.events.fact import Fact
from servo.events.model import (
    DefinitionsDeployed,
    PartitionsInvalidated,
    RunPlanned,
    RunRequested,
    TaskFinished,
    TaskStarted,
)
from servo.fold import fold
from servo.fold.batch import batch
from servo.ledger import MemoryLedger, Workspace
from servo.projections.arrow import tables
from tests.support.recording import mint, said

ULID = "01JHMN00000000000000000D01"
LAST_ULID = "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"
ASSET = {"asset_id": "01941f29-7c00-7000-8000-000000000001", "asset_key": "shop/orders"}


def finished(**fields: Any) -> Fact:
    partitions = {"keys": ["date=d:2025-01-15"], "first_materialization_id": ULID, **fields.pop("partitions", {})}
    base: dict[str, Any] = {"run_id": "run_1", "task_key": "t", "attempt": 1, "outcome": Outcome.SUCCEEDED, **ASSET}
    return TaskFinished(**{**base, **fields}, partitions=PartitionOutcomes(**partitions))


def started(**fields: Any) -> Fact:
    base: dict[str, Any] = {"run_id": "run_1", "task_key": "t", "attempt": 1, "partition_count": 1, **ASSET}
    return TaskStarted(**{**base, **fields})


def requested(**fields: Any) -> Fact:
    base: dict[str, Any] = {"run_id": "run_1", "run_key": "k", "request_fingerprint": "f", "asset_selection": ["a/b"]}
    return RunRequested(**{**base, "source": Source(kind="manual", id="x"), **fields})


BAD: dict[str, Any] = {
    "a key as people type it": lambda: finished(partitions={"keys": ["2025-01-15"]}),
    "a date that is none": lambda: finished(partitions={"keys": ["date=d:2025-13-45"]}),
    "an id that is none": lambda: finished(partitions={"first_materialization_id": "x"}),
    "ids beyond the last": lambda: finished(
        partitions={"keys": ["n=i:1", "n=i:2"], "first_materialization_id": LAST_ULID}
    ),
    "rows that are no number": lambda: finished(partitions={"rows": ["a"]}),
    "rows beyond 64 bits": lambda: finished(partitions={"rows": [2**63]}),
    "an outcome that is none": lambda: finished(outcome="done"),
    "an outcome of a partition that is none": lambda: finished(partitions={"outcome": "done"}),
    "an input key that is none": lambda: finished(
        inputs=[InputPartitions(**ASSET, keys=["bogus"], materialization_ids=[ULID])]
    ),
    "an input id that is none": lambda: finished(
        inputs=[InputPartitions(**ASSET, keys=["n=i:1"], materialization_ids=["x"])]
    ),
    "an attempt that is no number": lambda: started(attempt="one"),
    "an attempt beyond 64 bits": lambda: started(attempt=2**70),
    "a priority beyond 64 bits": lambda: requested(priority=2**70),
    "a chunk beyond 64 bits": lambda: requested(source=Source(kind="backfill", id="b", detail="9" * 30)),
    "two checks of one name": lambda: finished(checks=[CheckOutcomes(name="unique", keys=["n=i:1"])] * 2),
    "two tasks of one key": lambda: RunPlanned(
        run_id="run_1", tasks=[PlannedTask(**ASSET, task_key="t", partition_count=1)] * 2
    ),
    "an asset deployed twice": lambda: DefinitionsDeployed(
        deployment_id="d", number=1, definitions_hash="h", assets=[AssetDefinition(**ASSET, code_version="1")] * 2
    ),
    "an invalidated key that is none": lambda: PartitionsInvalidated(
        invalidation_id="i", reason="r", sets=[PartitionSet(**ASSET, keys=["x"])]
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_folded_is_refused_and_nothing_is_written(name: str) -> None:
    ledger = MemoryLedger(Workspace("acme", "main"), mint())
    good = said(started())
    with pytest.raises(InvalidInput):
        ledger.append([good, said(BAD[name]())])
    assert ledger.head().position == 0


def test_what_is_accepted_is_folded() -> None:
    ledger = MemoryLedger(Workspace("acme", "main"), mint())
    ledger.append([said(finished()), said(started()), said(requested(priority=2**63 - 1))])
    events = ledger.read(0)
    assert fold(events)
    assert tables(batch(events))


def test_a_time_before_1970_is_refused() -> None:
    ledger = MemoryLedger(Workspace("acme", "main"), mint())
    with pytest.raises(ServoError, match="before 1970"):
        ledger.append([said(started(), minute=-60 * 24 * 365 * 60)])
    assert ledger.head().position == 0

"""One story that has everything an audit report can speak of, and the report on its end.

Three landing files, cleaned in one batch; a first attempt that fails a check; a second one that waits for an approval,
is escalated and then approved; a newer version, and a rollback to the approved one. Names hold what would be markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from servo.events import GENESIS, Proposal, RecordedEvent
from servo.events.columns import CheckOutcomes, EarlierMaterializations, InputPartitions, Outcome, PartitionOutcomes
from servo.events.definitions import PlannedTask, Source
from servo.events.fact import Fact, timestamp_text
from servo.events.model import (
    CheckpointDecided,
    CheckpointExpired,
    CheckpointRequested,
    MaterializationPublished,
    PartitionsInvalidated,
    RolledBack,
    RunFinished,
    RunPlanned,
    RunRequested,
    RunStarted,
    TaskFinished,
    TaskRetryScheduled,
    TaskStarted,
)
from servo.ids import run_id, ulid_offset
from servo.lineage.audit import assemble
from servo.lineage.report import Head, Report
from tests.support.recording import at, recorded

LANDING, CLEAN, REVENUE = (f"0190a000-0000-7000-8000-00000000000{number}" for number in (1, 2, 3))
NAMES = {LANDING: "shop/landing", CLEAN: "shop/orders", REVENUE: "finance/revenue"}
DAYS = [f"date=d:2025-01-{day:02d}" for day in (13, 14, 15)]
MONTH = "month=s:MjAyNS0wMQ"
FIRST = "01JHMN0000000000000000000A"
LANDED, CLEANED, STAGED, NEWER = (ulid_offset(FIRST, number) for number in (0, 10, 20, 30))
RUN, EARLIER, LATER = (run_id("acme", "main", f"manual:{name}", "secret") for name in ("r1", "r0", "r2"))
NASTY = r"#emph[x] $a^2$ *bold* \ <label> @ref `raw` // comment"
MANUAL = Source(kind="manual", id="person:ada", detail="r1")


def _hash(number: int) -> str:
    return f"{number:064x}"


def _requested(name: str, run: str) -> RunRequested:
    return RunRequested(
        run_id=run,
        run_key=f"manual:{name}",
        request_fingerprint=_hash(99),
        asset_selection=["finance/revenue"],
        source=MANUAL,
        tags={"why": NASTY},
    )


def _finished(asset_id: str, run: str, keys: list[str], first: str, **more: Any) -> TaskFinished:
    count = len(keys)
    fields: dict[str, Any] = {
        "outcome": Outcome.SUCCEEDED,
        "attempt": 1,
        "partitions": PartitionOutcomes(
            keys=keys,
            outcome=more.get("outcome", Outcome.SUCCEEDED),
            first_materialization_id=first,
            rows=[10 + number for number in range(count)],
            bytes=[1000 + number for number in range(count)],
            files=1,
            content_hash=[_hash(int(asset_id[-1]) * 100 + number) for number in range(count)],
        ),
        "code_version": f"v{asset_id[-1]}",
        "worker": "worker-1",
        "spark_application_id": "app-20250115-0001",
    }
    return TaskFinished(
        run_id=run, task_key=f"{NAMES[asset_id]}#0", asset_id=asset_id, asset_key=NAMES[asset_id], **(fields | more)
    )


def _read(asset_id: str, keys: list[str], first: str, edges: list[list[int]] | None = None) -> InputPartitions:
    return InputPartitions(
        asset_id=asset_id,
        asset_key=NAMES[asset_id],
        keys=keys,
        materialization_ids=[ulid_offset(first, number) for number in range(len(keys))],
        edges=edges,
    )


def story() -> list[Proposal]:
    """What happened, in its order; events that the report has no business with lie in between."""
    task = {"run_id": RUN, "task_key": "finance/revenue#0"}
    of_asset = {"asset_id": REVENUE, "asset_key": "finance/revenue"}
    staged = _finished(
        REVENUE,
        RUN,
        [MONTH],
        STAGED,
        outcome=Outcome.STAGED,
        attempt=2,
        worker="worker-2",
        inputs=[_read(CLEAN, DAYS, CLEANED, [[0, 1, 2]])],
        checks=[
            CheckOutcomes(name="not_null(amount)", keys=[MONTH], blocking=True),
            CheckOutcomes(name="row_count", keys=[MONTH], passed=False, observed="11 rows, wanted 12"),
        ],
    )
    refused = TaskFinished(
        **task,
        **of_asset,
        attempt=1,
        outcome=Outcome.FAILED,
        final=False,
        part=1,
        partitions=PartitionOutcomes(keys=[MONTH], outcome=Outcome.FAILED, error="blocking check failed"),
        checks=[CheckOutcomes(name="not_null(amount)", keys=[MONTH], passed=False, blocking=True, observed="3 nulls")],
    )
    told: list[tuple[Fact, str]] = [
        (_requested("r0", EARLIER), "schedule:nightly"),
        (_finished(LANDING, EARLIER, DAYS, LANDED), "worker:worker-1"),
        (_finished(CLEAN, EARLIER, DAYS, CLEANED, inputs=[_read(LANDING, DAYS, LANDED)]), "worker:worker-1"),
        (RunFinished(run_id=EARLIER, outcome=Outcome.SUCCEEDED, source=MANUAL), "controller:runs"),
        (_requested("r1", RUN), "person:ada"),
        (
            RunPlanned(
                run_id=RUN,
                tasks=[PlannedTask(task_key="finance/revenue#0", partition_count=1, **of_asset)],
                deployment_id="deployment-7",
            ),
            "controller:runs",
        ),
        (RunStarted(run_id=RUN, source=MANUAL), "worker:worker-1"),
        (TaskStarted(**task, **of_asset, attempt=1, partition_count=1, worker="worker-1"), "worker:worker-1"),
        (PartitionsInvalidated(invalidation_id="i1", sets=[], reason="elsewhere"), "person:bob"),
        (refused, "worker:worker-1"),
        (TaskRetryScheduled(**task, attempt=1, retry_at=at(30), reason="blocking check failed"), "worker:worker-1"),
        (TaskStarted(**task, **of_asset, attempt=2, partition_count=1, worker="worker-2"), "worker:worker-2"),
        (staged, "worker:worker-2"),
        (
            CheckpointRequested(
                checkpoint_id="checkpoint-1",
                name=NASTY,
                **task,
                **of_asset,
                partitions=staged.partitions,
                approvers="finance",
                four_eyes=True,
                deadline=at(60),
                on_deadline="escalate",
            ),
            "worker:worker-2",
        ),
        (CheckpointExpired(checkpoint_id="checkpoint-1", escalated_to="cfo"), "controller:approvals"),
        (
            CheckpointDecided(checkpoint_id="checkpoint-1", decision="APPROVED", reason=f"agreed; {NASTY}"),
            "person:grace",
        ),
        (
            MaterializationPublished(
                publication_id="publication-1",
                **of_asset,
                partitions=PartitionOutcomes(
                    keys=[MONTH], first_materialization_id=STAGED, rows=10, bytes=1000, files=1, content_hash=_hash(300)
                ),
                **task,
                checkpoint_id="checkpoint-1",
                code_version="v3",
                inputs=staged.inputs,
            ),
            "controller:approvals",
        ),
        (RunFinished(run_id=RUN, outcome=Outcome.SUCCEEDED, source=MANUAL, tasks_succeeded=1), "controller:runs"),
        (_finished(REVENUE, LATER, [MONTH], NEWER), "worker:worker-1"),
        (
            RolledBack(
                rollback_id="rollback-1",
                **of_asset,
                partitions=EarlierMaterializations(
                    keys=[MONTH],
                    materialization_ids=[STAGED],
                    run_ids=[RUN],
                    materialized_at=[at(16)],
                    content_hash=_hash(300),
                ),
                reason="the newer one is wrong",
            ),
            "person:grace",
        ),
        (RunFinished(run_id=LATER, outcome=Outcome.SUCCEEDED, source=MANUAL), "controller:runs"),
    ]
    return [Proposal(fact=fact, occurred_at=at(minute), actor=actor) for minute, (fact, actor) in enumerate(told)]


CITED = (2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20)  # positions of what the report rests on


def links(events: Sequence[RecordedEvent], positions: Sequence[int]) -> list[tuple[RecordedEvent, str]]:
    """Events of a whole ledger, each with the chain hash before it."""
    hashes = [GENESIS, *(event.chain_hash for event in events)]
    return [(events[position - 1], hashes[position - 1]) for position in positions]


def head_of(events: Sequence[RecordedEvent]) -> Head:
    last = events[-1]
    return Head(
        position=last.position,
        event_id=last.event_id,
        occurred_at=timestamp_text(last.occurred_at),
        chain_hash=last.chain_hash,
    )


def example() -> Report:
    """The report on the month that was approved, and then gone back to."""
    events = recorded(*story())
    return assemble(links(events, CITED), STAGED, head=head_of(events), generated_at=at(100), as_of=at(50))

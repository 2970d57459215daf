"""What OpenLineage is told of tasks: every attempt begins once and ends once, with the partitions it read and wrote."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import jsonschema
import pytest

from servo.events import decode
from servo.events.columns import InputPartitions, Outcome, PartitionOutcomes
from servo.events.fact import Fact
from servo.events.model import (
    MaterializationPublished,
    PartitionsInvalidated,
    TaskFinished,
    TaskRetryScheduled,
    TaskStarted,
)
from servo.lineage.openlineage import RunEvents
from tests.support.examples import DAYS, ORDERS, ORDERS_ID, RAW, RAW_ID, RUN
from tests.support.recording import recorded, said

RUN_EVENTS = RunEvents(namespace="servo.acme.main", producer="urn:servo:orchestrator:1")
TASK = "shop/orders#0"
# What the specification of a RunEvent 2-0-2 demands.
DATASET = {
    "type": "object",
    "required": ["namespace", "name"],
    "properties": {"namespace": {"type": "string"}, "name": {"type": "string"}, "facets": {"type": "object"}},
}
RUN_EVENT = {
    "type": "object",
    "required": ["eventType", "eventTime", "run", "job", "producer", "schemaURL"],
    "additionalProperties": False,
    "properties": {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "eventTime": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"},
        "run": {"type": "object", "required": ["runId"]},
        "job": {"type": "object", "required": ["namespace", "name"]},
        "inputs": {"type": "array", "items": DATASET},
        "outputs": {"type": "array", "items": DATASET},
        "producer": {"type": "string"},
        "schemaURL": {"const": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"},
    },
}


def told(*facts: Fact) -> list[dict[str, Any] | None]:
    events = recorded(*(said(fact, minute) for minute, fact in enumerate(facts)))
    documents = [RUN_EVENTS.run_event(event, decode(event)) for event in events]
    for document in documents:
        if document is not None:
            jsonschema.validate(document, RUN_EVENT)
            UUID(document["run"]["runId"])
            assert json.loads(json.dumps(document)) == document
            _every_facet_is_one(document)
    return documents


def _every_facet_is_one(document: dict[str, Any]) -> None:
    holders = [document["run"], document["job"], *document["inputs"], *document["outputs"]]
    for holder in holders:
        for name in ("facets", "inputFacets", "outputFacets"):
            for facet in holder.get(name, {}).values():
                assert facet["_producer"] == document["producer"]
                assert facet["_schemaURL"].startswith("https://openlineage.io/spec/")


def started(attempt: int = 1) -> TaskStarted:
    return TaskStarted(
        run_id=RUN, task_key=TASK, attempt=attempt, asset_id=ORDERS_ID, asset_key=ORDERS, partition_count=2
    )


def finished(outcome: Outcome, **more: Any) -> TaskFinished:
    fields: dict[str, Any] = {
        "attempt": 1,
        "partitions": PartitionOutcomes(
            keys=DAYS, outcome=outcome, first_materialization_id="01JHMN00000000000000000M01", rows=[3, 4], bytes=100
        ),
        "inputs": [
            InputPartitions(
                asset_id=RAW_ID,
                asset_key=RAW,
                keys=["date=d:2025-01-14,region=s:ZXU"],
                materialization_ids=["01JHMN00000000000000000N01"],
                edges=[[0], [0]],
            )
        ],
    }
    return TaskFinished(
        run_id=RUN, task_key=TASK, asset_id=ORDERS_ID, asset_key=ORDERS, outcome=outcome, **(fields | more)
    )


def test_an_attempt_begins_and_completes_under_one_id_with_what_it_read_and_wrote() -> None:
    start, end = told(started(), finished(Outcome.SUCCEEDED))
    assert start is not None
    assert end is not None
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"]
    assert start["job"] == end["job"] == {"namespace": "servo.acme.main", "name": "shop/orders"}
    (read,), (written,) = end["inputs"], end["outputs"]
    assert (read["name"], written["name"]) == (RAW, ORDERS)
    condition = read["inputFacets"]["subset"]["inputCondition"]
    assert condition == {
        "type": "partition",
        "partitions": [
            {"identifier": "date=d:2025-01-14,region=s:ZXU", "dimensions": {"date": "2025-01-14", "region": "eu"}}
        ],
    }
    assert written["outputFacets"]["subset"]["outputCondition"]["partitions"] == [
        {"identifier": key, "dimensions": {"date": key[-10:]}} for key in DAYS
    ]
    statistics = written["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"]) == (7, 200)
    assert end["run"]["facets"]["parent"]["run"]["runId"] != end["run"]["runId"]


def test_attempts_are_runs_of_their_own_and_end_once() -> None:
    again = TaskRetryScheduled(
        run_id=RUN, task_key=TASK, attempt=1, retry_at=said(started()).occurred_at, reason="no route to host"
    )
    events = told(
        started(),
        finished(Outcome.FAILED, part=1, final=False, partitions=PartitionOutcomes(keys=DAYS, outcome=Outcome.FAILED)),
        again,
        started(2),
        finished(Outcome.SUCCEEDED, attempt=2),
    )
    kinds = [(event["eventType"], event["run"]["runId"]) for event in events if event is not None]
    first, second = kinds[0][1], kinds[3][1]
    assert first != second
    assert kinds == [("START", first), ("RUNNING", first), ("FAIL", first), ("START", second), ("COMPLETE", second)]
    assert events[2] is not None
    assert events[2]["job"]["name"] == ORDERS
    assert events[2]["run"]["facets"]["errorMessage"]["message"] == "no route to host"
    assert events[1] is not None
    assert events[1]["outputs"] == [], "what failed is nobody's output"


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [(Outcome.FAILED, "FAIL"), (Outcome.CANCELLED, "ABORT"), (Outcome.STAGED, "COMPLETE"), (Outcome.SKIPPED, None)],
)
def test_what_is_not_current_is_no_output(outcome: Outcome, kind: str | None) -> None:
    (event,) = told(finished(outcome))
    assert (None if event is None else event["eventType"]) == kind
    assert event is None or event["outputs"] == []


def test_an_approved_publication_is_told_and_an_asset_without_partitions_has_no_subset() -> None:
    (event,) = told(
        MaterializationPublished(
            publication_id="p1",
            asset_id=ORDERS_ID,
            asset_key=ORDERS,
            run_id=RUN,
            partitions=PartitionOutcomes(keys=[""], first_materialization_id="01JHMN00000000000000000M01"),
        )
    )
    assert event is not None
    assert event["eventType"] == "COMPLETE"
    assert event["outputs"] == [{"namespace": "servo.acme.main", "name": ORDERS}]


def test_of_all_else_nothing_is_told() -> None:
    assert told(PartitionsInvalidated(invalidation_id="i1", sets=[], reason="x")) == [None]


def test_the_same_fact_told_twice_is_the_same_event() -> None:
    assert told(started(), finished(Outcome.SUCCEEDED)) == told(started(), finished(Outcome.SUCCEEDED))

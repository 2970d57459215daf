"""Run events of OpenLineage: one run for each attempt at a task, one dataset for each asset.

Which partitions of an asset were read or written is said by the dataset's `subset` facet. A task that commits in parts
says so as it goes (RUNNING), for what events of one run say adds up. What waits for an approval is written but not
there yet: its attempt is complete, without an output, and the publication is a run of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import msgspec

from servo.events import RecordedEvent, UnknownEvent
from servo.events.columns import InputPartitions, Outcome, PartitionOutcomes, spread
from servo.events.fact import Fact, timestamp_text
from servo.events.model import MaterializationPublished, TaskFinished, TaskRetryScheduled, TaskStarted
from servo.partitions import PartitionKey

_SPEC = "https://openlineage.io/spec/2-0-2/OpenLineage.json"
_FACETS = "https://openlineage.io/spec/facets"
_SUBSET = f"{_FACETS}/1-0-0/BaseSubsetDatasetFacet.json#/$defs"
_ENDS = {Outcome.SUCCEEDED: "COMPLETE", Outcome.STAGED: "COMPLETE", Outcome.FAILED: "FAIL", Outcome.CANCELLED: "ABORT"}


class RunEvents(msgspec.Struct, frozen=True, kw_only=True):
    """OpenLineage's run events of one namespace, by one producer."""

    namespace: str
    producer: str

    def run_event(self, event: RecordedEvent, fact: Fact | UnknownEvent) -> dict[str, Any] | None:
        """The run event that a fact gives; None for what OpenLineage has no word for."""
        match fact:
            case TaskStarted():
                return self._event("START", event, fact.run_id, fact.asset_key, _attempt(fact))
            case TaskRetryScheduled():
                failed = self._event("FAIL", event, fact.run_id, _asset(fact.task_key), _attempt(fact))
                return self._because(failed, fact.reason)
            case TaskFinished():
                return self._finished(event, fact)
            case MaterializationPublished():
                return self._event(
                    "COMPLETE",
                    event,
                    fact.run_id,
                    fact.asset_key,
                    ("publication", fact.publication_id),
                    inputs=self._inputs(fact.inputs),
                    outputs=self._outputs(fact.asset_key, fact.partitions),
                )
        return None

    def _finished(self, event: RecordedEvent, fact: TaskFinished) -> dict[str, Any] | None:
        if fact.final and fact.outcome not in _ENDS:
            return None  # skipped: nobody attempted it
        finished = self._event(
            _ENDS[fact.outcome] if fact.final else "RUNNING",
            event,
            fact.run_id,
            fact.asset_key,
            _attempt(fact),
            inputs=self._inputs(fact.inputs),
            outputs=self._outputs(fact.asset_key, fact.partitions),
        )
        return self._because(finished, fact.error) if fact.final and fact.outcome is Outcome.FAILED else finished

    # ── the parts of an event ────────────────────────────────────────────────────────────────────────────────────

    def _event(
        self,
        kind: str,
        event: RecordedEvent,
        run_id: str | None,
        job: str,
        identity: Sequence[object],
        *,
        inputs: Iterable[dict[str, Any]] = (),
        outputs: Iterable[dict[str, Any]] = (),
    ) -> dict[str, Any]:
        scope = (event.tenant_id, event.workspace_id)
        facets = {}
        if run_id is not None:
            parent = {
                "run": {"runId": _uuid(*scope, run_id)},
                "job": {"namespace": self.namespace, "name": "servo.run"},
            }
            facets["parent"] = self._facet(_schema("1-0-1", "ParentRunFacet"), **parent)
        attempt = dict(zip(("task_key", "attempt"), identity[1:], strict=False)) if identity[0] == "attempt" else {}
        facets["servo"] = self._facet(f"{_SPEC}#/$defs/RunFacet", run_id=run_id, event_id=event.event_id, **attempt)
        return {
            "eventType": kind,
            "eventTime": timestamp_text(event.occurred_at),
            "run": {"runId": _uuid(*scope, run_id, *identity), "facets": facets},
            "job": {"namespace": self.namespace, "name": job},
            "inputs": list(inputs),
            "outputs": list(outputs),
            "producer": self.producer,
            "schemaURL": f"{_SPEC}#/$defs/RunEvent",
        }

    def _because(self, run_event: dict[str, Any], reason: str | None) -> dict[str, Any]:
        if reason is not None:
            schema = _schema("1-0-1", "ErrorMessageRunFacet")
            error = self._facet(schema, message=reason, programmingLanguage="python")
            run_event["run"]["facets"]["errorMessage"] = error
        return run_event

    def _inputs(self, inputs: Iterable[InputPartitions]) -> list[dict[str, Any]]:
        return [self._dataset(source.asset_key, "input", source.keys) for source in inputs]

    def _outputs(self, asset_key: str, partitions: PartitionOutcomes) -> list[dict[str, Any]]:
        """The dataset of the partitions that became current; failed and waiting ones are no output."""
        count = len(partitions)
        rows = zip(
            partitions.keys,
            partitions.outcomes(),
            spread(partitions.rows, count),
            spread(partitions.bytes, count),
            strict=True,
        )
        there = [(key, number, size) for key, outcome, number, size in rows if outcome is Outcome.SUCCEEDED]
        if not there:
            return []
        dataset = self._dataset(asset_key, "output", [key for key, _, _ in there])
        totals = {"rowCount": [number for _, number, _ in there], "size": [size for _, _, size in there]}
        known = {name: sum(one or 0 for one in some) for name, some in totals.items() if None not in some}
        if known:
            statistics = self._facet(_schema("1-0-2", "OutputStatisticsOutputDatasetFacet"), **known)
            dataset.setdefault("outputFacets", {})["outputStatistics"] = statistics
        return [dataset]

    def _dataset(self, asset_key: str, side: str, keys: Iterable[str]) -> dict[str, Any]:
        dataset: dict[str, Any] = {"namespace": self.namespace, "name": asset_key}
        partitions = [{"identifier": key, "dimensions": PartitionKey.parse(key).texts()} for key in keys if key]
        if partitions:
            name = f"{side.title()}Subset{side.title()}DatasetFacet"
            condition = {"type": "partition", "partitions": partitions}
            subset = self._facet(f"{_SUBSET}/{name}", **{f"{side}Condition": condition})
            dataset[f"{side}Facets"] = {"subset": subset}
        return dataset

    def _facet(self, schema: str, **content: Any) -> dict[str, Any]:
        return {"_producer": self.producer, "_schemaURL": schema, **content}


def _schema(version: str, name: str) -> str:
    return f"{_FACETS}/{version}/{name}.json#/$defs/{name}"


def _attempt(fact: TaskStarted | TaskFinished | TaskRetryScheduled) -> tuple[object, ...]:
    return "attempt", fact.task_key, fact.attempt


def _asset(task_key: str) -> str:
    """The asset of a task: its key, before the number of its piece."""
    return task_key.partition("#")[0]


def _uuid(*identity: object) -> str:
    """A UUID that follows from an identity: the same for the same."""
    return str(uuid5(NAMESPACE_OID, "\n".join(["servo", *map(str, identity)])))

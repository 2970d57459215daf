"""Versions of partitions as people ask for them, and going back to earlier ones."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from servo import decoders
from servo.answers.materializations import Materialization, Rollback
from servo.events import RecordedEvent, decode
from servo.events.columns import EarlierMaterializations
from servo.events.model import RolledBack
from servo.operations.decision import other_request
from servo.operations.handling import Found
from servo.operations.materializations.requests import ListMaterializations, RollBack
from servo.runtime.cataloguing import recorded_catalog
from servo.runtime.data import Data
from servo.runtime.requesting import recorded_under
from servo.runtime.serving import Call, serves_change, serves_list
from servo.runtime.wiring import Project


@serves_list(ListMaterializations, place=lambda one: one.materialization_id, place_type=str)
def list_materializations(
    project: Project, request: ListMaterializations, after: str | None, _: datetime | str | None
) -> Found[Materialization]:
    rows = Data(project).materializations(request.asset, request.partition)
    return Found(
        items=[
            decoders.convert(row, Materialization) for row in rows if after is None or row["materialization_id"] < after
        ]
    )


def _rolled_back(_: Project, __: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
    fact = decode(event)
    assert isinstance(fact, RolledBack)
    back = zip(fact.partitions.keys, fact.partitions.materialization_ids, strict=True)
    return {
        "event_id": event.event_id,
        "rollback_id": fact.rollback_id,
        "asset": fact.asset_key,
        "partitions": [{"partition_key": name, "materialization_id": made} for name, made in back],
    }


@serves_change(RollBack, finish=_rolled_back)
def roll_back(call: Call, request: RollBack) -> Rollback:
    # Of so long ago that the ledger has forgotten the key, or from before it kept requests.
    done = None if call.key is None else _first(call.project, call.key, request)
    if done is None:
        done = Data(call.project).rollback(
            request.asset,
            request.partitions,
            to=request.to,
            reason=request.reason,
            rollback_id=call.key,
            actor=call.actor,
        )
    return decoders.convert(done, Rollback)


def _first(project: Project, key: str, request: RollBack) -> dict[str, Any] | None:
    """What was rolled back under this key. The projections do not know it, so the ledger is asked."""
    none = EarlierMaterializations(keys=[], materialization_ids=[], run_ids=[], materialized_at=[])
    event = recorded_under(project, RolledBack(rollback_id=key, asset_id="", asset_key="", partitions=none, reason=""))
    if event is None:
        return None
    fact = decode(event)
    assert isinstance(fact, RolledBack)
    asset_key = recorded_catalog(project).graph.resolve(request.asset)
    if (fact.asset_key, fact.reason) != (asset_key, request.reason):
        raise other_request(key, event.event_id)
    return _rolled_back(project, {}, event)

"""Lineage as people ask for it, declared stale and made anew."""

from __future__ import annotations

from datetime import datetime

from msgspec import structs

from servo.answers.lineage import Invalidated, LineageEdge, LineageGraph, LineageNode, Rematerialized
from servo.errors import InvalidInput
from servo.operations.lineage.requests import (
    Direction,
    GetDownstream,
    GetImpact,
    GetLineageAt,
    GetLineageGraph,
    GetUpstream,
    Invalidate,
    Rematerialize,
)
from servo.runtime.invalidating import Invalidation
from servo.runtime.lineages import Lineage, Lineages
from servo.runtime.services.backfills import as_recorded
from servo.runtime.serving import Call, serves_change, serves_question
from servo.runtime.wiring import Project

When = datetime | str | None


@serves_question(GetUpstream)
def upstream(project: Project, request: GetUpstream, as_of: When) -> LineageGraph:
    return _walked(project, "upstream", request, as_of)


@serves_question(GetDownstream)
@serves_question(GetImpact)
def downstream(project: Project, request: GetDownstream | GetImpact, as_of: When) -> LineageGraph:
    return _walked(project, "downstream", request, as_of)


@serves_question(GetLineageGraph)
def graph(project: Project, request: GetLineageGraph, as_of: When) -> LineageGraph:
    return _walked(project, "both", request, as_of)


@serves_question(GetLineageAt)
def at(project: Project, request: GetLineageAt, as_of: When) -> LineageGraph:
    if as_of is None:
        raise InvalidInput("as_of: say as of when", hint="a time or an event id", field="as_of")
    return _walked(project, request.direction, request, as_of)


# What was not stale may be by the time that it is asked again: so what made nothing is remembered.
@serves_change(Invalidate, known=True)
def invalidate(call: Call, request: Invalidate) -> Invalidated:
    return Invalidation(call.project).invalidate(
        request.asset,
        request.partitions,
        reason=request.reason,
        itself=request.itself,
        request_id=call.key,
        actor=call.actor,
    )


@serves_change(Rematerialize, known=True)
def rematerialize(call: Call, request: Rematerialize) -> Rematerialized:
    made = Invalidation(call.project).rematerialize(
        request.asset,
        request.partitions,
        itself=request.itself,
        priority=request.priority,
        request_id=call.key,
        actor=call.actor,
        before=call.before,
    )
    return Rematerialized() if made is None else Rematerialized(**structs.asdict(as_recorded(call.project, made)))


def _walked(
    project: Project,
    direction: Direction,
    request: GetUpstream | GetDownstream | GetImpact | GetLineageGraph | GetLineageAt,
    as_of: When,
) -> LineageGraph:
    found = Lineages(project).look(
        direction,
        request.asset,
        request.partition,
        depth=request.depth,
        run=request.run,
        as_of=as_of,
        exact=request.exact,
        statuses=True,
    )
    return _graph(found)


def _graph(found: Lineage) -> LineageGraph:
    names = {node.asset_id: node.asset_key for node in found.nodes}
    return LineageGraph(
        asset_key=found.asset_key,
        direction=found.direction,
        scope=found.scope,
        run_id=found.run_id,
        as_of=found.as_of,
        watermark={"position": found.watermark.position, "event_id": found.watermark.event_id},
        nodes=[
            LineageNode(**{name: getattr(node, name) for name in LineageNode.__struct_fields__}) for node in found.nodes
        ],
        edges=[
            LineageEdge(
                asset_key=names[edge.asset_id],
                partition_key=edge.partition_key,
                materialization_id=edge.materialization_id,
                upstream_asset_key=names[edge.upstream_asset_id],
                upstream_partition_key=edge.upstream_partition_key,
                upstream_materialization_id=edge.upstream_materialization_id,
                run_id=edge.run_id,
                consumed_at=edge.consumed_at,
                outdated=edge.outdated,
            )
            for edge in found.edges
        ],
    )

"""Lineage as people ask for it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from servo.answers.lineage import LineageGraph
from servo.errors import InvalidInput
from servo.lineage.walk import LineageEdge, LineageNode
from servo.operations.handling import answers
from servo.operations.lineage import invalidation
from servo.operations.lineage.lineages import Lineage, Lineages
from servo.operations.lineage.requests import (
    Direction,
    GetDownstream,
    GetImpact,
    GetLineageAt,
    GetLineageGraph,
    GetUpstream,
)
from servo.status.state import State

__all__ = ["invalidation"]  # which declares its own handlers


@answers(GetUpstream)
def upstream(state: State, request: GetUpstream) -> LineageGraph:
    return _walked(state, "upstream", request)


@answers(GetDownstream)
@answers(GetImpact)
def downstream(state: State, request: GetDownstream | GetImpact) -> LineageGraph:
    return _walked(state, "downstream", request)


@answers(GetLineageGraph)
def graph(state: State, request: GetLineageGraph) -> LineageGraph:
    return _walked(state, "both", request)


@answers(GetLineageAt)
def at(state: State, request: GetLineageAt) -> LineageGraph:
    if state.as_of is None:
        raise InvalidInput("as_of: say as of when", hint="a time or an event id", field="as_of")
    return _walked(state, request.direction, request)


def _walked(
    state: State,
    direction: Direction,
    request: GetUpstream | GetDownstream | GetImpact | GetLineageGraph | GetLineageAt,
) -> LineageGraph:
    found = Lineages(state).look(
        direction,
        request.asset,
        request.partition,
        depth=request.depth,
        run=request.run,
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
        nodes=[LineageNode(**_fields(LineageNode, node)) for node in found.nodes],
        edges=[
            LineageEdge(
                **_fields(LineageEdge, edge)
                | {"asset_key": names[edge.asset_id], "upstream_asset_key": names[edge.upstream_asset_id]}
            )
            for edge in found.edges
        ],
    )


def _fields(kind: type[Struct], found: Struct) -> dict[str, Any]:
    """What is answered of a node or an edge: people know assets by their keys, not by their ids."""
    return {name: getattr(found, name) for name in kind.__struct_fields__}

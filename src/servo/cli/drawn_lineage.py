"""A lineage as it is drawn: what was answered, with the definitions that name its partitions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from servo.answers.lineage import LineageGraph
from servo.lineage.walking import Edge, Node
from servo.partitions import Partitions

__all__ = ["DrawnLineage", "drawn_lineage"]


class DrawnLineage(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes and edges in which an asset is known by its key."""

    asset_key: str | None  # None: of the whole project
    direction: str
    scope: str
    run_id: str | None
    as_of: str | None
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    definitions: Mapping[str, Partitions]  # by asset key; without those that are gone

    @property
    def start(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.depth == 0)

    @property
    def found(self) -> tuple[Node, ...]:
        """All but those it began with."""
        return tuple(node for node in self.nodes if node.depth)


def drawn_lineage(graph: LineageGraph, definitions: Mapping[str, Partitions]) -> DrawnLineage:
    return DrawnLineage(
        asset_key=graph.asset_key,
        direction=graph.direction,
        scope=graph.scope,
        run_id=graph.run_id,
        as_of=graph.as_of,
        nodes=tuple(
            Node(asset_id=one.asset_key, **{name: getattr(one, name) for name in one.__struct_fields__})
            for one in graph.nodes
        ),
        edges=tuple(
            Edge(
                asset_id=one.asset_key,
                partition_key=one.partition_key,
                materialization_id=one.materialization_id,
                upstream_asset_id=one.upstream_asset_key,
                upstream_partition_key=one.upstream_partition_key,
                upstream_materialization_id=one.upstream_materialization_id,
                run_id=one.run_id,
                consumed_at=one.consumed_at,
                outdated=one.outdated,
            )
            for one in graph.edges
        ),
        definitions=definitions,
    )

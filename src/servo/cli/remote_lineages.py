"""Lineage by a server, as `servo.runtime.lineages` has it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from servo.cli.remote_nouns import definition_of
from servo.client import Client
from servo.errors import AssetNotFound
from servo.lineage.walking import Edge, Node

if TYPE_CHECKING:
    from servo.answers.lineage import LineageGraph
    from servo.partitions import Partitions


class _Watermark(NamedTuple):
    position: int
    event_id: str | None


class _Lineage:
    """As `servo.runtime.lineages.Lineage`. An asset is known by its key, as the server says no other id of it."""

    def __init__(self, client: Client, graph: LineageGraph) -> None:
        self._client = client
        self.asset_key = graph.asset_key
        self.direction, self.scope = graph.direction, graph.scope
        self.run_id, self.as_of = graph.run_id, graph.as_of
        self.watermark = _Watermark(graph.watermark["position"], graph.watermark["event_id"])
        self.nodes = tuple(
            Node(asset_id=one.asset_key, **{name: getattr(one, name) for name in one.__struct_fields__})
            for one in graph.nodes
        )
        self.edges = tuple(
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
        )

    @property
    def start(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.depth == 0)

    @property
    def found(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.depth != 0)

    @cached_property
    def definitions(self) -> dict[str, Partitions]:
        """Of each asset of it: for pictures alone, so they are asked for when one is drawn."""
        found: dict[str, Partitions] = {}
        for key in dict.fromkeys(node.asset_key for node in self.nodes):
            try:
                found[key] = definition_of(self._client.assets.get(key, as_of=self.as_of))
            except AssetNotFound:
                continue  # it is gone: its partitions are told as they stand
        return found


class RemoteLineages:
    """As `servo.runtime.lineages.Lineages`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def look(
        self,
        direction: str,
        asset: str | None,
        partitions: tuple[str, ...],
        *,
        depth: int | None = None,
        run: str | None = None,
        as_of: str | None = None,
        exact: bool = False,
        **_: Any,
    ) -> _Lineage:
        ask = self._client.lineage
        way = {"upstream": ask.upstream, "downstream": ask.downstream, "both": ask.graph}[direction]
        options: dict[str, Any] = {"depth": depth, "run": run, "as_of": as_of, "exact": exact or None}
        graph = ask.graph(None, partitions, **options) if asset is None else way(asset, partitions, **options)
        return _Lineage(self._client, graph)

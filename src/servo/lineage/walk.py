"""Walking the recorded lineage, level by level: a few queries for each level, never one for each node.

There are two ways to walk. By **partitions** (`Partitions`): every hop stands on the materialization that is current in
the state that is asked, now or as of then; an edge still tells which one was read. By **materializations** (`Exact`):
every hop follows exactly what was read, whether it is current or not; also within what one run made and read.

Each node is met once, at its smallest depth, so data that goes in circles ends the walk like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from servo.events.fact import from_micros

Ask = Callable[[str, dict[str, Any]], Sequence[Sequence[Any]]]  # SQL and its parameters to rows
Direction = Literal["upstream", "downstream"]


class LineageNode(msgspec.Struct, frozen=True, kw_only=True):
    """A partition with one materialization of it, and how many hops it is from where the walk began.

    In a graph that goes both ways, what lies upstream has a negative depth.
    """

    asset_key: str
    partition_key: str
    materialization_id: str | None = None
    content_hash: str | None = None
    made_at: datetime | None = None
    run_id: str | None = None
    depth: int = 0
    status: str | None = None


class LineageEdge(msgspec.Struct, frozen=True, kw_only=True):
    """One materialization read another, when and by which run.

    `outdated`: what was read is not what the node at that end stands on; something newer is current, or older again.
    """

    asset_key: str
    partition_key: str
    materialization_id: str
    upstream_asset_key: str
    upstream_partition_key: str
    upstream_materialization_id: str
    run_id: str | None = None
    consumed_at: datetime | None = None
    outdated: bool = False


class Node(LineageNode, frozen=True, kw_only=True):
    """A node with the id of its asset, which stays when the asset is renamed."""

    asset_id: str

    @property
    def place(self) -> tuple[str, str]:
        return self.asset_id, self.partition_key


class Edge(LineageEdge, frozen=True, kw_only=True):
    """An edge with the ids of both assets; their keys are those of the day of the read."""

    asset_id: str
    upstream_asset_id: str

    @property
    def reader(self) -> Node:
        """Who read, as far as the edge tells."""
        return Node(
            asset_id=self.asset_id,
            asset_key=self.asset_key,
            partition_key=self.partition_key,
            materialization_id=self.materialization_id,
        )

    @property
    def read(self) -> Node:
        """What was read, as far as the edge tells."""
        return Node(
            asset_id=self.upstream_asset_id,
            asset_key=self.upstream_asset_key,
            partition_key=self.upstream_partition_key,
            materialization_id=self.upstream_materialization_id,
        )


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes by depth, those it began with first; and every read among them."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


class Scope(Protocol):
    """What counts as a node, and how the next ones are found."""

    def key(self, node: Node) -> Hashable: ...

    def ends(self, edge: Edge) -> tuple[Hashable, Hashable]:
        """The keys of who read and of what was read."""

    def step(self, ask: Ask, level: Sequence[Node], direction: Direction) -> tuple[list[Edge], dict[Hashable, Node]]:
        """The reads at one side of a level, and the nodes at their far ends."""


# Times as numbers: as such they come out of DuckDB a good deal faster than as times with a zone.
_EDGE = (
    "l.asset_id, l.partition_key, l.materialization_id, l.upstream_asset_id, l.upstream_partition_key,"
    " l.upstream_materialization_id, l.run_id, epoch_us(l.consumed_at), l.asset_key, l.upstream_asset_key"
)
_STATUS = (
    "s.asset_id, s.asset_key, s.partition_key, s.materialization_id, s.content_hash,"
    " epoch_us(s.last_materialization_at), s.last_materialization_run_id"
)
_PLACES = "(SELECT unnest($assets) AS asset_id, unnest($keys) AS partition_key)"

CURRENT = f"SELECT {_STATUS} FROM partition_status s JOIN {_PLACES} USING (asset_id, partition_key)"
_READ_BY = f"SELECT {_EDGE} FROM lineage l WHERE l.materialization_id IN (SELECT unnest($ids))"
_UPSTREAM_PLACES = "(SELECT unnest($assets) AS upstream_asset_id, unnest($keys) AS upstream_partition_key)"
_READERS = f"""
    SELECT DISTINCT l.asset_id, l.partition_key FROM lineage l
    JOIN {_UPSTREAM_PLACES} USING (upstream_asset_id, upstream_partition_key)
"""
_READ_FROM = f"""
    SELECT {_EDGE} FROM lineage l
    JOIN {_UPSTREAM_PLACES} USING (upstream_asset_id, upstream_partition_key)
    WHERE l.materialization_id IN (SELECT unnest($ids))
"""
_READERS_OF = f"SELECT {_EDGE} FROM lineage l WHERE l.upstream_materialization_id IN (SELECT unnest($ids))"
_OF_RUN = " AND l.run_id = $run_id"
MADE = """
    SELECT asset_id, asset_key, partition_key, materialization_id, content_hash,
           epoch_us(coalesce(published_at, made_at)), run_id
    FROM materializations WHERE materialization_id IN (SELECT unnest($ids))
"""


class Partitions:
    """A node is a partition, with the materialization that is current in the state that is asked."""

    def key(self, node: Node) -> Hashable:
        return node.place

    def ends(self, edge: Edge) -> tuple[Hashable, Hashable]:
        return (edge.asset_id, edge.partition_key), (edge.upstream_asset_id, edge.upstream_partition_key)

    def step(self, ask: Ask, level: Sequence[Node], direction: Direction) -> tuple[list[Edge], dict[Hashable, Node]]:
        if direction == "downstream":
            return self._readers(ask, level)
        edges = _edges(ask, _READ_BY, level)
        wanted = {edge.read.place: edge.upstream_asset_key for edge in edges}
        # What was read was current once, and a partition is never without data again; but what people record by hand
        # may name anything.
        ends: dict[Hashable, Node] = {
            (asset_id, key): Node(asset_id=asset_id, asset_key=name, partition_key=key)
            for (asset_id, key), name in wanted.items()
        }
        return edges, ends | {node.place: node for node in current(ask, wanted)}

    def _readers(self, ask: Ask, level: Sequence[Node]) -> tuple[list[Edge], dict[Hashable, Node]]:
        """Only what is current counts: a partition that was made anew from other inputs is no longer downstream.

        Who ever read, then what of it is current, then what that read: a source that is read anew every day has been
        read many times more often than it has readers.
        """
        places = _places(node.place for node in level)
        if not places["keys"]:
            return [], {}
        found = {node.place: node for node in current(ask, ((row[0], row[1]) for row in ask(_READERS, places)))}
        edges = _edges(ask, _READ_FROM, list(found.values()), **places)
        readers = {(edge.asset_id, edge.partition_key) for edge in edges}
        return edges, {place: node for place, node in found.items() if place in readers}


class Exact:
    """A node is a materialization, and every hop what was really read: of all there is, or of what one run read."""

    def __init__(self, run_id: str | None = None) -> None:
        self._run_id = run_id

    def key(self, node: Node) -> Hashable:
        return node.materialization_id

    def ends(self, edge: Edge) -> tuple[Hashable, Hashable]:
        return edge.materialization_id, edge.upstream_materialization_id

    def step(self, ask: Ask, level: Sequence[Node], direction: Direction) -> tuple[list[Edge], dict[Hashable, Node]]:
        sql = _READ_BY if direction == "upstream" else _READERS_OF
        scoped = {} if self._run_id is None else {"run_id": self._run_id}
        edges = _edges(ask, sql + _OF_RUN if scoped else sql, level, **scoped)
        far = [edge.reader if direction == "downstream" else edge.read for edge in edges]
        ends: dict[Hashable, Node] = {node.materialization_id: node for node in far}
        return edges, ends | {node.materialization_id: node for node in made(ask, list(ends))}


def walk(ask: Ask, start: Sequence[Node], direction: Direction, scope: Scope, *, depth: int | None = None) -> Walk:
    """Everything that lies in one direction, up to so many hops away."""
    nodes = {scope.key(node): msgspec.structs.replace(node, depth=0) for node in start}
    edges: dict[Edge, None] = {}
    level, hops = list(nodes.values()), 0
    far = 1 if direction == "upstream" else 0
    while level:
        reads, ends = scope.step(ask, level, direction)
        hops += 1
        beyond = depth is not None and hops > depth
        level = []
        for key, node in () if beyond else ends.items():
            if key not in nodes:
                nodes[key] = msgspec.structs.replace(node, depth=hops)
                level.append(nodes[key])
        edges.update(dict.fromkeys(edge for edge in reads if not beyond or scope.ends(edge)[far] in nodes))
    return Walk(nodes=in_order(nodes.values()), edges=edges_in_order(edges))


def around(ask: Ask, start: Sequence[Node], scope: Scope, *, depth: int | None = None) -> Walk:
    """Both directions in one, and every read among all of them. What lies upstream has a negative depth."""
    upstream = walk(ask, start, "upstream", scope, depth=depth)
    downstream = walk(ask, start, "downstream", scope, depth=depth)
    nodes = {scope.key(node): msgspec.structs.replace(node, depth=-node.depth) for node in upstream.nodes}
    for node in downstream.nodes:
        known = nodes.get(scope.key(node))
        if known is None or node.depth < -known.depth:
            nodes[scope.key(node)] = node
    # A read may go from one side to the other without passing through the middle.
    crossing, _ = scope.step(ask, [node for node in downstream.nodes if node.depth], "upstream")
    kept = [edge for edge in crossing if all(end in nodes for end in scope.ends(edge))]
    return Walk(
        nodes=in_order(nodes.values()),
        edges=edges_in_order(dict.fromkeys([*upstream.edges, *downstream.edges, *kept])),
    )


def current(ask: Ask, places: Iterable[tuple[str, str]]) -> list[Node]:
    """Of partitions (asset id and key), those that have a current materialization."""
    parameters = _places(places)
    return [node_of(row) for row in (ask(CURRENT, parameters) if parameters["keys"] else ()) if row[3] is not None]


def made(ask: Ask, ids: Iterable[Any]) -> list[Node]:
    """Materializations by their ids, as far as they are known."""
    return [node_of(row) for row in _rows(ask, MADE, [one for one in ids if one is not None])]


def in_order(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(
        sorted(nodes, key=lambda one: (one.depth, one.asset_key, one.partition_key, one.materialization_id or ""))
    )


def edges_in_order(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    return tuple(sorted(edges, key=lambda one: (one.materialization_id, one.upstream_materialization_id)))


def node_of(row: Sequence[Any]) -> Node:
    """A node from the columns that `CURRENT` and `MADE` give."""
    asset_id, asset_key, partition_key, materialization_id, content_hash, made_at, run_id = row
    return Node(
        asset_id=asset_id,
        asset_key=asset_key,
        partition_key=partition_key,
        materialization_id=materialization_id,
        content_hash=content_hash,
        made_at=None if made_at is None else from_micros(made_at),
        run_id=run_id,
    )


def _edge(row: Sequence[Any]) -> Edge:
    return Edge(
        asset_id=row[0],
        partition_key=row[1],
        materialization_id=row[2],
        upstream_asset_id=row[3],
        upstream_partition_key=row[4],
        upstream_materialization_id=row[5],
        run_id=row[6],
        consumed_at=None if row[7] is None else from_micros(row[7]),
        asset_key=row[8],
        upstream_asset_key=row[9],
    )


def _rows(ask: Ask, sql: str, ids: list[str], **more: Any) -> Sequence[Sequence[Any]]:
    return ask(sql, {"ids": ids, **more}) if ids else ()


def _edges(ask: Ask, sql: str, level: Sequence[Node], **more: Any) -> list[Edge]:
    ids = [node.materialization_id for node in level if node.materialization_id is not None]
    return [_edge(row) for row in _rows(ask, sql, ids, **more)]


def _places(places: Iterable[tuple[str, str]]) -> dict[str, Any]:
    pairs = list(places)
    return {"assets": [asset_id for asset_id, _ in pairs], "keys": [key for _, key in pairs]}

"""Lineage: what partitions were made from, and what was made from them: now, as of a time, or within a run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from servo.answers import build
from servo.answers.lineage import LineageGraph
from servo.errors import DataNotFound, InvalidInput, RunNotFound
from servo.fold.display import FAILED, display_status
from servo.lineage.walk import (
    Ask,
    Edge,
    Exact,
    LineageEdge,
    LineageNode,
    Node,
    Scope,
    Walk,
    around,
    current,
    made,
    node_of,
    walk,
)
from servo.lineage.walk import Partitions as ByPartition
from servo.operations.handling import answers
from servo.operations.lineage.requests import (
    Direction,
    GetDownstream,
    GetImpact,
    GetLineageAt,
    GetLineageGraph,
    GetUpstream,
    LineageFields,
)
from servo.partitions import PartitionKey, Partitions, PartitionSet
from servo.planning.catalog import Catalog
from servo.projections.manifest import Watermark
from servo.status.staleness import stale_partitions
from servo.status.state import State

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["SUPERSEDED", "Lineage", "lineage_of", "wanted_partitions"]

SUPERSEDED = "SUPERSEDED"  # of a materialization that is not, or no longer, the current one of its partition
_PATIENCE = 60.0
_FEW = 10_000  # keys that are worth naming one by one
_ALL_OF_ASSET = """
    SELECT asset_id, asset_key, partition_key, materialization_id, content_hash, epoch_us(last_materialization_at),
           last_materialization_run_id
    FROM partition_status WHERE asset_id = $asset_id AND materialization_id IS NOT NULL
"""
# Of all assets, what no current materialization was made from: everything else is found from there.
_ENDS = """
    SELECT s.asset_id, s.asset_key, s.partition_key, s.materialization_id, s.content_hash,
           epoch_us(s.last_materialization_at), s.last_materialization_run_id
    FROM partition_status s
    ANTI JOIN (
      SELECT l.upstream_asset_id AS asset_id, l.upstream_partition_key AS partition_key FROM lineage l
      JOIN partition_status reader USING (materialization_id)
    ) read USING (asset_id, partition_key)
    WHERE s.materialization_id IS NOT NULL AND s.asset_id IN (SELECT unnest($assets))
"""
_FAILED = f"""
    SELECT asset_id, partition_key FROM partition_status
    WHERE asset_id IN (SELECT unnest($assets)) AND {FAILED}
"""
_CURRENT = """
    SELECT asset_id, partition_key, materialization_id
    FROM partition_status JOIN (SELECT unnest($assets) AS asset_id, unnest($keys) AS partition_key)
    USING (asset_id, partition_key)
"""
_RUN = "SELECT run_id FROM runs WHERE starts_with(run_id, $run_id) ORDER BY run_id LIMIT 2"
_MADE_BY = "SELECT materialization_id FROM materializations WHERE run_id = $run_id AND asset_id = $asset_id"
_READ_BY = """
    SELECT DISTINCT upstream_materialization_id FROM lineage
    WHERE run_id = $run_id AND upstream_asset_id = $asset_id
"""


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes and the reads among them, and how much of the ledger they know of.

    `scope` says what a node stands on: the `current` materialization of its partition, or `exact`ly what was read; the
    latter also within a run.
    """

    asset_key: str | None  # None: of the whole project
    direction: Direction
    scope: Literal["current", "exact"]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    watermark: Watermark
    run_id: str | None = None
    as_of: str | None = None
    definitions: dict[str, Partitions] = {}  # by asset key, of the state that was asked

    @property
    def start(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.depth == 0)

    @property
    def found(self) -> tuple[Node, ...]:
        """All but those it began with."""
        return tuple(node for node in self.nodes if node.depth)


def lineage_of(
    state: State,
    direction: Direction,
    asset: str | None,
    partitions: Sequence[str] = (),
    *,
    depth: int | None = None,
    run: str | None = None,
    exact: bool = False,
    statuses: bool = False,
) -> Lineage:
    """Walk from these partitions of an asset, or from all that it has, up to `depth` hops.

    Without an asset: from all that nothing was made from, upstream, which is the whole project. In a past state every
    hop is with what was current then.

    `run`: only what that run made and read. `exact`: every hop with what was really read, be it current or not.
    """
    if depth is not None and depth < 0:
        raise InvalidInput(f"a lineage cannot go {depth} hops far", hint="give 1 or more")
    if asset is None and (partitions or run is not None):
        raise InvalidInput("partitions and a run are those of an asset", hint="name the asset as well")
    known, when = state.catalog, state.as_of
    ask = _query_of(state.tables)
    run_id = None if run is None else _run(ask, run)
    if asset is None:
        key, direction, start = None, "upstream", _ends(ask, known)
    else:
        key = known.graph.resolve(asset)
        start = _start(ask, state, key, partitions, run_id)
    scope: Scope = Exact(run_id) if exact or run_id is not None else ByPartition()
    found = _walked(ask, start, direction, scope, depth)
    names = {asset_id: name for name, asset_id in known.asset_ids.items()}
    nodes = tuple(_named(node, names) for node in found.nodes)
    if statuses:
        nodes = _with_statuses(state, nodes, by_partition=isinstance(scope, ByPartition))
    return Lineage(
        asset_key=key,
        direction=direction,
        scope="current" if isinstance(scope, ByPartition) else "exact",
        nodes=nodes,
        edges=_compared(ask, found.edges, nodes) if isinstance(scope, ByPartition) else found.edges,
        watermark=state.snapshot.watermark,
        run_id=run_id,
        as_of=None if when is None else when if isinstance(when, str) else when.isoformat(),
        definitions={name: spec.partitions for name, spec in known.graph.specs.items()},
    )


def _start(ask: Ask, state: State, key: str, partitions: Sequence[str], run_id: str | None) -> Sequence[Node]:
    known = state.catalog
    definition, asset_id = known.spec(key).partitions, known.asset_id(key)
    wanted = wanted_partitions(definition, partitions, state.now)
    if run_id is not None:
        found = _of_run(ask, asset_id, run_id)
    elif wanted is None or wanted.count > _FEW:
        found = [node_of(row) for row in ask(_ALL_OF_ASSET, {"asset_id": asset_id})]
    else:
        found = current(ask, [(asset_id, str(one)) for one in wanted])
    if wanted is not None:
        found = [node for node in found if PartitionKey.parse(node.partition_key) in wanted]
    if not found:
        what = f"{key} {'' if wanted is None else wanted.describe()}".strip()
        if run_id is not None:
            raise DataNotFound(f"{run_id} neither made nor read {what}", hint=f"see `servo run show {run_id}`")
        raise DataNotFound(f"{what} has no data", hint=f"materialize it first; see `servo partition list {key}`")
    return found


def _with_statuses(state: State, nodes: tuple[Node, ...], *, by_partition: bool) -> tuple[Node, ...]:
    """The nodes with the statuses of their partitions; a materialization that is not current is SUPERSEDED."""
    known = state.catalog
    failed = {(row[0], row[1]) for row in state.tables.query(_FAILED, {"assets": _assets(nodes)}).rows}
    only: dict[str, list[str]] = {}  # an asset that is gone has nothing to be judged by
    for node in nodes:
        if known.asset_ids.get(node.asset_key) == node.asset_id:
            only.setdefault(node.asset_key, []).append(node.partition_key)
    only = {key: list(dict.fromkeys(keys)) for key, keys in only.items()}
    stale = {(one.asset_id, one.partition_key) for one in stale_partitions(state, list(only), only=only)}
    newer = set() if by_partition else _superseded(state.tables, nodes)

    def status(node: Node) -> str:
        if node.materialization_id in newer:
            return SUPERSEDED
        made = node.materialization_id is not None
        return display_status(made=made, failed=node.place in failed, stale=node.place in stale).value

    return tuple(msgspec.structs.replace(node, status=status(node)) for node in nodes)


def _ends(ask: Ask, known: Catalog) -> Sequence[Node]:
    """Where the lineage of the whole project ends."""
    found = [node_of(row) for row in ask(_ENDS, {"assets": list(known.asset_ids.values())})]
    if not found:
        raise DataNotFound("nothing of this project has data", hint="materialize something first")
    return found


def wanted_partitions(definition: Partitions, partitions: Sequence[str], now: datetime) -> PartitionSet | None:
    """The partitions that people name, each by itself or as a range; None where they name none of several."""
    if not partitions and not definition.dimensions:
        return definition.set_of([PartitionKey()])
    wanted: PartitionSet | None = None
    for text in partitions:
        some = definition.parse_set(text, now)
        wanted = some if wanted is None else wanted | some
    return wanted


def _query_of(tables: Answers) -> Ask:
    return lambda sql, parameters: tables.query(sql, parameters).rows


def _walked(
    ask: Ask,
    start: Sequence[Node],
    direction: Direction,
    scope: Scope,
    depth: int | None,
) -> Walk:
    if direction == "both":
        return around(ask, start, scope, depth=depth)
    return walk(ask, start, direction, scope, depth=depth)


def _run(ask: Ask, run: str) -> str:
    """The full id of a run, given that or how it begins."""
    rows = [row[0] for row in ask(_RUN, {"run_id": run})] if run else []
    if run in rows:
        return run
    if len(rows) != 1:
        problem = f"several runs begin with {run!r:.80}" if rows else f"there is no run {run!r:.80}"
        raise RunNotFound(problem, hint="give more of the id" if rows else "see `servo run list`")
    return str(rows[0])


def _of_run(ask: Ask, asset_id: str, run_id: str) -> list[Node]:
    """What a run made of an asset; of partitions that it did not make, what it read of them."""
    parameters = {"run_id": run_id, "asset_id": asset_id}
    own = made(ask, [row[0] for row in ask(_MADE_BY, parameters)])
    places = {node.place for node in own}
    others = made(ask, [row[0] for row in ask(_READ_BY, parameters)])
    return [*own, *(node for node in others if node.place not in places)]


def _named(node: Node, names: dict[str, str]) -> Node:
    """By the name that the asset has in the state that was asked: rows keep the name of their day."""
    name = names.get(node.asset_id, node.asset_key)
    return node if name == node.asset_key else msgspec.structs.replace(node, asset_key=name)


def _compared(ask: Ask, edges: tuple[Edge, ...], nodes: tuple[Node, ...]) -> tuple[Edge, ...]:
    """The edges, with those marked that read something else than what is shown: another version with the same content
    is the same, as everywhere."""
    shown = {node.place: node for node in nodes}
    others = {
        edge.upstream_materialization_id
        for edge in edges
        if shown[edge.upstream_asset_id, edge.upstream_partition_key].materialization_id
        != edge.upstream_materialization_id
    }
    contents = {node.materialization_id: node.content_hash for node in made(ask, others)}

    def is_other(edge: Edge) -> bool:
        node = shown[edge.upstream_asset_id, edge.upstream_partition_key]
        if edge.upstream_materialization_id not in others:
            return False
        content = contents.get(edge.upstream_materialization_id)
        return content is None or node.content_hash is None or content != node.content_hash

    return tuple(msgspec.structs.replace(edge, outdated=True) if is_other(edge) else edge for edge in edges)


def _assets(nodes: Sequence[Node]) -> list[str]:
    return sorted({node.asset_id for node in nodes})


def _superseded(tables: Answers, nodes: Sequence[Node]) -> set[str | None]:
    """The materializations that are not the current ones of their partitions."""
    places = list(dict.fromkeys(node.place for node in nodes))
    parameters = {"assets": [one for one, _ in places], "keys": [one for _, one in places]}
    current_ones = {row[2] for row in tables.query(_CURRENT, parameters).rows}
    return {node.materialization_id for node in nodes} - current_ones


_DIRECTIONS: dict[type[LineageFields], Direction] = {
    GetUpstream: "upstream",
    GetDownstream: "downstream",
    GetImpact: "downstream",
    GetLineageGraph: "both",
}


@answers(GetUpstream)
@answers(GetDownstream)
@answers(GetImpact)
@answers(GetLineageGraph)
@answers(GetLineageAt)
def get_lineage(
    state: State, request: GetUpstream | GetDownstream | GetImpact | GetLineageGraph | GetLineageAt
) -> LineageGraph:
    if not isinstance(request, GetLineageAt):
        direction = _DIRECTIONS[type(request)]
    elif state.as_of is None:
        raise InvalidInput("as_of: say as of when", hint="a time or an event id", field="as_of")
    else:
        direction = request.direction
    lineage = lineage_of(
        state,
        direction,
        request.asset,
        request.partition,
        depth=request.depth,
        run=request.run,
        exact=request.exact,
        statuses=True,
    )
    return _graph(lineage)


def _graph(found: Lineage) -> LineageGraph:
    """The answer: people know assets by their keys, not by their ids."""
    names = {node.asset_id: node.asset_key for node in found.nodes}
    return build(
        LineageGraph,
        found,
        watermark={"position": found.watermark.position, "event_id": found.watermark.event_id},
        nodes=[build(LineageNode, node) for node in found.nodes],
        edges=[
            build(
                LineageEdge,
                edge,
                asset_key=names[edge.asset_id],
                upstream_asset_key=names[edge.upstream_asset_id],
            )
            for edge in found.edges
        ],
    )

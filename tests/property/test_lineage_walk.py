"""Walking the lineage, against an oracle that follows one edge after another: random graphs, circles included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servo.lineage.walk import Ask, Direction, Edge, Exact, Node, Partitions, Scope, Walk, around, walk
from servo.projections import engine

RUNS = ["run_1", "run_2"]


class World(NamedTuple):
    """Materializations with their partition and run, which of them are current, and which read which."""

    made: dict[str, tuple[str, str, str]]
    current: dict[tuple[str, str], str]
    reads: set[tuple[str, str]]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    places = [
        (f"asset-{a}", f"n=i:{n}") for a in range(draw(st.integers(1, 4))) for n in range(draw(st.integers(1, 3)))
    ]
    made = {
        f"m{number:02d}": (*place, draw(st.sampled_from(RUNS)))
        for number, place in enumerate(place for place in places for _ in range(draw(st.integers(1, 3))))
    }
    current = {
        place: draw(st.sampled_from([name for name, one in made.items() if one[:2] == place])) for place in places
    }
    names = sorted(made)
    reads = draw(st.sets(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=14))
    return World(made, current, reads)


@pytest.fixture(scope="module")
def connection() -> Iterator[engine.Connection]:
    opened = engine.connect()
    opened.execute(
        "CREATE TABLE partition_status (asset_id VARCHAR, asset_key VARCHAR, partition_key VARCHAR,"
        " materialization_id VARCHAR, content_hash VARCHAR, last_materialization_at TIMESTAMPTZ,"
        " last_materialization_run_id VARCHAR)"
    )
    opened.execute(
        "CREATE TABLE materializations (asset_id VARCHAR, asset_key VARCHAR, partition_key VARCHAR,"
        " materialization_id VARCHAR, content_hash VARCHAR, published_at TIMESTAMPTZ, made_at TIMESTAMPTZ,"
        " run_id VARCHAR)"
    )
    opened.execute(
        "CREATE TABLE lineage (asset_id VARCHAR, asset_key VARCHAR, partition_key VARCHAR, materialization_id VARCHAR,"
        " upstream_asset_id VARCHAR, upstream_asset_key VARCHAR, upstream_partition_key VARCHAR,"
        " upstream_materialization_id VARCHAR, run_id VARCHAR, consumed_at TIMESTAMPTZ)"
    )
    yield opened
    opened.close()


def told(connection: engine.Connection, world: World) -> Ask:
    for table in ("partition_status", "materializations", "lineage"):
        connection.execute(f"DELETE FROM {table}")
    _insert(
        connection,
        "partition_status",
        [
            [asset, f"ns/{asset}", key, name, f"hash-{name}", None, world.made[name][2]]
            for (asset, key), name in world.current.items()
        ],
    )
    _insert(
        connection,
        "materializations",
        [
            [asset, f"ns/{asset}", key, name, f"hash-{name}", None, None, run]
            for name, (asset, key, run) in world.made.items()
        ],
    )
    _insert(connection, "lineage", [_read(world, *pair) for pair in world.reads])

    def ask(sql: str, parameters: dict[str, Any]) -> Sequence[Sequence[Any]]:
        return connection.execute(sql, parameters).fetchall()

    return ask


def _read(world: World, reader: str, read: str) -> list[str | None]:
    (asset, key, run), (above, above_key, _) = world.made[reader], world.made[read]
    return [asset, f"ns/{asset}", key, reader, above, f"ns/{above}", above_key, read, run, None]


def _insert(connection: engine.Connection, table: str, rows: list[list[str | None]]) -> None:
    """In one statement: many are slow."""
    if rows:
        line = f"({', '.join('?' * len(rows[0]))})"
        values = [value for row in rows for value in row]
        connection.execute(f"INSERT INTO {table} VALUES {', '.join([line] * len(rows))}", values)


def a_node(world: World, name: str) -> Node:
    asset, key, run = world.made[name]
    return Node(
        asset_id=asset,
        asset_key=f"ns/{asset}",
        partition_key=key,
        materialization_id=name,
        content_hash=f"hash-{name}",
        run_id=run,
    )


# ── the oracle ───────────────────────────────────────────────────────────────────────────────────────────────────


def hops(pairs: set[tuple[Any, Any]], first: Any, depth: int | None) -> dict[Any, int]:
    """How far everything is along pairs of (from, to): one edge at a time, until nothing gets nearer."""
    far = {first: 0}
    changed = True
    while changed:
        changed = False
        for near, next_one in pairs:
            if near in far and far.get(next_one, 10**6) > far[near] + 1 and (depth is None or far[near] < depth):
                far[next_one] = far[near] + 1
                changed = True
    return far


def expected(
    world: World, start: str, direction: Direction, *, by_partition: bool, run: str | None, depth: int | None
) -> tuple[dict[Any, int], set[tuple[str, str]]]:
    """Depth by node, and the reads among the nodes."""
    reads = {pair for pair in world.reads if run is None or world.made[pair[0]][2] == run}

    def name(one: str) -> Any:
        return world.made[one][:2] if by_partition else one

    if by_partition:
        reads = {pair for pair in reads if pair[0] in world.current.values()}
    pairs = {(name(reader), name(read)) for reader, read in reads}
    if direction == "downstream":
        pairs = {(read, reader) for reader, read in pairs}
    far = hops(pairs, name(start), depth)
    return far, {pair for pair in reads if name(pair[0]) in far and name(pair[1]) in far}


def scope_of(by_partition: bool, run: str | None) -> Scope:
    return Partitions() if by_partition else Exact(run)


def seen(walked: Walk, by_partition: bool) -> dict[Any, int]:
    assert len({(node.place if by_partition else node.materialization_id) for node in walked.nodes}) == len(
        walked.nodes
    )
    return {(node.place if by_partition else node.materialization_id): node.depth for node in walked.nodes}


def pairs_of(edges: Sequence[Edge]) -> set[tuple[str, str]]:
    pairs = [(edge.materialization_id, edge.upstream_materialization_id) for edge in edges]
    assert len(set(pairs)) == len(pairs)
    return set(pairs)


MODES = st.sampled_from([(True, None), (False, None), (False, "run_1")])


ASKED = st.tuples(st.sampled_from(["upstream", "downstream"]), st.sampled_from([None, 0, 1, 2]))


@settings(max_examples=100, deadline=None)
@given(world=worlds(), mode=MODES, asked=ASKED, data=st.data())
def test_a_walk_finds_what_the_oracle_finds(
    connection: engine.Connection, world: World, mode: Any, asked: Any, data: st.DataObject
) -> None:
    by_partition, run = mode
    direction: Direction = asked[0]
    depth: int | None = asked[1]
    ask = told(connection, world)
    start = data.draw(st.sampled_from(sorted(world.current.values() if by_partition else world.made)))
    walked = walk(ask, [a_node(world, start)], direction, scope_of(by_partition, run), depth=depth)
    far, reads = expected(world, start, direction, by_partition=by_partition, run=run, depth=depth)
    assert seen(walked, by_partition) == far
    assert pairs_of(walked.edges) == reads
    for node in walked.nodes:
        stands_on = world.current[node.place] if by_partition else node.materialization_id
        assert node == Node(**{**_fields(a_node(world, str(stands_on))), "depth": node.depth})
    assert list(walked.nodes) == sorted(walked.nodes, key=lambda one: (one.depth, one.asset_key, one.partition_key))


@settings(max_examples=50, deadline=None)
@given(world=worlds(), mode=MODES, data=st.data())
def test_a_graph_has_both_directions_and_every_read_among_them(
    connection: engine.Connection, world: World, mode: Any, data: st.DataObject
) -> None:
    by_partition, run = mode
    ask = told(connection, world)
    start = data.draw(st.sampled_from(sorted(world.current.values() if by_partition else world.made)))
    walked = around(ask, [a_node(world, start)], scope_of(by_partition, run))
    up, _ = expected(world, start, "upstream", by_partition=by_partition, run=run, depth=None)
    down, _ = expected(world, start, "downstream", by_partition=by_partition, run=run, depth=None)
    depths = {key: down[key] if key not in up or down.get(key, 10**6) < up[key] else -up[key] for key in {**up, **down}}
    assert seen(walked, by_partition) == depths
    shown = set(depths)

    def name(one: str) -> Any:
        return world.made[one][:2] if by_partition else one

    among = {
        (reader, read)
        for reader, read in world.reads
        if name(reader) in shown
        and name(read) in shown
        and (not by_partition or reader in world.current.values())
        and (run is None or world.made[reader][2] == run)
    }
    assert pairs_of(walked.edges) == among


def _fields(node: Node) -> dict[str, Any]:
    return {name: getattr(node, name) for name in node.__struct_fields__}

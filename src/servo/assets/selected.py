"""Which assets a selection speaks of, whatever partitions of them are meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from servo.assets.graph import Graph
from servo.assets.selection import select
from servo.assets.spec import AssetSpec
from servo.assets.syntax import AllOf, AnyOf, Node, Not, Spread, Term, parse, terms
from servo.partitions import UNPARTITIONED
from servo.partitions.mappings import All

__all__ = ["assets_of", "named_in", "spread"]

_ANY_TIME = datetime(2025, 1, 1, tzinfo=UTC)  # which assets are selected does not depend on when


def assets_of(graph: Graph, text: str) -> set[str]:
    """The assets that a selection may select, whichever partitions it says and whatever their status is."""
    return _assets(_without_partitions(graph), parse(text))


def _without_partitions(graph: Graph) -> Graph:
    """The same assets, each with one partition: then every selection says which are meant."""
    return Graph(
        {
            key: msgspec.structs.replace(
                spec,
                partitions=UNPARTITIONED,
                dependencies=tuple(msgspec.structs.replace(one, mapping=All()) for one in spec.dependencies),
            )
            for key, spec in graph.specs.items()
        }
    )


def _assets(bare: Graph, node: Node) -> set[str]:
    match node:
        case Term(what=what):
            if what.startswith("status:"):
                return set(bare.specs)
            return set(select(bare, msgspec.structs.replace(node, partitions=None), now=_ANY_TIME))
        case Spread(inner=inner, up=up, down=down):
            found = _assets(bare, inner)
            return found | spread(found, bare.upstream, up) | spread(found, bare.downstream, down)
        case Not(inner=inner):
            # Where partitions or a status are said, others of the same asset are left.
            whole = all(one.partitions is None and not one.what.startswith("status:") for one in terms(inner))
            return set(bare.specs) - (_assets(bare, inner) if whole else set())
        case AnyOf(parts=parts):
            return set[str]().union(*(_assets(bare, part) for part in parts))
        case AllOf(parts=parts):
            return set(bare.specs).intersection(*(_assets(bare, part) for part in parts))


def spread(found: Iterable[str], neighbours: Callable[[str], tuple[str, ...]], levels: int | None) -> set[str]:
    reached, fresh = set(found), set(found)
    while fresh and levels != 0:
        levels = None if levels is None else levels - 1
        fresh = {other for key in fresh for other in neighbours(key)} - reached
        reached |= fresh
    return reached


def named_in(graph: Graph, text: str) -> dict[str, AssetSpec]:
    """The assets whose partitions have to be said: those that terms without partitions name."""
    bare, tree = _without_partitions(graph), parse(text)
    found = set[str]().union(*(_assets(bare, term) for term in _open_terms(tree))) & _assets(bare, tree)
    return {key: graph[key] for key in graph.specs if key in found}


def _open_terms(node: Node) -> Iterator[Term]:
    match node:
        case Not():
            return
        case Spread(inner=inner):
            yield from _open_terms(inner)
        case Term():
            if node.partitions is None and not node.what.startswith("status:"):
                yield node
        case _:
            for part in node.parts:
                yield from _open_terms(part)

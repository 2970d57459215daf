"""A lineage as a tree of assets: what is one partition after another becomes one branch that names them all."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import msgspec

from servo.lineage.walking import Direction, Edge, Node

DEEPEST = 24  # levels; further in, nobody follows a tree


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of one asset, and what lies beyond them.

    `again`: they were opened further up. `outdated`: so many of the reads between them and the branch that they hang on
    are not of what is current.
    """

    asset_key: str
    nodes: tuple[Node, ...]
    outdated: int = 0
    again: bool = False
    cut: bool = False  # there is more, and it is too deep to be drawn
    below: tuple[Branch, ...] = ()

    @property
    def keys(self) -> list[str]:
        return [node.partition_key for node in self.nodes]


def tree(nodes: Iterable[Node], edges: Iterable[Edge], direction: Direction, *, exact: bool = False) -> list[Branch]:
    """A branch for each asset that the question was about. An asset that reads itself is one branch, not a chain.

    Of the edges, those among the nodes count.
    """
    return _Growing(list(nodes), edges, direction, exact=exact).grown()


class _Growing:
    def __init__(self, nodes: list[Node], edges: Iterable[Edge], direction: Direction, *, exact: bool) -> None:
        self._nodes: dict[Hashable, Node] = {(node.materialization_id if exact else node.place): node for node in nodes}
        self._next: dict[Hashable, list[tuple[Hashable, bool]]] = {}
        for edge in edges:
            reader: Hashable = edge.materialization_id if exact else (edge.asset_id, edge.partition_key)
            read: Hashable = (
                edge.upstream_materialization_id if exact else (edge.upstream_asset_id, edge.upstream_partition_key)
            )
            near, far = (reader, read) if direction == "upstream" else (read, reader)
            if near in self._nodes and far in self._nodes:
                self._next.setdefault(near, []).append((far, edge.outdated))
        self._opened: set[Hashable] = set()

    def grown(self) -> list[Branch]:
        start: dict[str, list[Hashable]] = {}
        for key, node in self._nodes.items():
            if node.depth == 0:
                start.setdefault(node.asset_key, []).append(key)
        return [self._branch(asset, keys, 0, 0) for asset, keys in sorted(start.items())]

    def _branch(self, asset: str, keys: Sequence[Hashable], outdated: int, level: int) -> Branch:
        own = self._together(asset, keys)
        fresh = [key for key in own if key not in self._opened]
        beyond: dict[str, dict[Hashable, int]] = {}
        for key in fresh:
            for far, old in self._next.get(key, ()):
                other = self._nodes[far].asset_key
                if other != asset:
                    found = beyond.setdefault(other, {})
                    found[far] = max(found.get(far, 0), int(old))  # partitions are counted, not reads
        self._opened.update(own)
        cut = level >= DEEPEST and bool(beyond)
        below = [] if cut else sorted(beyond.items())
        return Branch(
            asset_key=asset,
            nodes=tuple(sorted((self._nodes[key] for key in own), key=lambda node: node.partition_key)),
            outdated=outdated,
            again=not fresh and any(self._next.get(key) for key in own),
            cut=cut,
            below=tuple(self._branch(other, list(found), sum(found.values()), level + 1) for other, found in below),
        )

    def _together(self, asset: str, keys: Sequence[Hashable]) -> list[Hashable]:
        """These, and all of the same asset that they lead to without leaving it."""
        found = dict.fromkeys(keys)
        queue = list(keys)
        while queue:
            for far, _ in self._next.get(queue.pop(), ()):
                if far not in found and self._nodes[far].asset_key == asset:
                    found[far] = None
                    queue.append(far)
        return list(found)

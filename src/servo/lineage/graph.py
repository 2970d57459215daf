"""A lineage as a picture of boxes and links, in which many partitions of an asset are folded into one box; or as a tree
of assets, in which they are one branch that names them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from servo.lineage.walk import Direction, LineageEdge, LineageNode

MOST_PARTITIONS = 12  # of one asset, each with a box of its own
MOST_BOXES = 60  # in all; a picture of more is folded by asset

Describe = Callable[[str, Sequence[str]], str]  # an asset key and partition keys, as people write them
DEEPEST = 24  # levels of a tree


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of one asset that are drawn together; mostly it is just one."""

    id: str
    asset: str
    label: str  # the partition, or what several have in common; empty for an asset without partitions
    count: int
    statuses: dict[str, int]  # how many partitions have each
    centre: bool = False  # whether the lineage is of these partitions
    made_at: datetime | None = None  # the newest
    materialization_id: str | None = None  # of a single partition
    content_hash: str | None = None
    run_id: str | None = None

    @property
    def worst(self) -> str:
        """The most urgent status among its partitions."""
        return max(self.statuses, key=lambda one: _URGENCY.index(one) if one in _URGENCY else 0)

    @property
    def lines(self) -> list[str]:
        """The lines of text below the name."""
        lines = [self.label] if self.label else []
        if self.count > 1:
            lines.append(f"{self.count:,} partitions")
        others = [
            f"{number:,} {status_text(status)}" if self.count > 1 else status_text(status)
            for status, number in sorted(self.statuses.items())
            if status != "MATERIALIZED"
        ]
        if others:
            lines.append(", ".join(others))
        elif self.made_at is not None and self.count == 1:
            lines.append(f"made {short_time(self.made_at)}")
        return lines


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """Reads from one box into another; `outdated` of them are of versions that are no longer current."""

    source: str
    target: str
    count: int
    outdated: int = 0


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Boxes and links, in an order that follows from their content."""

    title: str
    boxes: tuple[Box, ...]
    links: tuple[Link, ...]


_URGENCY = ("MATERIALIZED", "SUPERSEDED", "NEVER_MATERIALIZED", "STALE", "MATERIALIZED_BUT_LAST_ATTEMPT_FAILED")
# On light ground; each is dark enough to be told from it, and from the others in shades of grey as far as can be.
COLOURS = {
    "MATERIALIZED": "#15904a",
    "STALE": "#d97706",
    "MATERIALIZED_BUT_LAST_ATTEMPT_FAILED": "#dc2626",
    "NEVER_MATERIALIZED": "#8a97a8",
    "SUPERSEDED": "#7c6bd6",
}
_STATUS_TEXTS = {
    "MATERIALIZED": "materialized",
    "STALE": "stale",
    "MATERIALIZED_BUT_LAST_ATTEMPT_FAILED": "last attempt failed",
    "NEVER_MATERIALIZED": "missing",
    "SUPERSEDED": "replaced since",
}


def status_text(status: str) -> str:
    """A status in words."""
    return _STATUS_TEXTS.get(status, status.lower().replace("_", " "))


def short_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def picture(
    title: str,
    nodes: Iterable[LineageNode],
    edges: Iterable[LineageEdge],
    describe: Describe,
    *,
    exact: bool = False,
) -> Picture:
    """Draw nodes one by one, or those of one asset together where they are many.

    `exact`: nodes are materializations, and a partition may have several.
    """
    every = list(nodes)
    folded = _folded(every)
    groups: dict[tuple[str, ...], list[LineageNode]] = {}
    for node in every:
        own = () if (node.asset_key, not node.depth) in folded else (node.partition_key, node.materialization_id or "")
        groups.setdefault((node.asset_key, "" if node.depth else "centre", *own), []).append(node)
    boxes: list[Box] = []
    box_of: dict[Hashable, str] = {}
    for number, key in enumerate(sorted(groups)):
        members = groups[key]
        boxes.append(_box(f"n{number}", members, describe))
        box_of.update((_key(node, exact=exact), f"n{number}") for node in members)
    counts: Counter[tuple[str, str]] = Counter()
    outdated: Counter[tuple[str, str]] = Counter()
    for edge in edges:
        target, source = (box_of.get(end) for end in _ends(edge, exact=exact))
        if source is not None and target is not None and source != target:
            counts[source, target] += 1
            outdated[source, target] += edge.outdated
    links = [
        Link(source=source, target=target, count=count, outdated=outdated[source, target])
        for (source, target), count in sorted(counts.items(), key=lambda one: (_number(one[0][0]), _number(one[0][1])))
    ]
    return Picture(title=title, boxes=tuple(boxes), links=tuple(links))


def _key(node: LineageNode, *, exact: bool) -> Hashable:
    return node.materialization_id if exact else (node.asset_key, node.partition_key)


def _ends(edge: LineageEdge, *, exact: bool) -> tuple[Hashable, Hashable]:
    """The keys of the reader and of what it read."""
    if exact:
        return edge.materialization_id, edge.upstream_materialization_id
    return (edge.asset_key, edge.partition_key), (edge.upstream_asset_key, edge.upstream_partition_key)


def _number(name: str) -> int:
    return int(name[1:])


def _folded(nodes: Sequence[LineageNode]) -> set[tuple[str, bool]]:
    """The assets of which there are too many partitions to draw each, or of which there are several in a large picture.

    Those that the question was about stay apart from others of the same asset.
    """
    sizes = Counter((node.asset_key, not node.depth) for node in nodes)
    folded = {place for place, size in sizes.items() if size > MOST_PARTITIONS}
    if sum(1 if place in folded else size for place, size in sizes.items()) > MOST_BOXES:
        folded = {place for place, size in sizes.items() if size > 1}
    return folded


def _box(name: str, members: Sequence[LineageNode], describe: Describe) -> Box:
    first = members[0]
    alone = len(members) == 1
    times = [node.made_at for node in members if node.made_at is not None]
    return Box(
        id=name,
        asset=first.asset_key,
        label=describe(first.asset_key, [node.partition_key for node in members]),
        count=len(members),
        statuses=dict(sorted(Counter(node.status or "MATERIALIZED" for node in members).items())),
        centre=not first.depth,
        made_at=max(times) if times else None,
        materialization_id=first.materialization_id if alone else None,
        content_hash=first.content_hash if alone else None,
        run_id=first.run_id if alone else None,
    )


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of one asset, and what lies beyond them.

    `again`: they were opened further up. `outdated`: so many of the reads between them and the branch that they hang on
    are not of what is current.
    """

    asset_key: str
    nodes: tuple[LineageNode, ...]
    outdated: int = 0
    again: bool = False
    cut: bool = False  # there is more, and it is too deep to be drawn
    below: tuple[Branch, ...] = ()

    @property
    def keys(self) -> list[str]:
        return [node.partition_key for node in self.nodes]


def tree(
    nodes: Iterable[LineageNode], edges: Iterable[LineageEdge], direction: Direction, *, exact: bool = False
) -> list[Branch]:
    """A branch for each asset that the question was about. An asset that reads itself is one branch, not a chain.

    Of the edges, those among the nodes count.
    """
    return _TreeBuilder(nodes, edges, direction, exact=exact).grown()


class _TreeBuilder:
    def __init__(
        self, nodes: Iterable[LineageNode], edges: Iterable[LineageEdge], direction: Direction, *, exact: bool
    ) -> None:
        self._nodes: dict[Hashable, LineageNode] = {_key(node, exact=exact): node for node in nodes}
        self._next: dict[Hashable, list[tuple[Hashable, bool]]] = {}
        for edge in edges:
            reader, read = _ends(edge, exact=exact)
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

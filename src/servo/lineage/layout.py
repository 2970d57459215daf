"""Where the boxes of a picture go: in layers from left to right, with few crossings, and room for links that pass."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from servo.lineage.graph import Picture

_SWEEPS = 6
_GAP = 22.0  # between boxes of a layer
_LANE = 14.0  # for a link on its way through a layer
_COLUMN_GAP = 86.0


class Size(msgspec.Struct, frozen=True):
    width: float
    height: float


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a box: its left upper corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Where the boxes are, and through which points each link goes on its way (source, target → points)."""

    spots: dict[str, Spot]
    ways: dict[tuple[str, str], tuple[tuple[float, float], ...]]
    width: float
    height: float


def layout(picture: Picture, sizes: Mapping[str, Size]) -> Layout:
    """Place every box. Boxes of one asset stand in one column."""
    layer_of = _layers(picture)
    count = max(layer_of.values(), default=0) + 1
    layers: list[list[str]] = [[] for _ in range(count)]
    for box in picture.boxes:
        layers[layer_of[box.id]].append(box.id)
    chains = _chains(picture, layer_of, layers)
    neighbours = _neighbours(chains)
    _untangle(layers, neighbours)
    heights = {name: sizes[name].height if name in sizes else _LANE for layer in layers for name in layer}
    middles = _settle(layers, heights, neighbours)
    top = min((middles[name] - heights[name] / 2 for name in middles), default=0.0)
    widths = [max((sizes[name].width for name in layer if name in sizes), default=0.0) for layer in layers]
    lefts = [sum(widths[:number]) + _COLUMN_GAP * number for number in range(count)]
    spots: dict[str, Spot] = {}
    for number, layer in enumerate(layers):
        for name in layer:
            if name in sizes:
                # Centred in its column, so that links have the same length on both sides.
                left = lefts[number] + (widths[number] - sizes[name].width) / 2
                y = middles[name] - heights[name] / 2 - top
                spots[name] = Spot(x=left, y=y, width=sizes[name].width, height=heights[name])
    ways = {
        (chain[0], chain[-1]): tuple(
            # Straight through a layer: only between layers is nothing in the way of a curve.
            (x, middles[name] - top)
            for layer, name in enumerate(chain[1:-1], layer_of[chain[0]] + 1)
            for x in (lefts[layer], lefts[layer] + widths[layer])
        )
        for chain in chains
    }
    bottom = max((middles[name] + heights[name] / 2 - top for name in middles), default=0.0)
    width = lefts[-1] + widths[-1] if layers else 0.0
    return Layout(spots=spots, ways=ways, width=width, height=bottom)


def _layers(picture: Picture) -> dict[str, int]:
    """The longest way to each box's asset from where nothing comes in; what closes a circle is left out of account."""
    asset_of = {box.id: box.asset for box in picture.boxes}
    above: dict[str, set[str]] = {box.asset: set() for box in picture.boxes}
    for link in picture.links:
        if asset_of[link.source] != asset_of[link.target]:
            above[asset_of[link.target]].add(asset_of[link.source])
    depth: dict[str, int] = {}
    for asset in sorted(above):
        _deepen(asset, above, depth)
    # A source stands right before the first that reads it, not at the far left.
    first: dict[str, int] = {}
    for asset, sources in above.items():
        for one in sources:
            first[one] = min(first.get(one, depth[asset]), depth[asset])
    depth.update((one, max(at - 1, 0)) for one, at in first.items() if not above[one])
    return {box.id: depth[box.asset] for box in picture.boxes}


def _deepen(first: str, above: Mapping[str, set[str]], depth: dict[str, int]) -> None:
    """By hand rather than by recursion: a lineage may be deeper than Python's stack."""
    stack = [(first, iter(sorted(above[first])))]
    open_: dict[str, int] = {first: 0}
    while stack:
        asset, left = stack[-1]
        for one in left:
            if one in depth:
                open_[asset] = max(open_[asset], depth[one] + 1)
            elif one not in open_:
                open_[one] = 0
                stack.append((one, iter(sorted(above[one]))))
                break
        else:
            stack.pop()
            depth[asset] = open_.pop(asset)
            if stack:
                parent = stack[-1][0]
                open_[parent] = max(open_[parent], depth[asset] + 1)


def _chains(picture: Picture, layer_of: Mapping[str, int], layers: list[list[str]]) -> list[list[str]]:
    """Each link with a stop in every layer that it passes; the stops join the layers."""
    chains = []
    for number, link in enumerate(picture.links):
        first, last = layer_of[link.source], layer_of[link.target]
        stops = [f"{number}:{layer}" for layer in range(first + 1, last)]
        for layer, stop in zip(range(first + 1, last), stops, strict=True):
            layers[layer].append(stop)
        chains.append([link.source, *stops, link.target])
    return chains


def _neighbours(chains: Iterable[Sequence[str]]) -> dict[str, tuple[list[str], list[str]]]:
    """What each is joined with to the left, and to the right."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for chain in chains:
        for left, right in itertools.pairwise(chain):
            found.setdefault(left, ([], []))[1].append(right)
            found.setdefault(right, ([], []))[0].append(left)
    return found


def _untangle(layers: list[list[str]], neighbours: Mapping[str, tuple[list[str], list[str]]]) -> None:
    """Order each layer by where its neighbours are, back and forth."""
    place = {name: number for layer in layers for number, name in enumerate(layer)}

    def wanted(name: str, side: int) -> tuple[float, int]:
        joined = neighbours.get(name, ([], []))[side]
        mean = sum(place[one] for one in joined) / len(joined) if joined else float(place[name])
        return mean, place[name]

    for sweep in range(_SWEEPS):
        side = sweep % 2
        for layer in layers if side == 0 else reversed(layers):
            means = {name: wanted(name, side) for name in layer}
            layer.sort(key=means.__getitem__)
            place.update((name, number) for number, name in enumerate(layer))


def _settle(
    layers: Sequence[Sequence[str]],
    heights: Mapping[str, float],
    neighbours: Mapping[str, tuple[list[str], list[str]]],
) -> dict[str, float]:
    """The middle of each: as near to its neighbours as the order and the gaps of its layer allow."""
    middles: dict[str, float] = {}
    for layer in layers:
        _stack(layer, [0.0] * len(layer), heights, middles)
    for sweep in range(_SWEEPS * 2):
        side = sweep % 2
        for layer in layers if side == 0 else reversed(layers):
            wanted = []
            for name in layer:
                joined = neighbours.get(name, ([], []))[side] or neighbours.get(name, ([], []))[1 - side]
                wanted.append(sum(middles[one] for one in joined) / len(joined) if joined else middles[name])
            _stack(layer, wanted, heights, middles)
    return middles


def _stack(
    layer: Sequence[str], wanted: Sequence[float], heights: Mapping[str, float], middles: dict[str, float]
) -> None:
    """One below the other, in this order; as a whole where they want to be on the mean."""
    placed: list[float] = []
    bottom: float | None = None
    for name, where in zip(layer, wanted, strict=True):
        half = heights[name] / 2
        middle = where if bottom is None else max(where, bottom + _GAP + half)
        placed.append(middle)
        bottom = middle + half
    shift = sum(want - got for want, got in zip(wanted, placed, strict=True)) / len(placed) if placed else 0.0
    for name, middle in zip(layer, placed, strict=True):
        middles[name] = middle + shift

"""Which partitions to ask for since something was found, where no function says so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from servo.assets.graph import Graph
from servo.assets.selection import assets_of, named_in, spread
from servo.assets.spec import AssetSpec
from servo.assets.syntax import AnyOf, Node, Spread, Term, parse, quoted
from servo.errors import InvalidInput, InvalidPartition, InvalidPartitionKey, InvalidSelection
from servo.partitions import Dimension, PartitionKey, Partitions, PartitionSet, regions
from servo.partitions.keys import PartitionValue

_NAMED = re.compile(r"\{([^{}]*)\}")
_SAY = 'say which, by partitions="…" or in a function'
_MOST_TEXTS = 1_000


class Graphed(Protocol):
    """What has the graph of assets: a project's definitions, or the catalog of what is deployed."""

    @property
    def graph(self) -> Graph: ...


# ── templates ────────────────────────────────────────────────────────────────────────────────────────────────────


def require_template(template: str, names: Sequence[str] | None) -> None:
    """Refuse a template that is none, or that names what will not be there."""
    if re.search(r"[{}]", _NAMED.sub("", template)):
        raise InvalidInput(f"partitions {template!r:.80} has a brace without the other", hint='write "{date}"')
    for name in _NAMED.findall(template):
        if names is not None and name not in names:
            hint = f"there is {', '.join(names)}" if names else "nothing that is found has names"
            raise InvalidInput(f"partitions {template!r:.80} names {name!r:.60}, which is not there", hint=hint)


def by_template(template: str, values: Mapping[str, str]) -> str:
    """The template with values in place of names. Nothing but `{name}` is understood."""
    require_template(template, tuple(values))
    # A file or a row must not be able to ask for more than itself.
    for name in _NAMED.findall(template):
        if re.search(r"[,|]|\.\.", values[name]):
            hint = "choose the partitions in a function"
            raise InvalidPartition(f"{name} is {values[name]!r:.60}, which would be several partitions", hint=hint)
    return _NAMED.sub(lambda found: values[found[1]], template)


# ── by what was found ────────────────────────────────────────────────────────────────────────────────────────────


def unpartitioned(text: str, definitions: Graphed, what: str) -> None:
    """Refuse assets with partitions where nothing says which."""
    for key, spec in named_in(definitions.graph, text).items():
        if spec.partitions.dimensions:
            raise InvalidSelection(f"{key} has partitions, and {what} does not say which are meant", hint=_SAY)


def by_values(text: str, values: Mapping[str, str | None], definitions: Graphed) -> str | None:
    """The partitions of the selected assets whose dimensions have these values; None where they have no partitions.

    A value of None is not known yet: only whether it will do is asked.
    """
    texts: dict[str, None] = {}
    for key, spec in named_in(definitions.graph, text).items():
        if not spec.partitions.dimensions:
            continue
        mine = {one.name: values[one.name] for one in spec.partitions.dimensions if one.name in values}
        if not mine:
            names = ", ".join(f"{{{name}}}" for name in spec.partitions.names)
            message = f"{key} is partitioned by {', '.join(spec.partitions.names)}, and the pattern captures none of it"
            raise InvalidSelection(message, hint=f"write {names} into the pattern, or {_SAY}")
        said = {name: value for name, value in mine.items() if value is not None}
        texts[_one(spec.partitions, said) if len(said) == len(mine) else ",".join(sorted(mine))] = None
    if len(texts) > 1:
        raise InvalidSelection(f"{text!r:.80} names assets with different dimensions", hint=_SAY)
    return next(iter(texts), None)


def _one(definition: Partitions, values: Mapping[str, str]) -> str:
    """The partition with these values; of dimensions that have none, all of them."""
    places = {name: _value(definition.dimension(name), text) for name, text in values.items()}
    if len(places) == definition.depth:
        return str(PartitionKey.of(places))
    shown = [f"{name}={definition.dimension(name).show(value)}" for name, value in places.items()]
    for text in shown:
        if re.search(r"[,|]|\.\.", text):
            raise InvalidPartition(f"{text:.80} cannot be written as a partition", hint=_SAY)
    return ",".join(shown)


def _value(dimension: Dimension, text: str) -> PartitionValue:
    try:
        if dimension.kind == "dynamic":
            PartitionKey.of({dimension.name: text})  # whether it was added is seen when the run is asked for
            return text
        return dimension.value(dimension.single(text))
    except InvalidPartitionKey as problem:
        raise InvalidPartition(problem.message, hint=problem.hint) from None


# ── what reads what is new ───────────────────────────────────────────────────────────────────────────────────────


class Wanted(NamedTuple):
    select: str
    partitions: tuple[str, ...] | None


class Readers:
    """The assets that a selection names, all of which read one asset, directly or by others."""

    def __init__(self, graph: Graph, asset: str, text: str, named: Mapping[str, AssetSpec]) -> None:
        self._graph, self._asset, self._text, self._named = graph, asset, text, named

    def reading(self, keys: Iterable[str], now: datetime) -> Wanted | None:
        """What to ask for since these partitions are new: what reads them and has ended; None if nothing has."""
        changed = _still_there(self._graph[self._asset].partitions, keys)
        reached = self._reached(changed, now)
        texts = {key: _texts(reached[key]) for key, spec in self._named.items() if spec.partitions.dimensions}
        if not changed or (texts and not any(texts.values())):
            return None
        if not texts:
            return Wanted(self._text, None)
        wanted = {key: some for key, some in texts.items() if some}
        same = {tuple(some) for some in texts.values()}
        if len(same) == 1:
            return Wanted(self._text, next(iter(same)))
        return Wanted(" or ".join(self._terms(parse(self._text), wanted)), None)

    def _reached(self, changed: PartitionSet, now: datetime) -> dict[str, PartitionSet]:
        reached = {key: spec.partitions.empty() for key, spec in self._graph.specs.items()}
        reached[self._asset] = changed
        for key in self._graph.specs:  # upstreams first
            definition = self._graph[key].partitions
            for upstream in self._graph.upstream(key):
                if reached[upstream]:
                    found = self._graph.mapping(upstream, key).downstream(reached[upstream], definition, now)
                    reached[key] = reached[key] | (found & definition.everything(now))
        return reached

    def _terms(self, node: Node, wanted: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """The same selection, with the partitions of each asset written behind it."""
        match node:
            case AnyOf(parts=parts):
                for part in parts:
                    yield from self._terms(part, wanted)
            case Spread(inner=Term() as term, up=up, down=down):
                for text in self._terms(term, wanted):
                    yield f"{_levels(up, upward=True)}{text}{_levels(down, upward=False)}"
            case Term(what=what, partitions=str() as said):
                yield f"{quoted(what)}@{quoted(said)}"
            case Term(what=what, partitions=None) if ":" not in what and what != "*":
                key = self._graph.resolve(what)
                if not self._graph[key].partitions.dimensions:
                    yield key
                for text in wanted.get(key, ()):
                    yield f"{key}@{quoted(text)}"
            case _:
                hint = "name them one by one (a or b), use a sensor for each, or choose the partitions in a function"
                raise InvalidSelection(f"{self._text!r:.80} selects assets with different partitions", hint=hint)


def _levels(levels: int | None, *, upward: bool) -> str:
    if levels == 0:
        return ""
    digits = "" if levels is None else str(levels)
    return f"{digits}+" if upward else f"+{digits}"


def readers_of(asset: str, text: str, definitions: Graphed, *, said: bool = False) -> Readers:
    """The selected assets; refused unless each of them reads this one, or is `said` to have its partitions named."""
    graph = definitions.graph
    key = graph.resolve(asset)
    named = named_in(graph, text)
    if key in assets_of(graph, text):
        hint = "select what reads it, such as what is downstream"
        raise InvalidSelection(f"a sensor that watches {key} would ask for {key} itself, again and again", hint=hint)
    below = spread([key], graph.downstream)
    other = next((one for one in named if one not in below), None)
    if other is not None and not said and graph[other].partitions.dimensions:
        raise InvalidSelection(f"{other} does not read {key}, so that its new partitions say nothing of it", hint=_SAY)
    return Readers(graph, key, text, named)


def _still_there(definition: Partitions, keys: Iterable[str]) -> PartitionSet:
    """The partitions of these keys that the definition has today."""
    return definition.set_of(one for one in map(PartitionKey.parse, keys) if one in definition)


def _texts(partitions: PartitionSet) -> list[str]:
    """A set as few texts, each as in `orders@…`."""
    definition = partitions.partitions
    found = []
    for box in regions.boxes(partitions.region, definition.depth):
        shown = [
            [_span(dimension, low, high) for low, high in axis]
            if dimension.timed
            else [dimension.label(place) for low, high in axis for place in range(low, high)]
            for axis, dimension in zip(box, definition.dimensions, strict=True)
        ]
        if any(
            re.search(r"[,|\"']", text)
            for axis, one in zip(shown, definition.dimensions, strict=True)
            if not one.timed
            for text in axis
        ):
            found = [str(key) for key in partitions]  # a value that can only be written in the canonical text
            break
        found.append(
            ",".join(f"{one.name}={'|'.join(axis)}" for axis, one in zip(shown, definition.dimensions, strict=True))
        )
    if len(found) > _MOST_TEXTS:
        hint = "ask for them with a backfill, or choose the partitions in a function"
        raise InvalidSelection(f"{partitions.count:,} partitions lie too far apart for one request", hint=hint)
    return found


def _span(dimension: Dimension, low: int, high: int) -> str:
    first, last = dimension.label(low), dimension.label(high - 1)
    return first if high - low == 1 else f"{first}..{last}"

"""Selections: which assets, and which of their partitions; `servo.assets.syntax` says how they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from datetime import UTC, datetime
from difflib import get_close_matches

import msgspec

from servo.assets.graph import Graph
from servo.assets.spec import AssetSpec
from servo.assets.syntax import AllOf, AnyOf, Node, Not, Spread, Term, parse, quoted, terms
from servo.errors import InvalidPartition, InvalidSelection
from servo.partitions import UNPARTITIONED, PartitionSet
from servo.partitions.mappings import All

STATUSES = ("missing", "failed", "stale")
Statuses = Callable[[str, str], PartitionSet]  # the partitions of an asset that have a status
_ANY_TIME = datetime(2025, 1, 1, tzinfo=UTC)  # which assets are selected does not depend on when


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Selected partitions by asset, upstreams first, and which of them only a `+` added to what was named.

    A run must be able to make what was named. What a `+` added is held back where its inputs are not complete.
    """

    wanted: dict[str, PartitionSet]
    added: dict[str, PartitionSet] = {}
    only_stale: bool = False  # selected for being stale alone: what is not, when its turn comes, is left as it is
    by_status: dict[str, PartitionSet] = {}  # selected by nothing but a `status:`, so that nobody named them


def select(
    graph: Graph,
    text: str | Node,
    *,
    now: datetime,
    partitions: str | None = None,
    statuses: Statuses | None = None,
    without_latest: dict[str, str] | None = None,
) -> dict[str, PartitionSet]:
    """What a selection (a text, or its tree) selects, upstreams first. `partitions` are those of terms that say none.

    Raises InvalidSelection for what does not read, and where it is not said which partitions of an asset are meant;
    AssetNotFound and InvalidPartition for what is not there. An asset that has no latest partition yet is an error,
    unless there is a `without_latest`: then it is left out, and written there with the reason.
    """
    tree = parse(text) if isinstance(text, str) else text
    return _evaluated(_Evaluation(graph, now, partitions, statuses, without_latest), graph, tree, partitions)


def selection_of(
    graph: Graph,
    text: str,
    *,
    now: datetime,
    partitions: str | None = None,
    statuses: Statuses | None = None,
    without_latest: dict[str, str] | None = None,
) -> Selection:
    """The same as `select`, separated into what was named and what only a `+` added."""
    tree, evaluation = parse(text), _Evaluation(graph, now, partitions, statuses, without_latest)
    wanted = _evaluated(evaluation, graph, tree, partitions)
    named_tree = _without_spreads(tree)
    only_stale = _is_only_stale(tree)
    by_status = _only_by_status(evaluation, graph, tree, wanted)
    if named_tree == tree:
        return Selection(wanted=wanted, only_stale=only_stale, by_status=by_status)
    try:
        named = evaluation.completed(evaluation.of(named_tree, graph.specs.keys()))
    except InvalidPartition:  # the partitions of a term fit only what `+` added, such as months of `days+`
        named = {}
    added = {key: some - named[key].partitions if key in named else some for key, some in wanted.items()}
    return Selection(
        wanted=wanted,
        added={key: some for key, some in added.items() if some},
        only_stale=only_stale,
        by_status=by_status,
    )


def _only_by_status(
    evaluation: _Evaluation, graph: Graph, tree: Node, wanted: dict[str, PartitionSet]
) -> dict[str, PartitionSet]:
    """Of what is selected, what no part of the selection selects without asking for a status."""
    parts = list(_alternatives(tree))
    named = [part for part in parts if not _asks_for_status(part)]
    if len(named) == len(parts):
        return {}
    found = evaluation.completed(evaluation.of(AnyOf(named), graph.specs.keys())) if named else {}
    left = {key: some - found[key].partitions if key in found else some for key, some in wanted.items()}
    return {key: some for key, some in left.items() if some}


def _alternatives(node: Node) -> Iterator[Node]:
    """The parts of a selection of which each selects something by itself."""
    for part in node.parts if isinstance(node, AnyOf) else ():
        yield from _alternatives(part)
    if not isinstance(node, AnyOf):
        yield node


def _is_only_stale(node: Node) -> bool:
    """Whether everything that a selection names is named as `status:stale`. So is what follows downstream by `+`, but
    not what is added upstream of it: that is current more often than not, and a person wants it made all the same."""
    match node:
        case Spread(inner=inner, up=up):
            return up == 0 and _is_only_stale(inner)
        case AllOf(parts=parts):
            return any(_is_only_stale(part) for part in parts)
        case AnyOf(parts=parts):
            return all(_is_only_stale(part) for part in parts)
        case Term(what=what):
            return what == "status:stale"
        case Not():
            return False


def _without_spreads(node: Node) -> Node:
    """The tree of what a selection names: without what `+` adds. What `not` takes away is taken away all the same."""
    match node:
        case Spread(inner=inner):
            return _without_spreads(inner)
        case AllOf(parts=parts):
            return AllOf([_without_spreads(part) for part in parts])
        case AnyOf(parts=parts):
            return AnyOf([_without_spreads(part) for part in parts])
        case Term() | Not():
            return node


def _evaluated(evaluation: _Evaluation, graph: Graph, tree: Node, partitions: str | None) -> dict[str, PartitionSet]:
    selected = evaluation.completed(evaluation.of(tree, graph.specs.keys()))
    unsaid = [key for key in graph.specs if key in selected and selected[key].negated]
    if unsaid:
        named = [graph.resolve(term.what) for term in terms(tree) if ":" not in term.what and term.what != "*"]
        raise _unsaid(graph, next((key for key in named if key in unsaid), unsaid[-1]))
    found = {key: selected[key].partitions for key in graph.specs if key in selected}
    if partitions is not None and found and not any(graph[key].partitions.dimensions for key in found):
        what = ", ".join(found)
        raise InvalidSelection(f"{what:.120} has no partitions to choose {partitions!r:.80} of", hint="leave them out")
    return {key: wanted for key, wanted in found.items() if wanted}


def require_sound(graph: Graph, text: str) -> None:
    """Refuse a selection that does not read, or that names what is not there; partitions are not looked at."""
    evaluation = _Evaluation(graph, _ANY_TIME, None, None)
    for term in terms(parse(text)):
        kind, _, status = term.what.partition(":")
        if kind != "status" or status not in STATUSES:
            evaluation.of(msgspec.structs.replace(term, partitions=None), graph.specs.keys())


def _unsaid(graph: Graph, key: str) -> InvalidSelection:
    spec = graph[key]
    dimensions = ", ".join(spec.partitions.names)
    example = f"{spec.name}@{_example(spec)}"
    return InvalidSelection(
        f"{spec.key} is partitioned by {dimensions}, and the selection does not say which partitions",
        hint=f"write {example}, a range {spec.name}@A..B, {spec.name}@latest or {spec.name}@all",
    )


def _example(spec: AssetSpec) -> str:
    """One partition as a person would write it: the first."""
    dimension = spec.partitions.dimensions[0]
    low, high = dimension.bounds()
    if low >= high:  # a dynamic dimension without any value yet
        return f"{dimension.name}=…"
    return dimension.label(low) if dimension.timed else f"{dimension.name}={dimension.label(low)}"


# ── meaning ──────────────────────────────────────────────────────────────────────────────────────────────────────


class _Part(msgspec.Struct, frozen=True):
    """Of one asset: these partitions, or all but these, where it was not said which."""

    partitions: PartitionSet
    negated: bool = False

    def __bool__(self) -> bool:
        return self.negated or bool(self.partitions)

    def inverse(self) -> _Part:
        return _Part(self.partitions, not self.negated)

    def both(self, other: _Part) -> _Part:
        if self.negated and other.negated:
            return _Part(self.partitions | other.partitions, True)
        if self.negated:
            return _Part(other.partitions - self.partitions)
        return _Part(self.partitions - other.partitions if other.negated else self.partitions & other.partitions)

    def either(self, other: _Part) -> _Part:
        return self.inverse().both(other.inverse()).inverse()


_Selected = dict[str, _Part]  # assets that are not in it are not selected


class _Evaluation:
    def __init__(
        self,
        graph: Graph,
        now: datetime,
        partitions: str | None,
        statuses: Statuses | None,
        without_latest: dict[str, str] | None = None,
    ) -> None:
        self._graph = graph
        self._without_latest = without_latest
        self._now = now
        self._partitions = partitions
        self._statuses = statuses

    def of(self, node: Node, among: Set[str]) -> _Selected:
        """What a node selects; only what is `among` these assets need be right."""
        match node:
            case Term():
                return self._term(node, among)
            case Spread(inner=inner, up=up, down=down):
                selected = self.of(inner, self._graph.specs.keys())
                return _merged(self._spread(selected, up, upward=True), self._spread(selected, down, upward=False))
            case Not(inner=inner):
                # The partitions that terms have by default are those of what is selected, not of what is not.
                inside = _Evaluation(self._graph, self._now, None, self._statuses).of(inner, among)
                rest = {key: self._whole(key) for key in among}
                rest |= {key: rest[key].both(part.inverse()) for key, part in inside.items() if key in rest}
                return {key: part for key, part in rest.items() if part}
            case AnyOf(parts=parts):
                selected = {}
                for part in parts:
                    selected = _merged(selected, self.of(part, among))
                return selected
            case AllOf(parts=parts):
                # What takes assets away comes first, and statuses are asked for last: of what is still in question.
                first, *rest_of = sorted(parts, key=lambda part: (_asks_for_status(part), not isinstance(part, Not)))
                selected = self.of(first, among)
                for part in rest_of:
                    other = self.of(part, selected.keys())
                    both = {key: one.both(other[key]) for key, one in selected.items() if key in other}
                    selected = {key: one for key, one in both.items() if one}
                return selected

    def completed(self, selected: _Selected) -> _Selected:
        """With the default partitions where it was not said which."""
        if self._partitions is None:
            return selected
        return {
            key: part.both(self._asked(key, None, exactly=False)) if part.negated else part
            for key, part in selected.items()
        }

    def _term(self, term: Term, among: Set[str]) -> _Selected:
        kind, colon, value = term.what.partition(":")
        specs = self._graph.specs
        if colon and kind == "status":
            return self._status(value, term, among)
        if colon and kind == "group":
            known = {spec.group for spec in specs.values() if spec.group is not None}
            keys = [key for key, spec in specs.items() if spec.group == value]
        elif colon and kind == "tag":
            name, equals, wanted = value.partition("=")
            known = {tag for spec in specs.values() for tag in spec.tags}
            keys = [key for key, spec in specs.items() if spec.tags.get(name, None if equals else "") == wanted]
            if not equals:
                keys = [key for key, spec in specs.items() if name in spec.tags]
        elif colon:
            hint = "write group:, tag: or status:"
            raise InvalidSelection(
                f"{term.what!r:.80} at character {term.place + 1} selects by {kind!r:.40}", hint=hint
            )
        elif term.what == "*":
            known, keys = set(), list(specs)
        else:
            key = self._graph.resolve(term.what)
            return {key: self._asked(key, term.partitions, exactly=True)}
        if not keys and known | {""} != {""}:
            raise _nothing(term, value, known)
        if not keys:
            raise InvalidSelection(f"{term.what!r:.80} selects nothing: no asset has a {kind}")
        return {key: self._asked(key, term.partitions, exactly=False) for key in keys if key in among}

    def _asked(self, key: str, text: str | None, *, exactly: bool) -> _Part:
        """The partitions of an asset that were asked for; one without any has just the one."""
        definition = self._graph[key].partitions
        wanted = text if text is not None else self._partitions
        if not definition.dimensions and not (exactly and text is not None):
            return self._whole(key)
        if wanted is None:
            return self._whole(key)
        try:
            return _Part(definition.parse_set(wanted, self._now))
        except InvalidPartition as problem:
            too_early = "latest" in wanted and not definition.has_latest(self._now)
            if self._without_latest is not None and too_early:
                self._without_latest[key] = problem.message
                return _Part(definition.empty())
            raise InvalidPartition(f"{key}: {problem.message}", hint=problem.hint) from None

    def _whole(self, key: str) -> _Part:
        """An asset of which it was not said which partitions; one that has only one needs no saying."""
        definition = self._graph[key].partitions
        if definition.dimensions:
            return _Part(definition.empty(), True)
        return _Part(definition.everything(self._now))

    def _status(self, status: str, term: Term, among: Set[str]) -> _Selected:
        if status not in STATUSES:
            hint = f"write status:{', status:'.join(STATUSES)}"
            raise InvalidSelection(f"there is no status {status!r:.40}, at character {term.place + 1}", hint=hint)
        if self._statuses is None:
            raise InvalidSelection(
                f"{term.what} needs to know what was materialized, and nothing is known here",
                hint="name the partitions, or ask where the ledger is",
            )
        found: _Selected = {}
        refused: list[InvalidPartition] = []
        spoken_of = 0
        for key in among:
            partitions = self._statuses(key, status)
            if self._graph[key].partitions.dimensions:
                try:
                    asked = self._asked(key, term.partitions, exactly=False)
                except InvalidPartition as problem:
                    refused.append(problem)  # days say nothing about months, and something about other assets
                    continue
                partitions = partitions if asked.negated else partitions & asked.partitions
                spoken_of += 1
            if partitions:
                found[key] = _Part(partitions)
        if refused and not spoken_of:
            raise refused[0]
        return found

    def _spread(self, selected: _Selected, levels: int | None, *, upward: bool) -> _Selected:
        """What was selected, and what is up or down from it."""
        reached, fresh = dict(selected), selected
        while fresh and levels != 0:
            levels = None if levels is None else levels - 1
            arrived: _Selected = {}
            for key, part in fresh.items():
                for other in self._graph.upstream(key) if upward else self._graph.downstream(key):
                    flown = self._flown(key, other, part, upward)
                    arrived[other] = arrived[other].either(flown) if other in arrived else flown
            # What was here before has already gone on from here, at least as far.
            fresh = {
                key: part.both(reached[key].inverse()) if key in reached else part for key, part in arrived.items()
            }
            fresh = {key: part for key, part in fresh.items() if part}
            reached = _merged(reached, fresh)
        return reached

    def _flown(self, key: str, other: str, part: _Part, upward: bool) -> _Part:
        definition = self._graph[other].partitions
        if part.negated:
            return self._whole(other)
        if upward:
            return _Part(self._graph.mapping(other, key).upstream(part.partitions, definition, self._now))
        return _Part(self._graph.mapping(key, other).downstream(part.partitions, definition, self._now))


def _merged(one: _Selected, other: _Selected) -> _Selected:
    both = {key: part.either(other[key]) for key, part in one.items() if key in other}
    return {**one, **other, **both}


def _asks_for_status(node: Node) -> bool:
    return any(term.what.startswith("status:") for term in terms(node))


def _nothing(term: Term, value: str, known: Set[str]) -> InvalidSelection:
    if term.what.startswith("tag:") and "=" in value and term.partitions is not None:
        name, _, wanted = value.partition("=")
        hint = f"a value that holds @ is written in quotes: tag:{name}={quoted(f'{wanted}@{term.partitions}')}"
        return InvalidSelection(f"{term.what!r:.80} selects nothing, at character {term.place + 1}", hint=hint)
    near = get_close_matches(value.partition("=")[0], sorted(known), n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known)[:10])}"
    return InvalidSelection(f"{term.what!r:.80} selects nothing, at character {term.place + 1}", hint=hint)


# ── assets alone ─────────────────────────────────────────────────────────────────────────────────────────────────


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
            return spread(found, bare.upstream, up) | spread(found, bare.downstream, down)
        case Not(inner=inner):
            # Where partitions or a status are said, others of the same asset are left.
            whole = all(one.partitions is None and not one.what.startswith("status:") for one in terms(inner))
            return set(bare.specs) - (_assets(bare, inner) if whole else set())
        case AnyOf(parts=parts):
            return set[str]().union(*(_assets(bare, part) for part in parts))
        case AllOf(parts=parts):
            return set(bare.specs).intersection(*(_assets(bare, part) for part in parts))


def spread(keys: Iterable[str], neighbours: Callable[[str], tuple[str, ...]], levels: int | None = None) -> set[str]:
    """These assets and all that are so many levels from them, or any number."""
    reached, fresh = set(keys), set(keys)
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

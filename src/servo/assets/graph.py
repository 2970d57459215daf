"""The graph of assets: who reads whom, by which mapping, in an order in which they can be computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches

import msgspec

from servo.assets.spec import AssetSpec, Dependency, Problem
from servo.errors import AssetNotFound, InvalidInput
from servo.partitions.mappings import Mapping as PartitionMapping
from servo.partitions.mappings import default_mapping

OtherNames = Callable[[], Mapping[str, str]]


class Graph:
    """Assets with their dependencies resolved. `specs` are in topological order: upstreams first.

    `other_names` gives, when it is asked, the keys of assets by names that they had before or have since.
    """

    def __init__(self, specs: dict[str, AssetSpec], other_names: OtherNames | None = None) -> None:
        self.specs = specs
        self.other_names = other_names
        self._mappings: dict[tuple[str, str], PartitionMapping] = {}
        self._downstream: dict[str, list[str]] = {key: [] for key in specs}
        for key, spec in specs.items():
            for dependency in spec.dependencies:
                assert dependency.mapping is not None
                self._downstream[dependency.upstream].append(key)
                self._mappings[dependency.upstream, key] = dependency.mapping

    @classmethod
    def of(cls, specs: Iterable[AssetSpec], aliases: Mapping[str, str] | None = None) -> Graph:
        """The graph of these assets; raises InvalidDefinition for the first thing that is wrong."""
        graph, problems = examine(specs, aliases)
        for problem in problems:
            raise problem.error()
        assert graph is not None
        return graph

    @classmethod
    def known(cls, specs: Iterable[AssetSpec], other_names: OtherNames | None = None) -> Graph:
        """The graph of assets that were checked before, and whose dependencies are resolved; in any order."""
        by_key = {spec.key: spec for spec in specs}
        ordered, cycles = _ordered(by_key)
        assert not cycles
        return cls({key: by_key[key] for key in ordered}, other_names)

    def __contains__(self, key: str) -> bool:
        return key in self.specs

    def __getitem__(self, key: str) -> AssetSpec:
        return self.specs[key]

    def upstream(self, key: str) -> tuple[str, ...]:
        """What an asset reads directly."""
        return tuple(dependency.upstream for dependency in self.specs[key].dependencies)

    def downstream(self, key: str) -> tuple[str, ...]:
        """What reads an asset directly."""
        return tuple(self._downstream[key])

    def mapping(self, upstream: str, downstream: str) -> PartitionMapping:
        """How the partitions of two neighbours belong together."""
        return self._mappings[upstream, downstream]

    def resolve(self, name: str) -> str:
        """The key of the asset of a name: `orders`, `sales/orders` or `sales.orders`."""
        found = _Names(self.specs).find(name.strip())
        if not found and self.other_names is not None:
            others = {key: now for key, now in self.other_names().items() if key not in self.specs}
            found = list(dict.fromkeys(others[key] for key in _Names(others).find(name.strip())))
        if len(found) == 1:
            return found[0]
        if found:
            hint = f"write {' or '.join(found)}"
            raise AssetNotFound(f"{name!r:.80} is the name of {len(found)} assets", hint=hint)
        raise AssetNotFound(f"there is no asset {name!r:.80}", hint=_closest(name, self.specs))


def examine(
    specs: Iterable[AssetSpec], aliases: Mapping[str, str] | None = None, broken: Iterable[str] = ()
) -> tuple[Graph | None, list[Problem]]:
    """The graph of these assets, or all that is wrong with it.

    `aliases` are other names of assets (those of their functions) by key; `broken` names assets that are declared but
    could not be read: who depends on them is not at fault.
    """
    problems: list[Problem] = []
    declared: dict[str, AssetSpec] = {}
    for spec in specs:
        other = declared.setdefault(spec.key, spec)
        if other is not spec:
            hint = "give one of them another name= or namespace="
            problems.append(_problem(spec, f"is declared a second time; first at {other.source}", hint))
    names = _Names(declared, aliases or {}, broken)
    resolved = {key: _resolved(spec, names, problems) for key, spec in declared.items()}
    problems += _renamings(declared)
    ordered, cycles = _ordered(resolved)
    problems += cycles
    mapped = {key: _mapped(resolved[key], declared, problems) for key in ordered}
    return (None if problems else Graph(mapped)), problems


def _problem(spec: AssetSpec, message: str, hint: str | None) -> Problem:
    return Problem(message=f"asset {spec.key} {message}", hint=hint, source=spec.source)


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Names:
    """Finds assets by what people call them."""

    def __init__(
        self, specs: Mapping[str, object], aliases: Mapping[str, str] | None = None, broken: Iterable[str] = ()
    ) -> None:
        self.keys = specs.keys()
        self.broken = frozenset(broken)
        self._by_name: dict[str, list[str]] = {}
        for key in specs:
            namespace, _, name = key.partition("/")
            for called in {name, f"{namespace}.{name}"}:
                self._by_name.setdefault(called, []).append(key)
        self._by_alias: dict[str, list[str]] = {}
        for key, alias in (aliases or {}).items():
            self._by_alias.setdefault(alias, []).append(key)

    def find(self, name: str, namespace: str | None = None) -> list[str]:
        """The keys that it may mean; where it is in the asker's own namespace, that one."""
        if name in self.keys:
            return [name]
        found = self._by_name.get(name) or self._by_alias.get(name) or []
        return [key for key in found if key.partition("/")[0] == namespace] or found


def _closest(name: str, keys: Iterable[str]) -> str:
    known = {called: key for key in keys for called in (key, key.partition("/")[2])}
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else "`servo asset list` names them all"


def _resolved(spec: AssetSpec, names: _Names, problems: list[Problem]) -> AssetSpec:
    """The asset with keys in place of names; upstreams that are not there are left out."""
    dependencies: dict[str, Dependency] = {}
    for dependency in spec.dependencies:
        found = names.find(dependency.upstream, spec.namespace)
        what = "depends on" if dependency.parameter is None else "has the parameter"
        called = dependency.parameter or dependency.upstream
        if not found:
            if dependency.upstream.rpartition("/")[2] not in names.broken:
                missing = f"{what} {called}, but there is no asset {dependency.upstream}"
                problems.append(_problem(spec, missing, _closest(dependency.upstream, names.keys)))
        elif len(found) > 1:
            hint = f'name one in deps=, such as {{"{called}": Dep("{found[0]}")}}'
            problems.append(_problem(spec, f"{what} {called}, which may be {' or '.join(found)}", hint))
        elif found[0] in dependencies:
            hint = "name it once, with a mapping such as mapping.Lookback(2), and tell the partitions by their columns"
            problems.append(_problem(spec, f"depends on {found[0]} twice", hint))
        else:
            dependencies[found[0]] = msgspec.structs.replace(dependency, upstream=found[0])
    return msgspec.structs.replace(spec, dependencies=tuple(dependencies.values()))


def _renamings(declared: Mapping[str, AssetSpec]) -> Iterator[Problem]:
    """Only one asset can have been called so before; its old name is free for another."""
    taken: dict[str, str] = {}
    for spec in declared.values():
        if spec.renamed_from is None:
            continue
        before = spec.renamed_from if "/" in spec.renamed_from else f"{spec.namespace}/{spec.renamed_from}"
        if before == spec.key:
            yield _problem(spec, "was renamed from its own name", "name in renamed_from what it was called before")
        elif before in taken:
            yield _problem(spec, f"and {taken[before]} were both renamed from {before}", "only one of them can be")
        taken[before] = spec.key


# ── order ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _ordered(specs: Mapping[str, AssetSpec]) -> tuple[list[str], list[Problem]]:
    """Upstreams first, otherwise as declared; and the cycles, whose assets are left out."""
    readers: dict[str, list[str]] = {key: [] for key in specs}
    waiting = {key: len(spec.dependencies) for key, spec in specs.items()}
    for key, spec in specs.items():
        for dependency in spec.dependencies:
            readers[dependency.upstream].append(key)
    ordered = [key for key, count in waiting.items() if count == 0]
    for key in ordered:  # grows while it is walked through
        for reader in readers[key]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ordered.append(reader)
    done = set(ordered)
    left = {key: spec for key, spec in specs.items() if key not in done}
    return ordered, list(_cycles(left))


def _cycles(left: dict[str, AssetSpec]) -> Iterator[Problem]:
    """A cycle among assets each of which waits for another of them, and another among those that are left then."""
    while left:
        key = min(left)
        trail: dict[str, None] = {}
        while key not in trail:
            trail[key] = None
            upstreams = [one.upstream for one in left[key].dependencies if one.upstream in left]
            if not upstreams:  # it only waited for a cycle that is already named
                break
            key = upstreams[0]
        else:
            cycle = list(trail)[list(trail).index(key) :][::-1]
            first = cycle.index(min(cycle))
            cycle = cycle[first:] + cycle[:first]
            message = f"is part of a cycle: {' → '.join([*cycle, cycle[0]])}"
            yield _problem(left[cycle[0]], message, "take one of these dependencies away")
        for one in trail:
            del left[one]


def _mapped(spec: AssetSpec, declared: Mapping[str, AssetSpec], problems: list[Problem]) -> AssetSpec:
    """The asset with a mapping for every dependency."""
    dependencies = []
    for dependency in spec.dependencies:
        upstream = declared[dependency.upstream].partitions
        try:
            mapping = dependency.mapping or default_mapping(upstream, spec.partitions)
            mapping.check(upstream, spec.partitions)
        except InvalidInput as problem:
            problems.append(_problem(spec, f"cannot read {dependency.upstream}: {problem.message}", problem.hint))
            continue
        dependencies.append(msgspec.structs.replace(dependency, mapping=mapping))
    return msgspec.structs.replace(spec, dependencies=tuple(dependencies))

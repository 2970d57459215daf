"""What should run now: what is stale or missing, and what becomes stale by running that. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from servo.partitions import PartitionSet
from servo.partitions.mappings import Mapping as PartitionMapping
from servo.planning.catalog import Catalog
from servo.planning.planner import without_input
from servo.planning.stages import no_data

CODE_CHANGED = "CODE_CHANGED"


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """One asset as it stands."""

    there: PartitionSet  # has data, or was marked as materialized
    missing: PartitionSet
    marked: PartitionSet | None = None  # as materialized, of what is there: it counts as done, and holds no data
    stale: dict[str, PartitionSet] = {}  # by reason, also frozen ones; one with several is in the first of them
    frozen: PartitionSet | None = None
    on_the_way: PartitionSet | None = None  # an unfinished run computes it
    code_changes: str = ""  # what changed in the code, where that is a reason and it can be told


class DueGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of one asset that are to run for one reason."""

    asset_key: str
    partitions: PartitionSet
    code: str  # MISSING, a reason to be stale, or AFTER_UPSTREAM
    because_of: tuple[str, ...] = ()  # assets that run before, whose running makes these stale
    detail: str = ""  # what changed in the code, where that is the reason

    def sentence(self) -> str:
        if self.code == "AFTER_UPSTREAM":
            return f"follows {', '.join(self.because_of)}"
        if self.code == "MISSING":
            return "missing"
        return f"stale: {self.code.lower().replace('_', ' ')}" + (f": {self.detail}" if self.detail else "")


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions that should run and do not: what they wait for."""

    asset_key: str
    partitions: PartitionSet
    why: str
    frozen: bool = False


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, by asset, upstreams first; why, group by group; and what is held back."""

    wanted: dict[str, PartitionSet]
    groups: tuple[DueGroup, ...] = ()
    held: tuple[Held, ...] = ()


def due(catalog: Catalog, selected: Mapping[str, PartitionSet], present: Mapping[str, Present], now: datetime) -> Due:
    """Decide what runs of the selection. `present` has every asset that is selected, and those that they read."""
    wanted: dict[str, PartitionSet] = {}
    groups: list[DueGroup] = []
    held: list[Held] = []
    for key in catalog.graph.specs:  # upstreams first
        if not selected.get(key):
            continue
        asset = _Asset(catalog, key, selected[key], present, now)
        asset.collect(wanted)
        held += asset.held
        groups += asset.groups
        if asset.wanted:
            wanted[key] = asset.wanted
    return Due(wanted=wanted, groups=tuple(groups), held=tuple(held))


class _Asset:
    """One asset in the making: what of it runs, given what runs before it."""

    def __init__(
        self, catalog: Catalog, key: str, selected: PartitionSet, present: Mapping[str, Present], now: datetime
    ) -> None:
        self._catalog, self._key, self._now = catalog, key, now
        self._present = present
        mine = present[key]
        self._selected = selected
        self._frozen = selected.partitions.empty() if mine.frozen is None else mine.frozen
        self._due_but_frozen = selected.partitions.empty()
        self.wanted = selected.partitions.empty()
        self.groups: list[DueGroup] = []
        self.held: list[Held] = []

    def collect(self, runs: Mapping[str, PartitionSet]) -> None:
        mine = self._present[self._key]
        reasons = {"MISSING": mine.missing, **mine.stale}
        found: dict[tuple[str, tuple[str, ...]], PartitionSet] = {}
        for code, some in reasons.items():
            self._add(found, code, (), some)
        # What is computed already will see to it; what is made stale by this run is needed after it all the same.
        if mine.on_the_way:
            self._hold("an unfinished run computes it", self.wanted & mine.on_the_way)
        for upstream in self._upstream():
            if upstream in runs:
                affected = self._mapping(upstream).downstream(runs[upstream], self._selected.partitions, self._now)
                data = mine.there if mine.marked is None else mine.there - mine.marked
                self._add(found, "AFTER_UPSTREAM", (upstream,), affected & data)
        if self._due_but_frozen:
            why = "is frozen" if self._due_but_frozen.count == 1 else "are frozen"
            self.held.append(Held(asset_key=self._key, partitions=self._due_but_frozen, why=why, frozen=True))
        for upstream in self._upstream():
            self._require(upstream, runs.get(upstream))
        left = self.wanted
        for (code, because_of), some in found.items():
            group = some & left
            if group:
                left = left - group
                detail = mine.code_changes if code == CODE_CHANGED else ""
                self.groups.append(
                    DueGroup(asset_key=self._key, partitions=group, code=code, because_of=because_of, detail=detail)
                )

    def _add(
        self,
        found: dict[tuple[str, tuple[str, ...]], PartitionSet],
        code: str,
        because_of: tuple[str, ...],
        some: PartitionSet,
    ) -> None:
        """A partition that is due for several reasons is named with the first of them; a frozen one stays as it is."""
        due_now = some & self._selected
        self._due_but_frozen = self._due_but_frozen | (due_now & self._frozen)
        new = due_now - self._frozen - self.wanted
        if new:
            found[code, because_of] = new
            self.wanted = self.wanted | new

    def _require(self, upstream: str, runs: PartitionSet | None) -> None:
        """Hold back what reads something that is neither there nor part of the run."""
        if not self.wanted:
            return
        mapping, definition = self._mapping(upstream), self._catalog.spec(upstream).partitions
        needed = mapping.upstream(self.wanted, definition, self._now)
        absent = needed - self._present[upstream].there
        absent = absent if runs is None else absent - runs
        if absent:
            readers = mapping.downstream(absent, self.wanted.partitions, self._now) & self.wanted
            self._hold(f"reads {upstream} {absent.describe()}".rstrip() + ", which is not there", readers)
        self._require_data(upstream, needed, runs)
        idle = without_input(mapping, self.wanted, needed, self._now)
        self._hold(f"has nothing to read in {upstream}", idle)

    def _require_data(self, upstream: str, needed: PartitionSet, runs: PartitionSet | None) -> None:
        """Hold back what reads data of partitions that were only marked; what just waits for them may run."""
        marked = self._present[upstream].marked
        if not marked or not self._catalog.reads_data(self._key, upstream):
            return
        without = needed & marked
        without = without if runs is None else without - runs
        if without:
            mapping = self._mapping(upstream)
            readers = mapping.downstream(without, self.wanted.partitions, self._now) & self.wanted
            # Where a custom mapping does not tell which partitions read it, all may.
            self._hold(f"reads {no_data(upstream, without)}", readers or self.wanted)

    def _hold(self, why: str, some: PartitionSet) -> None:
        if some:
            self.held.append(Held(asset_key=self._key, partitions=some, why=why))
            self.wanted = self.wanted - some

    def _upstream(self) -> list[str]:
        return list(dict.fromkeys(self._catalog.graph.upstream(self._key)))

    def _mapping(self, upstream: str) -> PartitionMapping:
        return self._catalog.graph.mapping(upstream, self._key)

"""Staleness by the book: one partition, one input, one event at a time, with nothing of the implementation's SQL."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from servo.assets.spec import AssetSpec
from servo.events import RecordedEvent, decode
from servo.events.columns import Outcome, PartitionOutcomes, spread
from servo.events.model import (
    CodeDeclaredEqual,
    DefinitionsDeployed,
    DynamicPartitionsChanged,
    MaterializationPublished,
    PartitionsInvalidated,
    PartitionsMarked,
    RolledBack,
    TaskFinished,
)
from servo.partitions import PartitionKey
from servo.planning.catalog import Catalog
from servo.planning.deployed import spec_of

ORDER = ["INVALIDATED", "CODE_CHANGED", "UPSTREAM_CHANGED", "FRESHNESS_POLICY", "UPSTREAM_STALE"]
Place = tuple[str, str]  # asset id, partition key


class Version(NamedTuple):
    """Something that became current."""

    since: datetime
    number: int
    made: str | None
    content: str | None
    made_at: datetime
    run: str | None
    code: str | None

    @property
    def marked(self) -> bool:
        """Whether somebody only said that it is there: it holds no data."""
        return self.made is not None and self.run is None and self.code is None and self.content is None


class Stale(NamedTuple):
    """Reasons with their moments, in order; and the root (asset key, partition key, code) if there is one."""

    reasons: dict[str, datetime]
    root: tuple[str, str, str] | None = None

    @property
    def code(self) -> str:
        return next(code for code in ORDER if code in self.reasons)

    @property
    def since(self) -> datetime:
        return min(self.reasons.values())


class Oracle:
    """What is stale after some events, at a moment."""

    def __init__(self, events: list[RecordedEvent], now: datetime) -> None:
        self.now = now
        self.versions: dict[Place, list[Version]] = {}
        self.contents: dict[str, str | None] = {}
        self.reads: dict[str, list[tuple[Place, str]]] = {}
        self.invalidated: dict[Place, tuple[int, datetime]] = {}
        self.frozen: set[Place] = set()
        self.codes: dict[str, list[tuple[datetime, str | None]]] = {}
        self.equal: dict[tuple[str, str | None], set[str | None]] = {}  # by asset id and version
        self.catalog = Catalog.of([], {})
        self.specs: list[AssetSpec] = []
        self.ids: dict[str, str] = {}
        self.dynamic: dict[str, list[str]] = {}
        # What was defined from when on: after each deployment and each change of a dynamic dimension.
        self.defined: list[tuple[datetime, Catalog]] = []
        for number, event in enumerate(events):
            self._take(number, event)

    # ── one event at a time ──────────────────────────────────────────────────────────────────────────────────────

    def _take(self, number: int, event: RecordedEvent) -> None:
        fact, at = decode(event), event.occurred_at
        match fact:
            case DefinitionsDeployed():
                self.ids = {one.asset_key: one.asset_id for one in fact.assets}
                self.specs = [spec_of(one) for one in fact.assets]
                self._define(at)
                for one in fact.assets:
                    self.codes.setdefault(one.asset_id, []).append((at, one.code_version))
                    if one.same_code_as is not None:
                        self._equal(one.asset_id, one.code_version, one.same_code_as)
                for gone in fact.removed_asset_ids:
                    self.codes.setdefault(gone, []).append((at, None))
            case CodeDeclaredEqual():
                for version in fact.equal_to:
                    self._equal(fact.asset_id, fact.code_version, version)
            case DynamicPartitionsChanged():
                there = [one for one in self.dynamic.get(fact.dimension, []) if one not in fact.removed]
                self.dynamic[fact.dimension] = [*there, *(one for one in fact.added if one not in there)]
                self._define(at)
            case TaskFinished() | MaterializationPublished():
                self._made(number, at, fact.asset_id, fact.partitions, fact.run_id, fact.code_version)
                for source in fact.inputs:
                    made = fact.partitions.materialization_ids()
                    for output, place in source.pairs(len(made)):
                        entry = ((source.asset_id, source.keys[place]), source.materialization_ids[place])
                        known = self.reads.setdefault(str(made[output]), [])
                        if entry not in known:
                            known.append(entry)
            case PartitionsMarked():
                places = {(fact.asset_id, key) for key in fact.partitions.keys}
                if fact.mark == "MATERIALIZED":
                    self._made(number, at, fact.asset_id, fact.partitions, None, None)
                elif fact.mark == "FROZEN":
                    self.frozen |= places
                else:
                    self.frozen -= places
            case PartitionsInvalidated():
                for subset in fact.sets:
                    for key in subset.keys:
                        self.invalidated[subset.asset_id, key] = (number, at)
            case RolledBack():
                past = fact.partitions
                codes, contents = (spread(one, len(past.keys)) for one in (past.code_version, past.content_hash))
                for n, key in enumerate(past.keys):
                    version = Version(
                        at, number, past.materialization_ids[n], contents[n], past.materialized_at[n], past.run_ids[n],
                        codes[n],
                    )  # fmt: skip
                    self.versions[fact.asset_id, key].append(version)
            case _:
                raise AssertionError(fact)

    def _equal(self, asset_id: str, one: str, other: str) -> None:
        same = self.equal.get((asset_id, one), {one}) | self.equal.get((asset_id, other), {other})
        self.equal |= {(asset_id, version): same for version in same}

    def _define(self, at: datetime) -> None:
        self.catalog = Catalog.of(self.specs, self.ids, dynamic=self.dynamic)
        self.defined.append((at, self.catalog))

    def _made(  # noqa: PLR0917 (one event, and what it says)
        self, number: int, at: datetime, asset: str, what: PartitionOutcomes, run: str | None, code: str | None
    ) -> None:
        contents = spread(what.content_hash, len(what))
        for key, outcome, made, content in zip(
            what.keys, what.outcomes(), what.materialization_ids(), contents, strict=True
        ):
            if made is not None:
                self.contents[made] = content
            if outcome is Outcome.SUCCEEDED:
                version = Version(at, number, made, content, at, run, code)
                self.versions.setdefault((asset, key), []).append(version)

    # ── one partition at a time ──────────────────────────────────────────────────────────────────────────────────

    def stale(self, *, transitive: bool) -> dict[tuple[str, str], Stale]:
        """By asset key and partition key."""
        found = {}
        for asset_key, asset_id in self.catalog.asset_ids.items():
            for owner, key in sorted(self.versions):
                if owner == asset_id:
                    reasons, root = self._judge((asset_key, key), transitive=transitive)
                    if reasons:
                        found[asset_key, key] = Stale(reasons, root)
        return found

    def _can_be_stale(self, asset: AssetSpec, key: str) -> bool:
        place = (self.catalog.asset_ids[asset.key], key)
        if place not in self.versions or self.versions[place][-1].marked:
            return False
        return place not in self.frozen and PartitionKey.parse(key) in asset.partitions

    def _judge(
        self, place: tuple[str, str], *, transitive: bool
    ) -> tuple[dict[str, datetime], tuple[str, str, str] | None]:
        asset_key, key = place
        asset = self.catalog.spec(asset_key)
        if not self._can_be_stale(asset, key):
            return {}, None
        current = self.versions[self.catalog.asset_ids[asset_key], key][-1]
        reasons = {code: max(since, current.since) for code, since in self._own(asset, key, current).items()}
        if not transitive:
            return reasons, None
        upstream = [
            (one, self._judge(one, transitive=True)[0])
            for one, place_of in self._given(asset, key)
            if any(read == place_of for read, _ in self.reads.get(current.made or "", []))
        ]
        sinces = [min(of_it.values()) for _, of_it in upstream if of_it]
        if not sinces:
            return reasons, None
        reasons["UPSTREAM_STALE"] = max(min(sinces), current.since)
        return reasons, self._root(place)

    def _root(self, place: tuple[str, str]) -> tuple[str, str, str]:
        """The nearest partition upstream that is stale by itself, by walking outward in circles."""
        circle = [place]
        while circle:
            further: list[tuple[str, str]] = []
            for asset_key, key in circle:
                current = self.versions[self.catalog.asset_ids[asset_key], key][-1]
                further += [
                    one
                    for one, place_of in self._given(self.catalog.spec(asset_key), key)
                    if any(read == place_of for read, _ in self.reads.get(current.made or "", []))
                    and self._can_be_stale(self.catalog.spec(one[0]), one[1])
                ]
            roots = [one for one in further if self._judge(one, transitive=False)[0]]
            if roots:
                asset_key, key = min(roots)
                own = self._judge((asset_key, key), transitive=False)[0]
                return asset_key, key, next(code for code in ORDER if code in own)
            circle = further
        raise AssertionError("who is stale by its inputs has a root")

    def _own(self, asset: AssetSpec, key: str, current: Version) -> dict[str, datetime]:
        asset_id = self.catalog.asset_ids[asset.key]
        found: dict[str, datetime] = {}
        number, at = self.invalidated.get((asset_id, key), (0, None))
        if at is not None and (number > current.number or at > current.made_at):
            found["INVALIDATED"] = at
        same = self.equal.get((asset_id, current.code), {current.code})
        if current.code is not None and asset.code_version not in same:
            deployed = self.codes[asset_id]
            last = max((n for n, (_, code) in enumerate(deployed) if code in same), default=None)
            found["CODE_CHANGED"] = current.since if last is None else deployed[last + 1][0]
        changes = [at for at in (self._changed(asset, key, current, *one) for one in self._given(asset, key)) if at]
        changes += [at for at in (self._removed(asset_id, key, *read) for read in self._read(current)) if at]
        if changes:
            found["UPSTREAM_CHANGED"] = min(max(at, current.since) for at in changes)
        if asset.freshness is not None and current.made_at + asset.freshness <= self.now:
            found["FRESHNESS_POLICY"] = current.made_at + asset.freshness
        return found

    def _given(self, asset: AssetSpec, key: str) -> list[tuple[tuple[str, str], Place]]:
        """The inputs that the partition is given and that are there: asset key and key, asset id and key."""
        found = []
        for dependency in asset.dependencies:
            upstream = self.catalog.spec(dependency.upstream)
            asked = asset.partitions.set_of([PartitionKey.parse(key)])
            assert dependency.mapping is not None
            for one in dependency.mapping.upstream(asked, upstream.partitions, self.now):
                place = (self.catalog.asset_ids[upstream.key], str(one))
                if place in self.versions:
                    found.append(((upstream.key, str(one)), place))
        return found

    def _read(self, current: Version) -> list[Place]:
        return [place for place, _ in self.reads.get(current.made or "", [])]

    def _removed(self, asset_id: str, key: str, upstream_id: str, upstream_key: str) -> datetime | None:
        """Since when an input that was read is not given any more; None if it is."""
        since = None
        for at, catalog in reversed(self.defined):
            keys = {one: name for name, one in catalog.asset_ids.items()}
            if asset_id not in keys or upstream_id not in keys:
                continue  # what is not there says nothing
            if self._gives(catalog, keys[asset_id], key, keys[upstream_id], upstream_key):
                break
            since = at
        return since

    def _gives(self, catalog: Catalog, reader: str, key: str, upstream: str, upstream_key: str) -> bool:
        asset, other = catalog.spec(reader), catalog.spec(upstream)
        mapping = next((one.mapping for one in asset.dependencies if one.upstream == upstream), None)
        output, source = PartitionKey.parse(key), PartitionKey.parse(upstream_key)
        if mapping is None or output not in asset.partitions or source not in other.partitions:
            return False
        asked, window = asset.partitions.set_of([output]), other.partitions.window(source)
        # What is given by the clock is given for good, also when another window has become the last one.
        moments = [self.now] if window is None else [self.now, window.end]
        return any(source in mapping.upstream(asked, other.partitions, moment) for moment in moments)

    def _changed(
        self, asset: AssetSpec, key: str, current: Version, name: tuple[str, str], place: Place
    ) -> datetime | None:
        """Since when the input makes the partition stale; None if it does not."""
        if self.versions[place][-1].marked:
            return None
        versions = [one for one in self.versions[place] if not one.marked]
        read = [made for one, made in self.reads.get(current.made or "", []) if one == place]
        if not read:
            arrived = versions[0].since
            if current.run is None and arrived <= current.made_at:
                return None
            return max(arrived, self._given_since(asset, key, name) or arrived)

        def is_what_was_read(version: Version) -> bool:
            content = self.contents[read[0]]
            return version.made == read[0] or (content is not None and version.content == content)

        if is_what_was_read(versions[-1]):
            return None
        after = len(versions)
        while after > 0 and not is_what_was_read(versions[after - 1]):
            after -= 1
        return versions[after].since

    def _given_since(self, asset: AssetSpec, key: str, name: tuple[str, str]) -> datetime | None:
        """When time alone made it an input: the end of its window, if the mapping did not give it just before."""
        upstream = self.catalog.spec(name[0])
        mapping = next(one.mapping for one in asset.dependencies if one.upstream == name[0])
        assert mapping is not None
        window = upstream.partitions.window(PartitionKey.parse(name[1]))
        if window is None:
            return None
        asked = asset.partitions.set_of([PartitionKey.parse(key)])
        before = mapping.upstream(asked, upstream.partitions, window.end - timedelta(seconds=1))
        return None if PartitionKey.parse(name[1]) in before else window.end

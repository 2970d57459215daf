"""What is deployed, as a value: the graph of assets and their ids, which deployment it was, schedules and sensors, and
how people name these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from difflib import get_close_matches
from pathlib import Path

import msgspec

from servo.assets.graph import Graph
from servo.assets.loading import resolver
from servo.assets.spec import AssetSpec
from servo.errors import AssetNotFound, InvalidPartitionKey, NotFound, ScheduleNotFound, SensorNotFound
from servo.events.definitions import AssetDefinition, ScheduleDefinition, SensorDefinition
from servo.partitions import UNPARTITIONED, PartitionKey, Partitions
from servo.planning.deployed import DECLARED, fingerprint, spec_of
from servo.planning.history import HistoryChange, NameUse

_SHORTEST = 4  # letters of an id that are taken for its beginning


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """Assets as deployed. Their dynamic dimensions have the values of one moment, `dynamic`."""

    graph: Graph
    asset_ids: dict[str, str] = {}  # by asset key
    deployment_id: str | None = None  # None: nothing was deployed yet
    number: int = 0
    definitions_hash: str | None = None
    dynamic: dict[str, tuple[str, ...]] = {}
    # The event up to which the ledger is known to say nothing else.
    position: int = 0
    event_id: str | None = None
    # What deploying it would do to the history of assets; nothing for one that is deployed.
    changes: Callable[[], tuple[HistoryChange, ...]] = tuple

    @classmethod
    def of(
        cls,
        specs: Iterable[AssetSpec],
        asset_ids: Mapping[str, str],
        *,
        deployment_id: str | None = None,
        number: int = 0,
        definitions_hash: str | None = None,
        dynamic: Mapping[str, Sequence[str]] | None = None,
        position: int = 0,
        event_id: str | None = None,
    ) -> Catalog:
        """The catalog of assets that were checked when they were deployed."""
        known = {name: tuple(values) for name, values in (dynamic or {}).items()}
        return cls(
            graph=Graph.known([_with_values(spec, known) for spec in specs]),
            asset_ids=dict(asset_ids),
            deployment_id=deployment_id,
            number=number,
            definitions_hash=definitions_hash,
            dynamic=known,
            position=position,
            event_id=event_id,
        )

    def with_values(self, added: Mapping[str, Sequence[str]]) -> Catalog:
        """This catalog with more values of dynamic dimensions."""
        dynamic = {**self.dynamic, **{name: (*self.dynamic.get(name, ()), *new) for name, new in added.items()}}
        specs = [_with_values(spec, dynamic) for spec in self.graph.specs.values()]
        return msgspec.structs.replace(self, graph=Graph.known(specs, self.graph.other_names), dynamic=dynamic)

    def with_other_names(self, ids: Callable[[], Mapping[str, str]]) -> Catalog:
        """This catalog, whose assets are found by every name that they ever had, as long as no other asset has it.

        `ids`: of assets by every name in the ledger as it is now, asked only where a name is not one of the catalog's:
        one of the past knows what its assets were called then, and is asked by what they are called since.
        """

        def other_names() -> dict[str, str]:
            keys = {asset_id: key for key, asset_id in self.asset_ids.items()}
            return {name: keys[asset_id] for name, asset_id in ids().items() if asset_id in keys}

        graph = copy(self.graph)
        graph.other_names = other_names
        return msgspec.structs.replace(self, graph=graph)

    def spec(self, asset_key: str) -> AssetSpec:
        found = self.graph.specs.get(asset_key)
        if found is None:
            raise AssetNotFound(f"no asset {asset_key!r:.80} is deployed", hint="`servo asset list` names them all")
        return found

    def label(self, asset: str, key: str | None) -> str:
        """The text that people type for a partition of an asset; nothing for its only partition."""
        try:
            definition = self.graph.specs[self.graph.resolve(asset)].partitions
        except AssetNotFound:
            definition = UNPARTITIONED  # it is gone, or has another name by now: its values as they stand
        try:
            return definition.short_key(PartitionKey.parse(key)) if key else ""
        except InvalidPartitionKey:
            return key or ""  # code that logs may call a partition anything

    def reads_data(self, asset_key: str, upstream: str) -> bool:
        """Whether an asset is given the data of another as a parameter, and does not just wait for it (`deps=`)."""
        return any(one.upstream == upstream and one.parameter is not None for one in self.spec(asset_key).dependencies)

    def asset_id(self, asset_key: str) -> str:
        found = self.asset_ids.get(asset_key)
        if found is None:
            raise AssetNotFound(f"no asset {asset_key!r:.80} is deployed", hint="`servo asset list` names them all")
        return found

    def asset_key(self, asset_id: str) -> str | None:
        """What the asset with this id is called now; None if it is not there any more."""
        return next((key for key, one in self.asset_ids.items() if one == asset_id), None)

    def current_key(self, asset_id: str, asset_key: str) -> str | None:
        """What an asset is called now that had this id and key; None if it is not there any more.

        The id decides: another asset may have taken over the name.
        """
        return asset_key if self.asset_ids.get(asset_key) == asset_id else self.asset_key(asset_id)


def _with_values(spec: AssetSpec, dynamic: Mapping[str, tuple[str, ...]]) -> AssetSpec:
    if not any(dimension.kind == "dynamic" for dimension in spec.partitions.dimensions):
        return spec
    return msgspec.structs.replace(spec, partitions=spec.partitions.resolved(dynamic))


class DeployedAutomation(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule or sensor as it is: its definition, its newest version, and whether it was deleted."""

    definition: ScheduleDefinition | SensorDefinition
    version: int
    gone: bool

    @property
    def id(self) -> str:
        definition = self.definition
        return definition.schedule_id if isinstance(definition, ScheduleDefinition) else definition.sensor_id

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def is_declared(self) -> bool:
        """Whether code declares it; else a person created it."""
        return DECLARED in self.definition.settings

    @property
    def declared_at(self) -> str | None:
        """The file and line that declare it."""
        source = self.definition.settings.get("source") or {}
        return f"{source['file']}:{source.get('line', 0)}" if source.get("file") else None

    @property
    def schedule(self) -> ScheduleDefinition:
        assert isinstance(self.definition, ScheduleDefinition)
        return self.definition

    @property
    def sensor(self) -> SensorDefinition:
        assert isinstance(self.definition, SensorDefinition)
        return self.definition


class DeployedState(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger says of definitions, at a position."""

    position: int
    event_id: str | None = None
    assets: list[tuple[AssetDefinition, bool]] = []  # and whether it is there; oldest first
    schedules: list[DeployedAutomation] = []
    sensors: list[DeployedAutomation] = []
    dynamic: dict[str, list[str]] = {}
    deployment_id: str | None = None
    number: int = 0
    # Both are asked only by who compares these definitions with others.
    names: Callable[[], list[NameUse]] = list  # every name that an asset ever had
    made: Callable[[], dict[str, int]] = dict  # of how many partitions there is data, by asset id
    # Of assets by id, how many partitions with data these definitions of their partitions do not have.
    outside: Callable[[Mapping[str, Partitions]], dict[str, int]] = lambda _: {}

    @property
    def present(self) -> list[AssetDefinition]:
        return [asset for asset, there in self.assets if there]

    @property
    def automations(self) -> list[str]:
        return [one.id for one in (*self.schedules, *self.sensors)]

    def schedule(self, named: str) -> DeployedAutomation:
        """The schedule of this name or id."""
        return find_automation(self.schedules, named, what="schedule")

    def sensor(self, named: str) -> DeployedAutomation:
        """The sensor of this name or id."""
        return find_automation(self.sensors, named, what="sensor")

    def definitions_hash(self) -> str:
        """The hash of what is deployed from code, without what people made by other means."""
        schedules = [one.schedule for one in self.schedules if not one.gone and one.is_declared]
        sensors = [one.sensor for one in self.sensors if not one.gone and one.is_declared]
        return fingerprint(self.present, schedules, sensors)

    def catalog(self, root: Path) -> Catalog:
        """The assets, with the mappings that the project's code at `root` defines."""
        resolve = resolver(root)
        return Catalog.of(
            [spec_of(asset, resolve) for asset in self.present],
            {asset.asset_key: asset.asset_id for asset in self.present},
            deployment_id=self.deployment_id,
            number=self.number,
            definitions_hash=self.definitions_hash(),
            dynamic=self.dynamic,
            position=self.position,
            event_id=self.event_id,
        )


class Definitions(msgspec.Struct, frozen=True, kw_only=True):
    """The definitions to answer by: those deployed, or with the changes in the project's folder."""

    state: DeployedState
    catalog: Catalog
    declared_schedules: dict[str, str] = {}  # names that code declares, and where
    undeployed: frozenset[str] = frozenset()  # ids of those that are not in the ledger as they are here


def present(automations: Sequence[DeployedAutomation]) -> list[DeployedAutomation]:
    """The automations that were not deleted, by name."""
    return sorted((one for one in automations if not one.gone), key=lambda one: one.name)


def find_automation(automations: Sequence[DeployedAutomation], named: str, *, what: str) -> DeployedAutomation:
    """The schedule or sensor of this name, this id, or an id that begins so."""
    wanted, there = named.strip(), present(automations)
    exact = [one for one in there if wanted in (one.name, one.id)]
    if exact:
        return exact[0]
    begun = [one for one in there if len(wanted) >= _SHORTEST and one.id.startswith(wanted.upper())]
    if len(begun) == 1:
        return begun[0]
    missing: type[NotFound] = SensorNotFound if what == "sensor" else ScheduleNotFound
    if begun:
        raise missing(f"several {what}s begin with {wanted!r:.80}", hint="give more of the id")
    near = get_close_matches(wanted, [one.name for one in there], n=1)
    raise missing(
        f"there is no {what} {wanted!r:.80}", hint=f"did you mean {near[0]}?" if near else f"see `servo {what} list`"
    )

"""What is deployed, as a value: assets, schedules and sensors, and how people name a schedule or sensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

import msgspec

from servo.assets.resolving import resolver
from servo.errors import NotFound, ScheduleNotFound, SensorNotFound
from servo.events.definitions import AssetDefinition, ScheduleDefinition, SensorDefinition
from servo.partitions import Partitions
from servo.planning.catalog import Catalog
from servo.planning.deployed import DECLARED, fingerprint, spec_of
from servo.planning.identity import NameUse

__all__ = ["Definitions", "DeployedAutomation", "DeployedState", "find_automation", "present"]

_SHORTEST = 4  # letters of an id that are taken for its beginning


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
        """Of what is deployed from code; what people made by other means is not part of that."""
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
    """The definitions to answer by: those deployed, or with what the project's folder says otherwise by now."""

    state: DeployedState
    catalog: Catalog
    declared_schedules: dict[str, str] = {}  # names that code declares, and where
    undeployed: frozenset[str] = frozenset()  # ids of those that are not in the ledger as they are here


def present(automations: Sequence[DeployedAutomation]) -> list[DeployedAutomation]:
    """Those that were not deleted, by name."""
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

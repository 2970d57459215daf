"""What is deployed, as a value: the graph of assets, the ids they are known by, and which deployment it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy

import msgspec

from servo.assets.graph import Graph, OtherNames
from servo.assets.spec import AssetSpec
from servo.errors import AssetNotFound
from servo.planning.history_changes import HistoryChange

__all__ = ["Catalog"]


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
        """The same, with more values of dynamic dimensions."""
        dynamic = {**self.dynamic, **{name: (*self.dynamic.get(name, ()), *new) for name, new in added.items()}}
        specs = [_with_values(spec, dynamic) for spec in self.graph.specs.values()]
        return msgspec.structs.replace(self, graph=Graph.known(specs, self.graph.other_names), dynamic=dynamic)

    def with_other_names(self, other_names: OtherNames) -> Catalog:
        """The same, whose assets are found by other names as well."""
        graph = copy(self.graph)
        graph.other_names = other_names
        return msgspec.structs.replace(self, graph=graph)

    def spec(self, asset_key: str) -> AssetSpec:
        found = self.graph.specs.get(asset_key)
        if found is None:
            raise AssetNotFound(f"no asset {asset_key!r:.80} is deployed", hint="`servo asset list` names them all")
        return found

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

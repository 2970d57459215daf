"""Assets without functions: definitions as a plan and a controller see them."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_URL, uuid5

from servo.assets.graph import Graph
from servo.assets.spec import AssetSpec, Dependency, Source
from servo.partitions import Partitions
from servo.partitions.mappings import Mapping
from servo.planning.catalog import Catalog

NAMESPACE = "shop"


def asset_id(key: str) -> str:
    """Always the same for a key."""
    return str(uuid5(NAMESPACE_URL, key))


def spec(
    name: str, partitions: Any = None, reads: dict[str, Mapping | None] | list[str] | None = None, **declared: Any
) -> AssetSpec:
    """An asset of the shop. `reads` names others, with a mapping or with None for the default one."""
    dependencies = dict.fromkeys(reads) if isinstance(reads, list) else reads or {}
    return AssetSpec(
        key=f"{NAMESPACE}/{name}",
        partitions=Partitions.of(partitions),
        dependencies=tuple(
            Dependency(upstream=f"{NAMESPACE}/{upstream}", parameter=upstream, mapping=mapping)
            for upstream, mapping in dependencies.items()
        ),
        code_version=declared.pop("code_version", "1"),
        source=Source("definitions.py", 1),
        **declared,
    )


def catalog(*specs: AssetSpec, deployment_id: str = "d1") -> Catalog:
    """These assets, as deployed."""
    graph = Graph.of(specs)
    return Catalog(graph=graph, asset_ids={key: asset_id(key) for key in graph.specs}, deployment_id=deployment_id)

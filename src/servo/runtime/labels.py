"""Partitions as people type them."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property

from servo.errors import AssetNotFound, InvalidPartitionKey
from servo.partitions import UNPARTITIONED, PartitionKey, Partitions
from servo.planning.catalog import Catalog
from servo.runtime.deploying import recorded_catalog
from servo.runtime.wiring import Project


class Labels:
    """What people type for the partitions of a project's assets. Looks at what is deployed when it is first asked."""

    def __init__(self, project: Project, as_of: datetime | str | None = None) -> None:
        self._project = project
        self._as_of = as_of

    def __call__(self, asset: str, key: str | None) -> str:
        """`2025-01` for a month, `date=2025-01-15,region=eu`; nothing for the only partition of an asset."""
        try:
            return self._definition(asset).short_key(PartitionKey.parse(key)) if key else ""
        except InvalidPartitionKey:
            return key or ""  # whoever logs may call a partition anything

    def _definition(self, asset: str) -> Partitions:
        try:
            graph = self._known.graph
            return graph.specs[graph.resolve(asset)].partitions
        except AssetNotFound:
            return UNPARTITIONED  # it is gone, or has another name by now: its values as they stand

    @cached_property
    def _known(self) -> Catalog:
        return recorded_catalog(self._project, self._as_of)

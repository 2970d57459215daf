"""The partition that somebody means, also one that the definition no longer has: its data and events are there."""

from __future__ import annotations

from datetime import datetime

from servo.errors import InvalidInput
from servo.partitions import PartitionKey
from servo.planning.catalog import Catalog
from servo.runtime.moments import look_at
from servo.runtime.partitions import PartitionBook
from servo.runtime.wiring import Project

__all__ = ["typed_key"]


def typed_key(
    project: Project, known: Catalog, asset_key: str, partition: str, as_of: datetime | str | None = None
) -> PartitionKey:
    """A partition of these definitions as people type it; of others, the canonical key of one that has a row."""
    try:
        return known.spec(asset_key).partitions.parse_key(partition)
    except InvalidInput:
        moment = look_at(project, as_of, known=known)
        return PartitionKey.parse(PartitionBook(project).key(moment, asset_key, partition))

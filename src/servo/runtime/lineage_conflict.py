"""Conflicts of a decision that rests on a lineage with events that were recorded since."""

from __future__ import annotations

from servo.events import RecordedEvent, decode
from servo.fold.evolve import evolve
from servo.fold.partition_rows import (
    AssetDefinitionRow,
    DynamicPartitionRow,
    LineageRow,
    PartitionStatusRow,
    RollbackRow,
)
from servo.fold.rows import Row
from servo.partitions import PartitionKey, PartitionSet
from servo.runtime.lineages import Lineage

__all__ = ["LineageConflict"]


class LineageConflict:
    """Tells which events conflict with a walk downstream: those that write what it has read, or would read now."""

    def __init__(self, found: Lineage, wanted: PartitionSet) -> None:
        self._places = {node.place for node in found.nodes}
        self._asset_id = found.start[0].asset_id
        self._wanted = wanted

    def with_event(self, event: RecordedEvent) -> bool:
        """Whether an event conflicts with the walk."""
        return any(map(self._is_read, evolve(event, decode(event))))

    def _is_read(self, row: Row) -> bool:
        match row:
            case LineageRow():
                return (row.upstream_asset_id, row.upstream_partition_key) in self._places
            case PartitionStatusRow():
                return row.materialization_version is not None and self._is_met(row.asset_id, row.partition_key)
            # An earlier version may be current again, which had read one of them; names and partitions may be others.
            case RollbackRow() | AssetDefinitionRow() | DynamicPartitionRow():
                return True
        return False

    def _is_met(self, asset_id: str, key: str) -> bool:
        begins = asset_id == self._asset_id and PartitionKey.parse(key) in self._wanted
        return begins or (asset_id, key) in self._places

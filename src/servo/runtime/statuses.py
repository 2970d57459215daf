"""Partitions by their status, for selections such as `orders and status:missing`."""

from __future__ import annotations

from collections.abc import Callable

from servo.errors import InvalidSelection, LedgerNotFound
from servo.partitions import PartitionKey, Partitions, PartitionSet
from servo.planning.catalog import Catalog
from servo.runtime.inputs import current
from servo.runtime.wiring import Project

_FAILED = """
    SELECT partition_key FROM partition_status
    WHERE asset_id = $asset_id AND last_attempt_outcome = 'FAILED'
      AND (materialization_version IS NULL OR attempt_version > materialization_version)
"""


def partitions_by_status(project: Project, known: Catalog) -> Callable[[str, str], PartitionSet]:
    """What tells, for an asset and a status, which of its partitions are so now."""

    def find(asset_key: str, status: str) -> PartitionSet:
        try:
            return _found(project, known, asset_key, status)
        except LedgerNotFound:  # a plan can be looked at before there is any ledger
            partitions = known.spec(asset_key).partitions
            return partitions.everything(project.clock()) if status == "missing" else partitions.empty()

    return find


def _found(project: Project, known: Catalog, asset_key: str, status: str) -> PartitionSet:
    partitions, asset_id = known.spec(asset_key).partitions, known.asset_id(asset_key)
    if status == "missing":
        there = current(project, asset_id)
        everything = partitions.everything(project.clock())
        return everything - partitions.set_of(key for key in there if _fits(partitions, key))
    if status == "failed":
        answer = project.reader.query(_FAILED, {"asset_id": asset_id}, fresh=True, timeout=60.0)
        return partitions.set_of(key for (key,) in answer.rows if _fits(partitions, key))
    raise InvalidSelection(
        f"partitions cannot be selected by the status {status!r} yet", hint="use status:missing or status:failed"
    )


def _fits(partitions: Partitions, key: str) -> bool:
    """Whether the definition of today still has it."""
    return PartitionKey.parse(key) in partitions

"""Partitions that an asset had and has no more: a value was removed from a dimension, or the definition changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from servo import canonical
from servo.errors import InvalidInput, InvalidPartition
from servo.partitions import PartitionKey, Partitions, PartitionSet
from servo.planning.catalog import Catalog
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["RemovedPartition", "removed_key", "require_set"]

_VERSIONS = """
    SELECT partitions, deployed_at, deployed_by FROM asset_versions
    WHERE asset_id = $asset_id AND code_version IS NOT NULL ORDER BY deployment_version
"""
_VALUES = "SELECT dimension, value, present, changed_at, changed_by FROM dynamic_partitions"
_PATIENCE = 60.0  # seconds for the tail to be folded
_T = TypeVar("_T")


class RemovedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """When, by whom and how a partition was removed from the definition; its data is kept."""

    removed_at: datetime
    removed_by: str
    by_deployment: bool

    @property
    def before(self) -> str:
        """The last moment at which it was defined, as people write it."""
        return (self.removed_at - timedelta(microseconds=1)).isoformat().replace("+00:00", "Z")

    def sentence(self, what: str) -> str:
        how = "by a deployment of" if self.by_deployment else "by"
        return f"{what} was removed at {self.removed_at:%Y-%m-%d %H:%M:%S} UTC {how} {self.removed_by}"


def removed_key(
    snapshot: Answers, known: Catalog, asset_key: str, text: str
) -> tuple[PartitionKey, RemovedPartition] | None:
    """The key of a text that no definition in force has, if one had it; None if none ever did."""
    return _found(snapshot, known, asset_key, lambda definition: definition.parse_key(text))


def require_set(project: Project, known: Catalog, asset_key: str, text: str, *, asset: str) -> PartitionSet:
    """The partitions that a text means. Of removed ones it is said when and by whom, and how to read them still."""
    definition = known.spec(asset_key).partitions
    try:
        return definition.parse_set(text, project.clock())
    except InvalidInput:
        snapshot = project.reader.snapshot(fresh=True, timeout=_PATIENCE)
        found = _found(snapshot, known, asset_key, lambda one: one.parse_set(text, project.clock()))
        if found is None:
            raise
        removed = found[1]
        raise InvalidPartition(
            f"{removed.sentence(f'{asset_key} {text}')}; its data is kept",
            hint=f"read it as it was: servo read {asset} '{text}' --as-of {removed.before}",
        ) from None


def _found(
    snapshot: Answers, known: Catalog, asset_key: str, parse: Callable[[Partitions], _T]
) -> tuple[_T, RemovedPartition] | None:
    values: dict[str, list[str]] = {}  # every value that a dynamic dimension ever had
    gone: dict[tuple[str, str], tuple[datetime, str]] = {}
    for dimension, value, present, at, by in snapshot.query(_VALUES).rows:
        values.setdefault(dimension, []).append(value)
        if not present:
            gone[dimension, value] = (at, by)
    versions = snapshot.query(_VERSIONS, {"asset_id": known.asset_id(asset_key)}).rows
    after: tuple[Any, ...] | None = None
    for version in reversed(versions):
        definition = _resolved(version[0], values)
        try:
            meant = parse(definition)
        except InvalidInput:
            after = version
            continue
        if after is not None:
            return meant, RemovedPartition(removed_at=after[1], removed_by=after[2], by_deployment=True)
        keys = [meant] if isinstance(meant, PartitionKey) else list(meant) if isinstance(meant, PartitionSet) else []
        moments = [gone[pair] for key in keys for pair in key.texts().items() if pair in gone]
        if not moments:
            return None
        at, by = max(moments)
        return meant, RemovedPartition(removed_at=at, removed_by=by, by_deployment=False)
    return None


def _resolved(text: str | None, values: dict[str, list[str]]) -> Partitions:
    if text is None:
        return Partitions.of(None)
    partitions = Partitions.from_json(canonical.loads(text.encode()))
    return partitions.resolved({name: tuple(some) for name, some in values.items()})

"""Partitions by their status, for selections such as `orders and status:missing`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache

from servo.assets.selection import select
from servo.errors import InvalidSelection, LedgerNotFound
from servo.fold.display import FAILED, MATERIALIZED
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.runtime.keysets import stored
from servo.runtime.moments import Moment, look_at
from servo.runtime.staleness import Staleness
from servo.runtime.wiring import Project


def partitions_by_status(
    project: Project, known: Catalog, moment: Moment | None = None
) -> Callable[[str, str], PartitionSet]:
    """What tells, for an asset and a status, which of its partitions are so: at a moment, or else now."""

    @cache
    def looked_at() -> Moment:
        project.ledger.head()  # a missing ledger is said before anything else
        return moment or look_at(project)

    @cache
    def stale() -> dict[str, PartitionSet]:
        """By asset id: what is deployed may be called otherwise than what is about to be."""
        found = Staleness(project).sets(moment=looked_at())
        return {looked_at().known.asset_id(key): some for key, some in found.items()}

    def find(asset_key: str, status: str) -> PartitionSet:
        try:
            if status == "stale":
                found = stale().get(known.asset_id(asset_key))
                return (
                    known.spec(asset_key).partitions.empty() if found is None else _as_defined(found, known, asset_key)
                )
            return _found(looked_at(), known, asset_key, status)
        except LedgerNotFound:  # a plan can be looked at before there is any ledger
            partitions = known.spec(asset_key).partitions
            return partitions.everything(project.clock()) if status == "missing" else partitions.empty()

    return find


def selected_or_all(
    project: Project,
    known: Catalog,
    selection: Sequence[str],
    *,
    partitions: str | None,
    now: datetime,
    moment: Moment | None = None,
) -> dict[str, PartitionSet]:
    """What selections select; where they do not say which partitions of an asset, all of them."""
    text = " or ".join(f"({one})" for one in selection)
    statuses = partitions_by_status(project, known, moment)
    try:
        return select(known.graph, text, now=now, partitions=partitions or "all", statuses=statuses)
    except InvalidSelection:
        if partitions is not None:
            raise
        # Nothing that it selects has partitions to choose from; or it is wrong in a way that is said again.
        return select(known.graph, text, now=now, statuses=statuses)


def _found(moment: Moment, known: Catalog, asset_key: str, status: str) -> PartitionSet:
    definition = known.spec(asset_key).partitions
    match status:
        case "missing":
            return definition.everything(moment.now) - _where(moment, known, asset_key, MATERIALIZED)
        case "failed":
            return _where(moment, known, asset_key, FAILED)
    raise InvalidSelection(
        f"partitions cannot be selected by the status {status!r}",
        hint="use status:missing, status:failed or status:stale",
    )


def _where(moment: Moment, known: Catalog, asset_key: str, condition: str) -> PartitionSet:
    """The partitions whose rows are so, as far as the definition of today has them."""
    definition, asset_id = known.spec(asset_key).partitions, known.asset_id(asset_key)
    return stored(moment.snapshot, {asset_id: definition}, [], where=f"({condition})")[asset_id].of(definition)


def _as_defined(found: PartitionSet, known: Catalog, asset_key: str) -> PartitionSet:
    """In terms of definitions that may be about to be deployed."""
    definition = known.spec(asset_key).partitions
    if found.partitions == definition:
        return found
    return definition.set_of(key for key in found if key in definition)

"""What a deployment does to the history of assets, told before it is done. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from servo.assets.spec import AssetSpec
from servo.events.definitions import AssetDefinition

__all__ = ["HistoryChange", "HistoryChangeKind", "history_changes"]


class HistoryChangeKind(StrEnum):
    NEW = "new"
    RENAMED = "renamed"
    BACK = "back"
    REMOVED = "removed"
    REPARTITIONED = "repartitioned"
    NOT_RENAMED = "not_renamed"


class HistoryChange(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the history of one asset."""

    kind: HistoryChangeKind
    asset_key: str
    renamed_from: str | None = None
    partitions: int = 0  # how many of it have data
    undefined: int = 0  # of these, how many the new definition does not have

    def sentence(self) -> str:
        """In one line, for people."""
        count = f"{self.partitions:,} partition{'' if self.partitions == 1 else 's'}"
        keep = f"{count} {'keeps its' if self.partitions == 1 else 'keep their'} history"
        keep = keep if self.partitions else "nothing was made of it yet"
        match self.kind:
            case HistoryChangeKind.NEW:
                return f"new: {self.asset_key}"
            case HistoryChangeKind.RENAMED:
                return f"renamed {self.renamed_from} → {self.asset_key}, {keep}"
            case HistoryChangeKind.BACK:
                return f"declared again: {self.asset_key}, with the history of {count}"
            case HistoryChangeKind.REMOVED:
                stays = f"its history of {count} stays and comes back" if self.partitions else "it comes back"
                return f"removed: {self.asset_key}, {stays} if it is declared again"
            case HistoryChangeKind.REPARTITIONED:
                return (
                    f"partitioned anew: {self.asset_key}, {self.undefined:,} of {count} with data are not in the new"
                    " definition; their history stays and comes back with the old one"
                )
            case HistoryChangeKind.NOT_RENAMED:
                return (
                    f"not renamed: {self.asset_key} was there before and keeps its own history ({count}),"
                    f" so renamed_from={self.renamed_from!r} has no effect"
                )


def history_changes(
    specs: Mapping[str, AssetSpec],
    ids: Mapping[str, str],
    present: Sequence[AssetDefinition],
    made: Mapping[str, int],
    undefined: Mapping[str, int],
) -> tuple[HistoryChange, ...]:
    """What deploying these assets does to history, beginning with what is renamed.

    `ids` are those of the assets that are not new, `made` tells by id of how many partitions there is data, and
    `undefined` how many of these the new definition does not have.
    """
    found = [*_declared(specs, ids, present, made, undefined)]
    found += [
        HistoryChange(kind=HistoryChangeKind.REMOVED, asset_key=asset.asset_key, partitions=made.get(asset.asset_id, 0))
        for asset in sorted(present, key=lambda one: one.asset_key)
        if asset.asset_id not in ids.values()
    ]
    order = [HistoryChangeKind.RENAMED, HistoryChangeKind.BACK, HistoryChangeKind.REPARTITIONED]
    order += [HistoryChangeKind.NOT_RENAMED, HistoryChangeKind.REMOVED, HistoryChangeKind.NEW]
    return tuple(sorted(found, key=lambda one: order.index(one.kind)))


def _declared(
    specs: Mapping[str, AssetSpec],
    ids: Mapping[str, str],
    present: Sequence[AssetDefinition],
    made: Mapping[str, int],
    undefined: Mapping[str, int],
) -> Iterator[HistoryChange]:
    names = {asset.asset_id: asset.asset_key for asset in present}
    known = {asset.asset_key: asset for asset in present}
    for key, spec in specs.items():
        asset_id = ids.get(key)
        if asset_id is None:
            yield HistoryChange(kind=HistoryChangeKind.NEW, asset_key=key)
            continue
        count, before = made.get(asset_id, 0), names.get(asset_id)
        if before is None:
            yield HistoryChange(kind=HistoryChangeKind.BACK, asset_key=key, partitions=count)
        elif before != key:
            yield HistoryChange(kind=HistoryChangeKind.RENAMED, asset_key=key, renamed_from=before, partitions=count)
        elif _is_in_vain(spec, known):
            yield HistoryChange(
                kind=HistoryChangeKind.NOT_RENAMED, asset_key=key, renamed_from=spec.renamed_from, partitions=count
            )
        if undefined.get(asset_id):
            yield HistoryChange(
                kind=HistoryChangeKind.REPARTITIONED,
                asset_key=key,
                partitions=count,
                undefined=undefined[asset_id],
            )


def _is_in_vain(spec: AssetSpec, known: Mapping[str, AssetDefinition]) -> bool:
    """Whether an asset that was there before says now that it was another one that is there as well."""
    return spec.renamed_from in known and known[spec.key].renamed_from != spec.renamed_from

"""Which history belongs to which declared asset, and what a deployment does to it. Pure.

One asset has one history, by its id, across renames, removals and the way back. A name that is declared again means the
asset that was called so, whatever it has been called since: to revert a rename, or to switch branches back and forth,
is to go back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from servo.assets.spec import AssetSpec
from servo.events.definitions import AssetDefinition


class NameUse(msgspec.Struct, frozen=True, kw_only=True):
    """A name and code version that an asset had, in the deployments from `first` to `last` or in some of these."""

    asset_id: str
    asset_key: str
    code_version: str | None = None
    first: int
    last: int


def identify(
    specs: Mapping[str, AssetSpec],
    present: Sequence[AssetDefinition],
    uses: Sequence[NameUse],
    is_empty: Callable[[str], bool],
) -> dict[str, str]:
    """The ids of declared assets by key; those that are new are left out.

    `present` is what is deployed, `uses` all names that assets ever had, and `is_empty` tells whether nothing was ever
    materialized under an id.
    """
    there = {asset.asset_key: asset for asset in present}
    moved = _moved(specs, there, uses)
    ids = dict(moved)
    taken = set(moved.values())
    for key in specs:
        if key not in ids and key in there and there[key].asset_id not in taken:
            ids[key] = there[key].asset_id
    taken.update(ids.values())
    for key, spec in specs.items():
        if key not in ids:
            names = (key,) if spec.renamed_from is None else (key, spec.renamed_from)
            called = [one for name in names for one in _called(name, uses, spec, there.values())]
            found = next((one for one in called if one not in taken), None)
            if found is not None:
                ids[key] = found
                taken.add(found)
    for key, asset_id in list(ids.items()):
        lost = _lost_history(asset_id, uses, {asset.asset_id for asset in present} | taken)
        if lost is not None and is_empty(asset_id) and not is_empty(lost):
            ids[key] = lost
            taken.add(lost)
    return ids


def _moved(
    specs: Mapping[str, AssetSpec], there: Mapping[str, AssetDefinition], uses: Sequence[NameUse]
) -> dict[str, str]:
    """Assets that take another id than the one of their name now: renamed, or meaning an earlier asset again."""
    renamed: dict[str, str] = {}
    back: dict[str, str] = {}
    for key, spec in specs.items():
        before, now = spec.renamed_from, there.get(key)
        if before is not None and before != key and before in there:
            # What a deployment has done is not done again by a later one that still says it.
            done = _came_back(key, specs, there, uses) if now is None else now.renamed_from == before
            if not done:
                renamed[key] = there[before].asset_id
        elif now is not None and now.code_version != spec.code_version:
            # The name means another asset than it did when it had this code: swapped names that are swapped back.
            with_code = [one for one in uses if (one.asset_key, one.code_version) == (key, spec.code_version)]
            if with_code and all(one.asset_id != now.asset_id for one in with_code):
                back[key] = max(with_code, key=lambda one: one.last).asset_id
    names = {asset.asset_id: key for key, asset in there.items()}
    while True:
        moved = {**renamed, **back}
        given_away = set(moved.values())
        # An asset that is there already takes over from another only where yet another takes over from it.
        keep = [key for key in renamed if key in there and there[key].asset_id not in given_away]
        for key, asset_id in back.items():
            holder = names.get(asset_id)
            if asset_id in renamed.values() or (holder in specs and holder not in moved):
                keep.append(key)
        if not keep:
            return moved
        renamed = {key: asset_id for key, asset_id in renamed.items() if key not in keep}
        back = {key: asset_id for key, asset_id in back.items() if key not in keep}


def _came_back(
    key: str, specs: Mapping[str, AssetSpec], there: Mapping[str, AssetDefinition], uses: Iterable[NameUse]
) -> bool:
    """Whether an asset that says it was renamed was renamed long ago, and its old name means another asset by now."""
    spec, before = specs[key], specs[key].renamed_from or ""
    named = [one for one in uses if one.asset_key == key and one.asset_id != there[before].asset_id]
    other_goes_on = before in specs and specs[before].code_version == there[before].code_version
    return any(one.code_version == spec.code_version or other_goes_on for one in named)


def _called(name: str, uses: Iterable[NameUse], spec: AssetSpec, present: Iterable[AssetDefinition]) -> list[str]:
    """The ids of the assets that were ever called so.

    First come those that had this code then, of these such as are there under another name, then who had it last.
    """
    there = {asset.asset_id for asset in present}
    named = [one for one in uses if one.asset_key == name]
    named.sort(key=lambda one: (one.code_version == spec.code_version, one.asset_id in there, one.last), reverse=True)
    return list(dict.fromkeys(one.asset_id for one in named))


def _lost_history(asset_id: str, uses: Sequence[NameUse], elsewhere: set[str]) -> str | None:
    """The id that an asset had until an earlier version of Servo gave it a new one, when a rename was reverted.

    That is the id that disappeared in the very deployment in which the new one began, and that had the name before.
    """
    mine = [one for one in uses if one.asset_id == asset_id]
    if not mine:
        return None
    begun = min(mine, key=lambda one: one.first)
    gone = {one.asset_id for one in uses if one.asset_key == begun.asset_key and one.first < begun.first}
    for other in gone - elsewhere - {asset_id}:
        if max(one.last for one in uses if one.asset_id == other) == begun.first - 1:
            return other
    return None


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

"""The partitions of an asset by status, as sets: nothing is listed that need not be, so a million cost like a few."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from servo.answers.partitions import AssetSummary
from servo.errors import InvalidInput
from servo.fold.display import FAILED, MARKED, MATERIALIZED, Overlay, Status
from servo.partitions import Partitions, PartitionSet
from servo.status.keysets import Stored, status_rows, stored
from servo.status.overlays import overlays_of
from servo.status.staleness import stale_sets
from servo.status.state import State

__all__ = ["FILTERS", "AssetStatus", "asset_statuses", "require_filters"]

_MADE, _FAILED, _FROZEN, _MARKED, _SINCE = 1, 2, 4, 8, 16
_CHANGED_AT = "greatest(last_attempt_at, last_materialization_at, invalidated_at)"

FILTERS = (
    "materialized",
    "stale",
    "failed",
    "missing",
    "never_materialized",
    "running",
    "queued",
    "waiting_approval",
    "frozen",
    "undefined",
)
"""What lists can be narrowed to."""


class AssetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions of one asset by what they are. Each that is not undefined has exactly one status."""

    asset_key: str
    asset_id: str
    definition: Partitions
    expected: PartitionSet  # whose windows have ended, whether or not anything is known of them
    statuses: dict[Status, PartitionSet]
    overlays: dict[Overlay, PartitionSet]
    attempt_failed: PartitionSet  # also of those without data
    marked: PartitionSet  # as materialized, so that they hold no data
    changed: PartitionSet | None = None  # in the time that was asked about, if any was
    undefined: int = 0  # rows of partitions that the definition does not have any more

    @property
    def missing(self) -> PartitionSet:
        """What there should be, and is not."""
        return self.expected & self.statuses[Status.NEVER_MATERIALIZED]

    @property
    def made(self) -> PartitionSet:
        """What there is data of, or somebody said that there is."""
        kept, stale = self.statuses[Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED], self.statuses[Status.STALE]
        return self.statuses[Status.MATERIALIZED] | kept | stale

    @property
    def all(self) -> PartitionSet:
        """Every partition that is expected, or that something is known of."""
        found = self.expected
        for some in self.statuses.values():
            found = found | some
        return found

    def having(self, word: str) -> PartitionSet:
        """The partitions that one of the words of `FILTERS` means; `undefined` ones are no partitions."""
        match word:
            case "missing":
                return self.missing
            case "failed":
                return self.attempt_failed
            case "never_materialized" | "stale" | "materialized":
                return self.statuses[Status(word.upper())]
            case "undefined":
                return self.definition.empty()
        return self.overlays.get(Overlay(word), self.definition.empty())

    def summary(self) -> AssetSummary:
        """How many partitions are what."""
        return AssetSummary(
            asset_key=self.asset_key,
            expected=self.expected.count,
            total=self.all.count,
            statuses={status.value: self.statuses[status].count for status in Status},
            missing=self.missing.count,
            attempt_failed=self.attempt_failed.count,
            overlays={one.value: self.overlays[one].count for one in Overlay if one in self.overlays},
            undefined=self.undefined,
        )


def asset_statuses(
    state: State,
    asset_keys: Sequence[str] | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    stale: Mapping[str, PartitionSet] | None = None,
) -> dict[str, AssetStatus]:
    """What the partitions of these assets are, or of all; by asset key, in the order of the graph.

    `since`, `until`: when anything happened last to those that are told as changed. `stale`: where it is known already
    which are.
    """
    catalog = state.catalog
    keys = list(catalog.graph.specs) if asset_keys is None else list(asset_keys)
    definitions = {catalog.asset_id(key): catalog.spec(key).partitions for key in keys}
    flags, parameters = [MATERIALIZED, FAILED, "frozen", MARKED], {}
    if since is not None or until is not None:
        flags.append(
            f"($since IS NULL OR {_CHANGED_AT} >= $since) AND ($until IS NULL OR {_CHANGED_AT} < $until)"
            f" AND {_CHANGED_AT} IS NOT NULL"
        )
        parameters = {"since": since, "until": until}
    rows = (
        stored(state.tables, definitions, flags, parameters=parameters)
        if parameters
        else status_rows(state, definitions, flags)
    )
    busy = overlays_of(state, keys)
    if stale is None:
        stale = stale_sets(state, keys)
    found = {}
    for key, (asset_id, definition) in zip(keys, definitions.items(), strict=True):
        outdated = stale.get(key, definition.empty())
        found[key] = _status(key, asset_id, definition, rows[asset_id], busy[key], outdated=outdated, now=state.now)
        if parameters:
            changed = rows[asset_id].of(definition, having=_SINCE)
            found[key] = msgspec.structs.replace(found[key], changed=changed)
    return found


def _status(
    key: str,
    asset_id: str,
    definition: Partitions,
    rows: Stored,
    busy: dict[Overlay, PartitionSet],
    *,
    outdated: PartitionSet,
    now: datetime,
) -> AssetStatus:
    expected = definition.everything(now)
    made, failed = rows.of(definition, having=_MADE), rows.of(definition, having=_FAILED)
    stale = outdated & made - failed
    known = rows.of(definition)
    for some in busy.values():
        known = known | some
    frozen = rows.of(definition, having=_FROZEN)
    return AssetStatus(
        asset_key=key,
        asset_id=asset_id,
        definition=definition,
        expected=expected,
        statuses={
            Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED: made & failed,
            Status.NEVER_MATERIALIZED: (expected | known) - made,
            Status.STALE: stale,
            Status.MATERIALIZED: made - failed - stale,
        },
        overlays={**busy, **({Overlay.FROZEN: frozen} if frozen else {})},
        attempt_failed=failed,
        marked=rows.of(definition, having=_MARKED),
        undefined=rows.outside(),
    )


def require_filters(words: Iterable[str]) -> tuple[str, ...]:
    """The words that lists can be narrowed to, as people write them; the long names of statuses are taken too."""
    found = []
    for word in words:
        plain = word.strip().lower().replace("-", "_")
        plain = "failed" if plain == "materialized_but_last_attempt_failed" else plain
        if plain not in FILTERS:
            raise InvalidInput(f"there is no status {word!r:.40}", hint=f"use {', '.join(FILTERS)}", field="status")
        found.append(plain)
    return tuple(found)

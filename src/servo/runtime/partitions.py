"""Partitions for people and programs: lists, counts for each asset, and everything about one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from servo.answers.partitions import AssetSummary, PartitionView, Reason
from servo.answers.why import InputState
from servo.errors import InvalidInput, InvalidPartition
from servo.fold.display import Overlay, Status, display_status
from servo.partitions import PartitionKey, Partitions, PartitionSet, partition_id
from servo.runtime.cursors import Place, after, place_of, text_of
from servo.runtime.input_states import input_states
from servo.runtime.moments import Moment, look_at
from servo.runtime.overlays import going_on
from servo.runtime.reasons import reasons_of
from servo.runtime.removed_partitions import removed_key
from servo.runtime.staleness import Staleness
from servo.runtime.states import AssetStates, require_filters, states_of
from servo.runtime.wiring import Project

__all__ = ["Page", "PartitionBook"]

MOST = 1_000
"""Partitions on one page of a list, at most."""

_ONE_WALK = timedelta(minutes=1)
_ROWS = """
    SELECT partition_key, last_materialization_run_id, last_materialization_at, last_materialization_code_version,
           last_attempt_run_id, last_attempt_at, last_attempt_outcome, materialization_id, content_hash,
           invalidated_at, invalidated_by, invalidation_reason, frozen,
           materialization_version, attempt_version, invalidation_version, freeze_version
    FROM partition_status
    WHERE asset_id = $asset_id AND partition_key >= $first AND partition_key <= $last
      AND partition_key IN (SELECT unnest($keys))
"""
_KEYS = """
    SELECT partition_key FROM partition_status
    WHERE asset_id = $asset_id AND partition_key > $after ORDER BY partition_key LIMIT 10000
"""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a list, how long all of it is, and where the next part begins."""

    partitions: list[PartitionView]
    total: int
    cursor: str | None = None


class One(msgspec.Struct, frozen=True, kw_only=True):
    """One partition, what the table says of it, and what it reads."""

    view: PartitionView
    row: dict[str, Any]
    inputs: list[InputState]


class PartitionBook:
    """Answers about the partitions of one workspace, now or as of then."""

    def __init__(self, project: Project) -> None:
        self._project = project

    # ── counting ─────────────────────────────────────────────────────────────────────────────────────────────────

    def states(
        self, assets: Sequence[str] | None = None, *, as_of: datetime | str | None = None
    ) -> dict[str, AssetStates]:
        """The partitions of some assets, or of all, as sets; in the order of the graph."""
        moment = look_at(self._project, as_of)
        keys = None if assets is None else [moment.known.graph.resolve(one) for one in assets]
        return states_of(self._project, moment, keys)

    def summary(
        self, assets: Sequence[str] | None = None, *, as_of: datetime | str | None = None
    ) -> list[AssetSummary]:
        """How many partitions of each asset are what."""
        return [summary_of(one) for one in self.states(assets, as_of=as_of).values()]

    def definition(self, asset: str, *, as_of: datetime | str | None = None) -> Partitions:
        """Which partitions an asset has."""
        known = look_at(self._project, as_of).known
        return known.spec(known.graph.resolve(asset)).partitions

    # ── listing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def page(
        self,
        asset: str | None = None,
        *,
        statuses: Sequence[str] = (),
        partitions: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
        as_of: datetime | str | None = None,
    ) -> Page:
        """Partitions of an asset, or of all by their keys, each in the order of its definition.

        Partitions that the definition does not have any more come after those that it has; they are listed where no
        partitions are named. `since` and `until` are about the last time that anything happened to a partition.
        """
        wanted = require_filters(statuses)
        if not 1 <= limit <= MOST:
            raise InvalidInput(f"a page of {limit} partitions", hint=f"ask for 1 to {MOST:,}")
        place = None if cursor is None else place_of(cursor)
        moment = look_at(self._project, as_of)
        graph = moment.known.graph
        keys = sorted(graph.specs) if asset is None else [graph.resolve(asset)]
        stale = self._stale(moment, keys, goes_on=place is not None)
        listing = states_of(self._project, moment, keys, since=since, until=until, stale=stale)
        found: list[PartitionView] = []
        total = 0
        for key, states in listing.items():
            chosen = self._chosen(states, wanted, partitions, moment.now, lenient=asset is None)
            gone = partitions is None and states.changed is None and (not wanted or "undefined" in wanted)
            total += chosen.count + (states.undefined if gone else 0)
            # One more than asked for tells whether there is more.
            room = limit + 1 - len(found)
            if room <= 0 or (place is not None and key < place.asset_key):
                continue
            here = place if place is not None and place.asset_key == key else None
            keys_here = [str(one) for one in after(chosen, here).slice(0, room)]
            if gone and states.undefined and len(keys_here) < room:
                keys_here += self._strangers(moment, states, here, room - len(keys_here))
            found += self._views(moment, states, keys_here)
        more = len(found) > limit
        found = found[:limit]
        last = text_of(_place(listing[found[-1].asset_key], found[-1])) if more else None
        return Page(partitions=found, total=total, cursor=last)

    def _stale(self, moment: Moment, keys: Sequence[str], *, goes_on: bool) -> Mapping[str, PartitionSet]:
        """Which partitions are stale. Who walks over a list page by page is given one judgement for all of them, while
        nothing is recorded; it is judged anew after a while, for what nobody made in time goes stale by itself."""
        name = ("stale", *keys, moment.known.deployment_id)
        known: tuple[datetime, dict[str, PartitionSet]] | None = moment.source.recall(name)
        if known is not None and (moment.now == known[0] or (goes_on and moment.now - known[0] <= _ONE_WALK)):
            return known[1]
        found = Staleness(self._project).sets(keys, moment=moment)
        moment.source.remember(name, (moment.now, found))
        return found

    def _chosen(
        self, states: AssetStates, wanted: Sequence[str], partitions: str | None, now: datetime, *, lenient: bool
    ) -> PartitionSet:
        chosen = states.all
        if wanted:
            chosen = states.definition.empty()
            for word in wanted:
                chosen = chosen | states.having(word)
        if partitions is not None:
            try:
                chosen = chosen & states.definition.parse_set(partitions, now)
            except InvalidInput:
                if not lenient:
                    raise
                chosen = states.definition.empty()  # days say nothing about other assets' regions
        return chosen if states.changed is None else chosen & states.changed

    def _strangers(self, moment: Moment, states: AssetStates, here: Place | None, room: int) -> list[str]:
        """Keys of rows that the definition does not have, in the order of their texts."""
        begin = here.partition_key if here is not None and here.undefined else None
        found: list[str] = []
        parameters = {"asset_id": states.asset_id, "after": begin or ""}
        # The empty key, of an asset that had no partitions once, is greater than nothing.
        candidates = [""] if begin is None and states.definition.dimensions else []
        known = self._rows(moment, states.asset_id, candidates).keys()
        candidates = [key for key in candidates if key in known]
        while len(found) < room:
            candidates += [key for (key,) in moment.snapshot.query(_KEYS, parameters).rows]
            if not candidates:
                break
            found += [key for key in candidates if PartitionKey.parse(key) not in states.definition]
            parameters["after"] = candidates[-1]
            candidates = []
        return found[:room]

    # ── one ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def one(self, asset: str, partition: str = "", *, as_of: datetime | str | None = None) -> PartitionView:
        """Everything about one partition. One that the definition no longer has is found by its canonical key."""
        moment = look_at(self._project, as_of)
        key = moment.known.graph.resolve(asset)
        return self.single(moment, key, self.key(moment, key, partition)).view

    def single(self, moment: Moment, asset_key: str, key: str) -> One:
        """One partition by its canonical key; no other is looked at."""
        known, parsed = moment.known, PartitionKey.parse(key)
        asset_id, definition = known.asset_id(asset_key), known.spec(asset_key).partitions
        row = self._rows(moment, asset_id, [key]).get(key) or {}
        inputs = []
        if parsed in definition:
            inputs = input_states(moment.snapshot, known, asset_key, parsed, moment.now, row=row)
        reasons = reasons_of(moment, asset_key, parsed, row, inputs)
        busy = going_on(moment.snapshot, {asset_id: definition}, known.asset_ids)[asset_id] if moment.busy else {}
        view = _view(asset_key, asset_id, definition, parsed, row=row, reasons=reasons, busy=busy, now=moment.now)
        return One(view=view, row=row, inputs=inputs)

    def key(self, moment: Moment, asset_key: str, partition: str) -> str:
        """The canonical key of what a person typed, if there is such a partition or a row of it."""
        definition = moment.known.spec(asset_key).partitions
        try:
            return str(definition.parse_key(partition))
        except InvalidInput as problem:
            try:
                text = str(PartitionKey.parse(partition))
            except InvalidInput:
                text = None
            if text is None and (removed := removed_key(moment.snapshot, moment.known, asset_key, partition)):
                text = str(removed[0])
            if text is not None and self._rows(moment, moment.known.asset_id(asset_key), [text]):
                return text
            raise InvalidPartition(f"{asset_key}: {problem.message}", hint=problem.hint) from None

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _rows(self, moment: Moment, asset_id: str, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        if not keys:
            return {}
        # The first and the last key, as plain values, let most of a file be passed over.
        span = {"first": min(keys), "last": max(keys)}
        answer = moment.snapshot.query(_ROWS, {"asset_id": asset_id, "keys": list(keys), **span})
        return {row["partition_key"]: row for row in answer.dicts()}

    def _views(self, moment: Moment, states: AssetStates, keys: Sequence[str]) -> list[PartitionView]:
        if not keys:
            return []
        rows = self._rows(moment, states.asset_id, keys)
        outdated = states.statuses[Status.STALE] | states.statuses[Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED]
        reasons: dict[str, list[Reason]] = {}
        if any(PartitionKey.parse(key) in outdated for key in keys):
            found = Staleness(self._project).find([states.asset_key], moment=moment, only={states.asset_key: keys})
            reasons = {one.partition_key: list(one.reasons) for one in found.rows}
        return [
            _view(
                states.asset_key,
                states.asset_id,
                states.definition,
                PartitionKey.parse(key),
                row=rows.get(key) or {},
                reasons=reasons.get(key, []),
                busy=states.overlays,
                now=moment.now,
            )
            for key in keys
        ]


def summary_of(states: AssetStates) -> AssetSummary:
    return AssetSummary(
        asset_key=states.asset_key,
        expected=states.expected.count,
        total=states.all.count,
        statuses=states.status_counts(),
        missing=states.missing.count,
        attempt_failed=states.attempt_failed.count,
        overlays={one.value: states.overlays[one].count for one in Overlay if one in states.overlays},
        undefined=states.undefined,
    )


def _view(
    asset_key: str,
    asset_id: str,
    definition: Partitions,
    key: PartitionKey,
    *,
    row: dict[str, Any],
    reasons: list[Reason],
    busy: dict[Overlay, PartitionSet],
    now: datetime,
) -> PartitionView:
    defined = key in definition
    window = definition.window(key) if defined else None
    status = display_status(
        materialization_version=row.get("materialization_version"),
        attempt_version=row.get("attempt_version"),
        attempt_outcome=row.get("last_attempt_outcome"),
        stale=bool(reasons),
    )
    nothing = definition.empty()
    overlays = [one for one in Overlay if one is not Overlay.FROZEN and key in busy.get(one, nothing)]
    return PartitionView(
        asset_key=asset_key,
        partition_key=str(key),
        partition=definition.short_key(key),
        partition_id=partition_id(asset_id, key),
        status=status.value,
        overlays=[*overlays, *([Overlay.FROZEN] if row.get("frozen") else [])],
        missing=status is Status.NEVER_MATERIALIZED and key in definition.everything(now),
        undefined=not defined,
        window_start=None if window is None else window.start,
        window_end=None if window is None else window.end,
        stale_since=min((since for _, since in reasons), default=None),
        stale_reason_code=reasons[0].code if reasons else None,
        stale_reasons=reasons,
        **{name: row.get(name) for name in _SHOWN},
    )


_SHOWN = (
    "materialization_id",
    "last_materialization_at",
    "last_materialization_run_id",
    "last_materialization_code_version",
    "content_hash",
    "last_attempt_outcome",
    "last_attempt_at",
    "last_attempt_run_id",
)


def _place(states: AssetStates, view: PartitionView) -> Place:
    key = PartitionKey.parse(view.partition_key)
    point = [] if view.undefined else list(states.definition.point(key))
    return Place(asset_key=view.asset_key, partition_key=view.partition_key, point=point, undefined=view.undefined)

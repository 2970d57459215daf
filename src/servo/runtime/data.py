"""The data itself: reading it as it was, going back to it, and removing what nobody needs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import msgspec

from servo.errors import AppendConflict, Conflict, DataNotFound, InvalidInput
from servo.events import Proposal
from servo.events.columns import EarlierMaterializations
from servo.events.lifecycles import TaskStatus
from servo.events.model import RolledBack
from servo.execution.protocol import Place, Storage
from servo.execution.vacuum import Removed, vacuum
from servo.ids import is_ulid, ulid_time
from servo.ledger.protocol import Condition
from servo.operations.moments import parse_moment
from servo.partitions import PartitionKey, PartitionSet
from servo.planning.catalog import Catalog
from servo.runtime.cataloguing import recorded_catalog
from servo.runtime.citations import Citations
from servo.runtime.inputs import Current, current
from servo.runtime.requesting import append_answered
from servo.runtime.settings import RetentionSettings
from servo.runtime.states import state_of
from servo.runtime.wiring import Project
from servo.status.exclusions import frozen_among
from servo.status.removals import removed_key, require_set

_HISTORY = """
    SELECT m.partition_key, m.materialization_id, m.published_at, m.made_at, m.run_id, m.code_version, m.rows, m.bytes,
           m.files, m.content_hash, m.materialization_id = s.materialization_id AS current
    FROM materializations m
    LEFT JOIN partition_status s ON s.asset_id = m.asset_id AND s.partition_key = m.partition_key
    WHERE m.asset_id = $asset_id AND m.partition_key IN (SELECT unnest($keys))
      AND m.published_at IS NOT NULL
    ORDER BY m.partition_key, m.materialization_id DESC
"""
# Whatever waits for an approval may become current at any moment.
_EVERYTHING = """
    SELECT m.asset_id, m.partition_key, m.materialization_id,
           coalesce(m.materialization_id = s.materialization_id, false) OR m.published_at IS NULL AS stays,
           m.published_at IS NULL AND r.finished_version IS NOT NULL AS refused
    FROM materializations m
    LEFT JOIN partition_status s ON s.asset_id = m.asset_id AND s.partition_key = m.partition_key
    LEFT JOIN runs r ON r.run_id = m.run_id
    ORDER BY m.asset_id, m.partition_key, m.materialization_id DESC
"""
_OLDEST_ATTEMPT = f"""
    SELECT min(t.started_at) FROM tasks t JOIN runs r USING (run_id)
    WHERE t.state = '{TaskStatus.RUNNING}' AND r.finished_version IS NULL
"""
_SHORTEST_ID = 8
_PATIENCE = 60.0
_TRIES = 50


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of an asset, and exactly which materializations they are from."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    total_rows: int | None
    materializations: list[Current]


class Data:
    """The data of one workspace."""

    def __init__(self, project: Project) -> None:
        self._project = project

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def places(
        self, asset: str, partitions: Sequence[str] = (), *, as_of: datetime | str | None = None
    ) -> tuple[list[Place], list[Current]]:
        """The current materializations of an asset, now or as of then, in the order of their keys."""
        known = recorded_catalog(self._project, as_of=as_of)
        key = known.graph.resolve(asset)
        definition, asset_id = known.spec(key).partitions, known.asset_id(key)
        wanted = self._parsed(known, key, partitions, asset)
        found = current(self._project, asset_id, None if wanted is None else map(str, wanted), as_of)
        if wanted is not None:
            absent = next((one for one in wanted if str(one) not in found), None)
            if absent is not None:
                when = "" if as_of is None else f" as of {as_of}"
                raise DataNotFound(
                    f"{key} {definition.label(absent)} has no data{when}".replace("  ", " "),
                    hint=f"materialize it: servo materialize '{asset}@{definition.short_key(absent)}'",
                )
            marked = next((one for one in wanted if found[str(one)].marked), None)
            if marked is not None:
                raise DataNotFound(
                    f"{key} {definition.label(marked)} was marked as materialized, and holds no data".replace(
                        "  ", " "
                    ),
                    hint=f"materialize it for real: servo materialize '{asset}@{definition.short_key(marked)}'",
                )
        found = {name: one for name, one in found.items() if not one.marked}
        if not found:
            which = "" if not definition.dimensions else "@latest"
            raise DataNotFound(f"{key} has no data", hint=f"materialize it: servo materialize {asset}{which}")
        chosen = [found[one] for one in sorted(found)]
        return [
            Place(asset_id=asset_id, key=one.key, materialization_id=one.materialization_id) for one in chosen
        ], chosen

    def read(
        self,
        asset: str,
        partitions: Sequence[str] = (),
        *,
        as_of: datetime | str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> Table:
        """The rows themselves, without Spark."""
        places, chosen = self.places(asset, partitions, as_of=as_of)
        return rows_of(self._project.storage, places, chosen, limit, offset)

    def materializations(self, asset: str, partition: str = "") -> list[dict[str, Any]]:
        """Every version of a partition that was ever published, the newest first.

        Also of one that was removed from the definition: then each row says when, and by whom.
        """
        known = recorded_catalog(self._project)
        key = known.graph.resolve(asset)
        removed = None
        try:
            one = known.spec(key).partitions.parse_key(partition)
        except InvalidInput:
            found = removed_key(state_of(self._project, catalog=known), key, partition)
            if found is None:
                raise
            one, removed = found
        rows = self._history(known.asset_id(key), [str(one)])
        if not rows:
            raise DataNotFound(f"{key} {partition} has no data".replace("  ", " "), hint="materialize it")
        gone = {
            "removed_at": None if removed is None else removed.removed_at,
            "removed_by": None if removed is None else removed.removed_by,
        }
        return [row | gone for row in rows]

    # ── going back ───────────────────────────────────────────────────────────────────────────────────────────────

    def rollback(
        self,
        asset: str,
        partitions: Sequence[str],
        *,
        to: str | None = None,
        reason: str,
        rollback_id: str | None = None,
        actor: str,
    ) -> dict[str, Any]:
        """Make earlier materializations current again: of a moment, a given one, or the one before each.

        What is current already stays as it is, stale or not; without any event where that is all of them.
        """
        rollback_id = rollback_id or self._project.mint()
        for _ in range(_TRIES):
            # Decided on what is there now: if anything happens meanwhile, it is looked at again.
            position = self._project.ledger.head().position
            fact = self._going_back(asset, partitions, to, reason, rollback_id)
            back = zip(fact.partitions.keys, fact.partitions.materialization_ids, strict=True)
            done = [{"partition_key": key, "materialization_id": name} for key, name in back]
            answer = {"event_id": None, "rollback_id": None, "asset": fact.asset_key, "partitions": done}
            if not done:
                return answer
            proposal = Proposal(fact=fact, occurred_at=self._project.clock(), actor=actor)
            with suppress(AppendConflict):
                # Its event says all of it.
                (receipt,) = append_answered(self._project, [proposal], Condition(position=position), answer={})
                return answer | {"event_id": receipt.event_id, "rollback_id": fact.rollback_id}
        raise Conflict(f"{asset} changes faster than it can be looked at", hint="try again")

    def _going_back(
        self, asset: str, partitions: Sequence[str], to: str | None, reason: str, rollback_id: str
    ) -> RolledBack:
        known = recorded_catalog(self._project)
        key = known.graph.resolve(asset)
        definition, asset_id = known.spec(key).partitions, known.asset_id(key)
        wanted = self._parsed(known, key, partitions, asset) or definition.set_of([PartitionKey()])
        keys = [str(one) for one in wanted]
        frozen = frozen_among(state_of(self._project, catalog=known), {key: wanted})
        if frozen:
            raise Conflict(
                f"{key} {frozen[key].describe()} is frozen, and stays as it is".replace("  ", " "),
                hint=f"thaw it first: servo partition mark {asset} … --as thawed --reason …",
            )
        history: dict[str, list[dict[str, Any]]] = {one: [] for one in keys}
        for row in self._history(asset_id, keys):
            history[row["partition_key"]].append(row)
        then = self._then(asset_id, keys, to)
        names = {one: f"{key} {definition.label(PartitionKey.parse(one))}".strip() for one in keys}
        earlier = [_earlier(rows, then.get(one), to, names[one]) for one, rows in history.items()]
        back = [row for row in earlier if not row["current"]]
        self._require_files(asset_id, back)
        return RolledBack(
            rollback_id=rollback_id,
            asset_id=asset_id,
            asset_key=key,
            partitions=EarlierMaterializations(
                keys=[row["partition_key"] for row in back],
                materialization_ids=[row["materialization_id"] for row in back],
                run_ids=[row["run_id"] for row in back],
                materialized_at=[row["published_at"] for row in back],
                code_version=[row["code_version"] for row in back],
                content_hash=[row["content_hash"] for row in back],
            ),
            reason=reason,
        )

    # ── removing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def vacuum(self, *, dry_run: bool) -> list[Removed]:
        """Remove what no event points to, and what retention lets go. What is current always stays."""
        project = self._project
        cited = Citations(project.settings).materializations()
        # Before the look at the ledger: what is made after it is not known to it, and must not look abandoned.
        now = project.clock()
        snapshot = project.reader.snapshot(fresh=True, timeout=_PATIENCE)
        everything = snapshot.query(_EVERYTHING).rows
        made = [row for row in everything if not row[4]]
        # Staged for an approval that was refused or never came: its run is over, and nobody can publish it any more.
        refused = {row[2] for row in everything if row[4]}
        unfinished = snapshot.query("SELECT run_id FROM runs WHERE finished_version IS NULL").rows
        [(begun,)] = snapshot.query(_OLDEST_ATTEMPT).rows
        grace = timedelta(hours=project.settings.retention.grace_hours)
        # What an attempt makes or reads while it runs is in use, however short the grace.
        settled = now if begun is None else min(now, begun)
        return vacuum(
            project.storage,
            referenced={row[2] for row in everything},
            # What an audit report cites is kept, whatever retention says.
            released=(
                _released(made, project.settings.retention, now, before=settled - grace)
                | {one for one in refused if ulid_time(one) <= settled - grace}
            )
            - cited,
            working={run_id for (run_id,) in unfinished},
            now=settled,
            grace=grace,
            dry_run=dry_run,
        )

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _parsed(self, known: Catalog, key: str, partitions: Sequence[str], asset: str) -> PartitionSet | None:
        wanted: PartitionSet | None = None
        state = state_of(self._project, catalog=known)
        for text in partitions:
            some = require_set(state, key, text, asset=asset)
            wanted = some if wanted is None else wanted | some
        return wanted

    def _history(self, asset_id: str, keys: list[str]) -> list[dict[str, Any]]:
        parameters = {"asset_id": asset_id, "keys": keys}
        return self._project.reader.query(_HISTORY, parameters, fresh=True, timeout=_PATIENCE).dicts()

    def _then(self, asset_id: str, keys: list[str], to: str | None) -> dict[str, str]:
        """What to go back to, by partition key, where that was said: one id for all, or what was current then."""
        if to is None:
            return {}
        if is_ulid(to):
            return dict.fromkeys(keys, to)
        if to.isalnum() and len(to) >= _SHORTEST_ID and to.startswith("0"):
            return self._begins(asset_id, keys, to.upper())
        was = current(self._project, asset_id, keys, as_of=parse_moment(to))
        return {key: one.materialization_id for key, one in was.items()}

    def _begins(self, asset_id: str, keys: list[str], start: str) -> dict[str, str]:
        """The materializations of these partitions whose id begins so, as a table shows it where it is narrow."""
        found: dict[str, str] = {}
        for row in self._history(asset_id, keys):
            if row["materialization_id"].startswith(start):
                if row["partition_key"] in found:
                    raise DataNotFound(f"several materializations begin with {start}", hint="give more of the id")
                found[row["partition_key"]] = row["materialization_id"]
        return found

    def _require_files(self, asset_id: str, rows: list[dict[str, Any]]) -> None:
        """Nothing becomes current whose files are gone."""
        places = [
            Place(asset_id=asset_id, key=row["partition_key"], materialization_id=row["materialization_id"])
            for row in rows
        ]
        for place in places:
            self._project.storage.schema(place)


def rows_of(storage: Storage, places: list[Place], chosen: list[Current], limit: int | None, offset: int = 0) -> Table:
    """The rows of exactly these materializations, without Spark; after so many of them, and at most so many."""
    columns: list[str] = []
    rows: list[tuple[Any, ...]] = []
    total = 0
    for batch in storage.read(places):
        columns = columns or list(batch.schema.names)
        begin = min(max(offset - total, 0), batch.num_rows)
        total += batch.num_rows
        wanted = batch.slice(begin) if limit is None else batch.slice(begin, max(limit - len(rows), 0))
        rows += zip(*(wanted.column(name).to_pylist() for name in columns), strict=True)
        if limit is not None and len(rows) >= limit:
            break
    complete = limit is None or len(rows) < limit
    return Table(columns=columns, rows=rows, total_rows=total if complete else None, materializations=chosen)


def _earlier(rows: list[dict[str, Any]], then: str | None, to: str | None, what: str) -> dict[str, Any]:
    """The version to go back to, of those of one partition, which come newest first."""
    now = next((number for number, row in enumerate(rows) if row["current"]), None)
    if now is None:
        raise DataNotFound(f"{what} has no data to roll back", hint="materialize it")
    earlier = rows[now + 1 :] if to is None else [row for row in rows if row["materialization_id"] == then]
    if not earlier:
        wanted = "earlier version" if to is None else f"version {to}" if is_ulid(to) else f"version of {to}"
        raise DataNotFound(f"{what} has no {wanted}", hint="see `servo partition history`")
    return earlier[0]


def _released(
    made: Sequence[tuple[Any, ...]], retention: RetentionSettings, now: datetime, *, before: datetime
) -> set[str]:
    """The materializations that retention lets go: too many versions ago, or too many days.

    Only those which a newer one had replaced by then: whoever began to read earlier may still be at it.
    """
    released: set[str] = set()
    for _, versions in groupby(made, key=lambda row: row[:2]):
        newer: str | None = None
        for number, (_, _, materialization_id, stays, _) in enumerate(versions):
            replaced = newer is not None and ulid_time(newer) <= before
            newer = materialization_id
            many = retention.versions is not None and number >= retention.versions
            age = now - ulid_time(materialization_id)
            old = retention.days is not None and age > timedelta(days=retention.days)
            # What both rules speak of must be let go by both.
            allowed = [rule for rule, given in ((many, retention.versions), (old, retention.days)) if given is not None]
            if allowed and all(allowed) and replaced and not stays:
                released.add(materialization_id)
    return released

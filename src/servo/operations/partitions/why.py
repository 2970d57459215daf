"""Why a partition is what it is: the proof, with what was read, what is current now, and what runs did about it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from servo.answers.partitions import (
    AssetWhy,
    Cause,
    Grounds,
    InputState,
    Made,
    MadeInCall,
    Obstacle,
    PartitionView,
    PartitionWhy,
    Reason,
    SampleView,
)
from servo.errors import ServoError
from servo.events import Event, UnknownEvent, decode
from servo.events.columns import spread
from servo.events.model import PartitionsMarked, TaskFinished
from servo.fold.display import FAILED, Overlay, Status
from servo.lineage.records import call_of, call_sentences
from servo.operations.partitions.activity import Activity, error_of, lacking_inputs
from servo.partitions import PartitionKey, PartitionSet
from servo.planning.planner import without_input
from servo.planning.stages import no_data
from servo.status.asset_status import AssetStatus, asset_statuses
from servo.status.partitions import OnePartition, one_partition, typed_key
from servo.status.selections import made_by_other_code
from servo.status.sentences import asset_sentence, because, hint_for, partition_sentence
from servo.status.staleness import StalePartition, any_stale, stale_partitions
from servo.status.state import State

__all__ = ["Why"]

_MADE = """
    SELECT m.materialization_id, m.run_id, m.task_key, m.code_version, m.rows, m.bytes, m.files, m.content_hash,
           m.made_at, m.made_by, m.published_at, m.call_partitions, m.made_version FROM materializations m
    WHERE m.materialization_id = $materialization_id AND m.asset_id = $asset_id AND m.partition_key = $partition_key
"""
_ROLLED_BACK = """
    SELECT rolled_back_at, rolled_back_by, rollback_reason FROM rollbacks
    WHERE asset_id = $asset_id AND partition_key = $partition_key AND rollback_version = $event_id
"""
_FAILURES = f"""
    SELECT partition_key, attempt_version FROM partition_status WHERE asset_id = $asset_id AND {FAILED}
    ORDER BY attempt_version DESC LIMIT 20
"""


class Why:
    """Explains partitions and assets by one state.

    `in_folder`: of one partition too, look whether the code of the project's folder is another than is deployed.
    """

    def __init__(self, state: State, *, in_folder: bool = False) -> None:
        self._state = state
        self._in_folder = in_folder

    # ── one partition ────────────────────────────────────────────────────────────────────────────────────────────

    def partition(self, asset: str, partition: str = "") -> PartitionWhy:
        state = self._state
        asset_key = state.catalog.graph.resolve(asset)
        text = typed_key(state, asset_key, partition)
        one = one_partition(state, asset_key, text)
        view, row = one.view, one.row
        # Who is stale by itself need not look further; of all others it is asked whether an upstream is.
        fresh = view.materialization_id and not view.stale_reasons
        stale = self._by_upstream(state, view, one.inputs) if fresh else None
        found = view.stale_reasons if stale is None else list(stale.reasons)
        reasons = self._grounds(state, asset_key, found, row, one.inputs)
        changed = sum(each.changed_at is not None for each in one.inputs)
        obstacles = self._not_run(state, asset_key, one)
        recoded = self._made_by_other_code(state, asset_key) if self._in_folder else None
        undeployed = recoded is not None and PartitionKey.parse(text) in recoded
        return PartitionWhy(
            partition=view,
            sentence=partition_sentence(
                view,
                by_upstream_alone=bool(reasons),
                frozen=self._frozen_by(row),
                changed=changed,
                undeployed=undeployed,
            ),
            now=state.now,
            made=self._made(state, view, row),
            reasons=reasons,
            root=None if stale is None else self._root(state, stale),
            inputs=one.inputs,
            not_run=obstacles,
            undeployed=undeployed,
            hint=hint_for(view, obstacles, changed=changed),
        )

    def _made_by_other_code(self, state: State, asset_key: str) -> PartitionSet | None:
        """The partitions that were made by other code than the folder's, where that is not deployed yet. None where the
        folder has no other code, or cannot be read."""
        try:
            return None if state.as_of is not None else made_by_other_code(state, state.local.catalog, asset_key)
        except ServoError:
            return None

    def _by_upstream(self, state: State, view: PartitionView, inputs: list[InputState]) -> StalePartition | None:
        read: dict[str, list[str]] = {}
        for one in inputs:
            if one.given and one.read_materialization_id is not None:
                read.setdefault(one.asset_key, []).append(one.partition_key)
        # Whether anything above is stale is sooner told than which of it is the root, and most often nothing is.
        if not read or not any_stale(state, read):
            return None
        only = {view.asset_key: [view.partition_key]}
        rows = stale_partitions(state, [view.asset_key], transitive=True, only=only)
        return rows[0] if rows else None

    def _made(self, state: State, view: PartitionView, row: dict[str, Any]) -> Made | None:
        materialization_id = view.materialization_id
        if materialization_id is None:
            return None
        place = {"asset_id": state.catalog.asset_id(view.asset_key), "partition_key": view.partition_key}
        rows = state.tables.query(_MADE, {**place, "materialization_id": materialization_id}).dicts()
        event_id = (row.get("materialization_version") or "").rpartition(":")[2]
        back = state.tables.query(_ROLLED_BACK, {**place, "event_id": event_id}).dicts()
        known = {**(rows[0] if rows else {}), **(back[0] if back else {}), "materialization_id": materialization_id}
        if rows and rows[0]["run_id"] is None and rows[0]["content_hash"] is None:
            fact, _ = self._fact(rows[0]["made_version"])
            known["mark_reason"] = fact.reason if isinstance(fact, PartitionsMarked) else None
        many = known.get("call_partitions") is not None
        call = self._call(known["made_version"], view.partition_key) if many else None
        return Made(**{name: known[name] for name in Made.__struct_fields__ if name in known}, call=call)

    def _fact(self, version: str) -> tuple[Event | UnknownEvent, str]:
        """What an event says, and who said it; by its id, or a version that ends with it."""
        event = self._state.event(version.rpartition(":")[2])
        return decode(event), event.actor

    def _frozen_by(self, row: dict[str, Any]) -> str | None:
        """Why a partition is frozen and by whom, in brackets, by the event that says so; None where it is not."""
        if not row.get("frozen"):
            return None
        fact, actor = self._fact(row.get("freeze_version") or "")
        reason = fact.reason if isinstance(fact, PartitionsMarked) else None
        return f" ({', '.join(filter(None, [reason, f'by {actor}']))})"

    def _call(self, event_id: str, key: str) -> MadeInCall | None:
        """The call that made a partition, by the event that says so."""
        fact, _ = self._fact(event_id)
        if not isinstance(fact, TaskFinished) or key not in fact.partitions.keys:
            return None
        place = fact.partitions.keys.index(key)
        call = call_of(fact, place)
        if call is None:
            return None
        own = {one.materialization_ids[index] for one in fact.inputs for index in one.of_output(place)}
        rows = spread(fact.partitions.rows, len(fact.partitions))[place]
        return MadeInCall(
            partitions=call.partitions,
            also_given=dict(Counter(one.asset_key for one in call.given if one.materialization_id not in own)),
            rows_left_out=call.rows_left_out,
            left_out_example=call.left_out_example,
            samples=[
                SampleView(
                    partition_key=one.partition, verdict=one.verdict, content_hash=one.content_hash, remark=one.remark
                )
                for one in call.samples
            ],
            sentences=call_sentences(call, own, key, rows),
        )

    def _grounds(
        self,
        state: State,
        asset_key: str,
        reasons: list[Reason],
        row: dict[str, Any],
        inputs: list[InputState],
    ) -> list[Grounds]:
        changed = [one for one in inputs if one.changed_at is not None]
        return [
            Grounds(code=code, since=since, sentence=because(state, asset_key, code, row, guilty), inputs=guilty)
            for code, since in reasons
            for guilty in [changed if code == "UPSTREAM_CHANGED" else []]
        ]

    def _root(self, state: State, stale: StalePartition) -> Cause | None:
        if stale.root_asset_key is None:
            return None
        key = stale.root_partition_key or ""
        label = state.catalog.spec(stale.root_asset_key).partitions.short_key(PartitionKey.parse(key))
        return Cause(
            asset_key=stale.root_asset_key,
            partition_key=key,
            partition=label,
            code=stale.root_reason_code or stale.reason_code,
        )

    def _not_run(self, state: State, asset_key: str, one: OnePartition) -> list[Obstacle]:
        view = one.view
        if view.undefined:
            return [
                Obstacle(code="UNDEFINED", sentence="the definition does not have it any more: nothing runs for it")
            ]
        key = PartitionKey.parse(view.partition_key)
        found = Activity(state, asset_key, key).found(one.row)
        if "frozen" in view.overlays:
            sentence = "is frozen: it is left out of what runs, until it is thawed or named with --unfreeze"
            found.append(Obstacle(code="FROZEN", sentence=sentence))
        if view.status == Status.MATERIALIZED:
            return found
        if view.window_end is not None and view.window_end > state.now:
            begun = view.window_start is not None and view.window_start <= state.now
            found.append(
                Obstacle(
                    code="NOT_ENDED",
                    sentence=f"its window {'has not ended' if begun else 'has not begun'} yet",
                    until=view.window_end,
                )
            )
        found += self._lacking(state, asset_key, key, one.inputs)
        if not any(obstacle.run_id for obstacle in found):
            since = "" if view.status == Status.NEVER_MATERIALIZED else " since"
            found.insert(0, Obstacle(code="NEVER_ASKED_FOR", sentence=f"no run was asked for it{since}"))
        return found

    def _lacking(self, state: State, asset_key: str, key: PartitionKey, inputs: list[InputState]) -> list[Obstacle]:
        """The inputs of a partition that a run of it would be refused for."""
        found = []
        for upstream, absent, marked, nothing in lacking_inputs(state, asset_key, key, inputs):
            if absent:
                names = f"{upstream} {absent.describe()}".strip()
                what = "is" if absent.count == 1 else "are"
                sentence = f"reads {names}, which {what} not there"
                found.append(Obstacle(code="INPUTS_MISSING", sentence=sentence, because_of=[names]))
            if marked:
                names = f"{upstream} {marked.describe()}".strip()
                sentence = f"reads {no_data(upstream, marked)}"
                found.append(Obstacle(code="INPUTS_MARKED", sentence=sentence, because_of=[names]))
            if nothing:
                found.append(Obstacle(code="NOTHING_TO_READ", sentence=f"has nothing to read in {upstream}"))
        return found

    # ── an asset ─────────────────────────────────────────────────────────────────────────────────────────────────

    def asset(self, asset: str) -> AssetWhy:
        state = self._state
        asset_key = state.catalog.graph.resolve(asset)
        status = asset_statuses(state, [asset_key])[asset_key]
        rows = stale_partitions(state, [asset_key], transitive=True)
        definition = status.definition
        by_code: dict[str, list[StalePartition]] = {}
        roots: Counter[tuple[str, str]] = Counter()
        origins: dict[tuple[str, str], set[str]] = {}
        for one in rows:
            for code, _ in one.reasons:
                by_code.setdefault(code, []).append(one)
            if one.root_asset_key is not None:
                root = (one.root_asset_key, one.root_reason_code or one.reason_code)
                roots[root] += 1
                origins.setdefault(root, set()).add(one.root_partition_key or "")
        summary = status.summary()
        # Their own status says nothing of what they were made from; a plan computes them all the same.
        fine = status.statuses[Status.MATERIALIZED] - definition.set_of(
            PartitionKey.parse(one.partition_key) for one in rows
        )
        undeployed = self._made_by_other_code(state, asset_key)
        if undeployed is not None:
            fine = fine - undeployed
        return AssetWhy(
            summary=summary,
            sentence=asset_sentence(summary, fine.count, len(rows), 0 if undeployed is None else undeployed.count),
            now=state.now,
            reasons=[
                {
                    "code": code,
                    "partitions": len(found),
                    "since": min(since for one in found for each, since in one.reasons if each == code),
                    "described": _described(definition, [one.partition_key for one in found]),
                }
                for code, found in sorted(by_code.items(), key=lambda item: -len(item[1]))
            ],
            roots=[
                {
                    "asset_key": root,
                    "code": code,
                    "partitions": count,
                    "described": _described(state.catalog.spec(root).partitions, origins[root, code]),
                }
                for (root, code), count in roots.most_common()
            ],
            failures=self._failures(state, asset_key),
            missing=self._missing(state, asset_key, status),
            undeployed=0 if undeployed is None else undeployed.count,
            hint=f"servo plan --stale {asset_key}" if rows or summary.missing or undeployed else None,
        )

    def _failures(self, state: State, asset_key: str) -> list[dict[str, Any]]:
        """What the newest failures were, by their first lines."""
        rows = state.tables.query(_FAILURES, {"asset_id": state.catalog.asset_id(asset_key)}).dicts()
        found: dict[str, list[str]] = {}
        definition = state.catalog.spec(asset_key).partitions
        for row in rows:
            error = error_of(state, row, row["partition_key"]) or "nobody said why"
            label = definition.short_key(PartitionKey.parse(row["partition_key"]))
            found.setdefault(error.strip().partition("\n")[0], []).append(label)
        return [{"error": error, "partitions": len(keys), "newest": keys[0]} for error, keys in found.items()]

    def _missing(self, state: State, asset_key: str, mine: AssetStatus) -> list[dict[str, Any]]:
        """What is missing, by whether it could run: what is frozen, or reads something that is not there or was only
        marked, has to wait."""
        missing, found = mine.missing, []
        frozen = missing & mine.overlays.get(Overlay.FROZEN, mine.definition.empty())
        if frozen:
            missing = missing - frozen
            found.append(_why_missing("is frozen" if frozen.count == 1 else "are frozen", frozen))
        if not missing:
            return found
        known, ready = state.catalog, missing
        upstreams = list(dict.fromkeys(known.graph.upstream(asset_key)))
        for upstream, status in asset_statuses(state, upstreams, stale={}).items():
            mapping = known.graph.mapping(upstream, asset_key)
            needed = mapping.upstream(missing, status.definition, state.now)
            absent = needed & (status.statuses[Status.NEVER_MATERIALIZED] | (needed - status.all))
            blocked = mapping.downstream(absent, missing.partitions, state.now) & missing if absent else None
            if blocked:
                ready = ready - blocked
                why = f"reads {upstream} {absent.describe()}".rstrip() + ", which is not there"
                found.append(_why_missing(why, blocked))
            marked = needed & status.marked
            if marked and known.reads_data(asset_key, upstream):
                # Where a custom mapping does not tell who reads it, anybody may.
                readers = mapping.downstream(marked, missing.partitions, state.now) & missing or missing
                ready = ready - readers
                found.append(_why_missing(f"reads {no_data(upstream, marked)}", readers))
            idle = without_input(mapping, missing, needed, state.now)
            if idle:
                ready = ready - idle
                found.append(_why_missing(f"has nothing to read in {upstream}", idle))
        if ready:
            found.insert(0, _why_missing("could run now", ready))
        return found


def _why_missing(why: str, some: PartitionSet) -> dict[str, Any]:
    return {"why": why, "partitions": some.count, "described": some.describe()}


def _described(definition: Any, keys: Any) -> str:
    inside = [key for key in map(PartitionKey.parse, keys) if key in definition]
    return str(definition.set_of(inside).describe()) if inside else ""

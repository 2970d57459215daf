"""Why a partition is what it is, in words: one sentence for each thing that is said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from servo.answers.partitions import AssetSummary, InputState, Obstacle, PartitionView
from servo.fold.display import Status, is_marked
from servo.status.code_changes import asset_code, shortened
from servo.status.state import State

__all__ = ["asset_sentence", "because", "hint_for", "partition_sentence"]


_OTHER_CODE = "made by other code than is in the folder, which is not deployed yet"
_MARKED = "it was marked as materialized, and holds no data: what only waits for it may run, what reads it may not"


def partition_sentence(
    view: PartitionView,
    *,
    by_upstream_alone: bool,
    frozen: str | None = None,
    changed: int = 0,
    undeployed: bool = False,
) -> str:
    """What a partition is, in one sentence.

    `frozen`: why and by whom, where it is frozen; `changed`: how many of its inputs are not what it was made from;
    `undeployed`: whether it was made by other code than the folder's, which is not deployed yet.
    """
    found = _state_sentence(view, by_upstream_alone=by_upstream_alone, frozen=frozen, changed=changed)
    return f"{found}; it was {_OTHER_CODE}" if undeployed else found


def _state_sentence(view: PartitionView, *, by_upstream_alone: bool, frozen: str | None, changed: int) -> str:
    if view.undefined:
        return "a partition of an earlier definition"
    if is_marked(msgspec.structs.asdict(view)):
        failed = view.status == Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED
        tried = "; a later attempt to make it failed" if failed else ""
        return f"{_MARKED}{tried}" + ("" if frozen is None else f". It is frozen{frozen}")
    if frozen is not None:
        return _frozen_sentence(view, frozen, changed)
    match view.status:
        case Status.NEVER_MATERIALIZED:
            return "there is no data" + ("" if view.last_attempt_outcome is None else ", though it was tried")
        case Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED:
            return "there is data, and a later attempt to make it anew failed"
        case Status.STALE:
            return "there is data, which would come out differently today"
    if by_upstream_alone:
        return "there is data; it is what it was made from that is stale"
    return "there is data, and nothing that it was made from has changed"


def _frozen_sentence(view: PartitionView, frozen: str, changed: int) -> str:
    match view.status:
        case Status.NEVER_MATERIALIZED:
            return f"there is no data, and it is frozen{frozen}: nothing makes it until it is thawed"
        case Status.MATERIALIZED_BUT_LAST_ATTEMPT_FAILED:
            return f"it is frozen{frozen}; there is data, and a later attempt to make it anew failed"
    if changed:
        verb = "has" if changed == 1 else "have"
        return f"it is frozen{frozen}; {changed:,} of its inputs {verb} changed since"
    return f"it is frozen{frozen}; there is data, and nothing that it was made from has changed"


def because(state: State, asset_key: str, code: str, row: Mapping[str, Any], guilty: list[InputState]) -> str:
    """Why a reason holds."""
    spec = state.catalog.spec(asset_key)
    match code:
        case "INVALIDATED":
            by, why = row.get("invalidated_by"), row.get("invalidation_reason")
            return f"{by or 'somebody'} declared it stale" + (f": {why}" if why else "")
        case "CODE_CHANGED":
            made_with = row.get("last_materialization_code_version")
            changes = asset_code(state.tables, state.catalog, asset_key).changes([made_with] if made_with else [])
            what = f"code changed: {shortened(changes)}; " if changes else ""
            return f"{what}made by code {made_with}, deployed now is {spec.code_version}"
        case "UPSTREAM_CHANGED":
            unread, removed = (sum(one.state == state for one in guilty) for state in ("unread", "removed"))
            changed = len(guilty) - unread - removed
            parts = [f"{changed:,} of its inputs changed" if changed else ""]
            parts.append(f"{unread:,} came that it has not read" if unread else "")
            parts.append(
                f"{removed:,} that it read {'is' if removed == 1 else 'are'} not given any more" if removed else ""
            )
            return ", ".join(filter(None, parts)) or "an input changed"
        case "FRESHNESS_POLICY":
            return f"it may be {spec.freshness} old, and was made {row.get('last_materialization_at')}"
        case "UPSTREAM_STALE":
            return "something that it was made from is stale itself"
    return code


def hint_for(view: PartitionView, obstacles: Sequence[Obstacle], *, changed: int = 0) -> str | None:
    """The command to make a partition with, given what stands against that; None where no command would, or it is as it
    should be. `changed`: how many of its inputs are not what it was made from."""
    frozen = "frozen" in view.overlays
    as_it_should_be = view.status == Status.MATERIALIZED and not (frozen and changed)
    if view.undefined or as_it_should_be or "running" in view.overlays or "queued" in view.overlays:
        return None
    if "waiting_approval" in view.overlays:
        return "servo checkpoint list"
    codes = {one.code for one in obstacles}
    if codes & {"NOT_ENDED", "NOTHING_TO_READ"}:
        return None
    at = f"@{view.partition}" if view.partition else ""
    upstream = "+" if codes & {"INPUTS_MISSING", "INPUTS_MARKED"} else ""
    thaw = " --unfreeze REASON" if frozen else ""
    return f"servo materialize '{upstream}{view.asset_key}{at}'{thaw}"


def asset_sentence(summary: AssetSummary, fine: int, outdated: int, undeployed: int) -> str:
    """How many partitions are as they should be, so that a plan leaves them alone, and what the others are."""
    said = []
    if outdated:
        said.append(f"{outdated:,} stale")
    if summary.missing:
        said.append(f"{summary.missing:,} missing")
    if summary.attempt_failed:
        said.append(f"{summary.attempt_failed:,} failed at the last attempt")
    if undeployed:
        said.append(f"{undeployed:,} {_OTHER_CODE}")
    good = f"{fine:,} of {summary.expected:,} partitions are as they should be"
    return good if not said else f"{good}; {', '.join(said)}"

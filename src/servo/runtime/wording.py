"""Why a partition is what it is, in words: one sentence for each thing that is said of it."""

from __future__ import annotations

from typing import Any

from servo.fold.display import Status
from servo.runtime.input_states import InputState
from servo.runtime.moments import Moment
from servo.runtime.partitions import AssetSummary, PartitionView

__all__ = ["asset_sentence", "because", "hint_for", "partition_sentence"]


def partition_sentence(view: PartitionView, *, by_upstream_alone: bool) -> str:
    if view.undefined:
        return "a partition of an earlier definition"
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


def because(moment: Moment, asset_key: str, code: str, row: dict[str, Any], guilty: list[InputState]) -> str:
    spec = moment.known.spec(asset_key)
    match code:
        case "INVALIDATED":
            by, why = row.get("invalidated_by"), row.get("invalidation_reason")
            return f"{by or 'somebody'} declared it stale" + (f": {why}" if why else "")
        case "CODE_CHANGED":
            return f"made by code {row.get('last_materialization_code_version')}, deployed now is {spec.code_version}"
        case "UPSTREAM_CHANGED":
            unread = sum(one.state == "unread" for one in guilty)
            parts = [f"{len(guilty) - unread:,} of its inputs changed" if len(guilty) > unread else ""]
            parts.append(f"{unread:,} came that it has not read" if unread else "")
            return ", ".join(filter(None, parts)) or "an input changed"
        case "FRESHNESS_POLICY":
            return f"it may be {spec.freshness} old, and was made {row.get('last_materialization_at')}"
        case "UPSTREAM_STALE":
            return "something that it was made from is stale itself"
    return code


def hint_for(view: PartitionView) -> str | None:
    if view.undefined or view.status == Status.MATERIALIZED or "running" in view.overlays or "queued" in view.overlays:
        return None
    if "waiting_approval" in view.overlays:
        return "servo checkpoint list"
    at = f"@{view.partition}" if view.partition else ""
    return f"servo materialize '{view.asset_key}{at}'"


def asset_sentence(summary: AssetSummary, outdated: int) -> str:
    said = []
    if outdated:
        said.append(f"{outdated:,} stale")
    if summary.missing:
        said.append(f"{summary.missing:,} missing")
    if summary.attempt_failed:
        said.append(f"{summary.attempt_failed:,} failed at the last attempt")
    good = f"{summary.statuses[Status.MATERIALIZED]:,} of {summary.expected:,} partitions are as they should be"
    return good if not said else f"{good}; {', '.join(said)}"

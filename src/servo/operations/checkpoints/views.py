"""Checkpoints as they are shown: what waits for a person, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from servo import decoders
from servo.answers.runs import CheckpointListed, CheckpointView
from servo.controllers.approvals import digest
from servo.errors import CheckpointNotFound, Conflict
from servo.events.fact import Fact
from servo.events.lifecycles import CheckpointStatus
from servo.events.model import MaterializationPublished
from servo.ids import ulid_offset
from servo.status.state import State

__all__ = [
    "StagedData",
    "checkpoint_view",
    "checkpoints_listed",
    "find_checkpoint",
    "over",
    "published_by",
    "staged_data",
]

_ROW = f"""
    SELECT c.checkpoint_id, coalesce(c.decision, '{CheckpointStatus.REQUESTED}') AS status, c.asset_key, c.asset_id,
           c.run_id, c.task_key, r.requested_by, c.requested_at, c.approvers, c.four_eyes, c.deadline, c.on_deadline,
           c.escalated_to, c.escalated_at, c.decided_by, c.decided_at, c.decision_reason, c.partition_keys,
           c.content_hashes, c.first_materialization_id, c.requested_version
    FROM checkpoints c LEFT JOIN runs r USING (run_id)
"""
_LIST = (
    _ROW
    + f"""
    WHERE c.requested_version IS NOT NULL
      AND ($status IS NULL OR coalesce(c.decision, '{CheckpointStatus.REQUESTED}') = $status)
      AND ($asset_id IS NULL OR c.asset_id = $asset_id) AND ($run_id IS NULL OR c.run_id = $run_id)
      AND c.requested_at >= coalesce($since, c.requested_at) AND ($until IS NULL OR c.requested_at < $until)
      AND ($before IS NULL OR c.requested_version
           < (SELECT b.requested_version FROM checkpoints b WHERE b.checkpoint_id = $before))
    ORDER BY c.requested_version DESC LIMIT $limit
"""
)
_FIND = _ROW + "WHERE c.requested_version IS NOT NULL AND starts_with(c.checkpoint_id, $name) LIMIT 2"
# What was staged, what is current in its place, and what was made of the partition since it was asked about.
_PARTITIONS = """
    SELECT m.partition_key, m.materialization_id, m.rows, m.bytes, m.files, m.content_hash, m.code_version, m.made_at,
           m.attempt, s.materialization_id AS current_materialization_id, s.content_hash AS current_content_hash,
           (SELECT max_by(coalesce(n.run_id, n.made_by), n.made_version) FROM materializations n
            WHERE n.asset_id = m.asset_id AND n.partition_key = m.partition_key
              AND n.made_version > $requested_version) AS superseded_by
    FROM materializations m
    LEFT JOIN partition_status s ON s.asset_id = m.asset_id AND s.partition_key = m.partition_key
    WHERE m.asset_id = $asset_id AND m.materialization_id BETWEEN $first AND $last
    ORDER BY m.materialization_id
"""
_CHECKS = """
    SELECT partition_key, check_name, passed, blocking, observed FROM check_results
    WHERE run_id = $run_id AND task_key = $task_key AND attempt = $attempt ORDER BY partition_key, check_name
"""


def checkpoints_listed(
    state: State,
    *,
    status: str | None,
    asset: str | None,
    run_id: str | None,
    since: datetime | None,
    until: datetime | None,
    before: str | None,
    limit: int,
) -> list[CheckpointListed]:
    """Checkpoints, newest first. `before`: the id of the last one that was seen, for who goes on page by page."""
    # By its id: a checkpoint has the name that the asset had when it was asked about.
    asset_id = None if asset is None else state.catalog.asset_id(state.catalog.graph.resolve(asset))
    parameters = {
        "status": status,
        "asset_id": asset_id,
        "run_id": run_id,
        "since": since,
        "until": until,
        "before": before,
        "limit": limit,
    }
    return decoders.convert(state.tables.query(_LIST, parameters).dicts(), list[CheckpointListed])


def checkpoint_view(state: State, checkpoint_id: str) -> CheckpointView:
    """Everything about one: each partition with its rows, hash and checks, and what it would replace."""
    row, ask = find_checkpoint(state, checkpoint_id), state.tables.query
    first, count = row["first_materialization_id"], len(row["partition_keys"])
    place = {"asset_id": row["asset_id"], "first": first, "last": ulid_offset(first, count - 1)}
    partitions = ask(_PARTITIONS, place | {"requested_version": row["requested_version"]}).dicts()
    attempt = next((one["attempt"] for one in partitions), None)
    task = {"run_id": row["run_id"], "task_key": row["task_key"], "attempt": attempt}
    checks: dict[str, list[dict[str, Any]]] = {}
    for check in ask(_CHECKS, task).dicts():
        checks.setdefault(check.pop("partition_key"), []).append(check)
    left = [(one["partition_key"], one["content_hash"]) for one in partitions if not one["superseded_by"]]
    shown = row | {
        "hash": digest(left) if left else None,
        "partitions": [one | {"checks": checks.get(one["partition_key"], [])} for one in partitions],
    }
    return decoders.convert(shown, CheckpointView)


class StagedData(NamedTuple):
    """The materialization of a partition that waits in a checkpoint."""

    partition_key: str
    materialization_id: str
    content_hash: str | None


def staged_data(row: dict[str, Any]) -> list[StagedData]:
    """What waits in the checkpoint of a row, or was to be published."""
    first = row["first_materialization_id"]
    columns = zip(row["partition_keys"], row["content_hashes"], strict=True)
    return [StagedData(key, ulid_offset(first, n), hashed or None) for n, (key, hashed) in enumerate(columns)]


def find_checkpoint(state: State, checkpoint_id: str) -> dict[str, Any]:
    """The row of a checkpoint, given its id or how that begins."""
    name = checkpoint_id.upper()  # ULIDs are often written in lower case
    rows = state.tables.query(_FIND, {"name": name}).dicts()
    exact = [row for row in rows if row["checkpoint_id"] == name]
    if not rows or not name:
        raise CheckpointNotFound(f"there is no checkpoint {checkpoint_id!r:.80}", hint="see `servo checkpoint list`")
    if len(rows) > 1 and not exact:
        raise CheckpointNotFound(f"several checkpoints begin with {checkpoint_id!r:.80}", hint="give more of the id")
    return (exact or rows)[0]


def over(row: dict[str, Any]) -> Conflict:
    """Why nothing can be decided any more: who decided, and when."""
    if row["decided_at"] is None:
        return Conflict(f"the run of checkpoint {row['checkpoint_id']} has ended", hint="ask for a new run")
    at, why = f"at {row['decided_at'].astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", row["decision_reason"]
    match row["status"]:
        case CheckpointStatus.EXPIRED:
            how = f"expired {at}: nobody approved it in time"
        case CheckpointStatus.SUPERSEDED | CheckpointStatus.CANCELLED:
            how = f"ended {at}: {why}"
        case status:
            how = f"was {status.lower()} by {row['decided_by']} {at}" + (f": {why}" if why else "")
    return Conflict(
        f"checkpoint {row['checkpoint_id']} {how}", hint="it is decided once; a new run of the partitions asks anew"
    )


def published_by(facts: Iterable[Fact]) -> list[dict[str, str | None]]:
    """What a decision made current, given all that was recorded with it."""
    return [
        {"partition_key": key, "materialization_id": name}
        for fact in facts
        if isinstance(fact, MaterializationPublished)
        for key, name in zip(fact.partitions.keys, fact.partitions.materialization_ids(), strict=True)
    ]

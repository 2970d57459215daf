"""Checkpoints: what waits for a person, what people decide, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from servo import decoders
from servo.answers.runs import CheckpointListed, CheckpointView, Decided
from servo.controllers.approvals import (
    Checkpoint,
    approved,
    digest,
    overdue,
    rejected,
    require_allowed,
    require_hash,
    require_open,
    stretches,
)
from servo.errors import CheckpointNotFound, Conflict, DataNotFound, LedgerCorrupt
from servo.events import RecordedEvent, decode
from servo.events.columns import spread
from servo.events.fact import Fact
from servo.events.lifecycles import CheckpointStatus
from servo.events.model import MaterializationPublished, PartitionsMarked, TaskFinished
from servo.execution.protocol import Place
from servo.ids import ulid_offset
from servo.operations.checkpoints.requests import (
    ApproveCheckpoint,
    GetCheckpoint,
    ListCheckpoints,
    RejectCheckpoint,
)
from servo.operations.fields import moment
from servo.operations.handling import Decision, Found, Outside, answers, decides, lists
from servo.operations.runs.views import run_of
from servo.status.plans import THAW
from servo.status.state import State

if TYPE_CHECKING:
    from servo.execution.storage import ParquetStorage

_NEARBY = 8  # events before a checkpoint among which is what staged it: they are recorded together
_FROZEN = """
    SELECT partition_key FROM partition_status
    WHERE asset_id = $asset_id AND frozen AND partition_key IN (SELECT unnest($keys)) ORDER BY partition_key
"""
# What may make a newer version of a partition that waits, or freeze it.
_OVERTAKING = frozenset({kind.event_type for kind in (TaskFinished, MaterializationPublished, PartitionsMarked)})


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────


@lists(ListCheckpoints, place=lambda checkpoint: checkpoint.checkpoint_id, place_type=str)
def list_checkpoints(state: State, request: ListCheckpoints, after: str | None) -> Found[CheckpointListed]:
    # By its id: a checkpoint has the name that the asset had when it was asked about.
    asset_id = None if request.asset is None else state.catalog.asset_id(state.catalog.graph.resolve(request.asset))
    parameters = {
        "status": request.status,
        "asset_id": asset_id,
        "run_id": request.run_id,
        "since": moment(request.since, "since"),
        "until": moment(request.until, "until"),
        "before": after,
        "limit": request.limit + 1,
    }
    return Found(items=decoders.convert(state.tables.query(_LIST, parameters).dicts(), list[CheckpointListed]))


@answers(GetCheckpoint)
def get_checkpoint(state: State, request: GetCheckpoint) -> CheckpointView:
    row, ask = find_checkpoint(state, request.checkpoint_id), state.tables.query
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


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _with_published(state: State, fields: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
    """The answer with what the decision made current: that is recorded right after it, in the same append."""
    facts = map(decode, state.history.events(event.position))
    own = takewhile(lambda fact: getattr(fact, "checkpoint_id", None) == fields["checkpoint_id"], facts)
    published = [
        {"partition_key": key, "materialization_id": materialization_id}
        for fact in own
        if isinstance(fact, MaterializationPublished)
        for key, materialization_id in zip(fact.partitions.keys, fact.partitions.materialization_ids(), strict=True)
    ]
    return fields | {"published": published}


def _with_run_status(outside: Outside, state: State, fields: dict[str, Any]) -> dict[str, Any]:
    """The answer with what becomes of the run: where no control loop is at work, it would look unfinished."""
    outside.advance_run(fields["run_id"])
    return fields | {"run_status": run_of(state, fields["run_id"]).status}


def _keep_deadlines(outside: Outside, _: State, request: RejectCheckpoint) -> None:
    """Before the state is looked at: no control loop may be at work, and the deadline holds all the same."""
    outside.expire_checkpoint(request.checkpoint_id)


def _require_intact(outside: Outside, state: State, request: ApproveCheckpoint) -> None:
    """See to it that what was staged is still there, after all that is sooner looked at."""
    outside.expire_checkpoint(request.checkpoint_id)
    checkpoint = _approvable(state, request)
    if checkpoint.checkpoint_id not in outside.intact:  # it never changes, so once is enough
        require_files(outside.storage, checkpoint)
        outside.intact.add(checkpoint.checkpoint_id)


@decides(ApproveCheckpoint, evidence=_require_intact, recall=_with_published, afterwards=_with_run_status)
def approve_checkpoint(state: State, request: ApproveCheckpoint, _: None) -> Decision[Decided]:
    checkpoint = _approvable(state, request)
    names = [state.new_id() for _ in stretches(checkpoint)]
    facts = approved(checkpoint, _staging_of(state, checkpoint), reason=request.reason, publication_ids=names)
    return _decided(state, checkpoint, CheckpointStatus.APPROVED, request.reason, facts)


@decides(RejectCheckpoint, evidence=_keep_deadlines, recall=_with_published, afterwards=_with_run_status)
def reject_checkpoint(state: State, request: RejectCheckpoint, _: None) -> Decision[Decided]:
    checkpoint = _open(state, request.checkpoint_id, approve=False)
    facts = rejected(checkpoint, reason=request.reason)
    return _decided(state, checkpoint, CheckpointStatus.REJECTED, request.reason, facts)


def _approvable(state: State, request: ApproveCheckpoint) -> Checkpoint:
    checkpoint = _open(state, request.checkpoint_id, approve=True)
    _require_none_frozen(state, checkpoint)
    if request.content_hash is not None:
        require_hash(checkpoint, request.content_hash)
    return checkpoint


def _open(state: State, checkpoint_id: str, *, approve: bool) -> Checkpoint:
    """An undecided checkpoint on which the caller may decide."""
    row = find_checkpoint(state, checkpoint_id)
    checkpoint = state.board.checkpoints.get(row["checkpoint_id"])
    if checkpoint is None:
        raise over(row)
    run = state.board.runs[checkpoint.run_id]
    require_allowed(checkpoint, state.actor, state.policy.roles, requested_by=run.requested_by, approve=approve)
    require_open(checkpoint, run)
    if overdue(checkpoint, state.now) is not None:
        raise Conflict(f"the deadline of checkpoint {checkpoint.checkpoint_id} has passed", hint="look again")
    return checkpoint


def _decided(
    state: State, checkpoint: Checkpoint, status: CheckpointStatus, reason: str | None, facts: Sequence[Fact]
) -> Decision[Decided]:
    answer = Decided(
        checkpoint_id=checkpoint.checkpoint_id,
        status=status,
        event_id="",
        asset_key=checkpoint.asked.asset_key,
        run_id=checkpoint.run_id,
        decided_by=state.actor,
        decided_at=state.now,
        reason=reason,
        published=[],  # its events have them
    )
    return Decision(facts=facts, answer=answer, conflicts=_conflicts_with(checkpoint))


def _conflicts_with(checkpoint: Checkpoint) -> Callable[[RecordedEvent], bool]:
    """Whether an event matters to a decision: it is about the checkpoint or its run, or may overtake what waits."""
    own, asset_id = (checkpoint.checkpoint_id, checkpoint.run_id), checkpoint.asked.asset_id

    def conflicts(event: RecordedEvent) -> bool:
        if event.correlation_id in own:
            return True
        return event.event_type in _OVERTAKING and getattr(decode(event), "asset_id", None) in (asset_id, None)

    return conflicts


# ── what was staged ──────────────────────────────────────────────────────────────────────────────────────────────


def _require_none_frozen(state: State, checkpoint: Checkpoint) -> None:
    """Nothing becomes current in the place of a partition that was frozen while it waited."""
    asked = checkpoint.asked
    rows = state.tables.query(_FROZEN, {"asset_id": asked.asset_id, "keys": checkpoint.left}).rows
    if rows:
        frozen = [key for (key,) in rows]
        few = ", ".join(frozen[:3]) + (f" and {len(frozen) - 3} more" if len(frozen) > 3 else "")
        raise Conflict(
            f"{asked.asset_key} {few} {'is' if len(frozen) == 1 else 'are'} frozen, and approving checkpoint "
            f"{asked.checkpoint_id} would replace what is there",
            hint=f"reject it, or {THAW.format(f'{asked.asset_key} {frozen[0]}')}",
        )


def require_files(storage: ParquetStorage, checkpoint: Checkpoint) -> None:
    """Nothing becomes current of which a file is gone, or not, byte by byte, what was staged."""
    asked, partitions = checkpoint.asked, checkpoint.asked.partitions
    count = len(partitions)
    columns = zip(
        partitions.keys,
        partitions.materialization_ids(),
        spread(partitions.files, count),
        spread(partitions.bytes, count),
        strict=True,
    )
    places = []
    for key, name, files, size in columns:
        if key in checkpoint.overtaken or name is None:
            continue
        place = Place(asset_id=asked.asset_id, key=key, materialization_id=name)
        if storage.measure(place) != (files, size):
            raise DataNotFound(
                f"the files of materialization {name} are not those that were staged ({files}, {size} bytes)",
                hint="reject it, and run it again",
            )
        places.append(place)
    # Last, since it reads them all.
    storage.require_seals(places)


def _staging_of(state: State, checkpoint: Checkpoint) -> TaskFinished:
    """The fact that its partitions were staged, which says from what and by which code."""
    asked = checkpoint.asked
    after = max(checkpoint.position - 1 - _NEARBY, 0)
    for event in reversed(state.history.read(after, checkpoint.position - 1 - after)):
        fact = decode(event)
        if isinstance(fact, TaskFinished) and (fact.run_id, fact.task_key) == (asked.run_id, asked.task_key):
            return fact
    raise LedgerCorrupt(
        f"nothing says how checkpoint {asked.checkpoint_id} was staged", hint="run `servo ledger verify`"
    )


# ── as they are shown ────────────────────────────────────────────────────────────────────────────────────────────


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

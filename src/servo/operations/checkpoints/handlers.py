"""What answers and decides the operations on checkpoints: what waits for a person, and what people decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from servo.answers.runs import CheckpointListed, CheckpointView, Decided
from servo.controllers.approvals import (
    Checkpoint,
    approved,
    overdue,
    rejected,
    require_allowed,
    require_hash,
    require_open,
    stretches,
)
from servo.errors import Conflict, DataNotFound, LedgerCorrupt
from servo.events import RecordedEvent, decode
from servo.events.columns import spread
from servo.events.fact import Fact
from servo.events.lifecycles import CheckpointStatus
from servo.events.model import MaterializationPublished, PartitionsMarked, TaskFinished
from servo.execution.protocol import Place
from servo.operations.checkpoints.requests import (
    ApproveCheckpoint,
    GetCheckpoint,
    ListCheckpoints,
    RejectCheckpoint,
)
from servo.operations.checkpoints.views import (
    checkpoint_view,
    checkpoints_listed,
    find_checkpoint,
    over,
    published_by,
)
from servo.operations.decision import Decision
from servo.operations.fields import moment
from servo.operations.handling import Found, answers, decides, lists
from servo.operations.outside import Outside
from servo.operations.runs.views import run_of
from servo.status.exclusions import THAW
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
    found = checkpoints_listed(
        state,
        status=request.status,
        asset=request.asset,
        run_id=request.run_id,
        since=moment(request.since, "since"),
        until=moment(request.until, "until"),
        before=after,
        limit=request.limit + 1,
    )
    return Found(items=found)


@answers(GetCheckpoint)
def get_checkpoint(state: State, request: GetCheckpoint) -> CheckpointView:
    return checkpoint_view(state, request.checkpoint_id)


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _with_published(state: State, fields: dict[str, Any], event: RecordedEvent) -> dict[str, Any]:
    """The answer with what the decision made current: that is recorded right after it, in the same append."""
    facts = map(decode, state.history.events(event.position))
    own = takewhile(lambda fact: getattr(fact, "checkpoint_id", None) == fields["checkpoint_id"], facts)
    return fields | {"published": published_by(fact for fact in own if isinstance(fact, MaterializationPublished))}


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
    """A checkpoint on which who asks may decide, and that nobody has decided on."""
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

"""Approve or reject what waits for a person. The id of a checkpoint may be shortened."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, get_args

import click
from click.shell_completion import CompletionItem

from servo.answers.runs import CheckpointListed, CheckpointView, Decided, StagedPartition
from servo.answers.values import text
from servo.cli.opening import Services
from servo.cli.options import Answer, command, complete_assets, completer, given, limited, reasoned, waiting
from servo.cli.output import aside, at, at_most, marked, note, plain_struct, short_id, table
from servo.cli.progress import exit_code, outcome_document, summarize, wait_for
from servo.operations.checkpoints.requests import (
    ApproveCheckpoint,
    CheckpointStatus,
    GetCheckpoint,
    ListCheckpoints,
    RejectCheckpoint,
)
from servo.operations.runs.requests import GetProgress, GetRun
from servo.ui.marks import counted

if TYPE_CHECKING:
    from servo.cli.opening import Label

_STATUSES = get_args(CheckpointStatus)


_complete = completer(
    lambda here: (
        CompletionItem(one.checkpoint_id, help=one.asset_key)
        for one in here.listed(ListCheckpoints(status="REQUESTED"), limit=50).items
    ),
    upper=True,
)
_named = click.argument("checkpoint_id", metavar="CHECKPOINT", shell_complete=_complete)


@command("list", reading=True)
@click.option(
    "--status", type=click.Choice(_STATUSES, case_sensitive=False), help="Only those that stand so; REQUESTED: waiting."
)
@click.option("--asset", metavar="ASSET", shell_complete=complete_assets, help="Only those of this asset.")
@limited(words="At most so many.")
def list_checkpoints(here: Services, status: str | None, asset: str | None, limit: int) -> Answer:
    """List checkpoints: those that wait first, then the newest."""
    rows = _waiting_first(here, status, asset, limit)
    return Answer({"checkpoints": rows}, lambda: _show_list(rows, here.labels(), limit))


def _show_list(rows: list[CheckpointListed], label: Label, limit: int) -> None:
    table(
        ["status", "checkpoint", "asset", "partitions", "for", "deadline", "requested", "by", "decided by"],
        [
            (
                row.status,
                short_id(row.checkpoint_id),
                row.asset_key,
                _partitions(row, label),
                _role(row),
                at(row.deadline) if row.escalated_to is None else "",
                at(row.requested_at),
                row.requested_by,
                row.decided_by,
            )
            for row in rows
        ],
        at_most(len(rows), "checkpoint", limit),
    )


def _waiting_first(here: Services, status: str | None, asset: str | None, limit: int) -> list[CheckpointListed]:
    newest = here.listed(ListCheckpoints(**given(status=status, asset=asset)), limit=limit).items
    if status is not None:
        return newest
    waiting = here.listed(ListCheckpoints(status="REQUESTED", asset=asset), limit=limit).items
    # As many as fit: of the newest at most so many wait.
    return (waiting + [one for one in newest if one.status != "REQUESTED"])[:limit]


@command(reading=True)
@_named
def show(here: Services, checkpoint_id: str) -> Answer:
    """Show what is to be decided: each partition with its rows, hash and checks, and what it would replace."""
    checkpoint = here.ask(GetCheckpoint(checkpoint_id=checkpoint_id))
    return Answer(checkpoint, lambda: _show(checkpoint, here.labels()))


@command(reading=True)
@_named
@reasoned()
@click.option("--hash", "content_hash", metavar="HASH", help="Only if it is what `servo checkpoint show` has as hash.")
@waiting("the run", default=False)
def approve(
    here: Services, *, checkpoint_id: str, reason: str | None, content_hash: str | None, wait: bool, as_json: bool
) -> Answer:
    """Publish exactly what was staged, and let the run go on. Exits with 4 if it was decided before."""
    decided = here.do(ApproveCheckpoint(checkpoint_id=checkpoint_id, reason=reason, content_hash=content_hash))
    if not wait:
        return _decided(here, decided)
    if not as_json:
        _confirm(decided)
    run = wait_for(here, decided.run_id, as_json=as_json)
    details = here.ask(GetRun(run_id=run.run_id))
    document = plain_struct(decided) | {"run": outcome_document(run, details)}
    return Answer(document, lambda: summarize(run, details, here.labels()), exit_code(run))


@command(reading=True)
@_named
@click.option("--reason", required=True, metavar="WHY", help="Is recorded with it, and what the task fails of.")
def reject(here: Services, checkpoint_id: str, reason: str) -> Answer:
    """Publish nothing: its task fails, and what was current stays so. Exits with 4 if it was decided before."""
    return _decided(here, here.do(RejectCheckpoint(checkpoint_id=checkpoint_id, reason=reason)))


def _decided(here: Services, decided: Decided) -> Answer:
    run = here.ask(GetProgress(run_id=decided.run_id))

    def confirm() -> None:
        _confirm(decided)
        if run.ended:
            note(f"{run.run_id}: {run.status}")
        elif run.parked:
            note(f"{run.run_id} waits for more approvals: servo run show {run.run_id}")
        else:
            note(f"{run.run_id} goes on: servo run show {run.run_id}")
            if not here.works():
                aside("nothing is at work here: it goes on when `servo up` does")

    return Answer(plain_struct(decided) | {"run_status": run.status}, confirm)


def _confirm(decided: Decided) -> None:
    if decided.published:
        click.echo(f"✓ approved: {counted(len(decided.published), 'partition')} of {decided.asset_key} published")
    else:
        click.echo(f"✓ rejected: nothing of {decided.asset_key} is published")


def _show(found: CheckpointView, label: Label) -> None:
    checkpoint_id = found.checkpoint_id
    click.echo(f"{marked(found.status)}  {checkpoint_id}  {found.asset_key}")
    click.echo(f"requested {at(found.requested_at)} by {found.run_id}, which {text(found.requested_by)} asked for")
    eyes = "; not by who asked for the run" if found.four_eyes else ""
    click.echo(f"to be decided by {text(_role(found, eyes=False))}{eyes}{_until(found)}")
    if found.decided_at is not None:
        why = f": {text(found.decision_reason)}" if found.decision_reason else ""
        click.echo(f"{found.status.lower()} {at(found.decided_at)} by {text(found.decided_by)}{why}")
    whole = not sys.stdout.isatty()
    table(
        ["partition", "rows", "bytes", "content", "replaces", "checks", "superseded by", "materialization"],
        [_partition(one, found.asset_key, label, whole=whole) for one in found.partitions],
    )
    if found.hash:
        click.echo(f"hash {found.hash}")
    for one in found.partitions:
        for check in one.checks:
            if not check.passed:
                where = label(found.asset_key, one.partition_key) or found.asset_key
                observed = f": {text(check.observed)}" if check.observed else ""
                click.echo(f"{click.style('!', fg='yellow')} {where}: check {check.check_name} failed{observed}")
    note(f"servo read --checkpoint {checkpoint_id}")
    if found.status == "REQUESTED":
        note(f"servo checkpoint approve {checkpoint_id}; servo checkpoint reject {checkpoint_id} --reason …")


def _partition(one: StagedPartition, asset: str, label: Label, *, whole: bool) -> tuple[Any, ...]:
    content, current = one.content_hash or "", one.current_content_hash or ""
    failed = [check for check in one.checks if not check.passed]
    checks = counted(len(one.checks), "check") + (f", {len(failed)} failed" if failed else " passed")
    mine = one.current_materialization_id == one.materialization_id
    same = "the same" if content and content == current else current if whole else current[:12]
    return (
        label(asset, one.partition_key) or "(all of it)",
        one.rows,
        one.bytes,
        content if whole else content[:12],
        "is current" if mine else same if one.current_materialization_id else "nothing",
        checks if one.checks else "none",
        one.superseded_by,
        one.materialization_id,
    )


# ── cells ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _partitions(row: CheckpointListed, label: Label) -> str:
    keys = row.partition_keys
    first, last = label(row.asset_key, keys[0]), label(row.asset_key, keys[-1])
    return first if len(keys) == 1 else f"{len(keys):,}: {first} … {last}"


def _role(row: CheckpointListed, *, eyes: bool = True) -> str:
    role = row.escalated_to or row.approvers or ""
    handed_on = f" (after {row.approvers})" if row.escalated_to else ""
    return f"{role}{handed_on}" + (", four eyes" if eyes and row.four_eyes else "")


def _until(row: CheckpointListed) -> str:
    if row.escalated_to is not None:
        return f"; handed on {at(row.escalated_at)}"
    if row.deadline is None:
        return ""
    then = "expires" if row.on_deadline == "expire" else "is handed on"
    return f"; {then} {at(row.deadline)}"

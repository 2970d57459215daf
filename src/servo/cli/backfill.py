"""`servo backfill …`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from servo.cli.backfill_options import asking
from servo.cli.backfill_steering import cancel, named_backfill, nobody_works, pause, resume
from servo.cli.completing import complete_assets
from servo.cli.opening import services
from servo.cli.options import given, json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, plain_struct
from servo.cli.progress import aside
from servo.cli.states import counted

if TYPE_CHECKING:
    from servo.answers.backfills import Backfilled
    from servo.cli.services import Services

_STATES = ("PENDING", "WAITING_UPSTREAM", "RUNNING", "PAUSED", "SUCCEEDED", "FAILED", "CANCELLED")


@click.group()
def backfill() -> None:
    """Recompute any slice of history, with what it needs first; watch it, stop it, repair it.

    A BACKFILL is its name, its id, or as much of the id's beginning as no other has.
    """


for _command in (pause, resume, cancel):
    backfill.add_command(_command)

_request_id = click.option("--request-id", metavar="ID", help="The same id again is the same backfill, not another.")


# ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────────


@backfill.command()
@asking
@json_option
def preview(*, asked: dict[str, Any], as_json: bool) -> None:
    """Show what `create` would come to with the same options; write nothing.

    \b
    servo backfill preview revenue --start 2025-01-01 --end 2025-01-31
    servo backfill preview totals --filter missing --include-upstream
    """
    from servo.cli.backfill_tables import show_plan
    from servo.operations.backfills.requests import PreviewBackfill

    with services(as_json=as_json) as here:
        plan = here.ask(PreviewBackfill(**asked))
    if as_json:
        echo_json(plain_struct(plan))
    else:
        show_plan(plan)


@backfill.command()
@asking
@_request_id
@click.option("--wait/--no-wait", default=False, show_default=True, help="Wait until it has ended.")
@json_option
@click.pass_context
def create(ctx: click.Context, *, asked: dict[str, Any], request_id: str | None, wait: bool, as_json: bool) -> None:
    """Compute partitions of assets in chunks, each of them a run, a few at the same time.

    `preview` shows it first. Whoever works here does it (`servo up`); with --wait and nobody there, a worker is started
    here. Ctrl-C takes leave, and the backfill stays. With --wait it exits with 1 unless all was made. Two backfills of
    the same partitions at the same time compute them twice.

    \b
    servo backfill create revenue --start 2025-01-01 --end 2025-01-31 --chunk-size 10
    servo backfill create totals --partitions 2025-01 --include-upstream --wait
    servo backfill create orders --filter failed --newest-first
    """
    from servo.operations.backfills.requests import CreateBackfill

    with services(as_json=as_json, create=True) as here:
        made = here.do(CreateBackfill(**asked), key=request_id, wait=wait)
        ctx.exit(see_through(here, made, "is created", wait=wait, as_json=as_json))


@backfill.command(name="retry-failed")
@named_backfill
@_request_id
@click.option("--wait/--no-wait", default=False, show_default=True, help="Wait until it has ended.")
@json_option
@click.pass_context
def retry_failed(ctx: click.Context, *, named: str, request_id: str | None, wait: bool, as_json: bool) -> None:
    """Compute again exactly the partitions that failed in a backfill that has ended, as a new one.

    Where others wait for that one they go on when the new one has succeeded; --wait waits for them too. A chunk's run
    that is retried by hand (`servo run retry`) does not count for the backfill.
    """
    from servo.operations.backfills.requests import RetryFailed

    with services(as_json=as_json) as here:
        made = here.do(RetryFailed(backfill=named), key=request_id, wait=wait)
        ctx.exit(see_through(here, made, f"is a retry of {named}", wait=wait, as_json=as_json))


def see_through(here: Services, made: Backfilled, what: str, *, wait: bool, as_json: bool) -> int:
    """Wait for a backfill that was just asked for, or say where it can be found; the exit code."""
    from servo.operations.backfills.requests import GetBackfill, GetBackfillTree

    if not as_json:
        _accepted(made, what)
    if not wait:
        tree = here.ask(GetBackfillTree(backfill=made.backfill_id))
        if as_json:
            echo_json(plain_struct(made) | {"status": plain_struct(tree)})
            return 0
        note(f"servo backfill status {made.name}")
        if tree.over:
            note(f"it has ended: {tree.root.state}")
        elif nobody_works(here):
            aside("nothing is at work here: it begins when `servo up` does, or with --wait")
        return 0
    from servo.cli.backfill_progress import outcome, summarize, wait_for

    # A retry lets those go on that waited for what it repairs, and who waits wants all of it.
    root = here.ask(GetBackfill(backfill=made.backfill_id)).root_backfill_id or made.backfill_id
    tree = wait_for(here, made.name, root, as_json=as_json)
    if as_json:
        echo_json(plain_struct(made) | {"status": plain_struct(tree)})
        return outcome(tree)
    return summarize(tree)


def _accepted(made: Backfilled, what: str) -> None:
    jobs = f", {counted(len(made.jobs), 'more job')}" if made.jobs else ""
    said = "was asked for before" if made.duplicate else what
    click.echo(f"✓ {made.name} {said}: {counted(made.total_partitions, 'partition')}{jobs}")


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────


@backfill.command(name="list")
@click.option("--state", type=click.Choice(_STATES, case_sensitive=False), help="Only with a job that stands so.")
@click.option("--asset", metavar="ASSET", shell_complete=complete_assets, help="Only with a job of this asset.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many, newest first."
)
@json_option
def list_backfills(state: str | None, asset: str | None, limit: int, as_json: bool) -> None:
    """List backfills, newest first; what belongs to another is counted with it."""
    from servo.cli.backfill_tables import show_list
    from servo.operations.backfills.requests import ListBackfills

    with services(as_json=as_json) as here:
        found = here.listed(ListBackfills(**given(status=state, asset=asset)), limit=limit).items
    if as_json:
        echo_json({"backfills": [plain_struct(one) for one in found]})
    else:
        show_list(found, limit)


@backfill.command()
@named_backfill
@click.option("--watch", is_flag=True, help="Go on until it has ended; then exit with 1 unless all was made.")
@json_option
@click.pass_context
def status(ctx: click.Context, *, named: str, watch: bool, as_json: bool) -> None:
    """Show how a backfill stands: what failed first, then each job of its tree, how fast and until when."""
    from servo.cli.backfill_progress import at_rest, outcome
    from servo.cli.backfill_progress import watch as watch_until_it_rests
    from servo.cli.backfill_tables import show_facts, show_tree
    from servo.operations.backfills.requests import GetBackfillTree
    from servo.ui.backfill import to_retry

    with services(as_json=as_json) as here:
        tree = here.ask(GetBackfillTree(backfill=named))
        idle = not as_json and not at_rest(tree) and tree.root.state != "PAUSED" and nobody_works(here)
        missing = f"nothing is at work here: {'its runs end' if tree.over else 'it goes on'} when `servo up` does"
        if watch:
            if idle:
                aside(missing)
            tree = watch_until_it_rests(here, tree.root.backfill_id, as_json=as_json)
    if as_json:
        echo_json(plain_struct(tree))
    else:
        show_tree(tree, failures=20)
        show_facts(tree)
        blockers = {name for job in tree.jobs for name in job.blocked_by}  # of which it was said already
        for job in to_retry(tree.jobs):
            if job.name not in blockers:
                note(f"servo backfill retry-failed {job.name}")
        if idle and not watch:
            aside(missing)
    ctx.exit(outcome(tree) if watch else 0)


@backfill.command()
@named_backfill
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many.")
@click.option("--after", type=int, default=-1, metavar="N", help="Only those with a higher number.")
@json_option
def chunks(named: str, limit: int, after: int, as_json: bool) -> None:
    """List the chunks that were planned, by their number: their partitions, their run and what came of it."""
    from servo.cli.backfill_tables import show_chunks
    from servo.operations.backfills.requests import ListChunks

    with services(as_json=as_json) as here:
        found = here.listed(ListChunks(backfill=named, after=max(after, -1)), limit=limit)
    if as_json:
        echo_json({**found.more, "chunks": [plain_struct(chunk) for chunk in found.items]})
    else:
        show_chunks(found.items, limit)

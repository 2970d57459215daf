"""Recompute any slice of history, with what it needs first; watch it, stop it, repair it.

A BACKFILL is its name, its id, or as much of the id's beginning as no other has.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from servo.cli.backfill_progress import (
    at_rest,
    outcome,
    show_chunks,
    show_facts,
    show_list,
    show_plan,
    show_tree,
    summarize,
    wait_for,
)
from servo.cli.backfill_progress import watch as watch_until_it_rests
from servo.cli.opening import Services
from servo.cli.options import Answer, command, complete_assets, completer, given, limited, once, steering, waiting
from servo.cli.output import aside, marked, note, plain_struct
from servo.operations.backfills.requests import (
    CancelBackfill,
    CreateBackfill,
    GetBackfill,
    GetBackfillTree,
    ListBackfills,
    ListChunks,
    PauseBackfill,
    PreviewBackfill,
    ResumeBackfill,
    RetryFailed,
)
from servo.ui.backfill import to_retry
from servo.ui.marks import counted

if TYPE_CHECKING:
    from servo.answers.backfills import Backfilled, Steered


_COMPLETED = 50  # of the newest
_STATES = ("PENDING", "WAITING_UPSTREAM", "RUNNING", "PAUSED", "SUCCEEDED", "FAILED", "CANCELLED")


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


class Span(click.ParamType[float]):
    """A duration: `90s`, `2m`, `1h30m`."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        parts = _SPAN.findall(value)
        if not parts or "".join(number + unit for number, unit in parts) != value:
            self.fail(f"{value!r} is not a duration such as 90s, 2m or 1h30m", param, ctx)
        return sum(float(number) * _UNITS[unit] for number, unit in parts)


_OPTIONS = [
    click.argument("assets", nargs=-1, required=True, metavar="ASSET...", shell_complete=complete_assets),
    click.option("--start", metavar="A", help="The first partition: 2025-01-01, 2025-01."),
    click.option("--end", metavar="B", help="The last one, which is part of it; without it, up to now."),
    click.option("--partitions", metavar="P", help="Which: 2025-01-01,2025-01-15, all, region=eu."),
    click.option(
        "--filter",
        type=click.Choice(("missing", "failed", "stale"), case_sensitive=False),
        help="Only those that are so; alone, of all.",
    ),
    click.option("--chunk-size", type=int, metavar="N", help="Partitions of one run.  [default: 10]"),
    click.option("--target-chunk", type=Span(), metavar="T", help="Instead: as many as take about so long, 2m."),
    click.option(
        "--concurrency",
        "max_concurrent_runs",
        type=int,
        default=2,
        show_default=True,
        metavar="N",
        help="Runs of an asset at the same time.",
    ),
    click.option("--include-upstream", is_flag=True, help="First compute what they are made from."),
    click.option(
        "--max-upstream-depth", type=int, metavar="N", help="So many levels up; 1 is direct, -1 as far as it goes."
    ),
    click.option("--include-downstream", is_flag=True, help="Then compute what is made from them."),
    click.option("--only-missing", is_flag=True, help="Of what is upstream, leave out what is current."),
    click.option("--priority", type=int, default=0, show_default=True, metavar="N", help="Higher goes first."),
    click.option("--newest-first", is_flag=True, help="Begin with the last partitions, as they are defined."),
    click.option("--name", metavar="NAME", help="What it is called; by default after the asset."),
]


def _selecting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `create` and `preview`, by the names of their fields."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def _fields(chunk_size: int | None, target_chunk: float | None, options: dict[str, Any]) -> dict[str, Any]:
    """The fields of `CreateBackfill` and `PreviewBackfill`."""
    if chunk_size is not None and target_chunk is not None:
        raise click.UsageError("--chunk-size and --target-chunk both say how large a chunk is: give one of them.")
    return {**options, "target_chunk_seconds": target_chunk, **given(chunk_size=chunk_size)}


_complete = completer(
    lambda here: (
        CompletionItem(job.name, help=job.display_state)
        for one in here.listed(ListBackfills(), limit=_COMPLETED).items
        for job in one.jobs
    )
)
_named = click.argument("named", metavar="BACKFILL", shell_complete=_complete)


# ── creating ─────────────────────────────────────────────────────────────────────────────────────────────────────


@command()
@_selecting
def preview(here: Services, *, chunk_size: int | None, target_chunk: float | None, **options: Any) -> Answer:
    """Show what `create` would come to with the same options; write nothing.

    \b
    servo backfill preview revenue --start 2025-01-01 --end 2025-01-31
    servo backfill preview totals --filter missing --include-upstream
    """
    plan = here.ask(PreviewBackfill(**_fields(chunk_size, target_chunk, options)))
    return Answer(plan, lambda: show_plan(plan))


@command(create=True)
@_selecting
@once("backfill, not another")
@waiting("it", default=False)
def create(
    here: Services,
    *,
    chunk_size: int | None,
    target_chunk: float | None,
    request_id: str | None,
    wait: bool,
    as_json: bool,
    **options: Any,
) -> Answer:
    """Compute partitions of assets in chunks, each of them a run, a few at the same time.

    `preview` shows it first. Whoever works here does it (`servo up`); with --wait and nobody there, a worker is started
    here. Ctrl-C takes leave, and the backfill stays. With --wait it exits with 1 unless all was made. Two backfills of
    the same partitions at the same time compute them twice.

    \b
    servo backfill create revenue --start 2025-01-01 --end 2025-01-31 --chunk-size 10
    servo backfill create totals --partitions 2025-01 --include-upstream --wait
    servo backfill create orders --filter failed --newest-first
    """
    made = here.do(CreateBackfill(**_fields(chunk_size, target_chunk, options)), key=request_id, wait=wait)
    return see_through(here, made, "is created", wait=wait, as_json=as_json)


@command("retry-failed")
@_named
@once("backfill, not another")
@waiting("it", default=False)
def retry_failed(here: Services, *, named: str, request_id: str | None, wait: bool, as_json: bool) -> Answer:
    """Compute again exactly the partitions that failed in a backfill that has ended, as a new one.

    Where others wait for that one they go on when the new one has succeeded; --wait waits for them too. A chunk's run
    that is retried by hand (`servo run retry`) does not count for the backfill.
    """
    made = here.do(RetryFailed(backfill=named), key=request_id, wait=wait)
    return see_through(here, made, f"is a retry of {named}", wait=wait, as_json=as_json)


def see_through(here: Services, made: Backfilled, what: str, *, wait: bool, as_json: bool) -> Answer:
    """Wait for a backfill that was just asked for, or tell where it can be found."""
    if not as_json:
        _accepted(made, what)
    if not wait:
        tree = here.ask(GetBackfillTree(backfill=made.backfill_id))

        def tell_where() -> None:
            note(f"servo backfill status {made.name}")
            if tree.over:
                note(f"it has ended: {tree.root.state}")
            elif not here.works():
                aside("nothing is at work here: it begins when `servo up` does, or with --wait")

        return Answer(plain_struct(made) | {"status": tree}, tell_where)
    # A retry lets those go on that waited for what it repairs, and who waits wants all of it.
    root = here.ask(GetBackfill(backfill=made.backfill_id)).root_backfill_id or made.backfill_id
    ended = wait_for(here, made.name, root, as_json=as_json)
    return Answer(plain_struct(made) | {"status": ended}, lambda: summarize(ended), outcome(ended))


def _accepted(made: Backfilled, what: str) -> None:
    jobs = f", {counted(len(made.jobs), 'more job')}" if made.jobs else ""
    action = "was asked for before" if made.duplicate else what
    click.echo(f"✓ {made.name} {action}: {counted(made.total_partitions, 'partition')}{jobs}")


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────


@command("list")
@click.option("--state", type=click.Choice(_STATES, case_sensitive=False), help="Only with a job that stands so.")
@click.option("--asset", metavar="ASSET", shell_complete=complete_assets, help="Only with a job of this asset.")
@limited()
def list_backfills(here: Services, state: str | None, asset: str | None, limit: int) -> Answer:
    """List backfills, newest first; what belongs to another is counted with it."""
    trees = here.listed(ListBackfills(**given(status=state, asset=asset)), limit=limit).items
    return Answer({"backfills": trees}, lambda: show_list(trees, limit))


@command()
@_named
@click.option("--watch", is_flag=True, help="Go on until it has ended; then exit with 1 unless all was made.")
def status(here: Services, *, named: str, watch: bool, as_json: bool) -> Answer:
    """Show how a backfill stands: what failed first, then each job of its tree, how fast and until when."""
    tree = here.ask(GetBackfillTree(backfill=named))
    idle = not as_json and not at_rest(tree) and tree.root.state != "PAUSED" and not here.works()
    missing = f"nothing is at work here: {'its runs end' if tree.over else 'it goes on'} when `servo up` does"
    if watch:
        if idle:
            aside(missing)
        tree = watch_until_it_rests(here, tree.root.backfill_id, as_json=as_json)

    def show() -> None:
        show_tree(tree, failures=20)
        show_facts(tree)
        blockers = {name for job in tree.jobs for name in job.blocked_by}  # named above
        for job in to_retry(tree.jobs):
            if job.name not in blockers:
                note(f"servo backfill retry-failed {job.name}")
        if idle and not watch:
            aside(missing)

    return Answer(tree, show, outcome(tree) if watch else 0)


@command()
@_named
@limited(100, "At most so many.")
@click.option("--after", type=int, default=-1, metavar="N", help="Only those with a higher number.")
def chunks(here: Services, named: str, limit: int, after: int) -> Answer:
    """List the chunks that were planned, by their number: their partitions, their run and what came of it."""
    page = here.listed(ListChunks(backfill=named, after=max(after, -1)), limit=limit)
    return Answer({**page.more, "chunks": page.items}, lambda: show_chunks(page.items, limit))


# ── steering ───────────────────────────────────────────────────────────────────────────────────────────────────────


@command()
@_named
@steering("status")
def pause(here: Services, named: str, **steer: Any) -> Answer:
    """Start no more chunks; those at work finish. Of a root, in its whole tree."""
    done = here.do(PauseBackfill(backfill=named, **steer))
    return _steered(
        done, "what is at work finishes, and nothing new starts", lambda: note(f"servo backfill resume {done.name}")
    )


@command()
@_named
@steering("status")
def resume(here: Services, named: str, **steer: Any) -> Answer:
    """Go on with the next chunk of a paused backfill. Of a root, in its whole tree."""

    def warn_if_idle() -> None:
        if not here.works():
            aside("nothing is at work here: it goes on when `servo up` does")

    return _steered(here.do(ResumeBackfill(backfill=named, **steer)), "it goes on where it was", warn_if_idle)


@command()
@_named
@steering("status")
def cancel(here: Services, named: str, **steer: Any) -> Answer:
    """End a backfill and its runs; what they have made stays. Of a root, its whole tree."""
    done = here.do(CancelBackfill(backfill=named, **steer))
    stopped = f", {counted(done.runs, 'run')} asked to stop" if done.runs else ""

    def warn_if_idle() -> None:
        if done.runs and not here.works():
            aside("nothing is at work here: its runs end when `servo up` is there")

    return _steered(done, f"what was made stays{stopped}", warn_if_idle)


def _steered(done: Steered, consequence: str, then: Callable[[], None]) -> Answer:
    def confirm() -> None:
        jobs = f" with {counted(done.jobs, 'job')}" if done.jobs > 1 else ""
        click.echo(f"{marked(done.state)} {done.name}{jobs}, version {done.state_version}: {consequence}")
        then()

    return Answer(done, confirm)

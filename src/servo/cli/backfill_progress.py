"""Backfills on the terminal: what one would come to, what there is, and how one goes until it has ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from servo.answers.backfills import (
    BackfillPreview,
    BackfillSummary,
    BackfillTree,
    BackfillView,
    ChunkView,
    PreviewedJob,
)
from servo.answers.values import text
from servo.cli.interrupts import Left, reacting
from servo.cli.output import (
    Cell,
    aside,
    at,
    at_most,
    coloured_table,
    columns,
    draw,
    draw_order,
    duration,
    few,
    note,
    short_id,
    table,
    took,
    warn,
)
from servo.cli.progress import tell_who_works
from servo.errors import EnvironmentProblem
from servo.operations.backfills.requests import GetBackfillTree
from servo.ui.backfill import COLOURS, lines, repaired, rounded, time_left, to_retry, troubles, waiting
from servo.ui.marks import Span, counted

if TYPE_CHECKING:
    from servo.cli.opening import Services, Workplace

_WIDE = 10_000  # columns of a pipe
_LOOK_SECONDS = 0.5  # between two looks, at least
_SHARE = 4  # a look that takes long is taken the less often: one part in so many of the time
_ACTIVE = {"PLANNED", "RUNNING"}  # chunks whose run has not ended
_STEP = 10  # percent, after which a pipe is told how far it is


def wait_for(here: Services, name: str, backfill_id: str, *, as_json: bool) -> BackfillTree:
    """Have a backfill worked on, show how it goes, and give how it ended or what it is stuck at."""
    already = here.ask(GetBackfillTree(backfill=backfill_id))
    if at_rest(already):
        return already
    interrupt = _Interrupt(name)
    with reacting(interrupt), here.working() as place:
        interrupt.place = place
        if not as_json:
            tell_who_works(here, place, "backfill")
        try:
            with _shown(as_json=as_json) as show:
                interrupt.show = show
                return _follow(here, backfill_id, show, tick=place.alive)
        except EnvironmentProblem:
            if not as_json and not here.remote:
                aside(f"{name} is left as it is: `servo up` goes on with it, `servo backfill cancel {name}` ends it")
            raise


def watch(here: Services, backfill_id: str, *, as_json: bool) -> BackfillTree:
    """Show how a backfill goes that others work on, until it has ended or cannot go on."""
    with _shown(as_json=as_json) as show:

        def leave() -> None:
            show.close()
            raise KeyboardInterrupt

        with reacting(leave):
            return _follow(here, backfill_id, show)


def _follow(here: Services, named: str, show: Show, *, tick: Callable[[], None] = lambda: None) -> BackfillTree:
    """Show it whenever something may have happened, until it has ended or cannot go on."""
    while True:
        began = time.monotonic()
        position = here.position()
        tree = here.ask(GetBackfillTree(backfill=named))
        cost = time.monotonic() - began
        show(tree)
        if at_rest(tree):
            return tree
        tick()
        here.position(beyond=position)
        pause = max(_LOOK_SECONDS, _SHARE * cost) - (time.monotonic() - began)
        time.sleep(max(pause, 0.0))


def at_rest(tree: BackfillTree) -> bool:
    """Whether nothing happens by itself any more: what has not ended waits for what failed, or for people.

    The runs of one that was cancelled end after it.
    """
    made = repaired(tree.jobs) | {job.backfill_id for job in tree.jobs if job.state == "SUCCEEDED"}
    alone = (job for job in tree.jobs if job.retry_of is None and len(job.assets) == 1)
    to_come = {job.assets[0] for job in alone if job.backfill_id not in made}

    def rests(job: BackfillView) -> bool:
        if job.finished_at is not None:
            return not job.chunks.keys() & _ACTIVE
        if job.state == "WAITING_UPSTREAM":
            return job.display_state == "BLOCKED_UPSTREAM_FAILED" or not to_come.isdisjoint(job.waits_for)
        return _parked(job)

    return all(map(rests, tree.jobs))


def _parked(job: BackfillView) -> bool:
    """Whether all that is at work waits for people, and nothing else may start meanwhile."""
    active = sum(job.chunks.get(state, 0) for state in _ACTIVE)
    more = job.chunks.get("PENDING", 0) and active < job.max_concurrent_runs
    return job.state == "RUNNING" and 0 < active == job.waiting_approval and not more


def outcome(tree: BackfillTree) -> int:
    """The exit code: 0 if all that it was to make is there, if need be with retries, or waits for people."""
    made_since, listed = repaired(tree.jobs), {job.backfill_id for job in tree.jobs}
    roots = [job for job in tree.jobs if job.retry_of not in listed]
    if all(job.state == "SUCCEEDED" or job.backfill_id in made_since for job in roots):
        return 0
    people = any(job.waiting_approval for job in tree.jobs)
    return 0 if people and not any(_is_lost(job, tree) for job in roots) else 1


def _is_lost(job: BackfillView, tree: BackfillTree) -> bool:
    """Whether something of a job was not made, and no retry makes it."""
    if not job.failed and not job.cancelled and job.state not in ("FAILED", "CANCELLED"):
        return False
    retries = [one for one in tree.jobs if one.retry_of == job.backfill_id]
    return job.state != "FAILED" or all(_is_lost(retry, tree) for retry in retries)


class _Interrupt:
    """Ctrl-C takes leave: a backfill is in the ledger, and goes on with the workers that are here."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.place: Workplace | None = None  # None: nothing is at work yet
        self.show: Show | None = None

    def __call__(self) -> None:
        if self.show is not None:
            self.show.close()  # or it would be drawn over the message
        name = self._name
        how = f"`servo backfill status {name}` looks, `servo backfill cancel {name}` ends it"
        if self.place is not None and not self.place.embedded:
            raise Left(f"{name} goes on without you", how)
        raise Left(f"{name} is left as it is, and goes on when somebody works here", f"`servo up` does; {how}")


# ── while it goes on ─────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _shown(*, as_json: bool) -> Iterator[Show]:
    """A live picture on a terminal, lines in a pipe, nothing beside JSON."""
    show: Show
    if as_json:
        show = Show()
    elif sys.stderr.isatty():
        from servo.cli.live import Picture  # noqa: PLC0415 (Rich comes with it)

        show = Picture()
    else:
        show = Lines()
    try:
        yield show
    finally:
        show.close()


class Show:
    """Takes a backfill whenever something has happened, until it is closed; and shows nothing of it."""

    def __call__(self, tree: BackfillTree) -> None:
        pass

    def close(self) -> None:
        pass


class Lines(Show):
    """A line for each change of a job's state, for its first failure, and now and then for how far it is."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[str, bool, bool, int]] = {}

    def __call__(self, tree: BackfillTree) -> None:
        for job in tree.jobs:
            now = (job.display_state, bool(job.failed), bool(job.waiting_approval), int(job.percent) // _STEP)
            if self._shown.get(job.backfill_id) != now:
                self._shown[job.backfill_id] = now
                paused = job.state == "PAUSED" and job.backfill_id == tree.root.backfill_id
                click.echo(_line(job) + (f", `servo backfill resume {job.name}` lets it go on" if paused else ""))


def _line(job: BackfillView) -> str:
    state = click.style(job.display_state, fg=COLOURS.get(job.display_state))
    words = [f"{job.name} {state} {job.succeeded:,}/{job.partitions:,}"]
    words += troubles(job)
    if job.blocked_by:
        words.append(f"by {', '.join(job.blocked_by)}")
    if job.display_state == "RUNNING" and job.eta_seconds is not None:
        words.append(time_left(job.eta_seconds, reliable=job.eta_reliable))
    if job.state_reason and job.display_state in ("PAUSED", "CANCELLED"):
        words.append(text(job.state_reason))
    return ", ".join(words)


# ── how it ended ─────────────────────────────────────────────────────────────────────────────────────────────────


def summarize(tree: BackfillTree) -> int:
    """Say how it ended, or what it is stuck at, and what to do about it; the exit code that follows from it."""
    root = tree.root
    show_tree(tree)
    ends = [job.finished_at for job in tree.jobs if job.finished_at is not None]
    if outcome(tree) == 0:
        if tree.over:  # or it waits for people, which was said
            click.secho(f"took {duration((max(ends) - root.created_at).total_seconds())}", dim=True)
        return 0
    what, how = _trouble(tree)
    click.echo(f"servo: {root.name} {what} ({how})", err=True)
    return 1


def _trouble(tree: BackfillTree) -> tuple[str, str]:
    """Why not all was made, and what to do about it."""
    root, lost = tree.root, counted(tree.partitions - tree.succeeded, "partition")
    look = f"try `servo backfill status {root.name}`, then"
    culprits = list(dict.fromkeys(name for job in tree.jobs for name in job.blocked_by))
    if culprits:
        what = f"is blocked: {', '.join(culprits)} did not succeed"
        return what, f"{look} `servo backfill retry-failed {culprits[0]} --wait`"
    if not tree.over:
        return f"cannot be completed, and {waiting(tree)}", "`servo checkpoint list` shows it; then retry what failed"
    if root.state == "CANCELLED":
        return f"was cancelled: {lost} not made", "`servo backfill create … --filter missing` takes what is not there"
    # Of a tree, what failed may be downstream of its root, or a retry.
    failed = next(iter(to_retry(tree.jobs)), root)
    return f"failed: {lost} not made", f"{look} `servo backfill retry-failed {failed.name} --wait`"


# ── what it would come to ────────────────────────────────────────────────────────────────────────────────────────


def show_plan(plan: BackfillPreview) -> None:
    """The jobs in the order in which they run, and what they come to."""
    if sys.stdout.isatty():
        _fitted_plan(plan)
    else:
        table(
            ["asset", "role", "partitions", "count", "chunks", "first chunk", "mapping", "waits for", "estimate"],
            [
                (
                    job.asset_key,
                    job.role,
                    job.described,
                    job.count,
                    job.chunks,
                    job.first_chunk.described,
                    _mapping(job),
                    ", ".join(job.waits_for),
                    "" if job.estimated_seconds is None else duration(job.estimated_seconds),
                )
                for job in plan.jobs
            ],
        )
    warn(plan.warnings)


def _fitted_plan(plan: BackfillPreview) -> None:
    rows: list[list[Cell]] = []
    for job in plan.jobs:
        asset = Span(job.asset_key, bold=job.role == "target")
        rows.append([asset, job.role, job.described, f"{job.count:,}", f"{job.chunks:,}", _mapping(job)])
    coloured_table(["asset", "role", "partitions", "count", "chunks", "mapping"], rows)
    first, seconds = plan.jobs[0], plan.estimated_seconds
    length = "how long is not known yet" if seconds is None else f"about {rounded(seconds)}"
    note(f"{counted(plan.partitions, 'partition')}, {counted(plan.chunks, 'chunk')}, each a run; {length}")
    note(f"first chunk: {first.asset_key} {first.first_chunk.described}".rstrip())
    if len(plan.jobs) > 1:
        draw_order({job.asset_key: (job.count, job.waits_for) for job in plan.jobs})


def _mapping(job: PreviewedJob) -> str:
    kinds = dict.fromkeys(f"{read.mapping}{' (all)' if read.fallback else ''}" for read in job.reads)
    return ", ".join(kinds)


# ── what there is ────────────────────────────────────────────────────────────────────────────────────────────────


def show_list(trees: Sequence[BackfillSummary], limit: int) -> None:
    """Show a row for each, the newest first."""
    rows: list[list[Cell]] = []
    for tree in trees:
        root = tree.root
        until = "" if tree.over else time_left(tree.eta_seconds, reliable=tree.eta_reliable)
        state = Span(root.display_state, COLOURS.get(root.display_state))
        made, done = f"{tree.succeeded:,}/{tree.partitions:,}", f"{int(tree.percent)} %"
        cells = [state, root.name, few(root.assets), made, done, f"{tree.failed:,}" if tree.failed else None, until]
        jobs = len(tree.jobs) if len(tree.jobs) > 1 else None
        rows.append([*cells, jobs, at(root.created_at), root.created_by, root.backfill_id])
    names = ["state", "name", "assets", "made", "done", "failed", "left", "jobs", "created", "by", "backfill"]
    # On a terminal the rest is in `status`.
    coloured_table(names, rows, at_most(len(trees), "backfill", limit), fitted=7)


def show_tree(tree: BackfillTree, *, failures: int = 10) -> None:
    """All about one, what failed first."""
    draw(lines(tree, columns() if sys.stdout.isatty() else _WIDE, failures=failures))


def show_facts(tree: BackfillTree) -> None:
    """What does not change about it, and what can be done with it."""
    root = tree.root
    order = "newest first" if root.newest_first else "oldest first"
    note(f"{root.backfill_id}, version {root.state_version}")
    note(f"created {at(root.created_at)} by {root.created_by}")
    note(f"chunks of {root.chunk_size:,}, {root.max_concurrent_runs:,} at a time, {order}, priority {root.priority}")
    if root.retry_of is not None:
        note(f"a retry of {root.retry_of}")
    if root.state_reason and root.state != "CANCELLED":
        note(root.state_reason)


def show_chunks(chunks: list[ChunkView], limit: int) -> None:
    names = ["chunk", "state", "partitions", "made", "count", "run", "took", "reason", "planned"]
    rows: list[tuple[Any, ...]] = [
        (
            one.chunk_index,
            one.state,
            one.described,
            one.succeeded,
            one.partition_count,
            short_id(one.run_id),
            took(one.started_at, one.finished_at),
            one.reason,
            at(one.planned_at),
        )
        for one in chunks
    ]
    if sys.stdout.isatty():
        names, rows = names[:-1], [row[:-1] for row in rows]
    table(names, rows, at_most(len(chunks), "chunk", limit, "--after and --limit"))

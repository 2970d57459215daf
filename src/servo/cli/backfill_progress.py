"""Waiting for a backfill: how it goes, how it ended, and what Ctrl-C means meanwhile."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

from servo.cli.backfill_tables import show_tree
from servo.cli.interrupts import Left, reacting
from servo.cli.progress import aside
from servo.cli.states import counted, duration
from servo.cli.values import text
from servo.errors import EnvironmentProblem

if TYPE_CHECKING:
    from servo.runtime.backfill_views import BackfillTree, BackfillView
    from servo.runtime.embedded import Workplace
    from servo.runtime.wiring import Project

_LOOK_SECONDS = 0.5  # between two looks, at least
_IDLE_SECONDS = 1.0
_SHARE = 4  # a look that takes long is taken the less often: one part in so many of the time
_STEP = 10  # percent, after which a pipe is told how far it is


class Show(Protocol):
    """What is told of a backfill whenever something has happened, until it is closed."""

    def __call__(self, tree: BackfillTree) -> None: ...

    def close(self) -> None: ...


def wait_for(project: Project, name: str, backfill_id: str, root: str, *, as_json: bool) -> BackfillTree:
    """See to it that a backfill is worked on, show how it goes, and give how it ended or what it is stuck at."""
    from servo.runtime.backfill_views import BackfillBook
    from servo.runtime.embedded import working

    already = BackfillBook(project).tree(backfill_id, root)
    if at_rest(already):
        return already
    interrupt = _Interrupt(name)
    with reacting(interrupt), working(project) as place:
        interrupt.place = place
        if place.embedded and not as_json:
            aside("no worker is running: one is started for this backfill (`servo up` keeps one warm)")
        try:
            with _shown(as_json=as_json) as show:
                interrupt.show = show
                return _follow(project, backfill_id, root, show, tick=place.alive)
        except EnvironmentProblem:
            if not as_json:
                aside(f"{name} is left as it is: `servo up` goes on with it, `servo backfill cancel {name}` ends it")
            raise


def watch(project: Project, backfill_id: str, root: str, *, as_json: bool) -> BackfillTree:
    """Show how a backfill goes that others work on, until it has ended or cannot go on."""
    with _shown(as_json=as_json) as show:

        def leave() -> None:
            show.close()
            raise KeyboardInterrupt

        with reacting(leave):
            return _follow(project, backfill_id, root, show)


def _follow(
    project: Project, backfill_id: str, root: str, show: Show, *, tick: Callable[[], None] = lambda: None
) -> BackfillTree:
    """Show it whenever something may have happened, until it has ended or cannot go on."""
    from servo.runtime.backfill_views import BackfillBook

    book = BackfillBook(project)
    while True:
        began = time.monotonic()
        position = project.ledger.head().position
        tree = book.tree(backfill_id, root)
        cost = time.monotonic() - began
        show(tree)
        if at_rest(tree):
            return tree
        tick()
        project.ledger.head(beyond=position, timeout=_IDLE_SECONDS)
        pause = max(_LOOK_SECONDS, _SHARE * cost) - (time.monotonic() - began)
        time.sleep(max(pause, 0.0))


def at_rest(tree: BackfillTree) -> bool:
    """Whether nothing happens by itself any more: all has ended, or all that has not waits for what failed.

    The runs of one that was cancelled end after it.
    """
    return all(
        job.display_state == "BLOCKED_UPSTREAM_FAILED"
        or (job.finished_at is not None and not job.chunks.keys() & {"PLANNED", "RUNNING"})
        for job in tree.jobs
    )


def succeeded(tree: BackfillTree) -> bool:
    """Whether all that it was to make is there, if need be with retries."""
    from servo.ui.backfill import repaired

    made_since, listed = repaired(tree.jobs), {job.backfill_id for job in tree.jobs}
    asked = [job for job in tree.jobs if job.retry_of not in listed]
    return all(job.state == "SUCCEEDED" or job.backfill_id in made_since for job in asked)


class _Interrupt:
    """Ctrl-C takes leave: a backfill is in the ledger, and goes on with whoever works here."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.place: Workplace | None = None  # None: nobody is at work yet
        self.show: Show | None = None

    def __call__(self) -> None:
        if self.show is not None:
            self.show.close()  # or it would be drawn over what is said now
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
        show = Silence()
    elif sys.stderr.isatty():
        # Rich comes with this import.
        from servo.cli.backfill_live import Picture

        show = Picture()
    else:
        show = Lines()
    try:
        yield show
    finally:
        show.close()


class Silence:
    def __call__(self, tree: BackfillTree) -> None:
        pass

    def close(self) -> None:
        pass


class Lines(Silence):
    """A line for each change of a job's state, for its first failure, and now and then for how far it is."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, bool, int]] = {}

    def __call__(self, tree: BackfillTree) -> None:
        for job in tree.jobs:
            now = (job.display_state, bool(job.failed), int(job.percent) // _STEP)
            if self._said.get(job.backfill_id) != now:
                self._said[job.backfill_id] = now
                paused = job.state == "PAUSED" and job.backfill_id == tree.root.backfill_id
                click.echo(_line(job) + (f", `servo backfill resume {job.name}` lets it go on" if paused else ""))


def _line(job: BackfillView) -> str:
    from servo.ui.backfill import COLOURS, time_left

    state = click.style(job.display_state, fg=COLOURS.get(job.display_state))
    words = [f"{job.name} {state} {job.succeeded:,}/{job.partitions:,}"]
    if job.failed:
        words.append(f"{job.failed:,} failed")
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
    if succeeded(tree):
        click.secho(f"took {duration((max(ends) - root.created_at).total_seconds())}", dim=True)
        return 0
    what, how = _trouble(tree)
    click.echo(f"servo: {root.name} {what} ({how})", err=True)
    return 1


def _trouble(tree: BackfillTree) -> tuple[str, str]:
    """Why not all was made, and what to do about it."""
    root, lost = tree.root, counted(tree.partitions - tree.succeeded, "partition")
    look = f"try `servo backfill status {root.name}`, then"
    if not tree.over:
        culprits = list(dict.fromkeys(name for job in tree.jobs for name in job.blocked_by))
        what = f"is blocked: {', '.join(culprits)} did not succeed"
        return what, f"{look} `servo backfill retry-failed {culprits[0]} --wait`"
    if root.state == "CANCELLED":
        return f"was cancelled: {lost} not made", "`servo backfill create … --filter missing` takes what is not there"
    # Of a tree, what failed may be downstream of its root.
    failed = next((job for job in tree.jobs if job.state == "FAILED"), root)
    return f"failed: {lost} not made", f"{look} `servo backfill retry-failed {failed.name} --wait`"

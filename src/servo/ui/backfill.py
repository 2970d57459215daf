"""A backfill and its tree in a few lines: what failed comes first, then how far each job is and until when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from servo.answers.backfills import BackfillFailure, BackfillTree, BackfillView
from servo.ui.marks import DIM, Line, Node, Span, cells, counted, drawn, width
from servo.ui.proof import ranges

__all__ = [
    "COLOURS",
    "bar",
    "lines",
    "ordered",
    "repaired",
    "rounded",
    "time_left",
    "to_retry",
    "troubles",
    "waiting",
]

COLOURS = {
    "RUNNING": "cyan",
    "RESUMING": "cyan",
    "WAITING_UPSTREAM": "blue",
    "BLOCKED_UPSTREAM_FAILED": "red",
    "PAUSED": "yellow",
    "PAUSED_WITH_FAILURES": "red",
    "SUCCEEDED": "green",
    "REPAIRED": "green",
    "FAILED": "red",
    "CANCELLED": "yellow",
}
_MARKS = {"SUCCEEDED": "✓", "REPAIRED": "✓"} | dict.fromkeys(("FAILED", "CANCELLED", "BLOCKED_UPSTREAM_FAILED"), "✗")
_BAR = 16
_ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


def lines(tree: BackfillTree, columns: int, *, failures: int = 10) -> Iterator[Line]:
    """Everything about it, in lines that fit; at most so many failures."""
    for node in [_head(tree), *_failures(tree, failures), *_blocked(tree), *_forest(tree.jobs), *_remarks(tree)]:
        yield from drawn(node, columns)


def state(word: str) -> Span:
    """A state in its colour, with a mark that can be told without colours."""
    return Span(f"{_MARKS.get(word, '·')} {word}", COLOURS.get(word))


def time_left(seconds: float | None, *, reliable: bool) -> str:
    """`about 3 min left`; with a tilde where that is no more than a guess; nothing where it is not known."""
    if seconds is None:
        return ""
    return f"about {rounded(seconds)} left" if reliable else f"~{rounded(seconds)} left, a guess"


def rounded(seconds: float) -> str:
    """A duration in one unit or two, as exact as an estimate deserves."""
    if seconds < 10:
        return "10 s" if seconds > 5 else "5 s"
    if seconds < 95:
        return f"{round(seconds / 10) * 10} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours = round(minutes / 60)
    return f"{hours} h" if hours < 48 else f"{round(hours / 24)} days"


def bar(succeeded: int, failed: int, running: int, total: int, size: int = _BAR) -> Line:
    """`████✗░······`: made, failed, at work, to come. What is there at all is seen; it is full only at the end."""
    if not total:
        return [Span("·" * size, DIM)]
    lost = _share(failed, total, size)
    made = min(_share(succeeded, total, size), size - lost - 1) if succeeded + failed < total else size - lost
    busy = min(_share(running, total, size), size - lost - made)
    pieces = [("█" * made, "green"), ("✗" * lost, "red"), ("░" * busy, "cyan")]
    rest = size - made - lost - busy
    return [Span(text, colour) for text, colour in [*pieces, ("·" * rest, DIM)] if text]


def _share(part: int, total: int, size: int) -> int:
    return 0 if not part else min(max(part * size // total, 1), size)


def ordered(jobs: Sequence[BackfillView]) -> list[tuple[int, BackfillView]]:
    """The jobs as a tree, each with its depth: below a job what it waits for, and first of all its retries."""
    seen: set[str] = set()
    return [place for root in _roots(jobs) for place in _walk(root, jobs, 0, seen)]


def repaired(jobs: Sequence[BackfillView]) -> set[str]:
    """The jobs that failed or were cancelled, and of which a retry, or a retry of that, has made the rest."""
    return {job.backfill_id for job in jobs if job.display_state == "REPAIRED"}


def to_retry(jobs: Sequence[BackfillView]) -> list[BackfillView]:
    """The jobs whose failures no retry has repaired or tries again; of retries that failed in turn, the last."""
    shown = {job.backfill_id for job in jobs}
    return [lost for job in jobs if job.retry_of not in shown for lost in _lost(job, jobs)]


def _lost(job: BackfillView, jobs: Sequence[BackfillView]) -> list[BackfillView]:
    if job.display_state != "FAILED":
        return []
    retries = [one for one in jobs if one.retry_of == job.backfill_id and one.state != "CANCELLED"]
    lost = [_lost(one, jobs) for one in retries]
    if not all(lost):  # one of them is about to make the rest
        return []
    return lost[-1] if lost else [job]


def waiting(tree: BackfillTree) -> str:
    """`2 runs wait for an approval`; nothing where none does."""
    runs = sum(job.waiting_approval for job in tree.jobs)
    return f"{counted(runs, 'run')} {'waits' if runs == 1 else 'wait'} for an approval" if runs else ""


# ── the first lines ──────────────────────────────────────────────────────────────────────────────────────────────


def _head(tree: BackfillTree) -> Node:
    root = tree.root
    words = [f"{tree.succeeded:,} of {counted(tree.partitions, 'partition')}", f"{int(tree.percent)} %"]
    if tree.failed:
        words.append(f"{tree.failed:,} failed")
    made_since = repaired(tree.jobs)
    if stopped := sum(job.cancelled for job in tree.jobs if job.backfill_id not in made_since):
        words.append(f"{stopped:,} cancelled")
    if not tree.over and (until := time_left(tree.eta_seconds, reliable=tree.eta_reliable)):
        words.append(until)
    return Node(line=[state(root.display_state), Span(f" {root.name} ", bold=True), Span(", ".join(words))])


def _failures(tree: BackfillTree, most: int) -> Iterator[Node]:
    """Failures that are not repaired yet: chunks with the same reason, how many partitions, and why."""
    made_since = repaired(tree.jobs)
    groups: dict[tuple[str, str, str], list[BackfillFailure]] = {}
    for one in tree.failures:
        if one.backfill_id not in made_since:
            reason = (one.reason or "").partition("\n")[0]
            groups.setdefault((one.backfill_id, one.state, reason), []).append(one)
    shown = list(groups.values())[:most]
    for same in shown:
        yield _failure(same)
    # Of many, the tree has the first alone; how many there are is counted with each job.
    listed = [one for same in shown for one in same]
    lost = {job.backfill_id: _lost_chunks(job, tree) for job in tree.jobs}
    more = {one: count - sum(each.backfill_id == one for each in listed) for one, count in lost.items()}
    hidden = [job for job in tree.jobs if job.backfill_id not in made_since and more[job.backfill_id] > 0]
    if hidden:
        count, most_of = (
            sum(more[job.backfill_id] for job in hidden),
            max(hidden, key=lambda job: more[job.backfill_id]),
        )
        yield Node(line=[Span(f"  and {counted(count, 'more chunk')}: servo backfill chunks {most_of.name}", DIM)])
    if gone := sum(lost[one] for one in made_since):
        yield Node(line=[Span(f"{counted(gone, 'chunk')} failed, and a retry has made the rest since", DIM)])


def _lost_chunks(job: BackfillView, tree: BackfillTree) -> int:
    """How many chunks of a job were not made, also those that the tree has no room for."""
    listed = sum(one.backfill_id == job.backfill_id for one in tree.failures)
    return max(job.chunks.get("FAILED", 0) + job.chunks.get("CANCELLED", 0), listed)


def _failure(same: Sequence[BackfillFailure]) -> Node:
    """Chunks of one job that failed of the same."""
    first = same[0]
    what = "failed" if first.state == "FAILED" else "not made"
    partitions = f"{counted(sum(one.failed for one in same), 'partition')} {what}"
    colour = "red" if first.state == "FAILED" else "yellow"
    reason = (first.reason or "").partition("\n")[0]
    chunks = ranges([str(number) for number in sorted(one.chunk_index for one in same)])
    where, how = (
        (f"chunk {chunks}: {partitions}", " in ")
        if len(same) == 1
        else (f"{counted(len(same), 'chunk')} ({chunks}): {partitions}", ", first in ")
    )
    return Node(
        line=[Span("✗ ", colour), Span(f"{first.asset_key} {where}{how}"), Span(first.run_id, DIM)],
        below=[Node(line=[Span(reason)])] if reason else [],
    )


def _blocked(tree: BackfillTree) -> Iterator[Node]:
    """What keeps it from going on by itself, and what to do about it; each once."""
    if tree.root.state == "PAUSED":
        how = Node(line=[Span(f"servo backfill resume {tree.root.name}", DIM)])
        yield Node(line=[Span("· ", "yellow"), Span("paused: no new chunk starts")], below=[how])
    if people := waiting(tree):
        how = Node(line=[Span("servo checkpoint list", DIM)])
        yield Node(line=[Span("· ", "magenta"), Span(people)], below=[how])
    for name in dict.fromkeys(name for job in tree.jobs for name in job.blocked_by):
        how = Node(line=[Span(f"servo backfill retry-failed {name}", DIM)])
        yield Node(line=[Span("✗ ", "red"), Span(f"blocked by {name}")], below=[how])


# ── the tree ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _forest(jobs: Sequence[BackfillView]) -> Iterator[Node]:
    """As nodes to be drawn, their columns aligned however deep they are."""
    places = ordered(jobs)
    label = max(3 * depth + cells(_label(job)) for depth, job in places)
    count = max(len(_count(job)) for _, job in places)
    path: list[Node] = []
    found: list[Node] = []
    for depth, job in places:
        node = Node(line=_job(job, label - 3 * depth, count), below=[])
        del path[depth:]
        (path[-1].below if path else found).append(node)
        path.append(node)
    yield from found


def _job(job: BackfillView, label: int, count: int) -> Line:
    name = _label(job)
    far = [
        *bar(job.succeeded, job.failed, job.running, job.partitions),
        Span(f"  {_count(job):>{count}} {int(job.percent):>4} %  "),
    ]
    return [
        Span(name + " " * (label - cells(name) + 2)),
        # A job above several assets computes nothing itself.
        *(far if job.partitions else [Span(" " * width(far))]),
        Span(job.display_state, COLOURS.get(job.display_state)),
        Span(_details(job), DIM),
    ]


def _label(job: BackfillView) -> str:
    if job.retry_of is not None:
        return f"retry {job.name}"
    return job.assets[0] if len(job.assets) == 1 else f"{len(job.assets)} assets"


def _count(job: BackfillView) -> str:
    return f"{job.succeeded:,}/{job.partitions:,}"


def troubles(job: BackfillView) -> list[str]:
    """How many partitions of a job failed or were cancelled, and how many of its runs wait for people."""
    counts = [(job.failed, "failed"), (job.cancelled, "cancelled")]
    words = [f"{count:,} {what}" for count, what in counts if count]
    return words + ([f"{counted(job.waiting_approval, 'run')} to approve"] if job.waiting_approval else [])


def _details(job: BackfillView) -> str:
    words = troubles(job)
    if job.display_state in ("RUNNING", "RESUMING"):
        if job.rate_per_minute is not None:
            words.append(f"{_rate(job.rate_per_minute)}/min")
        words.append(time_left(job.eta_seconds, reliable=job.eta_reliable))
    elif job.state not in _ENDED or job.state == "CANCELLED":
        words.append(job.state_reason or "")
    text = ", ".join(filter(None, words))
    return f" {text}" if text else ""


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def _roots(jobs: Sequence[BackfillView]) -> list[BackfillView]:
    """The jobs that no other waits for, and that repair nothing that is shown."""
    shown = {job.backfill_id for job in jobs}
    waited_for = {key for job in jobs if job.retry_of is None for key in job.waits_for}
    repairs = [job for job in jobs if job.retry_of is not None and job.retry_of not in shown]
    # A job of several assets is above those of each of them.
    return repairs + [
        job for job in jobs if job.retry_of is None and (len(job.assets) > 1 or job.assets[0] not in waited_for)
    ]


def _walk(
    job: BackfillView, jobs: Sequence[BackfillView], depth: int, seen: set[str]
) -> Iterator[tuple[int, BackfillView]]:
    if job.backfill_id in seen:
        return
    seen.add(job.backfill_id)
    yield depth, job
    for retry in jobs:
        if retry.retry_of == job.backfill_id:
            yield from _walk(retry, jobs, depth + 1, seen)
    if job.retry_of is not None:
        return
    by_asset = {one.assets[0]: one for one in jobs if one.retry_of is None and len(one.assets) == 1}
    below = [by_asset[key] for key in job.waits_for if key in by_asset]
    for one in below:
        # What another of them waits for as well is drawn below that one.
        if not any(one.assets[0] in _behind(other, by_asset) for other in below):
            yield from _walk(one, jobs, depth + 1, seen)


def _behind(job: BackfillView, by_asset: dict[str, BackfillView]) -> set[str]:
    """Everything that a job waits for, however far."""
    found = list(job.waits_for)
    for key in found:  # grows while it is walked through
        found += [more for more in (by_asset[key].waits_for if key in by_asset else ()) if more not in found]
    return set(found)


# ── the last lines ───────────────────────────────────────────────────────────────────────────────────────────────


def _remarks(tree: BackfillTree) -> Iterator[Node]:
    edited = [f"{_label(job)}: {job.edited}" for job in tree.jobs if job.edited is not None]
    warnings = dict.fromkeys(warning for job in tree.jobs for warning in job.warnings)
    for remark in [*edited, *warnings]:
        yield Node(line=[Span("! ", "yellow"), Span(remark)])

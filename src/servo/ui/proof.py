"""Why partitions are what they are, as trees; and why they failed, a line for each cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from servo.ui.marks import DIM, MARKS, STATUS_MARKS, Line, Mark, Node, Span, counted

if TYPE_CHECKING:
    # Whoever draws the answers of a server has no need of what made them.
    from servo.answers.partitions import AssetWhy, Grounds, InputState, Obstacle, PartitionWhy

__all__ = [
    "Failure",
    "FailureGroup",
    "ago",
    "asset_proof",
    "grouped",
    "minute_text",
    "moment_text",
    "partition_proof",
    "ranges",
]

Label = Callable[[str, str], str]
"""What people type for a partition: of an asset key and a partition key."""

_MOST_RANGES = 3  # of partitions
_SHOWN = 5  # inputs that are named; of more there is a count
_OBSTACLE_MARKS = {
    "RUNNING": MARKS["running"],
    "READY": MARKS["queued"],
    "QUEUED": MARKS["queued"],
    "WAITS_FOR_UPSTREAM": MARKS["queued"],
    "RETRY_WAIT": MARKS["queued"],
    "WAITING_APPROVAL": MARKS["waiting_approval"],
    "FAILED": MARKS["failed"],
    "SKIPPED": MARKS["failed"],
    "UNCHANGED": MARKS["materialized"],
    "CANCELLED": MARKS["failed"],
    "FROZEN": MARKS["frozen"],
}
_STATES = {
    "same": "as it was read",
    "same_content": "made anew, with the same content",
    "changed": "changed",
    "unread": "there, and not read",
    "missing": "not there",
    "marked": "marked as materialized, and holds no data",
    "removed": "was read, and is not given any more",
}


def partition_proof(why: PartitionWhy, label: Label) -> Node:
    """The tree of one partition."""
    view = why.partition
    mark = STATUS_MARKS[view.status]
    if view.status == "NEVER_MATERIALIZED" and view.last_attempt_outcome == "FAILED":
        mark = MARKS["failed"]
    name = " ".join(filter(None, [view.asset_key, view.partition]))
    line: Line = [Span(name, bold=True), Span("  "), Span(f"{mark.symbol} {view.status}", mark.colour)]
    if view.undefined:
        line.append(Span("  undefined", "yellow"))
    for overlay in view.overlays:
        shown = MARKS[overlay]
        line.append(Span(f"  {shown.symbol} {shown.words}", shown.colour))
    below = [Node([Span(why.sentence)])]
    below += [_grounds(one, why.now, label) for one in why.reasons]
    if why.root is not None:
        root = " ".join(filter(None, [why.root.asset_key, why.root.partition]))
        below.append(Node([Span("it began with "), Span(root, bold=True), Span(f": {why.root.code}", "yellow")]))
    if why.made is not None:
        below.append(_made(why))
    if why.inputs:
        below.append(_inputs(why, label))
    below += [_obstacle(one, why.now) for one in why.not_run]
    return Node(line, below)


def _made(why: PartitionWhy) -> Node:
    made = why.made
    assert made is not None
    by = made.run_id or made.made_by or "somebody"
    if made.mark_reason is not None:
        words = f" by {by}: {made.mark_reason}; there is no data"
        return Node([Span("marked as materialized "), *_moment(made.made_at, why.now), Span(words)])
    node = Node([Span("made "), *_moment(made.made_at, why.now), Span(f" by {by}")])
    facts = [
        ("materialization", made.materialization_id),
        ("content", made.content_hash),
        ("code", made.code_version),
        ("rows", None if made.rows is None else f"{made.rows:,}"),
    ]
    known = [f"{name} {value}" for name, value in facts if value is not None]
    node.below = [Node([Span(", ".join(known), DIM)])] if known else []
    if made.rolled_back_at is not None:
        why_back = f": {made.rollback_reason}" if made.rollback_reason else ""
        by_whom = f" by {made.rolled_back_by}{why_back}"
        node.below.append(Node([Span("current again since "), *_moment(made.rolled_back_at, why.now), Span(by_whom)]))
    if made.published_at is not None and made.published_at != made.made_at:
        node.below.append(Node([Span("published "), *_moment(made.published_at, why.now)]))
    if made.call is not None:
        node.below += [Node([Span(sentence)]) for sentence in made.call.sentences]
    return node


def _grounds(one: Grounds, now: datetime, label: Label) -> Node:
    node = Node(
        [Span(one.code, "yellow", bold=True), Span(" since "), *_moment(one.since, now), Span(f": {one.sentence}")]
    )
    guilty = sorted(one.inputs, key=lambda each: (each.changed_at or now, each.asset_key, each.partition_key))
    node.below = [_input(each, now, label) for each in guilty[:_SHOWN]]
    if len(guilty) > _SHOWN:
        node.below.append(Node([Span(f"and {len(guilty) - _SHOWN:,} more", DIM)]))
    return node


def _input(one: InputState, now: datetime, label: Label) -> Node:
    name = " ".join(filter(None, [one.asset_key, label(one.asset_key, one.partition_key)]))
    line: Line = [Span(name, bold=True), Span(f": {_STATES[one.state]}")]
    if one.changed_at is not None:
        line += [Span(" since "), *_moment(one.changed_at, now)]
    below = []
    for word, name_, hash_, run, at in (
        ("read", one.read_materialization_id, one.read_content_hash, one.read_run_id, one.read_made_at),
        ("now ", one.current_materialization_id, one.current_content_hash, one.current_run_id, one.current_made_at),
    ):
        if name_ is not None and not (word == "now " and name_ == one.read_materialization_id):
            content = f" ({hash_[:12]})" if hash_ else ""
            made = [Span(" made "), *_moment(at, now)] if at is not None else []
            by = [Span(f" by {run}", DIM)] if run else []
            below.append(Node([Span(f"{word} ", DIM), Span(f"{name_}{content}"), *made, *by]))
    return Node(line, below)


def _inputs(why: PartitionWhy, label: Label) -> Node:
    counts = Counter(one.state for one in why.inputs)
    states = ", ".join(f"{counts[state]:,} {words}" for state, words in _STATES.items() if counts[state])
    node = Node([Span(f"{counted(len(why.inputs), 'input')}: "), Span(states)])
    # Those that are guilty of something are named above, with their proof.
    if not why.reasons and len(why.inputs) <= _SHOWN:
        node.below = [_input(one, why.now, label) for one in why.inputs]
    return node


def _obstacle(one: Obstacle, now: datetime) -> Node:
    mark = _OBSTACLE_MARKS.get(one.code, Mark("·", DIM, ""))
    line: Line = [Span(f"{mark.symbol} {one.code}", mark.colour, bold=True), Span(f": {one.sentence}")]
    if one.run_id is not None:
        line.append(Span(f" ({one.run_id}", DIM))
        line += [Span(", ", DIM), *_moment(one.at, now)] if one.at is not None else []
        line.append(Span(")", DIM))
    if one.until is not None and one.code == "NOT_ENDED":
        line += [Span(", it ends "), *_moment(one.until, now)]
    below = []
    if one.error:
        below.append(Node([Span(_one_line(one.error), "red")]))
    if one.checkpoint_id is not None:
        below.append(Node([Span(f"servo checkpoint show {one.checkpoint_id}", DIM)]))
    if len(one.because_of) > 3:
        below.append(Node([Span(", ".join(one.because_of[:20]), DIM)]))
    return Node(line, below)


def asset_proof(why: AssetWhy) -> Node:
    """The tree of an asset: counts by reason, and where they began."""
    summary, now = why.summary, why.now
    below = [Node([Span(why.sentence)])]
    for reason in why.reasons:
        line = [
            Span(f"◐ {reason['partitions']:,} ", "yellow"),
            Span(reason["code"], "yellow", bold=True),
            Span(" since "),
            *_moment(reason["since"], now),
        ]
        below.append(Node([*line, *_which(reason["described"])]))
    if why.roots:
        node = Node([Span("they began with")])
        for one in why.roots:
            head = [Span(one["asset_key"], bold=True), Span(f": {one['code']}", "yellow")]
            node.below.append(Node([*head, Span(f", {one['partitions']:,} of these"), *_which(one["described"])]))
        below.append(node)
    for one in why.failures:
        line = [Span(f"✗ {one['partitions']:,} failed", "red"), Span(f", the newest {one['newest']}".rstrip(", "), DIM)]
        below.append(Node(line, [Node([Span(_one_line(one["error"]), "red")])]))
    for one in why.missing:
        line = [Span(f"· {one['partitions']:,} missing", bold=True), Span(f": {one['why']}")]
        below.append(Node([*line, *_which(one["described"])]))
    for overlay, count in summary.overlays.items():
        mark = MARKS[overlay]
        below.append(Node([Span(f"{mark.symbol} {count:,} {mark.words}", mark.colour)]))
    if summary.undefined:
        below.append(Node([Span(f"{summary.undefined:,} undefined", "yellow"), Span(": of an earlier definition")]))
    return Node([Span(summary.asset_key, bold=True)], below)


def _which(described: str) -> Line:
    return [Span(f" ({described})", DIM)] if described else []


def _one_line(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return "".join(one if one.isprintable() else " " for one in first)


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Failure(NamedTuple):
    """One partition that failed. `partition` is what people type for it; empty for the only one of an asset."""

    asset_key: str
    partition: str
    reason: str


class FailureGroup(NamedTuple):
    """Partitions of one asset that failed for one reason."""

    asset_key: str
    partitions: list[str]
    reason: str

    def where(self) -> str:
        """`shop/orders 2025-02-01`, or `shop/orders: 28 partitions (2025-02-01..2025-02-28)`."""
        if len(self.partitions) == 1:
            return f"{self.asset_key} {self.partitions[0]}".rstrip()
        return f"{self.asset_key}: {len(self.partitions):,} partitions ({ranges(self.partitions)})"


def grouped(failures: Iterable[Failure]) -> list[FailureGroup]:
    """Failures by asset and reason, in the order of the first of each.

    Reasons that differ in nothing but the partition that they name are one: it is left out of them.
    """
    groups: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        common = failure.reason.replace(failure.partition, "…") if failure.partition else failure.reason
        groups.setdefault((failure.asset_key, common), []).append(failure)
    return [
        FailureGroup(
            asset_key=asset_key,
            partitions=sorted({failure.partition for failure in same}, key=_in_order),
            reason=same[0].reason if len({failure.reason for failure in same}) == 1 else common,
        )
        for (asset_key, common), same in groups.items()
    ]


def ranges(partitions: Sequence[str]) -> str:
    """Partitions in few words: `2025-02-01..2025-02-28`, `eu, us`, `2025-01, 2025-03..2025-05 and 12 more`."""
    runs: list[list[str]] = []
    for partition in partitions:
        if runs and _next(runs[-1][-1]) == partition:
            runs[-1].append(partition)
        else:
            runs.append([partition])
    shown = runs[:_MOST_RANGES]
    texts = [text for run in shown for text in ([f"{run[0]}..{run[-1]}"] if len(run) > 1 else run)]
    hidden = len(partitions) - sum(map(len, shown))
    return ", ".join(texts) + (f" and {hidden:,} more" if hidden else "")


def _in_order(partition: str) -> tuple[int, str]:
    return (int(partition) if partition.isascii() and partition.isdigit() else 0, partition)


def _next(partition: str) -> str | None:
    """The day after a day, the month after a month, the number after a number; None after anything else."""
    try:
        if partition.isascii() and partition.isdigit():
            return str(int(partition) + 1)
        if len(partition) == len("2025-01"):
            return f"{(date.fromisoformat(f'{partition}-28') + timedelta(days=4)):%Y-%m}"
        return (date.fromisoformat(partition) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return None


# ── moments ──────────────────────────────────────────────────────────────────────────────────────────────────────


def moment_text(moment: datetime | None) -> str:
    """UTC, to the second."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def minute_text(moment: datetime | None) -> str:
    """UTC, to the minute: for tables."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"


def ago(moment: datetime, now: datetime) -> str:
    """As people say it: `3 min ago`, `in 2 h`."""
    seconds = (now - moment).total_seconds()
    size = abs(seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if size >= length:
            text = f"{size / length:.0f} {unit}"
            break
    else:
        text = f"{size:.0f} s"
    return f"{text} ago" if seconds >= 0 else f"in {text}"


def _moment(moment: datetime | None, now: datetime) -> Sequence[Span]:
    if moment is None:
        return [Span("some time")]
    return [Span(moment_text(moment)), Span(f" ({ago(moment, now)})", DIM)]

"""Backfills on the terminal and as JSON: what one would come to, what there is, and which chunks it has."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from servo.answers.backfills import BackfillPreview, BackfillSummary, BackfillTree, ChunkView, PreviewedJob
from servo.cli.output import (
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
from servo.ui.backfill import COLOURS, lines, rounded, time_left
from servo.ui.marks import Line, Span, counted

_WIDE = 10_000  # columns of a pipe


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
    rows: list[list[Line]] = [
        [
            [Span(job.asset_key, bold=job.role == "target")],
            [Span(job.role)],
            [Span(job.described)],
            [Span(f"{job.count:,}")],
            [Span(f"{job.chunks:,}")],
            [Span(_mapping(job))],
        ]
        for job in plan.jobs
    ]
    coloured_table(["asset", "role", "partitions", "count", "chunks", "mapping"], rows)
    first, seconds = plan.jobs[0], plan.estimated_seconds
    took = "how long is not known yet" if seconds is None else f"about {rounded(seconds)}"
    note(f"{counted(plan.partitions, 'partition')}, {counted(plan.chunks, 'chunk')}, each a run; {took}")
    note(f"first chunk: {first.asset_key} {first.first_chunk.described}".rstrip())
    if len(plan.jobs) > 1:
        draw_order({job.asset_key: (job.count, job.waits_for) for job in plan.jobs})


def _mapping(job: PreviewedJob) -> str:
    kinds = dict.fromkeys(f"{read.mapping}{' (all)' if read.fallback else ''}" for read in job.reads)
    return ", ".join(kinds)


# ── what there is ────────────────────────────────────────────────────────────────────────────────────────────────


def show_list(trees: Sequence[BackfillSummary], limit: int) -> None:
    """A row for each, the newest first."""
    rows: list[list[Line]] = []
    for tree in trees:
        root = tree.root
        until = "" if tree.over else time_left(tree.eta_seconds, reliable=tree.eta_reliable)
        cells = [root.name, few(root.assets), f"{tree.succeeded:,}/{tree.partitions:,}", f"{int(tree.percent)} %"]
        cells += [f"{tree.failed:,}" if tree.failed else "", until, str(len(tree.jobs)) if len(tree.jobs) > 1 else ""]
        cells += [at(root.created_at), root.created_by, root.backfill_id]
        rows.append([[Span(root.display_state, COLOURS.get(root.display_state))], *([Span(cell)] for cell in cells)])
    names = ["state", "name", "assets", "made", "done", "failed", "left", "jobs", "created", "by", "backfill"]
    if sys.stdout.isatty():  # the rest is in `status`
        names, rows = names[:7], [row[:7] for row in rows]
    coloured_table(names, rows, at_most(len(trees), "backfill", limit))


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

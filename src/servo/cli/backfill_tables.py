"""Backfills on the terminal and as JSON: what one would come to, what there is, and which chunks it has."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from servo.answers.backfills import BackfillPreview, BackfillSummary, BackfillTree, ChunkView, PreviewedJob
from servo.cli.drawing import coloured_table, columns, draw
from servo.cli.output import note, table
from servo.cli.states import counted, duration
from servo.cli.values import moment
from servo.ui.marks import Line, Span

_WIDE = 10_000  # columns of a pipe
_SHORT = len("run_") + 12  # of an id, on a terminal: enough to be the only one, and every command takes it
_MOST_DRAWN = 40


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
    from servo.ui.backfill import rounded

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
    if 1 < len(plan.jobs) <= _MOST_DRAWN:
        click.echo()
        _draw_order(plan.jobs)


def _mapping(job: PreviewedJob) -> str:
    kinds = dict.fromkeys(f"{read.mapping}{' (all)' if read.fallback else ''}" for read in job.reads)
    return ", ".join(kinds)


def _draw_order(jobs: Sequence[PreviewedJob]) -> None:
    """Below each job those it waits for. One that was drawn before is not opened again."""
    from servo.ui.tree import Node, drawn

    by_asset, seen = {job.asset_key: job for job in jobs}, set[str]()

    def node(job: PreviewedJob) -> Node:
        again = job.asset_key in seen
        seen.add(job.asset_key)
        remark = f"  {counted(job.count, 'partition')}{', see above' if again else ''}"
        below = [] if again else [node(by_asset[key]) for key in job.waits_for]
        return Node(line=[Span(job.asset_key), Span(remark, "dim")], below=below)

    waited_for = {key for job in jobs for key in job.waits_for}
    for job in jobs:
        if job.asset_key not in waited_for:
            draw(drawn(node(job), columns()))
    note("each waits for those below it")


def warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        click.echo(f"servo: warning: {warning}", err=True)


# ── what there is ────────────────────────────────────────────────────────────────────────────────────────────────


def show_list(trees: Sequence[BackfillSummary], limit: int) -> None:
    """A row for each, the newest first."""
    from servo.ui.backfill import COLOURS, time_left

    rows: list[list[Line]] = []
    for tree in trees:
        root = tree.root
        until = "" if tree.over else time_left(tree.eta_seconds, reliable=tree.eta_reliable)
        cells = [root.name, _few(root.assets), f"{tree.succeeded:,}/{tree.partitions:,}", f"{int(tree.percent)} %"]
        cells += [f"{tree.failed:,}" if tree.failed else "", until, str(len(tree.jobs)) if len(tree.jobs) > 1 else ""]
        cells += [_at(root.created_at), root.created_by, root.backfill_id]
        rows.append([[Span(root.display_state, COLOURS.get(root.display_state))], *([Span(cell)] for cell in cells)])
    names = ["state", "name", "assets", "made", "done", "failed", "left", "jobs", "created", "by", "backfill"]
    if sys.stdout.isatty():  # the rest is in `status`
        names, rows = names[:7], [row[:7] for row in rows]
    more = f"; there may be more, see --limit {limit}" if len(trees) == limit else ""
    coloured_table(names, rows, counted(len(trees), "backfill") + more)


def show_tree(tree: BackfillTree, *, failures: int = 10) -> None:
    """All about one, what failed first."""
    from servo.ui.backfill import lines

    draw(lines(tree, columns() if sys.stdout.isatty() else _WIDE, failures=failures))


def show_facts(tree: BackfillTree) -> None:
    """What does not change about it, and what can be done with it."""
    root = tree.root
    order = "newest first" if root.newest_first else "oldest first"
    note(f"{root.backfill_id}, version {root.state_version}")
    note(f"created {_at(root.created_at)} by {root.created_by}")
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
            one.run_id,
            _took(one.started_at, one.finished_at),
            one.reason,
            _at(one.planned_at),
        )
        for one in chunks
    ]
    if sys.stdout.isatty():
        names, rows = names[:-1], [(*row[:5], row[5][:_SHORT], *row[6:-1]) for row in rows]
    more = f"; there may be more, see --after and --limit {limit}" if len(chunks) == limit else ""
    table(names, rows, counted(len(chunks), "chunk") + more)


def _few(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _at(when: datetime | None) -> str:
    return "" if when is None else moment(when.replace(microsecond=0))


def _took(began: datetime | None, ended: datetime | None) -> str:
    return "" if began is None or ended is None else duration((ended - began).total_seconds())

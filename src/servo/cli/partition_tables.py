"""Partitions on the terminal: lists, counts, pictures, and all about one of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from servo.answers.partitions import KINDS, AssetGrid, PartitionView
from servo.answers.values import plain
from servo.cli.output import coloured_table, columns, draw, echo_json, note, plain_struct, table
from servo.operations.partitions.requests import (
    Summarize,
)
from servo.ui.marks import DIM, MARKS, STATUS_MARKS, Span, counted, legend, wrapped
from servo.ui.pictures import heatmap, strip
from servo.ui.proof import minute_text, moment_text

if TYPE_CHECKING:
    from servo.answers.partitions import OutdatedPartition
    from servo.cli.services import Listed, Services
    from servo.ui.marks import Line


from typing import TYPE_CHECKING

from servo.answers.values import moment

if TYPE_CHECKING:
    from servo.answers.assets import Materialization


_STRIP = 24  # cells of a strip, where there is room


def show_page(page: Listed[PartitionView], *, several: bool) -> None:
    """A page of partitions; with the asset of each where they are of several."""
    names = [*(["asset"] if several else []), "partition", "status", "made", "stale since", "why", "run"]
    footer = f"{len(page.items):,} of {counted(page.more['total'], 'partition')}"
    footer += f"; go on with --cursor {page.next_cursor}" if page.next_cursor else ""
    coloured_table(names, [_row(one, several=several) for one in page.items], footer)
    if page.next_cursor and not sys.stdout.isatty():
        click.echo(f"servo: note: {footer}", err=True)  # a pipe has no footer, and must not pass for the whole


def _row(view: PartitionView, *, several: bool) -> list[Line]:
    made, since = _when(view.last_materialization_at), _when(view.stale_since)
    run = view.last_attempt_run_id or view.last_materialization_run_id or ""
    cells: list[Line] = [
        [Span(view.partition or "(the only one)")],
        _status(view),
        [Span(made)],
        [Span(since)],
        [Span(", ".join(code for code, _ in view.stale_reasons), "yellow")],
        [Span(run if not sys.stdout.isatty() else run[:16], DIM)],
    ]
    return [[Span(view.asset_key)], *cells] if several else cells


def _when(moment: datetime | None) -> str:
    """On a terminal to the minute; whole for a pipe."""
    if moment is None:
        return ""
    return minute_text(moment) if sys.stdout.isatty() else str(plain(moment))


def _status(view: PartitionView) -> Line:
    mark = STATUS_MARKS[view.status]
    words = mark.words
    if view.status == "NEVER_MATERIALIZED":
        words = "missing" if view.missing else "not made yet"
        if view.last_attempt_outcome == "FAILED":
            mark = MARKS["failed"]
            words = mark.words
    line: Line = [Span(f"{mark.symbol} {words}", mark.colour)]
    if view.undefined:
        line.append(Span(", undefined", "yellow"))
    for overlay in view.overlays:
        shown = MARKS[overlay]
        line.append(Span(f" {shown.symbol} {shown.words}", shown.colour))
    return line


def show_all(here: Services, when: datetime | str | None, *, as_json: bool) -> None:
    if as_json:
        documents = plain_struct(here.ask(Summarize(), as_of=when))["assets"]
        echo_json({"assets": [{name: one[name] for name in one if name != "strip"} for one in documents]})
        return
    rows, seen = [], set()
    for summary in here.ask(Summarize(cells=_STRIP if columns() < 100 else 2 * _STRIP), as_of=when).assets:
        cells = summary.strip
        seen |= {kind for cell in cells for kind in cell}
        busy = sum(count for overlay, count in summary.overlays.items() if overlay != "frozen")
        kept = summary.statuses["MATERIALIZED"]
        numbers = (
            (kept, "green"),
            (summary.statuses["STALE"], "yellow"),
            (summary.attempt_failed, "red"),
            (summary.missing, None),
            (busy, "cyan"),
        )
        counts: list[Line] = [[Span(f"{count:,}", colour) if count else Span("–", DIM)] for count, colour in numbers]
        rows.append([[Span(summary.asset_key)], strip(cells), [Span(f"{summary.total:,}")], *counts])
    names = ["asset", "oldest … newest", "total", "ok", "stale", "failed", "missing", "busy"]
    coloured_table(names, rows, counted(len(rows), "asset"))
    if sys.stdout.isatty() and seen:
        draw(wrapped(legend([kind for kind in reversed(KINDS) if kind in seen and kind in MARKS]), columns()))


def show_asset(summary: AssetGrid, *, as_json: bool) -> None:
    if as_json:
        echo_json(summary)
        return
    head: Line = [Span(summary.asset_key, bold=True), Span(f"  {counted(summary.total, 'partition')}", DIM)]
    grid = summary.grid
    if grid.unit:
        head.append(Span(f", a cell is a {grid.unit}" if grid.folded else "", DIM))
    draw([head, *heatmap(grid, columns())])
    if summary.undefined:
        note(f"{summary.undefined:,} more that the definition does not have any more: --status undefined lists them")
    if summary.missing or summary.statuses["STALE"]:
        note(f"servo plan --stale {summary.asset_key}; servo asset why {summary.asset_key}")


def show_partition(view: PartitionView, *, as_json: bool) -> None:
    if as_json:
        echo_json(view)
        return
    name = " ".join(filter(None, [view.asset_key, view.partition]))
    window = None
    if view.window_start is not None:
        window = f"{moment_text(view.window_start)} … {moment_text(view.window_end)}"
    attempt = f"{view.last_attempt_outcome} {moment_text(view.last_attempt_at)} by {view.last_attempt_run_id}"
    made_by = f" by {view.last_materialization_run_id}" if view.last_materialization_run_id else ""
    lines = [
        ("window", window),
        ("made", view.last_materialization_at and moment_text(view.last_materialization_at) + made_by),
        ("materialization", view.materialization_id),
        ("content", view.content_hash),
        ("code version", view.last_materialization_code_version),
        ("last attempt", attempt if view.last_attempt_outcome else None),
        *((f"stale: {code.lower()}", f"since {moment_text(since)}") for code, since in view.stale_reasons),
        ("partition key", view.partition_key),
        ("partition id", view.partition_id),
    ]
    draw([[Span(name, bold=True), Span("  "), *_status(view)]])
    draw([[Span(f"{label:<24}", DIM), Span(value)] for label, value in lines if value])
    note(f"servo partition why {' '.join(filter(None, [view.asset_key, view.partition]))}")


def show_stale(found: Sequence[OutdatedPartition], total: int, assets: dict[str, int], *, transitive: bool) -> None:
    """A row for each partition that is stale; with where that began, where all that follows is asked for."""
    names = ["asset", "partition", "stale since", "why", *(["began with"] if transitive else [])]
    rows: list[list[Line]] = []
    for one in found:
        codes = ", ".join(code for code, _ in one.reasons)
        cells: list[Line] = [
            [Span(one.asset_key)],
            [Span(one.partition)],
            [Span(_when(one.stale_since))],
            [Span(codes, "yellow")],
        ]
        if transitive:
            root = " ".join(filter(None, [one.root_asset_key, one.root_partition, one.root_reason_code]))
            cells.append([Span(root, DIM)])
        rows.append(cells)
    more = total - len(rows)
    footer = f"{counted(total, 'partition')} of {counted(len(assets), 'asset')}"
    coloured_table(names, rows, footer + (f"; {more:,} more, see --limit" if more else ""))


def show_history(rows: Sequence[Materialization], asset: str, partition_key: str) -> None:
    """A row for each materialization of a partition, the newest first."""
    if rows and rows[0].removed_at is not None:
        at, by = moment(rows[0].removed_at), rows[0].removed_by
        note(f"{asset} {partition_key} was removed at {at} by {by}; read it with `servo read … --as-of` a time before")
    whole = not sys.stdout.isatty()
    table(
        ["", "materialization", "made", "rows", "bytes", "content", "code", "run"],
        [_cells(row, whole=whole) for row in rows],
        f"{counted(len(rows), 'materialization')}; go back with "
        f"`servo partition rollback {' '.join(filter(None, [asset, partition_key]))} --to ID --reason …`",
    )


def _cells(row: Materialization, *, whole: bool) -> tuple[Any, ...]:
    content = row.content_hash or ""
    return (
        "→" if row.current else "",
        row.materialization_id,
        "" if row.made_at is None else moment(row.made_at.replace(microsecond=0)),
        row.rows,
        row.bytes,
        content if whole else content[:12],
        row.code_version,
        row.run_id if whole else (row.run_id or "")[:16],
    )

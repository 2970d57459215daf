"""`servo partition list | status | stale | why | mark`: what partitions are, and why."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from servo.answers.grids import KINDS, AssetGrid
from servo.answers.partitions import PartitionView
from servo.answers.why import PartitionWhy
from servo.cli.completing import complete_assets
from servo.cli.drawing import coloured_table, columns, draw
from servo.cli.opening import project, read_ahead, services
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, plain_struct, without_duplicate
from servo.cli.states import counted
from servo.cli.values import plain
from servo.errors import InvalidInput
from servo.operations.assets.requests import Explain
from servo.operations.moments import parse_moment
from servo.operations.partitions.requests import (
    GetGrid,
    GetPartition,
    ListPartitions,
    ListPartitionsOf,
    ListStale,
    Mark,
    MarkPartitions,
    Summarize,
)
from servo.ui.heatmap import heatmap
from servo.ui.marks import DIM, MARKS, STATUS_MARKS, Span, legend, wrapped
from servo.ui.proof import minute_text, moment_text, partition_proof
from servo.ui.strip import strip
from servo.ui.tree import drawn

if TYPE_CHECKING:
    from servo.cli.services import Services
    from servo.ui.marks import Line

_STRIP = 24  # cells of a strip, where there is room

as_of_option = click.option(
    "--as-of", metavar="TIME|EVENT_ID", help="Then: with the definitions and the state of that time."
)


def _moment(text: str | None) -> datetime | str | None:
    return None if text is None else parse_moment(text)


def _time(text: str | None, option: str) -> str | None:
    if text is None:
        return None
    found = parse_moment(text)
    if not isinstance(found, datetime):
        raise InvalidInput(f"{option} takes a time, not an event id", hint="write 2025-01-15 or 2025-01-15T10:30:00Z")
    return found.isoformat()


# ── list ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Limit(click.IntRange):
    """A bound on a page; who wants more is told how to get it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(
                f"{value} is not a number from {self.min} to {self.max:,}; --cursor goes on from page to page",
                param,
                ctx,
            )


@click.command("list")
@click.argument("asset", required=False, shell_complete=complete_assets)
@click.option("--status", "statuses", multiple=True, metavar="S", help="missing, stale, failed, …; may be repeated.")
@click.option("--partitions", metavar="P", help="Only these: 2025-01-01..2025-01-31, region=eu, latest, all.")
@click.option("--since", metavar="TIME", help="Only those to which something happened since then.")
@click.option("--until", metavar="TIME", help="… and before then.")
@click.option(
    "--limit", type=_Limit(1, 1000), metavar="N", default=50, show_default="50", help="How many at most, up to 1,000."
)
@click.option("--cursor", metavar="C", help="Go on after the page that this came with.")
@as_of_option
@json_option
def list_partitions(
    *,
    asset: str | None,
    statuses: tuple[str, ...],
    partitions: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    cursor: str | None,
    as_of: str | None,
    as_json: bool,
) -> None:
    """List partitions, also those that the definition expects and that nothing is known of.

    \b
    servo partition list orders --status missing --status failed
    servo partition list orders --partitions 2025-01 --as-of 2025-02-01
    """
    read_ahead()
    with services(as_json=as_json) as here:
        request = ListPartitions(
            status=statuses, partitions=partitions, since=_time(since, "--since"), until=_time(until, "--until")
        )
        of_asset = None if asset is None else ListPartitionsOf(asset=asset, **msgspec.structs.asdict(request))
        page = here.listed(of_asset or request, limit=limit, cursor=cursor, as_of=_moment(as_of))
    total = page.more["total"]
    if as_json:
        shown = [plain_struct(one) for one in page.items]
        echo_json({"partitions": shown, "total": total, "cursor": page.next_cursor})
        return
    several = asset is None
    names = [*(["asset"] if several else []), "partition", "status", "made", "stale since", "why", "run"]
    footer = f"{len(page.items):,} of {counted(total, 'partition')}"
    footer += f"; go on with --cursor {page.next_cursor}" if page.next_cursor else ""
    coloured_table(names, [_listed(one, several=several) for one in page.items], footer)
    if page.next_cursor and not sys.stdout.isatty():
        click.echo(f"servo: note: {footer}", err=True)  # a pipe has no footer, and must not pass for the whole


def _listed(view: PartitionView, *, several: bool) -> list[Line]:
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


# ── status ───────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("asset", required=False, shell_complete=complete_assets)
@click.argument("partition_key", metavar="[PARTITION]", required=False)
@as_of_option
@json_option
def status(asset: str | None, partition_key: str | None, as_of: str | None, as_json: bool) -> None:
    """Show what partitions are: of all assets, counted; of one, as a picture; of one partition, everything."""
    read_ahead()
    with services(as_json=as_json) as here:
        when = _moment(as_of)
        if asset is None:
            _all(here, when, as_json=as_json)
        elif partition_key is None and not _is_whole(here, asset, when):
            _one_asset(here.ask(GetGrid(asset=asset), as_of=when), as_json=as_json)
        elif partition_key:
            found = here.ask(GetPartition(asset=asset, partition=partition_key), as_of=when)
            _one_partition(found, as_json=as_json)
        else:  # the only one, of an asset without partitions, has no name to write in a path
            why = here.ask(Explain(asset=asset, partition=""), as_of=when)
            assert isinstance(why, PartitionWhy)
            _one_partition(why.partition, as_json=as_json)


def _is_whole(here: Services, asset: str, when: datetime | str | None) -> bool:
    """Whether the asset has just the one partition, so that there is no picture to be made of it."""
    return not here.definition(asset, as_of=when).dimensions


def _all(here: Services, when: datetime | str | None, *, as_json: bool) -> None:
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


def _one_asset(summary: AssetGrid, *, as_json: bool) -> None:
    if as_json:
        echo_json(plain_struct(summary))
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


def _one_partition(view: PartitionView, *, as_json: bool) -> None:
    if as_json:
        echo_json(plain_struct(view))
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


# ── stale ────────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("selection", nargs=-1, shell_complete=complete_assets)
@click.option("--transitive", is_flag=True, help="Also what is stale by nothing but an upstream, with where it began.")
@click.option("--limit", type=click.IntRange(1), default=200, show_default=True, help="How many at most.")
@as_of_option
@json_option
def stale(selection: tuple[str, ...], transitive: bool, limit: int, as_of: str | None, as_json: bool) -> None:
    """List the partitions that are stale, since when, and why: of a selection, or of all assets."""
    read_ahead()
    with services(as_json=as_json) as here:
        found = here.listed(ListStale(select=selection, transitive=transitive), limit=limit, as_of=_moment(as_of))
    total, assets = found.more["total"], found.more["assets"]
    if as_json:
        echo_json({"partitions": [plain_struct(one) for one in found.items], "total": total, "assets": assets})
        return
    names = ["asset", "partition", "stale since", "why", *(["began with"] if transitive else [])]
    rows: list[list[Line]] = []
    for one in found.items:
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


@click.command()
@json_option
def sweep(as_json: bool) -> None:
    """Keep what is stale in a file beside the projections, so that the next answers look only at what is new.

    The answers are the same with and without it.
    """
    from servo.runtime.states import state_of
    from servo.status.staleness_cache import refresh_cache

    with project(as_json=as_json) as opened:
        known = refresh_cache(state_of(opened), opened.mint)
    if as_json:
        echo_json({"watermark": plain_struct(known)})
    else:
        click.echo(f"✓ swept up to event {known.position:,}")


# ── why ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("asset", shell_complete=complete_assets)
@click.argument("partition_key", metavar="[PARTITION]", default="")
@as_of_option
@json_option
def why(asset: str, partition_key: str, as_of: str | None, as_json: bool) -> None:
    """Explain a partition: why it is stale, missing or failed, from what it was made, and why it did not run."""
    read_ahead()
    with services(as_json=as_json) as here:
        when = _moment(as_of)
        found = here.ask(Explain(asset=asset, partition=partition_key), as_of=when)
        assert isinstance(found, PartitionWhy)
        if as_json:
            echo_json(plain_struct(found))
            return
        draw(drawn(partition_proof(found, here.labels(when)), columns()))
    if found.hint and as_of is None:
        note(found.hint)


# ── mark ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("asset", shell_complete=complete_assets)
@click.argument("partitions", nargs=-1, metavar="PARTITION…")
@click.option("--as", "as_what", required=True, type=click.Choice(get_args(Mark)), help="What.")
@click.option("--reason", required=True, metavar="WHY", help="Is recorded with it.")
@json_option
def mark(asset: str, partitions: tuple[str, ...], as_what: Mark, reason: str, as_json: bool) -> None:
    """State something about partitions: made elsewhere (materialized), left alone (frozen), or that no more (thawed).

    Nothing is computed. What is frozen is never stale, and is left out of what should run.
    """
    with services(as_json=as_json) as here:
        done = here.do(MarkPartitions(asset=asset, partitions=partitions, mark=as_what, reason=reason))
    if as_json:
        echo_json(without_duplicate(done))
        return
    which = f": {done.described}" if done.described else ""
    click.echo(f"✓ marked {counted(len(done.partitions), 'partition')} of {done.asset_key} as {as_what}{which}")

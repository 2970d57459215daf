"""The status of partitions, why it is so, their history, and the values of dynamic dimensions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from servo.answers.partitions import KINDS, AssetGrid, PartitionView, PartitionWhy
from servo.answers.values import moment, plain
from servo.cli.opening import Services
from servo.cli.options import (
    Answer,
    as_of_option,
    asset_argument,
    command,
    complete_assets,
    partition_argument,
    past,
    reasoned,
)
from servo.cli.output import (
    Cell,
    coloured_table,
    columns,
    draw,
    note,
    plain_struct,
    show_why,
    table,
    without_duplicate,
)
from servo.errors import InvalidInput
from servo.operations.assets.requests import Explain, ListMaterializations, RollBack
from servo.operations.partitions.requests import (
    ChangeValues,
    GetGrid,
    GetPartition,
    ListPartitions,
    ListPartitionsOf,
    ListStale,
    Mark,
    MarkPartitions,
    Summarize,
)
from servo.ui.marks import DIM, MARKS, STATUS_MARKS, Span, counted, legend, wrapped
from servo.ui.pictures import heatmap, strip
from servo.ui.proof import minute_text, moment_text, partition_proof

if TYPE_CHECKING:
    from servo.answers.assets import Materialization
    from servo.answers.partitions import AssetStrip, OutdatedPartition
    from servo.cli.opening import Listed
    from servo.ui.marks import Line

_STRIP = 24  # cells of a strip, where there is room


@command()
@asset_argument
@partition_argument
def history(here: Services, asset: str, partition_key: str) -> Answer:
    """List the materializations of a partition, newest first: which is current (→), what made each of them.

    An asset without partitions has one, which needs no name.
    """
    rows = here.listed(ListMaterializations(asset=asset, partition=partition_key)).items
    return Answer({"materializations": rows}, lambda: _show_history(rows, asset, partition_key))


@command()
@asset_argument
@click.argument("partitions", nargs=-1, metavar="PARTITION…")
@click.option("--to", metavar="ID|TIME", help="A materialization, or what was current then; by default the one before.")
@reasoned(required=True)
def rollback(here: Services, asset: str, partitions: tuple[str, ...], to: str | None, reason: str) -> Answer:
    """Make earlier materializations current again. Nothing is copied or removed, and it can be undone likewise."""
    done = here.do(RollBack(asset=asset, partitions=partitions, to=to, reason=reason))

    def confirm() -> None:
        if not done.partitions:
            click.echo(f"nothing was rolled back: that is what is current of {done.asset}")
            return
        label = here.labels()
        for one in done.partitions:
            note(f"  {label(done.asset, one.partition_key)} → {one.materialization_id}")
        click.echo(f"✓ rolled back {counted(len(done.partitions), 'partition')} of {done.asset}")

    return Answer(done, confirm)


@command(create=True)
@click.argument("dimension")
@click.argument("values", nargs=-1, required=True, metavar="VALUE…")
def add(here: Services, dimension: str, values: tuple[str, ...]) -> Answer:
    """Add values to a dynamic dimension: each is a partition from now on, of every asset that has the dimension."""
    done = here.do(ChangeValues(dimension=dimension, added=values))
    words = f"✓ {counted(len(values), 'value')} added to {dimension}"
    return Answer(without_duplicate(done), lambda: click.echo(words))


@command(create=True)
@click.argument("dimension")
@click.argument("values", nargs=-1, required=True, metavar="VALUE…")
def remove(here: Services, dimension: str, values: tuple[str, ...]) -> Answer:
    """Take values away from a dynamic dimension. What was computed for them stays."""
    done = here.do(ChangeValues(dimension=dimension, removed=values))
    words = f"✓ {counted(len(values), 'value')} removed from {dimension}"
    return Answer(without_duplicate(done), lambda: click.echo(words))


def _time(text: str | None, option: str) -> str | None:
    if text is None:
        return None
    time = past(text)
    if not isinstance(time, datetime):
        raise InvalidInput(f"{option} takes a time, not an event id", hint="write 2025-01-15 or 2025-01-15T10:30:00Z")
    return time.isoformat()


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


@command("list", reading=True)
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
def list_partitions(
    here: Services,
    *,
    asset: str | None,
    statuses: tuple[str, ...],
    partitions: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    cursor: str | None,
    as_of: str | None,
) -> Answer:
    """List partitions, also those that the definition expects and that nothing is known of.

    \b
    servo partition list orders --status missing --status failed
    servo partition list orders --partitions 2025-01 --as-of 2025-02-01
    """
    request = ListPartitions(
        status=statuses, partitions=partitions, since=_time(since, "--since"), until=_time(until, "--until")
    )
    of_asset = None if asset is None else ListPartitionsOf(asset=asset, **msgspec.structs.asdict(request))
    page = here.listed(of_asset or request, limit=limit, cursor=cursor, as_of=past(as_of))
    document = {"partitions": page.items, "total": page.more["total"], "cursor": page.next_cursor}
    return Answer(document, lambda: _show_page(page, several=asset is None))


# ── status ───────────────────────────────────────────────────────────────────────────────────────────────────────


@command(reading=True)
@click.argument("asset", required=False, shell_complete=complete_assets)
@click.argument("partition_key", metavar="[PARTITION]", required=False)
@as_of_option
def status(here: Services, *, asset: str | None, partition_key: str | None, as_of: str | None, as_json: bool) -> Answer:
    """Show what partitions are: of all assets, counted; of one, as a picture; of one partition, everything."""
    when = past(as_of)
    if asset is None:
        return _summary(here, when, as_json=as_json)
    if partition_key:
        return _one_partition(here.ask(GetPartition(asset=asset, partition=partition_key), as_of=when))
    if partition_key is None and here.definition(asset, as_of=when).dimensions:
        grid = here.ask(GetGrid(asset=asset), as_of=when)
        return Answer(grid, lambda: _show_asset(grid))
    # The only partition of an asset without dimensions has no name to write in a path.
    explained = here.ask(Explain(asset=asset, partition=""), as_of=when)
    assert isinstance(explained, PartitionWhy)
    return _one_partition(explained.partition)


# ── stale ────────────────────────────────────────────────────────────────────────────────────────────────────────


@command(reading=True)
@click.argument("selection", nargs=-1, shell_complete=complete_assets)
@click.option("--transitive", is_flag=True, help="Also what is stale by nothing but an upstream, with where it began.")
@click.option("--limit", type=click.IntRange(1), default=200, show_default=True, help="How many at most.")
@as_of_option
def stale(here: Services, selection: tuple[str, ...], transitive: bool, limit: int, as_of: str | None) -> Answer:
    """List the partitions that are stale, since when, and why: of a selection, or of all assets."""
    page = here.listed(ListStale(select=selection, transitive=transitive), limit=limit, as_of=past(as_of))
    total, assets = page.more["total"], page.more["assets"]
    document = {"partitions": page.items, "total": total, "assets": assets}
    return Answer(document, lambda: _show_stale(page.items, total, assets, transitive=transitive))


@command()
def sweep(here: Services) -> Answer:
    """Keep what is stale in a file beside the projections, so that the next answers look only at what is new.

    The answers are the same with and without it.
    """
    known = here.sweep()
    return Answer({"watermark": known}, lambda: click.echo(f"✓ swept up to event {known.position:,}"))


# ── why ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@command(reading=True)
@asset_argument
@partition_argument
@as_of_option
def why(here: Services, asset: str, partition_key: str, as_of: str | None) -> Answer:
    """Explain a partition: why it is stale, missing or failed, from what it was made, and why it did not run."""
    when = past(as_of)
    explained = here.ask(Explain(asset=asset, partition=partition_key), as_of=when)
    assert isinstance(explained, PartitionWhy)
    hint = None if as_of else explained.hint
    return Answer(explained, lambda: show_why(partition_proof(explained, here.labels(when)), hint))


# ── mark ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@command()
@asset_argument
@click.argument("partitions", nargs=-1, metavar="PARTITION…")
@click.option("--as", "mark", required=True, type=click.Choice(get_args(Mark)), help="What.")
@reasoned(required=True)
def mark(here: Services, asset: str, partitions: tuple[str, ...], mark: Mark, reason: str) -> Answer:
    """State something about partitions: made elsewhere (materialized), left alone (frozen), or that no more (thawed).

    Nothing is computed. What is frozen is never stale, and is left out of what should run.
    """
    done = here.do(MarkPartitions(asset=asset, partitions=partitions, mark=mark, reason=reason))
    which = f": {done.described}" if done.described else ""
    words = f"✓ marked {counted(len(done.partitions), 'partition')} of {done.asset_key} as {mark}{which}"
    return Answer(without_duplicate(done), lambda: click.echo(words))


# ── tables and pictures ──────────────────────────────────────────────────────────────────────────────────────────


def _show_page(page: Listed[PartitionView], *, several: bool) -> None:
    """A page of partitions; with the asset of each where they are of several."""
    names = [*(["asset"] if several else []), "partition", "status", "made", "stale since", "why", "run"]
    footer = f"{len(page.items):,} of {counted(page.more['total'], 'partition')}"
    footer += f"; go on with --cursor {page.next_cursor}" if page.next_cursor else ""
    coloured_table(names, [_row(one, several=several) for one in page.items], footer)
    if page.next_cursor and not sys.stdout.isatty():
        click.echo(f"servo: note: {footer}", err=True)  # a pipe has no footer, and must not pass for the whole


def _row(view: PartitionView, *, several: bool) -> list[Cell]:
    run = view.last_attempt_run_id or view.last_materialization_run_id or ""
    cells: list[Cell] = [
        view.partition or "(the only one)",
        _status(view),
        _when(view.last_materialization_at),
        _when(view.stale_since),
        Span(", ".join(code for code, _ in view.stale_reasons), "yellow"),
        Span(run if not sys.stdout.isatty() else run[:16], DIM),
    ]
    return [view.asset_key, *cells] if several else cells


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


def _summary(here: Services, when: datetime | str | None, *, as_json: bool) -> Answer:
    if as_json:
        documents = plain_struct(here.ask(Summarize(), as_of=when))["assets"]
        document = {"assets": [{name: one[name] for name in one if name != "strip"} for one in documents]}
        return Answer(document, lambda: None)
    size = _STRIP if columns() < 100 else 2 * _STRIP
    return Answer(None, lambda: _show_summary(here.ask(Summarize(cells=size), as_of=when).assets))


def _show_summary(assets: Sequence[AssetStrip]) -> None:
    rows: list[list[Cell]] = []
    seen: set[str] = set()
    for summary in assets:
        cells = summary.strip
        seen |= {kind for cell in cells for kind in cell}
        numbers = (
            (summary.statuses["MATERIALIZED"], "green"),
            (summary.statuses["STALE"], "yellow"),
            (summary.attempt_failed, "red"),
            (summary.missing, None),
            (sum(count for overlay, count in summary.overlays.items() if overlay != "frozen"), "cyan"),
        )
        counts = [Span(f"{count:,}", colour) if count else Span("–", DIM) for count, colour in numbers]
        rows.append([summary.asset_key, strip(cells), f"{summary.total:,}", *counts])
    names = ["asset", "oldest … newest", "total", "ok", "stale", "failed", "missing", "busy"]
    coloured_table(names, rows, counted(len(rows), "asset"))
    if sys.stdout.isatty() and seen:
        draw(wrapped(legend([kind for kind in reversed(KINDS) if kind in seen and kind in MARKS]), columns()))


def _show_asset(summary: AssetGrid) -> None:
    head: Line = [Span(summary.asset_key, bold=True), Span(f"  {counted(summary.total, 'partition')}", DIM)]
    grid = summary.grid
    if grid.unit:
        head.append(Span(f", a cell is a {grid.unit}" if grid.folded else "", DIM))
    draw([head, *heatmap(grid, columns())])
    if summary.undefined:
        note(f"{summary.undefined:,} more that the definition does not have any more: --status undefined lists them")
    if summary.missing or summary.statuses["STALE"]:
        note(f"servo plan --stale {summary.asset_key}; servo asset why {summary.asset_key}")


def _one_partition(view: PartitionView) -> Answer:
    return Answer(view, lambda: _show_partition(view))


def _show_partition(view: PartitionView) -> None:
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
    note(f"servo partition why {name}")


def _show_stale(found: Sequence[OutdatedPartition], total: int, assets: dict[str, int], *, transitive: bool) -> None:
    """Show a row for each stale partition; with where that began, where all that follows is asked for."""
    rows: list[list[Cell]] = []
    for one in found:
        codes = ", ".join(code for code, _ in one.reasons)
        root = " ".join(filter(None, [one.root_asset_key, one.root_partition, one.root_reason_code]))
        began = [Span(root, DIM)] if transitive else []
        rows.append([one.asset_key, one.partition, _when(one.stale_since), Span(codes, "yellow"), *began])
    more = total - len(rows)
    footer = f"{counted(total, 'partition')} of {counted(len(assets), 'asset')}"
    names = ["asset", "partition", "stale since", "why", *(["began with"] if transitive else [])]
    coloured_table(names, rows, footer + (f"; {more:,} more, see --limit" if more else ""))


def _show_history(rows: Sequence[Materialization], asset: str, partition_key: str) -> None:
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

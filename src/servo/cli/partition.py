"""The status of partitions, why it is so, their history, and the values of dynamic dimensions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from servo.answers.partitions import PartitionWhy
from servo.cli.opening import services
from servo.cli.options import (
    as_of_option,
    asset_argument,
    complete_assets,
    json_option,
    partition_argument,
    past,
    reasoned,
)
from servo.cli.output import columns, draw, echo_json, note, without_duplicate
from servo.cli.partition_tables import show_all, show_asset, show_history, show_page, show_partition, show_stale
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
)
from servo.ui.marks import counted, drawn
from servo.ui.proof import partition_proof

if TYPE_CHECKING:
    from servo.cli.services import Services


@click.command()
@asset_argument
@partition_argument
@json_option
def history(asset: str, partition_key: str, as_json: bool) -> None:
    """List the materializations of a partition, newest first: which is current (→), what made each of them.

    An asset without partitions has one, which needs no name.
    """
    with services(as_json=as_json) as here:
        rows = here.listed(ListMaterializations(asset=asset, partition=partition_key)).items
    if as_json:
        echo_json({"materializations": rows})
        return
    show_history(rows, asset, partition_key)


@click.command()
@asset_argument
@click.argument("partitions", nargs=-1, metavar="PARTITION…")
@click.option("--to", metavar="ID|TIME", help="A materialization, or what was current then; by default the one before.")
@reasoned(required=True)
@json_option
def rollback(asset: str, partitions: tuple[str, ...], to: str | None, reason: str, as_json: bool) -> None:
    """Make earlier materializations current again. Nothing is copied or removed, and it can be undone likewise."""
    with services(as_json=as_json) as here:
        done = here.do(RollBack(asset=asset, partitions=partitions, to=to, reason=reason))
        if as_json:
            echo_json(done)
            return
        if not done.partitions:
            click.echo(f"nothing was rolled back: that is what is current of {done.asset}")
            return
        label = here.label
        for one in done.partitions:
            note(f"  {label(done.asset, one.partition_key)} → {one.materialization_id}")
    click.echo(f"✓ rolled back {counted(len(done.partitions), 'partition')} of {done.asset}")


@click.command()
@click.argument("dimension")
@click.argument("values", nargs=-1, required=True, metavar="VALUE…")
@json_option
def add(dimension: str, values: tuple[str, ...], as_json: bool) -> None:
    """Add values to a dynamic dimension: each is a partition from now on, of every asset that has the dimension."""
    _changed(dimension, added=values, as_json=as_json)


@click.command()
@click.argument("dimension")
@click.argument("values", nargs=-1, required=True, metavar="VALUE…")
@json_option
def remove(dimension: str, values: tuple[str, ...], as_json: bool) -> None:
    """Take values away from a dynamic dimension. What was computed for them stays."""
    _changed(dimension, removed=values, as_json=as_json)


def _changed(dimension: str, *, added: tuple[str, ...] = (), removed: tuple[str, ...] = (), as_json: bool) -> None:
    with services(as_json=as_json, create=True) as here:
        changed = here.do(ChangeValues(dimension=dimension, added=added, removed=removed))
    if as_json:
        echo_json(without_duplicate(changed))
        return
    done = "added to" if added else "removed from"
    click.echo(f"✓ {counted(len(added or removed), 'value')} {done} {dimension}")


def _time(text: str | None, option: str) -> str | None:
    if text is None:
        return None
    found = past(text)
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
    with services(as_json=as_json, reading=True) as here:
        request = ListPartitions(
            status=statuses, partitions=partitions, since=_time(since, "--since"), until=_time(until, "--until")
        )
        of_asset = None if asset is None else ListPartitionsOf(asset=asset, **msgspec.structs.asdict(request))
        page = here.listed(of_asset or request, limit=limit, cursor=cursor, as_of=past(as_of))
    total = page.more["total"]
    if as_json:
        shown = page.items
        echo_json({"partitions": shown, "total": total, "cursor": page.next_cursor})
        return
    show_page(page, several=asset is None)


# ── status ───────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("asset", required=False, shell_complete=complete_assets)
@click.argument("partition_key", metavar="[PARTITION]", required=False)
@as_of_option
@json_option
def status(asset: str | None, partition_key: str | None, as_of: str | None, as_json: bool) -> None:
    """Show what partitions are: of all assets, counted; of one, as a picture; of one partition, everything."""
    with services(as_json=as_json, reading=True) as here:
        when = past(as_of)
        if asset is None:
            show_all(here, when, as_json=as_json)
        elif partition_key is None and not _is_whole(here, asset, when):
            show_asset(here.ask(GetGrid(asset=asset), as_of=when), as_json=as_json)
        elif partition_key:
            found = here.ask(GetPartition(asset=asset, partition=partition_key), as_of=when)
            show_partition(found, as_json=as_json)
        else:  # the only one, of an asset without partitions, has no name to write in a path
            why = here.ask(Explain(asset=asset, partition=""), as_of=when)
            assert isinstance(why, PartitionWhy)
            show_partition(why.partition, as_json=as_json)


def _is_whole(here: Services, asset: str, when: datetime | str | None) -> bool:
    """Whether the asset has just the one partition, so that there is no picture to be made of it."""
    return not here.definition(asset, as_of=when).dimensions


# ── stale ────────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@click.argument("selection", nargs=-1, shell_complete=complete_assets)
@click.option("--transitive", is_flag=True, help="Also what is stale by nothing but an upstream, with where it began.")
@click.option("--limit", type=click.IntRange(1), default=200, show_default=True, help="How many at most.")
@as_of_option
@json_option
def stale(selection: tuple[str, ...], transitive: bool, limit: int, as_of: str | None, as_json: bool) -> None:
    """List the partitions that are stale, since when, and why: of a selection, or of all assets."""
    with services(as_json=as_json, reading=True) as here:
        found = here.listed(ListStale(select=selection, transitive=transitive), limit=limit, as_of=past(as_of))
    total, assets = found.more["total"], found.more["assets"]
    if as_json:
        echo_json({"partitions": found.items, "total": total, "assets": assets})
        return
    show_stale(found.items, total, assets, transitive=transitive)


@click.command()
@json_option
def sweep(as_json: bool) -> None:
    """Keep what is stale in a file beside the projections, so that the next answers look only at what is new.

    The answers are the same with and without it.
    """
    with services(as_json=as_json) as here:
        known = here.sweep()
    if as_json:
        echo_json({"watermark": known})
    else:
        click.echo(f"✓ swept up to event {known.position:,}")


# ── why ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@asset_argument
@partition_argument
@as_of_option
@json_option
def why(asset: str, partition_key: str, as_of: str | None, as_json: bool) -> None:
    """Explain a partition: why it is stale, missing or failed, from what it was made, and why it did not run."""
    with services(as_json=as_json, reading=True) as here:
        when = past(as_of)
        found = here.ask(Explain(asset=asset, partition=partition_key), as_of=when)
        assert isinstance(found, PartitionWhy)
        if as_json:
            echo_json(found)
            return
        draw(drawn(partition_proof(found, here.labels(when)), columns()))
    if found.hint and as_of is None:
        note(found.hint)


# ── mark ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command()
@asset_argument
@click.argument("partitions", nargs=-1, metavar="PARTITION…")
@click.option("--as", "as_what", required=True, type=click.Choice(get_args(Mark)), help="What.")
@reasoned(required=True)
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

"""Verify, replay, compact, archive and export the ledger."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import click

from servo.answers.values import moment
from servo.cli.opening import service
from servo.cli.options import json_option, past
from servo.cli.output import echo_json, note, plain_struct, progress, table

if TYPE_CHECKING:
    from servo.projections import Watermark


_GENTLY = 10  # of 19


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Show where the ledger ends, and how much of it is archived and projected."""
    with service(as_json=as_json) as servo:
        found = servo.status()
    if as_json:
        echo_json(found)
        return
    head = found.head
    newest = "" if head.occurred_at is None else f", the newest {head.event_id} of {moment(head.occurred_at)}"
    click.echo(f"ledger: {head.position} events, {found.live_events} of them live{newest}")
    click.echo(
        f"archive: {found.archived_events} events in {found.archive_segments} files ({found.archive_bytes:,} bytes)"
    )
    if found.projection_problem:
        click.echo(f"projections: damaged: {found.projection_problem} (run `servo ledger replay`)")
    else:
        click.echo(f"projections: version {found.projection_version}, {found.projection_lag} events behind")


@click.command()
@json_option
@click.pass_context
def verify(ctx: click.Context, as_json: bool) -> None:
    """Prove that nothing was changed, removed or inserted; exits with 1 if something was."""
    with service(as_json=as_json) as servo, progress("verifying") as report:
        found = servo.verify(report)
    if as_json:
        echo_json({"ok": not found.problems} | plain_struct(found))
    elif found.problems:
        for problem in found.problems:
            click.echo(f"✗ position {problem.position}: {problem.kind}: {problem.detail}")
    else:
        click.echo(f"✓ {found.events} events are as they were recorded (chain hash {found.head.chain_hash})")
    if found.not_compared and not as_json:
        note(f"not compared with the projections: {found.not_compared}")
    if found.problems and not as_json:
        count = len(found.problems)
        click.echo(f"servo: the ledger is not what was recorded: {count} problem{'s'[: count > 1]}", err=True)
    ctx.exit(1 if found.problems else 0)


@click.command()
@json_option
@click.option("--check/--no-check", default=True, show_default=True, help="Compare with what was there, row for row.")
@click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    default="local",
    show_default=True,
    help="Who does the work: this process, or Spark for what outgrows it.",
)
@click.pass_context
def replay(ctx: click.Context, check: bool, engine: Literal["local", "spark"], as_json: bool) -> None:
    """Rebuild every projection from the ledger.

    The result is published either way; exits with 1 if it differs from what was there.
    """
    with service(as_json=as_json) as servo, progress("replaying") as report:
        found = servo.replay(check=check, engine=engine, progress=report)
    if as_json:
        echo_json(
            {
                "equal": found.is_equal,
                "not_compared": found.not_compared,
                "version": found.version,
                "watermark": found.watermark,
                "tables": found.tables,
            }
        )
        ctx.exit(1 if found.is_equal is False else 0)
    _rebuilt(found.version, found.watermark)
    if found.is_equal is None:
        if check:
            note(f"not compared: {found.not_compared}")
        return
    if found.is_equal:
        rows = sum(one.rows for one in found.tables)
        click.echo(f"✓ equal to what was there, row for row: {rows:,} rows in {len(found.tables)} tables")
        return
    different = [one for one in found.tables if not one.is_equal]
    rows_of = [(one.table, one.rows, one.only_before, one.only_after) for one in different]
    table(["table", "rows", "only before", "only after"], rows_of)
    click.echo("servo: what was there differed from what the ledger says; it is mended now", err=True)
    ctx.exit(1)


@click.command()
@click.option("--gently", is_flag=True, help="Leave the processor to whoever else needs it.")
@json_option
def compact(gently: bool, as_json: bool) -> None:
    """Fold what is new into the projections, and remove files that nobody needs any more."""
    if gently:
        os.nice(_GENTLY)
    with service(as_json=as_json) as servo, progress("compacting") as report:
        found = servo.compact(report)
    if as_json:
        echo_json(found)
        return
    click.echo(f"✓ folded {found.events} events; removed {found.removed_files} files")
    _rebuilt(found.version, found.watermark)


@click.command()
@json_option
@click.option("--keep-days", type=click.FloatRange(min=0), metavar="N", help="Keep the last N days in the ledger.")
@click.option("--before", metavar="TIME", help="Move what was recorded before this time.")
def archive(keep_days: float | None, before: str | None, as_json: bool) -> None:
    """Move old events to Parquet files. Queries, replays and proofs go on as before."""
    if (keep_days is None) == (before is None):
        raise click.UsageError("Give either --keep-days or --before.")
    moment_before = past(before)
    if moment_before is not None and not isinstance(moment_before, datetime):
        raise click.UsageError("--before takes a time, not an event id.")
    with service(as_json=as_json) as servo, progress("archiving") as report:
        found = servo.archive(before=moment_before, keep_days=keep_days, progress=report)
    if as_json:
        echo_json(found)
    elif found.count:
        click.echo(f"✓ moved events {found.first}–{found.last} to the archive ({found.bytes:,} bytes)")
    else:
        click.echo("✓ nothing is that old")


@click.command()
@json_option
@click.option("--after", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="A position.")
@click.option("--until", type=click.IntRange(min=0), metavar="N", help="A position; it is included.")
def export(after: int, until: int | None, as_json: bool) -> None:
    """Write events to stdout as JSON lines, from which anybody can recompute the chain.

    The lines are JSON with and without --json, which only changes how errors are told.
    """
    with service(as_json=as_json) as servo:
        servo.export(sys.stdout.buffer, after=after, until=until)


def _rebuilt(version: int, mark: Watermark) -> None:
    at = "" if mark.occurred_at is None else f", as of {moment(mark.occurred_at)}"
    note(f"projections: version {version}, position {mark.position}{at}")

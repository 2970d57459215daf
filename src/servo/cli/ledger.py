"""Verify, replay, compact, archive and export the ledger."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import click

from servo.answers.values import moment
from servo.cli.opening import service
from servo.cli.options import Answer, command, json_option, past
from servo.cli.output import note, plain_struct, progress, table

if TYPE_CHECKING:
    from servo.projections import Watermark
    from servo.runtime.maintenance import Maintenance


_GENTLY = 10  # of 19


@command(opening=service)
def status(servo: Maintenance) -> Answer:
    """Show where the ledger ends, and how much of it is archived and projected."""
    found = servo.status()

    def show() -> None:
        head = found.head
        newest = "" if head.occurred_at is None else f", the newest {head.event_id} of {moment(head.occurred_at)}"
        click.echo(f"ledger: {head.position} events, {found.live_events} of them live{newest}")
        files = f"{found.archive_segments} files ({found.archive_bytes:,} bytes)"
        click.echo(f"archive: {found.archived_events} events in {files}")
        if found.projection_problem:
            click.echo(f"projections: damaged: {found.projection_problem} (run `servo ledger replay`)")
        else:
            click.echo(f"projections: version {found.projection_version}, {found.projection_lag} events behind")

    return Answer(found, show)


@command(opening=service)
def verify(servo: Maintenance) -> Answer:
    """Prove that nothing was changed, removed or inserted; exits with 1 if something was."""
    with progress("verifying") as report:
        found = servo.verify(report)

    def show() -> None:
        for problem in found.problems:
            click.echo(f"✗ position {problem.position}: {problem.kind}: {problem.detail}")
        if not found.problems:
            click.echo(f"✓ {found.events} events are as they were recorded (chain hash {found.head.chain_hash})")
        if found.not_compared:
            note(f"not compared with the projections: {found.not_compared}")
        if found.problems:
            count = len(found.problems)
            click.echo(f"servo: the ledger is not what was recorded: {count} problem{'s'[: count > 1]}", err=True)

    return Answer({"ok": not found.problems} | plain_struct(found), show, 1 if found.problems else 0)


@command(opening=service)
@json_option
@click.option("--check/--no-check", default=True, show_default=True, help="Compare with what was there, row for row.")
@click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    default="local",
    show_default=True,
    help="Who does the work: this process, or Spark for what outgrows it.",
)
def replay(servo: Maintenance, check: bool, engine: Literal["local", "spark"]) -> Answer:
    """Rebuild every projection from the ledger.

    The result is published either way; exits with 1 if it differs from what was there.
    """
    with progress("replaying") as report:
        found = servo.replay(check=check, engine=engine, progress=report)
    document = {
        "equal": found.is_equal,
        "not_compared": found.not_compared,
        "version": found.version,
        "watermark": found.watermark,
        "tables": found.tables,
    }

    def show() -> None:
        _note_version(found.version, found.watermark)
        if found.is_equal is None:
            if check:
                note(f"not compared: {found.not_compared}")
        elif found.is_equal:
            rows = sum(one.rows for one in found.tables)
            click.echo(f"✓ equal to what was there, row for row: {rows:,} rows in {len(found.tables)} tables")
        else:
            different = [one for one in found.tables if not one.is_equal]
            counts = [(one.table, one.rows, one.only_before, one.only_after) for one in different]
            table(["table", "rows", "only before", "only after"], counts)
            click.echo("servo: what was there differed from what the ledger says; it is mended now", err=True)

    return Answer(document, show, 1 if found.is_equal is False else 0)


@command(opening=service)
@click.option("--gently", is_flag=True, help="Leave the processor to whoever else needs it.")
def compact(servo: Maintenance, gently: bool) -> Answer:
    """Fold what is new into the projections, and remove files that nobody needs any more."""
    if gently:
        os.nice(_GENTLY)
    with progress("compacting") as report:
        found = servo.compact(report)

    def show() -> None:
        click.echo(f"✓ folded {found.events} events; removed {found.removed_files} files")
        _note_version(found.version, found.watermark)

    return Answer(found, show)


@command(opening=service)
@json_option
@click.option("--keep-days", type=click.FloatRange(min=0), metavar="N", help="Keep the last N days in the ledger.")
@click.option("--before", metavar="TIME", help="Move what was recorded before this time.")
def archive(servo: Maintenance, keep_days: float | None, before: str | None) -> Answer:
    """Move old events to Parquet files. Queries, replays and proofs go on as before."""
    if (keep_days is None) == (before is None):
        raise click.UsageError("Give either --keep-days or --before.")
    moment_before = past(before)
    if moment_before is not None and not isinstance(moment_before, datetime):
        raise click.UsageError("--before takes a time, not an event id.")
    with progress("archiving") as report:
        found = servo.archive(before=moment_before, keep_days=keep_days, progress=report)
    words = "✓ nothing is that old"
    if found.count:
        words = f"✓ moved events {found.first}–{found.last} to the archive ({found.bytes:,} bytes)"
    return Answer(found, lambda: click.echo(words))


@command(opening=service)
@json_option
@click.option("--after", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="A position.")
@click.option("--until", type=click.IntRange(min=0), metavar="N", help="A position; it is included.")
def export(servo: Maintenance, after: int, until: int | None) -> int:
    """Write events to stdout as JSON lines, from which anybody can recompute the chain.

    The lines are JSON with and without --json, which only changes how errors are told.
    """
    servo.export(sys.stdout.buffer, after=after, until=until)
    return 0


def _note_version(version: int, mark: Watermark) -> None:
    at = "" if mark.occurred_at is None else f", as of {moment(mark.occurred_at)}"
    note(f"projections: version {version}, position {mark.position}{at}")

"""`servo partition …`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from servo.cli.completing import complete_assets
from servo.cli.opening import services
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, plain_struct, table, without_duplicate
from servo.cli.partition_status import list_partitions, mark, stale, status, sweep, why
from servo.cli.states import counted
from servo.cli.values import moment
from servo.operations.partitions.requests import ChangeValues

if TYPE_CHECKING:
    from servo.answers.materializations import Materialization


@click.group()
def partition() -> None:
    """The status of partitions, why it is so, their history, and the values of dynamic dimensions."""


for command in (list_partitions, status, stale, why, mark, sweep):
    partition.add_command(command)


@partition.command()
@click.argument("asset", shell_complete=complete_assets)
@click.argument("partition_key", metavar="[PARTITION]", default="")
@json_option
def history(asset: str, partition_key: str, as_json: bool) -> None:
    """List the materializations of a partition, newest first: which is current (→), what made each of them.

    An asset without partitions has one, which needs no name.
    """
    from servo.operations.materializations.requests import ListMaterializations

    with services(as_json=as_json) as here:
        rows = here.listed(ListMaterializations(asset=asset, partition=partition_key)).items
    if as_json:
        echo_json({"materializations": [plain_struct(row) for row in rows]})
        return
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


@partition.command()
@click.argument("asset", shell_complete=complete_assets)
@click.argument("partitions", nargs=-1, metavar="PARTITION…")
@click.option("--to", metavar="ID|TIME", help="A materialization, or what was current then; by default the one before.")
@click.option("--reason", required=True, metavar="WHY", help="Is recorded with it.")
@json_option
def rollback(asset: str, partitions: tuple[str, ...], to: str | None, reason: str, as_json: bool) -> None:
    """Make earlier materializations current again. Nothing is copied or removed, and it can be undone likewise."""
    from servo.operations.materializations.requests import RollBack

    with services(as_json=as_json) as here:
        done = here.do(RollBack(asset=asset, partitions=partitions, to=to, reason=reason))
        if as_json:
            echo_json(plain_struct(done))
            return
        if not done.partitions:
            click.echo(f"nothing was rolled back: that is what is current of {done.asset}")
            return
        label = here.label
        for one in done.partitions:
            note(f"  {label(done.asset, one.partition_key)} → {one.materialization_id}")
    click.echo(f"✓ rolled back {counted(len(done.partitions), 'partition')} of {done.asset}")


@partition.command()
@click.argument("dimension")
@click.argument("values", nargs=-1, required=True, metavar="VALUE…")
@json_option
def add(dimension: str, values: tuple[str, ...], as_json: bool) -> None:
    """Add values to a dynamic dimension: each is a partition from now on, of every asset that has the dimension."""
    _changed(dimension, added=values, as_json=as_json)


@partition.command()
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

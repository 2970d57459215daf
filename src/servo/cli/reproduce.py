"""`servo reproduce`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import click

from servo.answers.values import text
from servo.cli.opening import project
from servo.cli.options import asset_argument, json_option, partition_argument
from servo.cli.output import echo_json, note
from servo.execution.protocol import RowsApart
from servo.lineage.report import key_text
from servo.runtime.reproducing import Reproduction
from servo.runtime.reproducing import reproduce as compute
from servo.ui.marks import counted


@click.command()
@asset_argument
@partition_argument
@click.option("--materialization", metavar="ID", help="An earlier version; by default the current one.")
@click.option("--any-code", is_flag=True, help="Also with other code than that which made it.")
@json_option
@click.pass_context
def reproduce(
    ctx: click.Context, *, asset: str, partition_key: str, materialization: str | None, any_code: bool, as_json: bool
) -> None:
    """Compute a partition again from exactly the inputs that were recorded, and compare. Nothing of it is kept.

    Exits with 0 if the content is the same, and with 1 if not, with what differs.
    """
    # What the function prints is not the answer.
    with project(as_json=as_json) as opened, redirect_stdout(sys.stderr):
        found = compute(opened, asset, partition_key, materialization_id=materialization, any_code=any_code)
    if as_json:
        echo_json(found)
    else:
        _tell_compared(found)
    ctx.exit(0 if found.reproducible else 1)


def _tell_compared(found: Reproduction) -> None:
    name = f"{found.asset} {key_text(found.partition)}".strip()
    if found.reproducible:
        click.secho(f"✓ {name} is reproducible: {counted(found.rows or 0, 'row')}, the same content", fg="green")
    else:
        click.secho(f"✗ {name} is not reproducible", fg="red")
    if found.code_version != found.local_code_version:
        note(f"  made by code version {found.code_version}, and here is {found.local_code_version}")
    note(f"  {found.materialization} of {found.run}, from {counted(found.inputs, 'input')}")
    if found.reproducible:
        return
    if found.failure is not None:
        click.echo(f"  its function fails now: {text(found.failure)}")
        return
    click.echo(f"  content  {(found.content_hash or '–')[:16]} then, {(found.reproduced_content_hash or '–')[:16]} now")
    click.echo(f"  rows     {found.rows} then, {found.reproduced_rows} now")
    for what, names in (
        ("columns gone", found.columns_gone),
        ("columns new", found.columns_new),
        ("columns changed", found.columns_changed),
    ):
        if names:
            click.echo(f"  {what}: {', '.join(map(text, names))}")
    _tell_rows("only then", found.only_then)
    _tell_rows("only now", found.only_now)
    if found.not_compared is not None:
        note(f"  rows were not compared: {text(found.not_compared)}")


def _tell_rows(when: str, apart: RowsApart | None) -> None:
    if apart is None or not apart.count:
        return
    click.echo(f"  {counted(apart.count, 'row')} {when}" + (", such as" if apart.examples else ""))
    for row in apart.examples:
        note(
            "    "
            + ", ".join(f"{text(name)}={'null' if value is None else text(value)}" for name, value in row.items())
        )

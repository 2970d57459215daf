"""`servo vacuum`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from servo.cli.opening import data
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, plain_struct
from servo.cli.states import counted

if TYPE_CHECKING:
    from servo.execution.vacuum import Removed

_MOST_SHOWN = 20


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@json_option
def vacuum(dry_run: bool, as_json: bool) -> None:
    """Remove data files that no event points to, and those that retention lets go.

    Left-overs of crashed attempts go once they are older than `retention.grace_hours`. What is current always stays.
    """
    with data(as_json=as_json, local=True) as found:
        removed = found.vacuum(dry_run=dry_run)
    size = sum(one.bytes for one in removed)
    if as_json:
        echo_json({"dry_run": dry_run, "removed": [_document(one) for one in removed], "bytes": size})
        return
    if not removed:
        click.echo("✓ there is nothing to remove")
        return
    for one in removed[:_MOST_SHOWN]:
        note(f"  {one.found.asset_id}  {one.found.partition_id or 'staging'}  {one.found.name}: {one.reason}")
    if len(removed) > _MOST_SHOWN:
        note(f"  and {len(removed) - _MOST_SHOWN:,} more; see --json")
    verb = "would remove" if dry_run else "removed"
    click.echo(f"✓ {verb} {counted(len(removed), 'folder')} ({size:,} bytes)")


def _document(one: Removed) -> dict[str, Any]:
    found: dict[str, Any] = plain_struct(one.found)
    return found | {"bytes": one.bytes, "reason": one.reason}

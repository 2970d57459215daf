"""What should run now: `servo plan --stale` shows it, `servo materialize --stale` runs the very same."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from servo.cli.opening import project
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, table
from servo.cli.states import counted

if TYPE_CHECKING:
    from servo.planning.catalog import Catalog
    from servo.planning.due import Due
    from servo.planning.explain import PlanRow
    from servo.planning.stages import Plan
    from servo.runtime.runs import Requested, Runs
    from servo.runtime.wiring import Project

_NOTHING = "nothing is stale or missing"
_MOST_DRAWN = 40


def plan_stale(selection: Sequence[str], partitions: str | None, *, as_json: bool) -> None:
    """Show what should run now, of a selection: in which order, and why each group of partitions."""
    from servo.planning.explain import explain
    from servo.planning.stages import require_inputs
    from servo.runtime.due import plan_what_is_due

    with project(as_json=as_json) as opened:
        due, found = plan_what_is_due(opened, selection, partitions)
    rows = explain(require_inputs(found))
    if as_json:
        from servo.cli.plan import document

        echo_json(document(found, rows) | _told(due))
        return
    _show(due, found, rows)


def _show(due: Due, found: Plan, rows: list[PlanRow]) -> None:
    if due.groups:
        stages = {row.asset: row.stage for row in reversed(rows)}
        table(
            ["stage", "asset", "partitions", "count", "why"],
            [
                (stages[one.asset_key], one.asset_key, one.partitions.describe(), one.partitions.count, one.sentence())
                for one in due.groups
            ],
            f"{counted(found.partition_count, 'partition')}, {counted(len(rows), 'task')},"
            f" {counted(len(found.stages), 'stage')}; run it with `servo materialize --stale …`",
        )
    else:
        click.echo(f"✓ {_NOTHING}" + (" that could run" if due.held else ""))
    for held in due.held:
        which = f"{held.asset_key} {held.partitions.describe()}".rstrip()
        note(f"not now: {which} {held.why}")
    for warning in found.warnings:
        click.echo(f"servo: warning: {warning}", err=True)
    if sys.stdout.isatty() and 1 < len(rows) <= _MOST_DRAWN:
        from servo.cli.plan import tree

        click.echo()
        tree(rows)


def _told(due: Due) -> dict[str, Any]:
    return {
        "groups": [
            {
                "asset_key": one.asset_key,
                "code": one.code,
                "why": one.sentence(),
                "because_of": list(one.because_of),
                "partitions": one.partitions.to_json(),
                "described": one.partitions.describe(),
                "count": one.partitions.count,
            }
            for one in due.groups
        ],
        "held": [
            {
                "asset_key": one.asset_key,
                "why": one.why,
                "partitions": one.partitions.to_json(),
                "described": one.partitions.describe(),
                "count": one.partitions.count,
            }
            for one in due.held
        ],
    }


def request_stale(
    opened: Project,
    runs: Runs,
    selection: Sequence[str],
    partitions: str | None,
    wishes: dict[str, Any],
    *,
    as_json: bool,
) -> Requested | None:
    """Ask for what should run now; None, and a word about it, where that is nothing: then nothing is written."""
    from servo.runtime.cataloguing import local_catalog
    from servo.runtime.due import what_is_due

    if not what_is_due(opened, local_catalog(opened), selection, partitions).wanted:
        if as_json:
            echo_json({"run_id": None, "assets": {}, "total": 0})
        else:
            click.echo(f"✓ {_NOTHING} that could run")
        return None

    def choose(known: Catalog) -> Any:
        return what_is_due(opened, known, selection, partitions).wanted

    return runs.request_chosen(choose, **wishes)

"""What partitions were made from, and what was made from them; and making that anew.

By default every hop stands on the materialization that is current now. `--as-of` takes those of then, `--exact`
what was really read, and `--run` only what one run made and read. Without a partition, all of the asset are
meant.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from servo.answers.lineage import Rematerialized
from servo.cli.backfill import see_through
from servo.cli.opening import Services
from servo.cli.options import (
    Answer,
    asset_argument,
    command,
    complete_assets,
    json_option,
    once,
    priority_option,
    reasoned,
    waiting,
)
from servo.cli.output import plain_struct
from servo.operations.lineage.requests import (
    GetDownstream,
    GetImpact,
    GetLineageAt,
    GetLineageGraph,
    GetUpstream,
    Invalidate,
    Rematerialize,
)
from servo.ui.marks import counted

if TYPE_CHECKING:
    from servo.answers.lineage import LineageGraph
    from servo.operations.operation import Question

F = TypeVar("F", bound=Callable[..., Any])

_partitions = click.argument("partitions", nargs=-1, metavar="[PARTITION]…")
_depth = click.option("--depth", type=click.IntRange(min=1), metavar="N", help="At most so many hops.")

_FORMATS = ("tree", "json", "dot", "mermaid", "svg")
_SUFFIXES = {".json": "json", ".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid", ".svg": "svg"}


def _walking(function: F, *, asset: bool = True) -> F:
    """Add what a walk is declared by: where it starts, how far it goes, as of when; `asset`: it must be named."""
    for option in (
        click.option("--exact", is_flag=True, help="Follow what was really read, be it current or not."),
        click.option("--as-of", metavar="TIME|EVENT_ID", help="What was current then, hop by hop."),
        click.option("--run", metavar="RUN", help="Only what this run made and read."),
        _depth,
        _partitions,
        click.argument("asset", required=asset, shell_complete=complete_assets),
    ):
        function = option(function)
    return function


@command(reading=True)
@_walking
def upstream(here: Services, **walk: Any) -> Answer:
    """Show what partitions were made from, hop by hop.

    \b
    servo lineage upstream month_report 2025-01
    servo lineage upstream revenue 2025-01-15,eu --depth 1 --json
    """
    return _shown(here, GetUpstream, walk)


@command(reading=True)
@_walking
def downstream(here: Services, **walk: Any) -> Answer:
    """Show what was made from partitions, hop by hop."""
    return _shown(here, GetDownstream, walk)


@command(reading=True)
@_walking
def impact(here: Services, **walk: Any) -> Answer:
    """Show what a change of partitions would reach, and how each of it stands now."""
    return _shown(here, GetImpact, walk, impact=True)


@command(reading=True)
@click.argument("time", metavar="TIME|EVENT_ID")
@asset_argument
@_partitions
@click.option(
    "--direction", type=click.Choice(["upstream", "downstream", "both"]), default="upstream", show_default=True
)
@_depth
def at(here: Services, time: str, **walk: Any) -> Answer:
    """Show the lineage as it was: every hop with what was current then, and the definitions of that day.

    \b
    servo lineage at 2025-02-01T06:00:00Z month_report 2025-01
    """
    return _shown(here, GetLineageAt, {**walk, "as_of": time})


@command(reading=True)
@partial(_walking, asset=False)
@json_option
@click.option(
    "--format", "shape", type=click.Choice(_FORMATS), help="How to draw it; by default as --output ends, or a tree."
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file.")
def graph(here: Services, *, shape: str | None, output: Path | None, as_json: bool, **walk: Any) -> Answer:
    """Draw both directions around partitions: as a tree, JSON, Graphviz, Mermaid or SVG.

    Without an asset it is the whole project: all that there is, and what it was made from.

    \b
    servo lineage graph -o project.svg
    servo lineage graph revenue 2025-01-15,eu -o revenue.svg
    servo lineage graph month_report --format mermaid
    """
    named = _SUFFIXES.get(output.suffix.lower(), "tree") if output else "tree"
    # With a file to draw to, the JSON is about the file.
    chosen = "json" if as_json and output is None else shape or named
    if chosen == "tree" and output is None:
        return _shown(here, GetLineageGraph, walk)
    if chosen == "tree":
        raise click.UsageError(
            f"how to write {output}? Give --format, or a name that ends in .svg, .dot, .mmd or .json"
        )
    as_of = walk.pop("as_of")
    found = _lineage(here, GetLineageGraph, walk, as_of)
    if chosen == "json":
        document = json.dumps(plain_struct(found), ensure_ascii=False, allow_nan=False) + "\n"
    else:
        from servo.cli import lineage_tables  # noqa: PLC0415 (as in `_shown`)

        document = lineage_tables.document(found, here.definitions(as_of=as_of), chosen)
    if output is None:
        return Answer(found, lambda: click.echo(document, nl=False))
    output.write_text(document, encoding="utf-8")
    file = {"output": str(output), "format": chosen, "nodes": len(found.nodes), "edges": len(found.edges)}
    words = f"✓ {output}: {counted(len(found.nodes), 'partition')}, {counted(len(found.edges), 'read')}"
    return Answer(file, lambda: click.echo(words))


@command()
@asset_argument
@_partitions
@reasoned(required=True)
@click.option("--self", "itself", is_flag=True, help="Also the partitions themselves.")
@once("invalidation, not a second one")
def invalidate(here: Services, request_id: str | None, **fields: Any) -> Answer:
    """Declare stale whatever was made from these partitions, at any distance. The data stays as it is.

    \b
    servo lineage invalidate raw_orders 2025-01-15 --reason "the source was corrected"
    """
    done = here.do(Invalidate(**fields), key=request_id)

    def show() -> None:
        from servo.cli.lineage_tables import show_invalidated  # noqa: PLC0415 (as in `_shown`)

        show_invalidated(here, done)

    return Answer(done, show)


@command()
@asset_argument
@_partitions
@click.option("--self", "itself", is_flag=True, help="Also the partitions themselves, where they are stale.")
@priority_option
@once("backfill, not another")
@waiting("it", default=True)
def rematerialize(here: Services, *, request_id: str | None, wait: bool, as_json: bool, **fields: Any) -> Answer:
    """Compute anew whatever is stale of what was made from these partitions: in order, as a backfill.

    Where no worker is running, one is started here. Ctrl-C takes leave, and the backfill stays. Exits with 1 unless all
    was made, or waits for an approval.

    \b
    servo lineage rematerialize raw_orders 2025-01-15
    """
    made = here.do(Rematerialize(**fields), key=request_id, wait=wait).backfill
    if made is not None:
        return see_through(here, made, "is created", wait=wait, as_json=as_json)
    words = "✓ nothing to do: nothing that was made from it is stale"
    return Answer(plain_struct(Rematerialized()) | {"status": None}, lambda: click.echo(words))


# ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _lineage(
    here: Services, kind: type[Question[LineageGraph]], walk: dict[str, Any], as_of: str | None
) -> LineageGraph:
    return here.ask(kind(partition=walk.pop("partitions"), **walk), as_of=as_of)


def _shown(here: Services, kind: type[Question[LineageGraph]], walk: dict[str, Any], *, impact: bool = False) -> Answer:
    as_of = walk.pop("as_of")
    lineage = _lineage(here, kind, walk, as_of)

    def show() -> None:
        from servo.cli import lineage_tables  # noqa: PLC0415 (Rich, calendars and zones come with it)

        lineage_tables.show(lineage, here.definitions(as_of=as_of))
        if impact:
            lineage_tables.show_impact(lineage)

    return Answer(lineage, show)

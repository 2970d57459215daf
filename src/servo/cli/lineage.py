"""What partitions were made from, and what was made from them; and making that anew.

By default every hop stands on the materialization that is current now. `--as-of` takes those of then, `--exact`
what was really read, and `--run` only what one run made and read. Without a partition, all of the asset are
meant.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from servo.answers.lineage import Rematerialized
from servo.cli.backfill import see_through
from servo.cli.opening import services
from servo.cli.options import asset_argument, complete_assets, json_option, once, priority_option, reasoned, waiting
from servo.cli.output import echo_json, plain_struct
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
    from servo.cli.lineage_tables import DrawnLineage
    from servo.operations.operation import Question

F = TypeVar("F", bound=Callable[..., Any])

_partitions = click.argument("partitions", nargs=-1, metavar="[PARTITION]…")
_depth = click.option("--depth", type=click.IntRange(min=1), metavar="N", help="At most so many hops.")

_FORMATS = ("tree", "json", "dot", "mermaid", "svg")
_SUFFIXES = {".json": "json", ".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid", ".svg": "svg"}


def _asked(command: F, *, asset: bool = True) -> F:
    """Whose lineage, how far, and as of when; `asset`: whether one must be named."""
    for option in (
        json_option,
        click.option("--exact", is_flag=True, help="Follow what was really read, be it current or not."),
        click.option("--as-of", metavar="TIME|EVENT_ID", help="What was current then, hop by hop."),
        click.option("--run", metavar="RUN", help="Only what this run made and read."),
        _depth,
        _partitions,
        click.argument("asset", required=asset, shell_complete=complete_assets),
    ):
        command = option(command)
    return command


def _asked_of_all(command: F) -> F:
    return _asked(command, asset=False)


@click.command()
@_asked
def upstream(as_json: bool, **asked: Any) -> None:
    """Show what partitions were made from, hop by hop.

    \b
    servo lineage upstream month_report 2025-01
    servo lineage upstream revenue 2025-01-15,eu --depth 1 --json
    """
    _show(GetUpstream, asked, as_json=as_json)


@click.command()
@_asked
def downstream(as_json: bool, **asked: Any) -> None:
    """Show what was made from partitions, hop by hop."""
    _show(GetDownstream, asked, as_json=as_json)


@click.command()
@_asked
def impact(as_json: bool, **asked: Any) -> None:
    """Show what a change of partitions would reach, and how each of it stands now."""
    found = _show(GetImpact, asked, as_json=as_json)
    if found is not None and found.found:
        found.show_impact()


@click.command()
@click.argument("time", metavar="TIME|EVENT_ID")
@asset_argument
@_partitions
@click.option(
    "--direction", type=click.Choice(["upstream", "downstream", "both"]), default="upstream", show_default=True
)
@_depth
@json_option
def at(*, time: str, asset: str, partitions: tuple[str, ...], direction: str, depth: int | None, as_json: bool) -> None:
    """Show the lineage as it was: every hop with what was current then, and the definitions of that day.

    \b
    servo lineage at 2025-02-01T06:00:00Z month_report 2025-01
    """
    asked = {"asset": asset, "partitions": partitions, "depth": depth, "as_of": time, "direction": direction}
    _show(GetLineageAt, asked, as_json=as_json)


@click.command()
@_asked_of_all
@click.option(
    "--format", "shape", type=click.Choice(_FORMATS), help="How to draw it; by default as --output ends, or a tree."
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file.")
def graph(shape: str | None, output: Path | None, as_json: bool, **asked: Any) -> None:
    """Draw both directions around partitions: as a tree, JSON, Graphviz, Mermaid or SVG.

    Without an asset it is the whole project: all that there is, and what it was made from.

    \b
    servo lineage graph -o project.svg
    servo lineage graph revenue 2025-01-15,eu -o revenue.svg
    servo lineage graph month_report --format mermaid
    """
    named = _SUFFIXES.get(output.suffix.lower(), "tree") if output else "tree"
    # With a file to draw to, what is said as JSON is about the file.
    chosen = "json" if as_json and output is None else shape or named
    if chosen == "tree" and output is None:
        _show(GetLineageGraph, asked, as_json=False)
        return
    if chosen == "tree":
        raise click.UsageError(
            f"how to write {output}? Give --format, or a name that ends in .svg, .dot, .mmd or .json"
        )
    found, drawn = _look(GetLineageGraph, asked, as_json=as_json, draw=chosen != "json")
    document = _json(found) if drawn is None else drawn.document(chosen)
    if output is None:
        click.echo(document, nl=False)
        return
    output.write_text(document, encoding="utf-8")
    if as_json:
        echo_json({"output": str(output), "format": chosen, "nodes": len(found.nodes), "edges": len(found.edges)})
        return
    click.echo(f"✓ {output}: {counted(len(found.nodes), 'partition')}, {counted(len(found.edges), 'read')}")


@click.command()
@asset_argument
@_partitions
@reasoned(required=True)
@click.option("--self", "itself", is_flag=True, help="Also the partitions themselves.")
@once("invalidation, not a second one")
@json_option
def invalidate(
    *, asset: str, partitions: tuple[str, ...], reason: str, itself: bool, request_id: str | None, as_json: bool
) -> None:
    """Declare stale whatever was made from these partitions, at any distance. The data stays as it is.

    \b
    servo lineage invalidate raw_orders 2025-01-15 --reason "the source was corrected"
    """
    with services(as_json=as_json) as here:
        request = Invalidate(asset=asset, partitions=partitions, reason=reason, itself=itself)
        done = here.do(request, key=request_id)
        if as_json:
            echo_json(done)
            return
        from servo.cli.lineage_tables import show_invalidated  # noqa: PLC0415 (as in `_look`)

        show_invalidated(here, done)


@click.command()
@asset_argument
@_partitions
@click.option("--self", "itself", is_flag=True, help="Also the partitions themselves, where they are stale.")
@priority_option
@once("backfill, not another")
@waiting("it", default=True)
@json_option
@click.pass_context
def rematerialize(
    ctx: click.Context,
    *,
    asset: str,
    partitions: tuple[str, ...],
    itself: bool,
    priority: int,
    request_id: str | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Compute anew whatever is stale of what was made from these partitions: in order, as a backfill.

    Where no worker is running, one is started here. Ctrl-C takes leave, and the backfill stays. Exits with 1 unless all
    was made, or waits for an approval.

    \b
    servo lineage rematerialize raw_orders 2025-01-15
    """
    with services(as_json=as_json) as here:
        request = Rematerialize(asset=asset, partitions=partitions, itself=itself, priority=priority)
        made = here.do(request, key=request_id, wait=wait).backfill
        if made is not None:
            ctx.exit(see_through(here, made, "is created", wait=wait, as_json=as_json))
        if as_json:
            echo_json(plain_struct(Rematerialized()) | {"status": None})
        else:
            click.echo("✓ nothing to do: nothing that was made from it is stale")


# ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _look(
    kind: type[Question[LineageGraph]], asked: dict[str, Any], *, as_json: bool, draw: bool
) -> tuple[LineageGraph, DrawnLineage | None]:
    """The lineage that is asked for, and that which is drawn of it."""
    partitions, as_of = asked.pop("partitions"), asked.pop("as_of")
    with services(as_json=as_json, reading=True) as here:
        found = here.ask(kind(partition=partitions, **asked), as_of=as_of)
        if not draw:
            return found, None
        from servo.cli.lineage_tables import drawn_lineage  # noqa: PLC0415 (Rich, calendars and zones come with it)

        return found, drawn_lineage(found, here.definitions(as_of=as_of))


def _show(kind: type[Question[LineageGraph]], asked: dict[str, Any], *, as_json: bool) -> DrawnLineage | None:
    found, drawn = _look(kind, asked, as_json=as_json, draw=not as_json)
    if drawn is None:
        echo_json(found)
        return None
    drawn.show()
    return drawn


def _json(found: LineageGraph) -> str:
    return json.dumps(plain_struct(found), ensure_ascii=False, allow_nan=False) + "\n"

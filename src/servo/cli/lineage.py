"""`servo lineage …`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from servo.cli.completing import complete_assets
from servo.cli.opening import read_ahead, services
from servo.cli.options import json_option
from servo.cli.output import as_json as echo_json
from servo.cli.output import note, plain_struct, table
from servo.cli.states import counted
from servo.cli.values import text

if TYPE_CHECKING:
    from servo.answers.lineage import Invalidated, LineageGraph
    from servo.cli.drawn_lineage import DrawnLineage
    from servo.cli.services import Services
    from servo.operations.operation import Question

F = TypeVar("F", bound=Callable[..., Any])

_FORMATS = ("tree", "json", "dot", "mermaid", "svg")
_SUFFIXES = {".json": "json", ".dot": "dot", ".gv": "dot", ".mmd": "mermaid", ".mermaid": "mermaid", ".svg": "svg"}


@click.group()
def lineage() -> None:
    """What partitions were made from, and what was made from them; and making that anew.

    By default every hop stands on the materialization that is current now. `--as-of` takes those of then, `--exact`
    what was really read, and `--run` only what one run made and read. Without a partition, all of the asset are meant.
    """


def _asked(command: F, *, asset: bool = True) -> F:
    """Whose lineage, how far, and as of when; `asset`: whether one must be named."""
    for option in (
        json_option,
        click.option("--exact", is_flag=True, help="Follow what was really read, be it current or not."),
        click.option("--as-of", metavar="TIME|EVENT_ID", help="What was current then, hop by hop."),
        click.option("--run", metavar="RUN", help="Only what this run made and read."),
        click.option("--depth", type=click.IntRange(min=1), metavar="N", help="At most so many hops."),
        click.argument("partitions", nargs=-1, metavar="[PARTITION]…"),
        click.argument("asset", required=asset, shell_complete=complete_assets),
    ):
        command = option(command)
    return command


def _asked_of_all(command: F) -> F:
    return _asked(command, asset=False)


@lineage.command()
@_asked
def upstream(as_json: bool, **asked: Any) -> None:
    """Show what partitions were made from, hop by hop.

    \b
    servo lineage upstream month_report 2025-01
    servo lineage upstream revenue 2025-01-15,eu --depth 1 --json
    """
    from servo.operations.lineage.requests import GetUpstream

    _show(GetUpstream, asked, as_json=as_json)


@lineage.command()
@_asked
def downstream(as_json: bool, **asked: Any) -> None:
    """Show what was made from partitions, hop by hop."""
    from servo.operations.lineage.requests import GetDownstream

    _show(GetDownstream, asked, as_json=as_json)


@lineage.command()
@_asked
def impact(as_json: bool, **asked: Any) -> None:
    """Show what a change of partitions would reach, and how each of it stands now."""
    from servo.operations.lineage.requests import GetImpact

    found = _show(GetImpact, asked, as_json=as_json)
    if found is not None and found.found:
        _summary(found)


@lineage.command()
@click.argument("time", metavar="TIME|EVENT_ID")
@click.argument("asset", shell_complete=complete_assets)
@click.argument("partitions", nargs=-1, metavar="[PARTITION]…")
@click.option(
    "--direction", type=click.Choice(["upstream", "downstream", "both"]), default="upstream", show_default=True
)
@click.option("--depth", type=click.IntRange(min=1), metavar="N", help="At most so many hops.")
@json_option
def at(*, time: str, asset: str, partitions: tuple[str, ...], direction: str, depth: int | None, as_json: bool) -> None:
    """Show the lineage as it was: every hop with what was current then, and the definitions of that day.

    \b
    servo lineage at 2025-02-01T06:00:00Z month_report 2025-01
    """
    from servo.operations.lineage.requests import GetLineageAt

    asked = {"asset": asset, "partitions": partitions, "depth": depth, "as_of": time, "direction": direction}
    _show(GetLineageAt, asked, as_json=as_json)


@lineage.command()
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
    from servo.operations.lineage.requests import GetLineageGraph

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
    document = _json(found) if drawn is None else _drawn(drawn, chosen)
    if output is None:
        click.echo(document, nl=False)
        return
    output.write_text(document, encoding="utf-8")
    if as_json:
        echo_json({"output": str(output), "format": chosen, "nodes": len(found.nodes), "edges": len(found.edges)})
        return
    click.echo(f"✓ {output}: {counted(len(found.nodes), 'partition')}, {counted(len(found.edges), 'read')}")


@lineage.command()
@click.argument("asset", shell_complete=complete_assets)
@click.argument("partitions", nargs=-1, metavar="[PARTITION]…")
@click.option("--reason", required=True, metavar="WHY", help="Is recorded with it.")
@click.option("--self", "itself", is_flag=True, help="Also the partitions themselves.")
@click.option("--request-id", metavar="ID", help="The same id again is the same invalidation, not a second one.")
@json_option
def invalidate(
    *, asset: str, partitions: tuple[str, ...], reason: str, itself: bool, request_id: str | None, as_json: bool
) -> None:
    """Declare stale whatever was made from these partitions, at any distance. The data stays as it is.

    \b
    servo lineage invalidate raw_orders 2025-01-15 --reason "the source was corrected"
    """
    from servo.operations.lineage.requests import Invalidate

    with services(as_json=as_json) as here:
        request = Invalidate(asset=asset, partitions=partitions, reason=reason, itself=itself)
        done = here.do(request, key=request_id)
        if as_json:
            echo_json(plain_struct(done))
            return
        _say_invalidated(here, done)


@lineage.command()
@click.argument("asset", shell_complete=complete_assets)
@click.argument("partitions", nargs=-1, metavar="[PARTITION]…")
@click.option("--self", "itself", is_flag=True, help="Also the partitions themselves, where they are stale.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher goes first.")
@click.option("--request-id", metavar="ID", help="The same id again is the same backfill, not another.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until it has ended.")
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
    from servo.answers.lineage import Rematerialized
    from servo.cli.backfill import see_through
    from servo.operations.lineage.requests import Rematerialize

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
    read_ahead()
    partitions, as_of = asked.pop("partitions"), asked.pop("as_of")
    with services(as_json=as_json) as here:
        found = here.ask(kind(partition=partitions, **asked), as_of=as_of)
        if not draw:
            return found, None
        from servo.cli.drawn_lineage import drawn_lineage

        return found, drawn_lineage(found, here.definitions(as_of=as_of))


def _show(kind: type[Question[LineageGraph]], asked: dict[str, Any], *, as_json: bool) -> DrawnLineage | None:
    found, drawn = _look(kind, asked, as_json=as_json, draw=not as_json)
    if drawn is None:
        echo_json(plain_struct(found))
        return None
    from servo.cli.trees import show

    show(drawn)
    return drawn


def _json(found: LineageGraph) -> str:
    import json

    return json.dumps(plain_struct(found), ensure_ascii=False, allow_nan=False) + "\n"


def _drawn(found: DrawnLineage, shape: str) -> str:
    from servo.lineage.dot import dot
    from servo.lineage.graph import picture
    from servo.lineage.mermaid import mermaid
    from servo.lineage.svg import svg
    from servo.runtime.described import describe

    def described(asset: str, keys: Any) -> str:
        return describe(found.definitions, asset, keys)

    title = "the whole project"
    if found.asset_key is not None:
        title = f"{found.asset_key} {described(found.asset_key, [node.partition_key for node in found.start])}".strip()
    if found.run_id is not None:
        title += f" in {found.run_id}"
    if found.as_of is not None:
        title += f" as of {found.as_of}"
    drawn = picture(title, found.nodes, found.edges, described, exact=found.scope == "exact")
    return {"dot": dot, "mermaid": mermaid, "svg": svg}[shape](drawn)


def _summary(found: DrawnLineage) -> None:
    """How much of each asset would be reached, by status."""
    from servo.lineage.graph import said

    counts: dict[str, dict[str, int]] = {}
    for node in found.found:
        own = counts.setdefault(node.asset_key, {})
        own[node.status or ""] = own.get(node.status or "", 0) + 1
    statuses = sorted({status for own in counts.values() for status in own})
    click.echo()
    table(
        ["asset", "reached", *(said(status) for status in statuses)],
        [(asset, sum(own.values()), *(own.get(status, 0) for status in statuses)) for asset, own in counts.items()],
        f"{counted(len(found.found), 'partition')} of {counted(len(counts), 'asset')}",
    )


def _say_invalidated(here: Services, done: Invalidated) -> None:
    from servo.errors import AssetNotFound
    from servo.runtime.described import describe

    asset, sets = done.asset_key, done.invalidated
    if not done.total:
        click.echo(f"✓ nothing to do: nothing was made from {asset}")
        return
    definitions = {}
    for some in sets:
        with suppress(AssetNotFound):  # it is gone: its partitions are told as they stand
            definitions[some.asset_key] = here.definition(some.asset_key, as_of=None)
    rows = [(some.asset_key, some.partition_keys) for some in sets]
    table(["asset", "partitions", "count"], [(key, describe(definitions, key, keys), len(keys)) for key, keys in rows])
    again = " (was declared before)" if done.duplicate else ""
    click.echo(f"✓ {counted(done.total, 'partition')} of {counted(len(sets), 'asset')} declared stale{again}")
    if sys.stdout.isatty():
        keys = done.partition_keys
        typed = f"{asset} {here.label(asset, keys[0])}".strip()
        note(f"make it anew: servo lineage rematerialize {text(typed)}{' …' if len(keys) > 1 else ''}")
        if all(key != asset for key, _ in rows):
            note(f"{asset} itself is as it was; where that is what is wrong, compute it first")

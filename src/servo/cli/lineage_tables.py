"""Lineage on the terminal: a tree of assets, folded where it is wide, coloured by what needs to be looked at."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from servo.answers.lineage import Invalidated, LineageGraph
from servo.answers.values import text
from servo.cli.output import note, table
from servo.errors import AssetNotFound, InvalidPartition, InvalidPartitionKey
from servo.lineage.graph import picture, short_time, status_text, tree
from servo.lineage.graph_formats import dot, mermaid, svg
from servo.lineage.walk import Direction
from servo.partitions import UNPARTITIONED, PartitionKey, Partitions
from servo.ui.marks import counted

if TYPE_CHECKING:
    from servo.cli.opening import Services
    from servo.lineage.graph import Branch


_MARKS = {
    "MATERIALIZED": ("●", "green"),
    "STALE": ("◐", "yellow"),
    "MATERIALIZED_BUT_LAST_ATTEMPT_FAILED": ("✗", "red"),
    "NEVER_MATERIALIZED": ("○", "dim"),
    "SUPERSEDED": ("◌", "magenta"),
}
_URGENT = ("MATERIALIZED_BUT_LAST_ATTEMPT_FAILED", "STALE", "NEVER_MATERIALIZED", "SUPERSEDED", "MATERIALIZED")
_WIDE = 10_000  # columns of a pipe


def show(graph: LineageGraph, definitions: Mapping[str, Partitions]) -> None:
    """Show one tree for a direction, two for both. `definitions`: of the assets by their keys, but of those gone."""
    at_terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=None if at_terminal else _WIDE)
    ways: list[tuple[Direction, str, int]] = [("upstream", "made from", -1), ("downstream", "made into", 1)]
    for direction, title, sign in ways:
        if graph.direction not in (direction, "both"):
            continue
        # In both directions at once, what is upstream has a negative depth.
        nodes = [node for node in graph.nodes if graph.direction != "both" or node.depth * sign >= 0]
        if graph.direction == "both":
            click.echo(title)
        for branch in tree(nodes, graph.edges, direction, exact=graph.scope == "exact"):
            drawn = _drawn(definitions, branch, direction)
            console.print(drawn, no_wrap=True, overflow="ellipsis", crop=at_terminal)
    _legend(graph, definitions)


def show_impact(graph: LineageGraph) -> None:
    """Show how much of each asset would be reached, by status; nothing where nothing would."""
    reached = [node for node in graph.nodes if node.depth]
    if not reached:
        return
    counts: dict[str, Counter[str]] = {}
    for node in reached:
        counts.setdefault(node.asset_key, Counter())[node.status or ""] += 1
    statuses = sorted({status for own in counts.values() for status in own})
    click.echo()
    table(
        ["asset", "reached", *(status_text(status) for status in statuses)],
        [(asset, own.total(), *(own[status] for status in statuses)) for asset, own in counts.items()],
        f"{counted(len(reached), 'partition')} of {counted(len(counts), 'asset')}",
    )


def document(graph: LineageGraph, definitions: Mapping[str, Partitions], shape: str) -> str:
    """The picture as a text that other programs draw: dot, mermaid or svg."""
    described = partial(describe, definitions)
    title = "the whole project"
    if graph.asset_key is not None:
        start = [node.partition_key for node in graph.nodes if node.depth == 0]
        title = f"{graph.asset_key} {described(graph.asset_key, start)}".strip()
    if graph.run_id is not None:
        title += f" in {graph.run_id}"
    if graph.as_of is not None:
        title += f" as of {graph.as_of}"
    drawn = picture(title, graph.nodes, graph.edges, described, exact=graph.scope == "exact")
    return {"dot": dot, "mermaid": mermaid, "svg": svg}[shape](drawn)


def _drawn(definitions: Mapping[str, Partitions], root: Branch, direction: str) -> Tree:
    drawn = Tree(_line(definitions, root, direction, root=True), guide_style="dim")
    left = [(drawn, root)]
    while left:
        place, branch = left.pop()
        for below in branch.below:
            left.append((place.add(_line(definitions, below, direction)), below))
        if branch.cut:
            place.add(Text("… and further; see --json", style="dim"))
    return drawn


def _line(definitions: Mapping[str, Partitions], branch: Branch, direction: str, *, root: bool = False) -> Text:
    counts = Counter(node.status or "MATERIALIZED" for node in branch.nodes)
    mark, colour = _MARKS[next((one for one in _URGENT if counts[one]), "MATERIALIZED")]
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{mark} ", style=colour)
    line.append(text(branch.asset_key), style="bold" if root else "")
    described = describe(definitions, branch.asset_key, branch.keys)
    if described:
        line.append(f" {text(described)}", style="cyan")
    if len(branch.nodes) > 1:
        line.append(f" ({len(branch.nodes):,})")
    for status, number in sorted(counts.items()):
        if status != "MATERIALIZED":
            shown = status_text(status) if len(branch.nodes) == 1 else f"{number:,} {status_text(status)}"
            line.append(f"  {shown}", style=_MARKS[status][1])
    if branch.outdated:
        words = "not the version that was read" if direction == "upstream" else "made from another version"
        line.append(f"  {words if len(branch.nodes) == 1 else f'{branch.outdated:,} {words}'}", style="yellow")
    if branch.again:
        line.append("  see above", style="dim")
    elif len(branch.nodes) == 1:
        (node,) = branch.nodes
        if node.materialization_id is not None and node.run_id is None and node.content_hash is None:
            line.append("  marked, no data", style="yellow")
        made = "" if node.made_at is None else f"  {short_time(node.made_at)}"
        line.append(f"{made}  {(node.content_hash or '')[:8]}  {text(node.run_id or '')[:12]}".rstrip(), style="dim")
    return line


def _legend(graph: LineageGraph, definitions: Mapping[str, Partitions]) -> None:
    """Explain the marks, where there is more than one status; and name assets without data, or that there is none."""
    seen = [one for one in _URGENT if any((node.status or "MATERIALIZED") == one for node in graph.nodes)]
    if sys.stdout.isatty() and (len(seen) > 1 or seen != ["MATERIALIZED"]):
        note("  ".join(f"{_MARKS[one][0]} {status_text(one)}" for one in reversed(seen)))
    if graph.asset_key is None:
        empty = sorted(set(definitions) - {node.asset_key for node in graph.nodes})
        if empty:
            note(f"without data: {', '.join(empty)}")
    elif not any(node.depth for node in graph.nodes):
        reasons = {"upstream": "it was made from no other asset", "downstream": "nothing was made from it"}
        note(f"nothing else: {reasons.get(graph.direction, 'it stands alone')}")


def show_invalidated(here: Services, done: Invalidated) -> None:
    asset, sets = done.asset_key, done.invalidated
    if not done.total:
        click.echo(f"✓ nothing to do: nothing was made from {asset}")
        return
    definitions = {}
    for some in sets:
        with suppress(AssetNotFound):  # it is gone: its partitions are named by their keys
            definitions[some.asset_key] = here.definition(some.asset_key, as_of=None)
    rows = [(some.asset_key, some.partition_keys) for some in sets]
    table(["asset", "partitions", "count"], [(key, describe(definitions, key, keys), len(keys)) for key, keys in rows])
    again = " (was declared before)" if done.duplicate else ""
    click.echo(f"✓ {counted(done.total, 'partition')} of {counted(len(sets), 'asset')} declared stale{again}")
    if sys.stdout.isatty():
        keys = done.partition_keys
        typed = f"{asset} {here.labels()(asset, keys[0])}".strip()
        note(f"make it anew: servo lineage rematerialize {text(typed)}{' …' if len(keys) > 1 else ''}")
        if all(key != asset for key, _ in rows):
            note(f"{asset} itself is as it was; where that is what is wrong, compute it first")


_NAMED = 3


def describe(definitions: Mapping[str, Partitions], asset_key: str, keys: Sequence[str]) -> str:
    """`2025-01-15 eu` for one; `2025-01-01..2025-01-31 × eu, us` for many. Without how many they are."""
    definition = definitions.get(asset_key, UNPARTITIONED)
    distinct = list(dict.fromkeys(keys))
    if len(distinct) > 1:
        try:
            words = definition.set_of(distinct).describe()
        except (InvalidPartition, InvalidPartitionKey):
            pass  # some are of an earlier definition
        else:
            return words.removeprefix(f"{len(distinct):,} partitions: ")
    shown = [_label(definition, key) for key in distinct[:_NAMED]]
    return ", ".join([*shown, "…"] if len(distinct) > _NAMED else shown)


def _label(definition: Partitions, key: str) -> str:
    try:
        return definition.label(PartitionKey.parse(key))
    except InvalidPartitionKey:
        return key

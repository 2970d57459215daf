"""A lineage on the terminal: a tree of assets, folded where it is wide, coloured by what needs to be looked at."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import click

from servo.cli.output import note
from servo.cli.values import text

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from servo.cli.drawn_lineage import DrawnLineage
    from servo.lineage.tree import Branch
    from servo.lineage.walking import Direction

_MARKS = {
    "MATERIALIZED": ("●", "green"),
    "STALE": ("◐", "yellow"),
    "MATERIALIZED_BUT_LAST_ATTEMPT_FAILED": ("✗", "red"),
    "NEVER_MATERIALIZED": ("○", "dim"),
    "SUPERSEDED": ("◌", "magenta"),
}
_URGENT = ("MATERIALIZED_BUT_LAST_ATTEMPT_FAILED", "STALE", "NEVER_MATERIALIZED", "SUPERSEDED", "MATERIALIZED")
_WIDE = 10_000  # columns of a pipe


def show(found: DrawnLineage) -> None:
    """Print it: one tree for a direction, two where it goes both ways."""
    from rich.console import Console

    from servo.lineage.tree import tree

    at_terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=None if at_terminal else _WIDE)
    ways: list[tuple[Direction, str, int]] = [("upstream", "made from", -1), ("downstream", "made into", 1)]
    for direction, told, sign in ways:
        if found.direction not in (direction, "both"):
            continue
        # In both directions at once, what is upstream has a negative depth.
        nodes = [node for node in found.nodes if found.direction != "both" or node.depth * sign >= 0]
        if found.direction == "both":
            click.echo(told)
        for branch in tree(nodes, found.edges, direction, exact=found.scope == "exact"):
            console.print(_drawn(found, branch, direction), no_wrap=True, overflow="ellipsis", crop=at_terminal)
    _legend(found)


def _drawn(found: DrawnLineage, root: Branch, direction: str) -> Tree:
    from rich.text import Text
    from rich.tree import Tree

    drawn = Tree(_line(found, root, direction, root=True), guide_style="dim")
    left = [(drawn, root)]
    while left:
        place, branch = left.pop()
        for below in branch.below:
            left.append((place.add(_line(found, below, direction)), below))
        if branch.cut:
            place.add(Text("… and further; see --json", style="dim"))
    return drawn


def _line(found: DrawnLineage, branch: Branch, direction: str, *, root: bool = False) -> Text:
    from rich.text import Text

    from servo.lineage.graph import said, short_time
    from servo.runtime.described import describe

    counts = Counter(node.status or "MATERIALIZED" for node in branch.nodes)
    mark, colour = _MARKS[next((one for one in _URGENT if counts[one]), "MATERIALIZED")]
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{mark} ", style=colour)
    line.append(text(branch.asset_key), style="bold" if root else "")
    described = describe(found.definitions, branch.asset_key, branch.keys)
    if described:
        line.append(f" {text(described)}", style="cyan")
    if len(branch.nodes) > 1:
        line.append(f" ({len(branch.nodes):,})")
    for status, number in sorted(counts.items()):
        if status != "MATERIALIZED":
            shown = said(status) if len(branch.nodes) == 1 else f"{number:,} {said(status)}"
            line.append(f"  {shown}", style=_MARKS[status][1])
    if branch.outdated:
        told = "not the version that was read" if direction == "upstream" else "made from another version"
        line.append(f"  {told if len(branch.nodes) == 1 else f'{branch.outdated:,} {told}'}", style="yellow")
    if branch.again:
        line.append("  see above", style="dim")
    elif len(branch.nodes) == 1:
        (node,) = branch.nodes
        if node.materialization_id is not None and node.run_id is None and node.content_hash is None:
            line.append("  marked, no data", style="yellow")
        made = "" if node.made_at is None else f"  {short_time(node.made_at)}"
        line.append(f"{made}  {(node.content_hash or '')[:8]}  {text(node.run_id or '')[:12]}".rstrip(), style="dim")
    return line


def _legend(found: DrawnLineage) -> None:
    """Where there is no colour to tell, or more than one status to be told."""
    from servo.lineage.graph import said

    seen = [one for one in _URGENT if any((node.status or "MATERIALIZED") == one for node in found.nodes)]
    if sys.stdout.isatty() and (len(seen) > 1 or seen != ["MATERIALIZED"]):
        note("  ".join(f"{_MARKS[one][0]} {said(one)}" for one in reversed(seen)))
    if found.asset_key is None:
        empty = sorted(set(found.definitions) - {node.asset_key for node in found.nodes})
        if empty:
            note(f"without data: {', '.join(empty)}")
    elif not found.found:
        note(
            "nothing else: "
            + {"upstream": "it was made from no other asset", "downstream": "nothing was made from it"}.get(
                found.direction, "it stands alone"
            )
        )

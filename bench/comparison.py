"""Figures against their aims, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.figure import Figure

ALLOWED = 0.2
"""By which part an aim may be missed: figures of small and busy machines differ by that much from run to run."""


def is_missed(figure: Figure) -> bool:
    """Whether the aim is missed by more than is allowed."""
    return figure.missed_by() > ALLOWED


def compared(figures: Sequence[Figure], failed: Sequence[str]) -> None:
    """Write the table, and a line that says how many aims were met."""
    table = Table(box=None, pad_edge=False)
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("aim")
    table.add_column("")
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        table.add_row(figure.id, f"{figure.value:,.4g} {figure.unit}", ratio, figure.aim or "", _verdict(figure))
    console = Console(stderr=True)
    console.print(table)
    with_aim = [figure for figure in figures if figure.aim]
    met = sum(not figure.missed_by() for figure in with_aim)
    console.print(f"{met} of {len(with_aim)} aims are met.", highlight=False)
    if missed := [figure.id for figure in figures if is_missed(figure)]:
        console.print(f"[red]Missed by more than a fifth: {', '.join(missed)}[/red]", highlight=False)
    if failed:
        console.print(f"[red]Failed: {', '.join(failed)}[/red]", highlight=False)


def _verdict(figure: Figure) -> str:
    if figure.aim is None:
        return ""
    missed = figure.missed_by()
    if not missed:
        return "[green]✓[/green]"
    return f"[{'red' if is_missed(figure) else 'yellow'}]✗ by {missed:.0%}[/]"

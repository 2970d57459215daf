"""How answers look: JSON for programs, tables that fit for terminals, tab-separated text for pipes."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import click

from servo.cli.values import plain, text

_MOST_ROWS = 500  # on a terminal; more than anybody scrolls through
_WIDEST, _NARROWEST = 48, 12
_GAP = 2  # columns between cells


def as_json(answer: Any) -> None:
    """One JSON document, and a newline."""
    click.echo(json.dumps(answer, ensure_ascii=False, allow_nan=False))


def plain_struct(value: Any) -> Any:
    """A struct as JSON has it."""
    import msgspec

    return plain(msgspec.to_builtins(value, builtin_types=(datetime,)))


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], footer: str = "") -> None:
    """A table: fitted to a terminal, or whole and tab-separated for a pipe."""
    names = [text(name) for name in columns]
    if not sys.stdout.isatty():
        click.echo("\t".join(names))
        for row in rows:
            click.echo("\t".join(text(cell) for cell in row))
        return
    cells = [[text(cell) for cell in row] for row in rows[:_MOST_ROWS]]
    widths = _fitted(names, cells, shutil.get_terminal_size().columns)
    _rich_table(names, cells, widths)
    left_out = [f"{len(names) - len(widths)} more columns"] if len(widths) < len(names) else []
    left_out += [f"{len(rows) - len(cells)} more rows"] if len(cells) < len(rows) else []
    if left_out:
        note(f"not shown: {' and '.join(left_out)}; select fewer, or use --json")
    if footer:
        note(footer)


def _rich_table(names: list[str], cells: list[list[str]], widths: list[int]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for name, width in zip(names, widths, strict=False):
        grid.add_column(Text(name), width=width, no_wrap=True, overflow="ellipsis")
    for row in cells:
        grid.add_row(*(Text(cell) for cell in row[: len(widths)]))
    Console(highlight=False, markup=False, emoji=False).print(grid)


def _fitted(names: list[str], cells: list[list[str]], space: int) -> list[int]:
    """Widths of as many columns as fit: the widest give way first, the last ones are left out."""
    from rich.cells import cell_len

    wanted = [
        min(_WIDEST, max(1, cell_len(name), *(cell_len(row[number]) for row in cells)))
        for number, name in enumerate(names)
    ]
    while len(wanted) > 1 and sum(min(width, _NARROWEST) + _GAP for width in wanted) > space:
        wanted.pop()
    excess = sum(width + _GAP for width in wanted) - space
    while excess > 0 and max(wanted, default=0) > _NARROWEST:
        wanted[wanted.index(max(wanted))] -= 1
        excess -= 1
    return wanted


def note(line: str) -> None:
    """A line beside the answer, in dim."""
    click.secho(line, dim=True)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr, on a terminal only; gives what to call with (done, of how many)."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield report

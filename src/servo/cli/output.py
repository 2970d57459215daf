"""How answers look: JSON for programs, tables that fit for terminals, tab-separated text for pipes."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from textwrap import wrap
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


def without_duplicate(done: Any) -> Any:
    """What was recorded, for commands that take no key: nothing can have been asked before."""
    return {name: value for name, value in plain_struct(done).items() if name != "duplicate"}


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], footer: str = "", *, whole: Collection[str] = ()
) -> None:
    """A table: fitted to a terminal, or complete and tab-separated for a pipe. What is in `whole` is never cut."""
    names = [text(name) for name in columns]
    if not sys.stdout.isatty():
        click.echo("\t".join(names))
        for row in rows:
            click.echo("\t".join(text(cell) for cell in row))
        return
    cells = [[text(cell) for cell in row] for row in rows[:_MOST_ROWS]]
    widths = _fitted(names, cells, shutil.get_terminal_size().columns, whole)
    _rich_table(names, cells, widths)
    hidden = [name for number, name in enumerate(names) if number not in widths]
    left_out = [_listed(hidden)] if hidden else []
    left_out += [f"{len(rows) - len(cells):,} more rows"] if len(cells) < len(rows) else []
    if left_out:
        note(f"not shown: {' and '.join(left_out)}; a wider terminal or --json has all")
    if footer:
        note(footer)


def paragraph(mark: str, line: str) -> None:
    """A line after a mark. On a terminal it is broken between words, and goes on under its own beginning."""
    if not sys.stdout.isatty():
        click.echo(f"{mark} {line}")
        return
    space = max(shutil.get_terminal_size().columns - 2, 20)
    first, *more = wrap(line, space, break_on_hyphens=False) or [""]
    click.echo(f"{mark} {first}")
    for rest in more:
        click.echo(f"  {rest}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more columns"


def _rich_table(names: list[str], cells: list[list[str]], widths: dict[int, int]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for number, width in widths.items():
        grid.add_column(Text(names[number]), width=width, no_wrap=True, overflow="ellipsis")
    for row in cells:
        grid.add_row(*(Text(row[number]) for number in widths))
    Console(highlight=False, markup=False, emoji=False).print(grid)


def _fitted(names: list[str], cells: list[list[str]], space: int, whole: Collection[str]) -> dict[int, int]:
    """Widths of as many columns as fit: the widest give way first, the last ones are left out; not those in `whole`."""
    from rich.cells import cell_len

    widths = {
        number: min(
            space if name in whole else _WIDEST, max(1, cell_len(name), *(cell_len(row[number]) for row in cells))
        )
        for number, name in enumerate(names)
    }
    space += _GAP  # none is needed after the last one
    while len(widths) > 1:
        least = (width if names[number] in whole else min(width, _NARROWEST) for number, width in widths.items())
        if sum(least) + _GAP * len(widths) <= space:
            break
        del widths[max((number for number in widths if names[number] not in whole), default=max(widths))]
    excess = sum(width + _GAP for width in widths.values()) - space
    giving = [number for number in widths if names[number] not in whole]
    while excess > 0 and giving and max(widths[number] for number in giving) > _NARROWEST:
        widths[max(giving, key=widths.__getitem__)] -= 1
        excess -= 1
    return widths


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

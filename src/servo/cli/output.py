"""How answers look: JSON for programs, tables that fit for terminals, tab-separated text for pipes."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from textwrap import wrap
from typing import Any

import click

from servo.answers.values import moment, plain, text
from servo.ui.marks import DIM, Line, Node, Span, cells, counted, drawn, width

_MOST_ROWS = 500  # on a terminal; more than anybody scrolls through
_WIDEST, _NARROWEST = 48, 12
_LEAST = 8  # of a column with colours
_GAP = 2  # columns between cells
_MOST_DRAWN = 40  # steps; a larger tree says less than a table
_SHORT = len("run_") + 12  # characters of an id


def echo_json(answer: Any) -> None:
    """One JSON document, and a newline; structs and times in it as JSON has them."""
    click.echo(json.dumps(answer, ensure_ascii=False, allow_nan=False, default=plain_struct))


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
    for number, size in widths.items():
        grid.add_column(Text(names[number]), width=size, no_wrap=True, overflow="ellipsis")
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
        least = (size if names[number] in whole else min(size, _NARROWEST) for number, size in widths.items())
        if sum(least) + _GAP * len(widths) <= space:
            break
        del widths[max((number for number in widths if names[number] not in whole), default=max(widths))]
    excess = sum(size + _GAP for size in widths.values()) - space
    giving = [number for number in widths if names[number] not in whole]
    while excess > 0 and giving and max(widths[number] for number in giving) > _NARROWEST:
        widths[max(giving, key=widths.__getitem__)] -= 1
        excess -= 1
    return widths


def note(line: str) -> None:
    """A line beside the answer, in dim."""
    click.secho(line, dim=True)


def warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        click.echo(f"servo: warning: {warning}", err=True)


def aside(line: str) -> None:
    """A dim line on stderr: worth knowing, and no part of the answer."""
    click.secho(line, dim=True, err=True)


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


ENDED = frozenset({"SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED"})

COLOURS = {
    "RUNNING": "cyan",
    "RETRY_WAIT": "yellow",
    "WAITING_APPROVAL": "magenta",
    "CANCELLING": "yellow",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "SKIPPED": "yellow",
    "CANCELLED": "yellow",
    "APPROVED": "green",
    "REJECTED": "red",
    "EXPIRED": "red",
    "SUPERSEDED": "yellow",
}
_MARKS = {"SUCCEEDED": "✓", "APPROVED": "✓"} | dict.fromkeys(
    ("FAILED", "CANCELLED", "REJECTED", "EXPIRED", "SUPERSEDED"), "✗"
)


def coloured(state: str) -> str:
    """The state in its colour; Click drops the colour where nobody would see it."""
    return click.style(state, fg=COLOURS.get(state))


def marked(state: str) -> str:
    """The same with a mark in front that can be told without colours."""
    return click.style(f"{_MARKS.get(state, '·')} {state}", fg=COLOURS.get(state))


def duration(seconds: float) -> str:
    """As people say it: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 07 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


# ── cells ────────────────────────────────────────────────────────────────────────────────────────────────────────


def at(when: datetime | None) -> str:
    """A time to the second, in UTC; nothing for none."""
    return "" if when is None else moment(when.replace(microsecond=0))


def took(began: datetime | None, ended: datetime | None) -> str:
    """How long something took; nothing before it has ended."""
    return "" if began is None or ended is None else duration((ended - began).total_seconds())


def short_id(identity: str | None) -> str:
    """An id: whole in a pipe; on a terminal as much as makes it the only one, and every command takes that."""
    return (identity or "")[: _SHORT if sys.stdout.isatty() else None]


def few(keys: Sequence[str]) -> str:
    """The first three of them."""
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def at_most(count: int, what: str, limit: int, options: str = "--limit") -> str:
    """How many were listed; where that is the limit, there may be more."""
    return counted(count, what) + (f"; there may be more, see {options} {limit}" if count == limit else "")


# ── lines with colours ───────────────────────────────────────────────────────────────────────────────────────────


def columns() -> int:
    """How wide the terminal is."""
    return shutil.get_terminal_size().columns


def styled(line: Line) -> str:
    """A line as the terminal takes it. What users wrote may hold anything: control characters are written out."""
    return "".join(
        click.style(
            text(span.text),
            fg=None if span.colour == DIM else span.colour,
            dim=span.colour == DIM or None,
            bold=span.bold or None,
        )
        if span.colour or span.bold
        else text(span.text)
        for span in line
    )


def draw(lines: Iterable[Line]) -> None:
    for line in lines:
        click.echo(styled(line).rstrip())


Cell = Line | Span | str | int | None


def _line(cell: Cell) -> Line:
    match cell:
        case Span():
            return [cell]
        case list():
            return cell
    return [Span("" if cell is None else str(cell))]


def coloured_table(
    names: Sequence[str], cells_of_rows: Sequence[Sequence[Cell]], footer: str = "", *, fitted: int | None = None
) -> None:
    """A table whose cells may have colours; on a terminal with the columns that hold anything, or the first `fitted`.

    In a pipe it is whole and tab-separated, like every other.
    """
    rows = [[_line(cell) for cell in row] for row in cells_of_rows]
    if not sys.stdout.isatty():
        table(names, [["".join(span.text for span in cell) for cell in row] for row in rows])
        return
    kept = [number for number in range(len(names))[:fitted] if not rows or any(width(row[number]) for row in rows)]
    names, rows = [names[number] for number in kept], [[row[number] for number in kept] for row in rows]
    widths = [max([cells(name), *(width(row[number]) for row in rows)]) for number, name in enumerate(names)]
    excess = sum(size + _GAP for size in widths) - _GAP - columns()
    while excess > 0 and max(widths) > _LEAST:
        widest = widths.index(max(widths))
        widths[widest] -= 1
        excess -= 1
    for row in [[[Span(name, bold=True)] for name in names], *rows]:
        line: Line = []
        begin = 0
        for cell, size in zip(row, widths, strict=True):
            line += [Span(" " * (begin - width(line))), *_cut(cell, size)]
            begin += size + _GAP
        draw([line])
    if footer:
        note(footer)


def _cut(cell: Line, size: int) -> Line:
    """A cell that is no wider; what is too long ends in an ellipsis."""
    if width(cell) <= size:
        return cell or [Span("")]
    found: Line = []
    room = size - 1
    for span in cell:
        piece = span.text[: max(room, 0)]
        found.append(Span(piece, span.colour, span.bold))
        room -= len(piece)
        if room <= 0:
            break
    return [*found, Span("…", DIM)]


def facts(values: Mapping[str, Any], size: int = 11) -> None:
    """A line for each value that there is, after its name."""
    for name, value in values.items():
        if value not in (None, ""):
            click.echo(f"{name:<{size}}{text(value)}")


def show_why(proof: Node, hint: str | None) -> None:
    """A tree that proves an answer, and what to do about it."""
    draw(drawn(proof, columns()))
    if hint:
        note(hint)


def draw_order(steps: Mapping[str, tuple[int, Sequence[str]]]) -> None:
    """A tree of steps, each with its partitions counted: below each step those it waits for.

    One that was drawn before is not opened again. Of many nothing is drawn: then a table says more.
    """
    if len(steps) > _MOST_DRAWN:
        return
    seen: set[str] = set()

    def node(name: str) -> Node:
        again = name in seen
        seen.add(name)
        count, waits_for = steps[name]
        remark = f"  {counted(count, 'partition')}{', see above' if again else ''}"
        return Node([Span(name), Span(remark, DIM)], [] if again else [node(one) for one in waits_for])

    waited_for = {one for _, waits_for in steps.values() for one in waits_for}
    click.echo()
    for name in steps:
        if name not in waited_for:
            draw(drawn(node(name), columns()))
    note("each waits for those below it")

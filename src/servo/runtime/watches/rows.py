"""New rows of a table: those whose growing column is beyond the cursor.

Rows of one value are never torn apart, and the value of the cursor is looked at once more: rows that got the same value
later are found too. In PostgreSQL a transaction may have taken a smaller value than another that committed before it.
So nothing beyond the cursor is given while transactions are at work on the table that might do so; which they were, and
up to where they might have written, is in the cursor, so that new ones cannot put it off for ever.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import date
from hashlib import blake2b
from typing import Any

import msgspec

from servo.assets.evaluation import FoundRow
from servo.assets.watch_cursors import RowsCursor
from servo.assets.watches import ENVIRONMENT, NewRows
from servo.errors import InvalidInput
from servo.runtime.watches.found import LIMIT, Found
from servo.runtime.watches.tables import Row, Table, sqlite_table
from servo.runtime.wiring import Project

__all__ = ["MOST_ALIKE", "new_rows"]

MOST_ALIKE = 100_000
_LONGEST = 300  # characters of a value in a key; keys of runs are kept in indexes


def new_rows(watch: NewRows, cursor: str | None, project: Project, *, limit: int = LIMIT) -> Found:
    """Rows beyond the cursor; without one, all that are there."""
    before = RowsCursor.read(cursor)
    with _opened(watch, project) as table:
        ready = _ready(table, before)
        if ready.writers:
            return Found(cursor=ready.text())
        after = None if ready.after is None else RowsCursor.value(ready.after)
        until = None if ready.until is None else RowsCursor.value(ready.until)
        with table.snapshot():
            again = _late(table, ready, after)
            rows = [] if until is None and table.transactional else _page(table, after, until, limit)
            last = rows[-1][0] if rows else after
            ties = table.count(last) if rows or again else ready.ties
    if not rows and not again:
        unchanged = cursor is not None and ready.until is None and before.until is None
        return Found(
            cursor=cursor if unchanged and cursor is not None else RowsCursor(after=ready.after, ties=ties).text()
        )
    after_this = RowsCursor.typed(last)
    complete = len(rows) < limit or last == until
    moved = RowsCursor(after=after_this, ties=ties, until=None if complete else ready.until)
    return Found(items=list(_items(watch, again)) + list(_items(watch, rows)), cursor=moved.text(), more=not complete)


def _ready(table: Table, before: RowsCursor) -> RowsCursor:
    """Up to where rows can be given now; with `writers`, that is not known before those have ended."""
    if before.writers:
        left = set(before.writers) & set(table.writers())
        return before if left else msgspec.structs.replace(before, writers=[])
    if before.until is not None or not table.transactional:
        return before
    greatest = table.greatest(None if before.after is None else RowsCursor.value(before.after))
    if greatest is None:
        return before
    # Asked for after the greatest value: who begins to write from here on takes a greater one.
    return msgspec.structs.replace(before, until=RowsCursor.typed(greatest), writers=sorted(table.lasting_writers()))


def _late(table: Table, ready: RowsCursor, after: Any) -> list[Row]:
    """The rows that have the value of the cursor, all of them, if there are more than before."""
    if after is None or ready.ties is None or table.count(after) <= ready.ties:
        return []
    return _bounded(table.rows(at=after, limit=MOST_ALIKE + 1), after)


def _page(table: Table, after: Any, until: Any, limit: int) -> list[Row]:
    rows = table.rows(after=after, until=until, limit=limit)
    if len(rows) < limit:
        return rows
    # As the database compares, which need not be as Python does: up to the end of those that are equal.
    return _bounded(table.rows(after=after, until=rows[-1][0], limit=limit + MOST_ALIKE + 1), rows[-1][0], limit)


def _bounded(rows: list[Row], value: Any, more: int = 0) -> list[Row]:
    if len(rows) > MOST_ALIKE + more:
        message = f"more than {MOST_ALIKE:,} rows have the value {str(value)!r:.60}"
        raise InvalidInput(message, hint="watch a column that tells them apart, such as an id")
    return rows


@contextmanager
def _opened(watch: NewRows, project: Project) -> Iterator[Table]:
    url = watch.url
    if url.startswith(ENVIRONMENT):
        name = url.removeprefix(ENVIRONMENT)
        url = os.environ.get(name, "")
        if not url.startswith(("sqlite:///", "postgresql://", "postgres://")):
            hint = "set it to sqlite:///path or postgresql://…"
            raise InvalidInput(f"the environment has no address of a database in {name}", hint=hint)
    columns = (watch.column, *watch.columns)
    if url.startswith("sqlite:"):
        opened: AbstractContextManager[Table] = sqlite_table(
            project.settings.root / url.removeprefix("sqlite:///"), watch.table, columns
        )
    else:
        # The driver comes with this import, and a project with a SQLite ledger may do without.
        from servo.runtime.watches.tables_postgres import postgres_table  # noqa: PLC0415

        opened = postgres_table(url, watch.table, columns)
    with opened as table:
        yield table


# ── as items ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _items(watch: NewRows, rows: Iterable[Row]) -> Iterator[FoundRow]:
    """Keys are of what a row holds, and count those that hold the same."""
    columns = (watch.column, *watch.columns)
    seen: Counter[str] = Counter()
    for row in rows:
        ((_, value),) = RowsCursor.typed(row[0]).items()
        key = _shown(str(value))
        if len(row) > 1:
            key += f":{blake2b(repr([_text(one) for one in row[1:]]).encode(), digest_size=8).hexdigest()}"
        seen[key] += 1
        values = {name: _text(one) for name, one in zip(columns, row, strict=True)}
        yield FoundRow(
            key=key if seen[key] == 1 else f"{key}#{seen[key]}",
            values={name: text for name, text in values.items() if text is not None},
        )


def _shown(text: str) -> str:
    if len(text) <= _LONGEST and text.isprintable():
        return text
    short = "".join(one if one.isprintable() else "?" for one in text[:_LONGEST])
    return f"{short}~{blake2b(text.encode(), digest_size=16).hexdigest()}"


def _text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case bytes() | memoryview():
            return bytes(value).hex()
        case date():  # and datetime
            return value.isoformat()
    return str(value)

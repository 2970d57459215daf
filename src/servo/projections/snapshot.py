"""One answerable state: the files of a version with a tail of newer events laid over them."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from contextlib import contextmanager
from copy import copy
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from servo.errors import InvalidQuery, ProjectionDamaged, ProjectionMissing
from servo.fold.partition_rows import AssetDefinitionRow, AssetVersionRow
from servo.fold.rows import Row
from servo.fold.tables import TABLES_BY_NAME, RunKeyConflictRow, RunKeyRow
from servo.ledger.history import History
from servo.projections import engine
from servo.projections.engine import Schema, first_schema
from servo.projections.manifest import FileMissing, Manifest, Watermark, require_intact
from servo.projections.row_store import ROW_TABLES, Rows
from servo.projections.store import Store
from servo.projections.table_sql import (
    CURRENT_NAMES,
    NAMED_TABLES,
    NAMING_TABLES,
    conflicts,
    merged,
    with_current_names,
)
from servo.projections.tail import Tail

T = TypeVar("T")

_FEW_ROWS, _FEW_BYTES = 5_000, 4 << 20
_MOST_KNOWN = 512  # things that a state remembers


_NAMING = {"query", "query_table"}  # functions that are given names of tables as texts, put together as one likes


class Answer(msgspec.Struct, frozen=True):
    """Rows, what their columns are called, and how much of the ledger they know of."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    watermark: Watermark

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Answers(Protocol):
    """Whatever answers SQL over the tables, as of one watermark."""

    watermark: Watermark

    def query(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Answer: ...


@lru_cache(1_000)
def tables_in(sql: str) -> Set[str]:
    """The tables that a query may speak of: any word of it may be one, and one too many does no harm."""
    words = set(re.findall(r"\w+", sql.lower()))
    if not words.isdisjoint(_NAMING):
        return TABLES_BY_NAME.keys()
    return TABLES_BY_NAME.keys() & words


def touched(changed: Set[str]) -> Set[str]:
    """Tables that show something else where something has happened to these: a deployment may rename assets."""
    return changed if changed.isdisjoint(NAMING_TABLES) else changed | NAMED_TABLES


class Earlier(NamedTuple):
    """A state of the same version before this one, and the tables that show something else since (`touched`)."""

    snapshot: Snapshot
    changed: Set[str]

    def still_known(self) -> OrderedDict[Hashable, _Known]:
        """What was worked out there from nothing but tables that show the same here."""
        with self.snapshot._lock:
            known = self.snapshot._known.items()
            return OrderedDict((name, one) for name, one in known if one.tables.isdisjoint(self.changed))

    def opened(self) -> _Before | None:
        """The newest before this one whose tables are in DuckDB; None if nobody has asked for any."""
        before = self.snapshot._tables
        if before.made is not None:
            return _Before(before, self.changed)
        further = before.before
        return None if further is None else _Before(further.tables, further.changed | self.changed)


class _Known(NamedTuple):
    """Something that follows from these tables."""

    tables: Set[str]
    value: Any


class Annex(NamedTuple):
    """A schema of one query: its views hide the tables of the same name, which go by their full names there."""

    schema: Schema
    connection: engine.Connection
    ready: dict[str, Schema]

    @property
    def name(self) -> str:
        return self.schema.name

    def hidden(self, table: str) -> str:
        """The full name of a table."""
        return f"{self.ready[table].name}.{table}"


class _Made:
    """The tables of a snapshot in DuckDB."""

    def __init__(self, schema: Schema, ready: dict[str, Schema], renamed: dict[str, str] | None) -> None:
        self.schema = schema
        # Where each table that is ready was made: that stays as long as anybody reads it there.
        self.ready = ready
        self.others = set(ready.values())
        self.connection = schema.connection(self.others)
        # The current names of assets that had others before, by id; None: not looked at yet.
        self.renamed = renamed


class _Before(NamedTuple):
    """The tables of a state before, and which of them show something else since."""

    tables: _Tables
    changed: Set[str]


class _Tables:
    """The same, made when somebody first asks for one: most of what is asked lives in rows. Copies share it.

    `ready`: held by who adds to the tables that are ready.
    """

    def __init__(
        self,
        files: Sequence[Path],
        spares: engine.SpareConnections | None,
        before: _Before | None,
        ready: threading.Lock,
    ) -> None:
        self._files = files
        self._spares = spares
        self._lock = threading.Lock()
        self._ready = ready
        self.before = before
        self.made: _Made | None = None

    def __call__(self) -> _Made:
        with self._lock:
            if self.made is None:
                self.made = self._make()
                self.before = None  # which may hold much, and need not any more
            return self.made

    def _make(self) -> _Made:
        if self.before is None:
            connection = (self._spares or engine.SpareConnections()).take()
            return _Made(first_schema(engine.restrict(connection, self._files)), {}, None)
        tables, changed = self.before
        made = tables()
        with tables._ready:
            ready = {name: schema for name, schema in made.ready.items() if name not in changed}
        return _Made(made.schema.another(), ready, made.renamed if changed.isdisjoint(NAMING_TABLES) else None)


class Snapshot:
    """Answers SQL over all tables as of one watermark. Tables are made ready when a query first speaks of them.

    `rows`: the tables that live in rows, for questions of our own (`tables`); None where nobody keeps them.
    """

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        tail: Tail | None,
        watermark: Watermark,
        spares: engine.SpareConnections | None = None,
        *,
        earlier: Earlier | None = None,
        history: History | None = None,
        rows: Rows | None = None,
    ) -> None:
        self.watermark = watermark
        self.rows = rows
        self._history = history
        self.store = store
        self.manifest = manifest
        self.tail = tail
        files = [store.path(table, file) for table, files in manifest.tables.items() for file in files]
        self._lock = threading.Lock()
        self._tables = _Tables(files, spares, None if earlier is None else earlier.opened(), self._lock)
        self._known: OrderedDict[Hashable, _Known] = OrderedDict() if earlier is None else earlier.still_known()

    def query(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Answer:
        """Run one SELECT over the tables by their names."""
        engine.require_select(sql)
        return self.answer(self.prepared(sql), sql, parameters)

    def answer(
        self, connection: engine.Connection, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()
    ) -> Answer:
        """The answer to one SELECT, on a connection of this state that is closed with it."""
        with self.naming_lost_files():
            return Answer(*engine.ask(connection, sql, parameters), self.watermark)

    @contextmanager
    def naming_lost_files(self) -> Iterator[None]:
        """Where a query fails because of a file, name the file that has changed or gone.

        The files were as written when they were first looked at. DuckDB says of one that is gone that it may not be
        opened, as if the query were at fault.
        """
        try:
            yield
        except (ProjectionDamaged, InvalidQuery) as failure:
            with self._lock:
                ready = sorted(self._tables().ready)
            for table in ready:
                self._checked(table, again=isinstance(failure, ProjectionDamaged))
            raise

    def recall(self, name: Hashable) -> Any:
        """What was worked out under this name, in this state or one before it; None if nothing was."""
        with self._lock:
            known = self._known.get(name)
            if known is None:
                return None
            self._known.move_to_end(name)
            return known.value

    def remember(self, name: Hashable, value: Any, *, tables: Set[str] = TABLES_BY_NAME.keys()) -> None:
        """Something that follows from these tables alone: it holds until something happens to one of them."""
        with self._lock:
            self._known[name] = _Known(tables, value)
            self._known.move_to_end(name)
            while len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)

    def derived(self, name: Hashable, tables: Set[str], make: Callable[[], T]) -> T:
        """What `make` works out from these tables alone: once, and again when an event speaks of one of them."""
        known: T | None = self.recall(name)
        if known is None:
            known = make()
            self.remember(name, known, tables=tables)
        return known

    def follows(self, watermark: Watermark) -> bool:
        """Whether this is a later state of the same ledger; False also where nobody can tell."""
        reached = watermark.position
        if self._history is None or not 0 < reached <= self.watermark.position:
            return False
        events = self._history.read(reached - 1, 1)
        # By what it is chained to: the ledger may be another one than it was.
        return bool(events) and events[0].chain_hash == watermark.chain_hash

    def seen_from(self, watermark: Watermark) -> Snapshot:
        """The same, as of a later watermark: for who asks about tables that nothing has happened to since."""
        later = copy(self)
        later.watermark = watermark
        return later

    def tables(self) -> Tables:
        """The tables for questions of our own, in one thread."""
        return Tables(self)

    def close(self) -> None:
        if self._tables.made is not None:
            self._tables.made.schema.close()

    def prepare(self, sql: str) -> None:
        """Put the tables in place that a query speaks of."""
        made = self._tables()
        with self._lock:
            for name in tables_in(sql) - made.ready.keys():
                self._define(TABLES_BY_NAME[name])

    def prepared(self, sql: str) -> engine.Connection:
        """A connection of its own for this query, with the tables that it speaks of in place."""
        self.prepare(sql)
        made = self._tables()
        return made.schema.connection(made.others)

    def annex(self, sql: str) -> Annex:
        """A schema for one query, with the tables that it speaks of in place behind it."""
        self.prepare(sql)
        made = self._tables()
        schema = made.schema.another()
        with self._lock:
            return Annex(schema, schema.connection({made.schema, *made.others}), dict(made.ready))

    def relations(self, name: str, connection: engine.Connection) -> tuple[str, str | None]:
        """What a table is made of, as relations for this connection: the largest file, and all that is newer or None.

        Nothing is merged: who asks about few keys or few columns merges those alone.
        """
        table = TABLES_BY_NAME[name]
        paths = self._checked(name)
        base = engine.parquet(paths[:1]) if paths else engine.empty(table)
        return base, self._newer(table, paths[1:], connection)

    def count(self, name: str) -> int:
        """How many rows a table has at most: keys that newer files and events speak of again are counted again."""
        newer = 0 if self.tail is None else self.tail.count(name)
        return sum(file.rows for file in self.manifest.tables.get(name, [])) + newer

    def contents(self, name: str) -> list[tuple[Any, ...]]:
        """All rows of a table, merged, with the names of assets as they were written."""
        table, connection = TABLES_BY_NAME[name], self.prepared("")
        base, newer = self.relations(name, connection)
        rows = (
            f"SELECT * FROM {base}"
            if newer is None
            else merged(table, f"(SELECT * FROM {base} UNION ALL SELECT * FROM {newer})")
        )
        with self.naming_lost_files():
            return engine.fetch(connection, rows)[1]

    def _define(self, table: type[Row]) -> None:
        """Make a view: rows that only the largest file speaks of as they are, all others merged once."""
        made = self._tables()
        if table.table in made.ready:
            return
        shown = with_current_names(table, self._renames()) if table.table in NAMED_TABLES else "*"
        base, newer = self.relations(table.table, made.connection)
        if self._is_small(table.table):
            # To plan how to read files takes longer than to read them, where they are small: they are read once.
            rows = f"SELECT * FROM {base}"
            if newer is not None:
                rows = merged(table, f"({rows} UNION ALL SELECT * FROM {newer})")
            engine.run(made.connection, f"CREATE OR REPLACE TABLE {table.table} AS SELECT {shown} FROM ({rows})")
        elif newer is None:
            engine.run(made.connection, f"CREATE OR REPLACE VIEW {table.table} AS SELECT {shown} FROM {base}")
        else:
            keys = ", ".join(table.key)
            # Whatever an attempt that failed half-way has left is replaced. Of a table it is known how small it is.
            engine.run(made.connection, f"CREATE OR REPLACE TABLE newer_{table.table} AS SELECT * FROM {newer}")
            said = f"(SELECT * FROM newer_{table.table})"
            # Of most assets nothing new was said: their stretches of the file are passed over.
            among = f" WHERE asset_id IN (SELECT DISTINCT asset_id FROM {said})" if "asset_id" in table.key else ""
            known = f"SELECT * FROM (SELECT * FROM {base}{among}) SEMI JOIN {said} USING ({keys})"
            touched = f"({known} UNION ALL SELECT * FROM {said})"
            engine.run(made.connection, f"CREATE OR REPLACE TABLE merged_{table.table} AS {merged(table, touched)}")
            engine.run(made.connection, f"DROP TABLE newer_{table.table}")
            engine.run(
                made.connection,
                f"CREATE OR REPLACE VIEW {table.table} AS SELECT {shown} FROM ("
                f"SELECT * FROM {base} ANTI JOIN {made.schema.name}.merged_{table.table} USING ({keys})"
                f" UNION ALL SELECT * FROM {made.schema.name}.merged_{table.table})",
            )
        made.ready[table.table] = made.schema

    def _renames(self) -> dict[str, str]:
        """The current names of assets that had others before, by id."""
        made = self._tables()
        if made.renamed is None:
            self._define(AssetDefinitionRow)
            self._define(AssetVersionRow)
            made.renamed = dict(engine.fetch(made.connection, CURRENT_NAMES)[1])
        return made.renamed

    def _is_small(self, table: str) -> bool:
        """Whether all that is said of a table is soon read."""
        tail = None if self.tail is None else self.tail.of(table)
        size = sum(file.bytes for file in self.manifest.tables.get(table, [])) + (0 if tail is None else tail.nbytes)
        return self.count(table) <= _FEW_ROWS and size <= _FEW_BYTES

    def _checked(self, table: str, *, again: bool = False) -> list[Path]:
        """The files of a table, each of them just as it was written."""
        files = self.manifest.tables.get(table, [])
        for file in files:
            try:
                require_intact(self.store.path(table, file), file, again=again)
            except FileMissing:
                if file in self.store.current().tables.get(table, []):
                    raise
                raise ProjectionMissing(
                    f"this snapshot (version {self.manifest.version}) is too old: its files are no longer kept",
                    hint="ask again",
                ) from None
        return [self.store.path(table, file) for file in files]

    def _newer(self, table: type[Row], paths: list[Path], connection: engine.Connection) -> str | None:
        """Everything said after the largest file was written, keys repeated as they come; None if nothing was."""
        parts = [f"SELECT * FROM {engine.parquet(paths)}"] if paths else []
        if self.tail is not None:
            if (said := self.tail.of(table.table)) is not None:
                connection.register(f"tail_{table.table}", said)
                parts.append(f"SELECT * FROM tail_{table.table}")
            if table is RunKeyConflictRow and self.tail.requests is not None:
                self._define(RunKeyRow)
                connection.register("tail_requests", self.tail.requests)
                parts.append(conflicts("tail_requests", RunKeyRow.table))
        return f"({' UNION ALL '.join(parts)})" if parts else None


class Tables:
    """The tables of a snapshot, for questions of our own. Belongs to one thread.

    Whether a question is answered from rows or from columns is not for whoever asks. Where all its tables live in rows
    it is written in words that SQLite and DuckDB both know: a state of the past has them in columns.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.watermark = snapshot.watermark

    def query(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Answer:
        """The answer to one SELECT, with its watermark."""
        rows = self._snapshot.rows
        if rows is not None and tables_in(sql) <= ROW_TABLES.keys():
            return Answer(*rows.query(sql, parameters), self.watermark)
        with self._snapshot.naming_lost_files():
            self._snapshot.prepare(sql)
            return Answer(*engine.fetch(self._connection, sql, parameters), self.watermark)

    @cached_property
    def _connection(self) -> engine.Connection:
        return self._snapshot.prepared("")

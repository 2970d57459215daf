"""Sorted Parquet files into one, in memory that does not grow with them.

All files are read at once, a stretch of each at a time. Whatever comes no later than the end of the stretch that ends
first is complete: no file has more of it. So it is sorted, rows with one key are merged, and it is written, before the
next stretches are read. Rows of one key meet where they lie at the same place; where they do not, as for an asset that
was renamed in between, they are taken out and merged in the order of keys first.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from servo.errors import ProjectionDamaged
from servo.faults import reach
from servo.fold.rows import Row, columns
from servo.projections import engine
from servo.projections.arrow import in_order, is_sorted, schema, sort_keys
from servo.projections.manifest import REBUILD, ROW_GROUP
from servo.projections.table_sql import merged, sort_order

# What a row takes in memory beside its values, and how many copies of it there are at the same time.
_ROW_OVERHEAD, _COPIES = 200, 5
_FEWEST, _MOST = 512, ROW_GROUP  # rows of a stretch
_SAMPLE = 1_000  # rows by which to tell whether texts repeat

# Bytes of a page: of every file that is merged, one of each column is in memory.
PAGE = 128 << 10
_HASH = "hash_of_key"  # a column that no table has

Place = tuple[Any, ...]


class Merge:
    """The merge of files of one table, within about so many bytes of memory. What it needs beside lies in `scratch`."""

    def __init__(self, table: type[Row], connection: engine.Connection, memory: int, scratch: Path) -> None:
        self._table = table
        self._connection = connection
        self._memory = memory
        self._scratch = scratch
        self._order = sort_order(table)
        self._names = ", ".join(columns(table))
        self._count = itertools.count()

    def write(self, paths: Sequence[Path], target: Path) -> None:
        """Write the rows of files, each of them with one row per key, to a new one, sorted and with one row per key."""
        relation = engine.parquet(paths)
        if sum(map(_bytes_of, paths)) * _COPIES < self._memory:
            rows = one_row_per_key(self._connection, self._table, relation) or f"SELECT * FROM {relation}"
            self._sort(rows, self._order, target)
        else:
            self._stream(self._gathered(paths), self._order, target)

    def _sort(self, rows: str, order: list[str], target: Path) -> Path:
        """The rows of a query as a sorted file. DuckDB sorts in its spill folder where they are many."""
        rows = f"SELECT {self._names} FROM ({rows}) ORDER BY {', '.join(order)}"
        with RowGroups(target, self._table, ()) as groups:
            for batch in engine.batches(self._connection, rows, ROW_GROUP):
                groups.add(pa.Table.from_batches([batch]))
        return target

    def _stream(self, paths: Sequence[Path], order: list[str], target: Path) -> Path:
        """The rows of sorted files, in which a key lies at the same place, as one such file."""
        while True:
            try:
                self._merge(paths, order, target)
            except _NotSortedError as problem:
                if problem.path.parent == self._scratch:
                    raise ProjectionDamaged(f"{problem.path} cannot be sorted", hint=REBUILD) from None
                # Spark sorts nulls first.
                rows = f"SELECT * FROM {engine.parquet([problem.path])}"
                ordered = self._sort(rows, order, self._new_file())
                paths = [ordered if path == problem.path else path for path in paths]
            else:
                return target

    def _merge(self, paths: Sequence[Path], order: list[str], target: Path) -> None:
        size = max(map(_row_size, paths))
        rows = min(max(self._memory // (len(paths) * _COPIES * size), _FEWEST), _MOST)
        repeating = sorted(set().union(*map(_dictionaries_of, paths)))
        with RowGroups(target, self._table, repeating) as groups, ExitStack() as files:
            stretches = [
                files.enter_context(closing(_Stretch(self._table, path, order, rows, repeating))) for path in paths
            ]
            for parts in _rounds(stretches):
                groups.add(self._joined(parts, order))
                reach("compact.during_merge")

    def _joined(self, parts: list[pa.Table], order: list[str]) -> pa.Table:
        """The rows of all parts in order, one for each key."""
        if len(parts) == 1:
            return parts[0]
        rows = in_order(pa.concat_tables(parts).unify_dictionaries().combine_chunks(), order)
        again = _repeated(sort_keys(rows, list(self._table.key)))
        if not pc.any(again).as_py():
            return rows
        self._connection.register("again", rows.filter(again))
        settled = engine.fetch_arrow(self._connection, merged(self._table, "again"))
        fields = schema(self._table)
        return in_order(pa.concat_tables([rows.filter(pc.invert(again)).cast(fields), settled.cast(fields)]), order)

    def _gathered(self, paths: Sequence[Path]) -> list[Path]:
        """Files in which a key lies at the same place, as it does in these but for a few, as of renamed assets."""
        places = [name for name in self._order if name not in self._table.key]
        if not places or not self._find_scattered(engine.parquet(paths), places):
            return list(paths)
        gathered, scattered = [], []
        for path in paths:
            hashed = f"(SELECT *, {_hash(self._table.key)} AS {_HASH} FROM {engine.parquet([path])})"
            some = f"SELECT * FROM {hashed} SEMI JOIN scattered USING ({_HASH})"
            scattered.append(self._sort(some, list(self._table.key), self._new_file()))
            if pq.read_metadata(scattered[-1]).num_rows:
                others = f"SELECT * FROM {hashed} ANTI JOIN scattered USING ({_HASH})"
                gathered.append(self._sort(others, self._order, self._new_file()))
            else:
                gathered.append(path)
        by_key = self._stream(scattered, list(self._table.key), self._new_file())
        rows = f"SELECT * FROM {engine.parquet([by_key])}"
        return [*gathered, self._sort(rows, self._order, self._new_file())]

    def _find_scattered(self, relation: str, places: list[str]) -> bool:
        """Whether any key lies at several places; which ones, by their hashes, is in `scattered`."""
        if "asset_id" in self._table.key:  # then the name of the asset is all that may differ
            several = f"SELECT asset_id FROM {relation} GROUP BY ALL HAVING count(DISTINCT {_hash(places)}) > 1"
            renamed = [asset_id for (asset_id,) in engine.fetch(self._connection, several)[1]]
            if not renamed:
                return False
            relation = f"(FROM {relation} WHERE asset_id IN ({', '.join(map(engine.literal, renamed))}))"
        key, place = _hash(self._table.key), _hash(places)
        hashes = f"SELECT {key} AS {_HASH} FROM {relation} GROUP BY ALL HAVING min({place}) <> max({place})"
        engine.run(self._connection, f"CREATE OR REPLACE TEMP TABLE scattered AS {hashes}")
        return engine.fetch(self._connection, "SELECT count(*) FROM scattered")[1] != [(0,)]

    def _new_file(self) -> Path:
        self._scratch.mkdir(parents=True, exist_ok=True)
        return self._scratch / f"{next(self._count)}.parquet"


def one_row_per_key(connection: engine.Connection, table: type[Row], relation: str) -> str | None:
    """A query for one row per key, or None where no key is repeated.

    Merging is dear, so rows whose key is spoken of once are passed on as they are. Hashes are counted faster than
    texts; two keys with one hash are merely looked at twice.
    """
    names = ", ".join(columns(table))
    hashed = f"(SELECT *, {_hash(table.key)} AS {_HASH} FROM {relation})"
    hashes = engine.fetch_arrow(connection, f"SELECT {_HASH} FROM {hashed} GROUP BY {_HASH} HAVING count(*) > 1")
    if not hashes.num_rows:
        return None
    connection.register("repeated", hashes)
    again = merged(table, f"(SELECT {names} FROM {hashed} SEMI JOIN repeated USING ({_HASH}))")
    return f"SELECT {names} FROM {hashed} ANTI JOIN repeated USING ({_HASH}) UNION ALL {again}"


def _hash(names: Iterable[str]) -> str:
    return f"hash({', '.join(names)})"


def _row_size(path: Path) -> int:
    """How many bytes a row of a file takes in memory, where the rows are largest."""
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes = [int(group.total_byte_size) // max(int(group.num_rows), 1) for group in groups]
    return _ROW_OVERHEAD + max(sizes, default=0)


def _bytes_of(path: Path) -> int:
    return int(pq.read_metadata(path).num_rows) * _row_size(path)


def _dictionaries_of(path: Path) -> set[str]:
    """The columns of texts that are written as dictionaries: they are read as such, which takes less room and time."""
    metadata = pq.read_metadata(path)
    if not metadata.num_row_groups:
        return set()
    group = metadata.row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    return {
        chunk.path_in_schema
        for chunk in chunks
        if chunk.has_dictionary_page and chunk.physical_type == "BYTE_ARRAY" and "." not in chunk.path_in_schema
    }


class _NotSortedError(Exception):
    """A file whose rows lie in another order than they are to be merged in."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path


class _Stretch:
    """The rows of a sorted file that have been read and not yet taken."""

    def __init__(self, table: type[Row], path: Path, order: list[str], rows: int, repeating: list[str]) -> None:
        self._path = path
        self._order = order
        self._fields = pa.schema(
            [
                field.with_type(pa.dictionary(pa.int32(), pa.string())) if field.name in repeating else field
                for field in schema(table)
            ]
        )
        self._file = pq.ParquetFile(path, read_dictionary=repeating)
        self._batches = self._file.iter_batches(rows, columns=self._fields.names)
        self._rows = self._fields.empty_table()
        self._keys: list[pa.Array] = []
        self._taken = 0
        self.last: Place = ()

    def fill(self) -> bool:
        """Read more where all has been taken; whether there is anything to take."""
        while self._taken == self._rows.num_rows:
            batch = next(self._batches, None)
            if batch is None:
                return False
            self._rows = pa.Table.from_batches([batch]).cast(self._fields)
            self._keys = sort_keys(self._rows, self._order)
            self._taken = 0
            before, self.last = self.last, self._place(-1)
            if not is_sorted(self._keys) or self._place(0) < before:
                raise _NotSortedError(self._path)
        return True

    def take(self, until: Place) -> pa.Table:
        """The rows up to a place, which are then gone from here."""
        first = self._taken
        if self.last <= until:
            self._taken = self._rows.num_rows
        else:
            self._taken = bisect_right(range(self._rows.num_rows), until, lo=first, key=self._place)
        return self._rows.slice(first, self._taken - first)

    def close(self) -> None:
        self._file.close(force=True)

    def _place(self, number: int) -> Place:
        return tuple([key[number].as_py() for key in self._keys])


def _rounds(stretches: list[_Stretch]) -> Iterator[list[pa.Table]]:
    """Rows that come before all that are still to be read, as they lie in the files."""
    while stretches := [stretch for stretch in stretches if stretch.fill()]:
        until = min(stretch.last for stretch in stretches)
        yield [part for stretch in stretches if (part := stretch.take(until)).num_rows]


def _repeated(keys: list[pa.Array]) -> pa.Array:
    """For each row whether the one before or after it has the same key."""
    same = pa.repeat(True, len(keys[0]) - 1)
    for key in keys:
        same = pc.and_(same, pc.equal(key.slice(1), key.slice(0, len(key) - 1)))
    edge = pa.array([False])
    return pc.or_(pa.concat_arrays([edge, same]), pa.concat_arrays([same, edge]))


class RowGroups:
    """A new Parquet file of a table, written group by group as rows come."""

    def __init__(self, path: Path, table: type[Row], repeating: Collection[str]) -> None:
        self._path = path
        self._fields = schema(table)
        self._repeating = repeating
        self._writer: pq.ParquetWriter | None = None
        self._waiting = [self._fields.empty_table()]
        self._count = 0

    def add(self, rows: pa.Table) -> None:
        """More rows, in their order."""
        self._waiting.append(rows.cast(self._fields))
        self._count += rows.num_rows
        if self._count >= ROW_GROUP:
            rows = pa.concat_tables(self._waiting)
            whole = self._count - self._count % ROW_GROUP
            self._write(rows.slice(0, whole))
            self._waiting, self._count = [rows.slice(whole)], self._count - whole

    def _write(self, rows: pa.Table) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path,
                self._fields,
                compression="zstd",
                use_dictionary=dictionaries(rows, self._repeating),
                data_page_size=PAGE,
                store_schema=False,
            )
        self._writer.write_table(rows, row_group_size=ROW_GROUP)

    def __enter__(self) -> RowGroups:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and (self._count or self._writer is None):
            self._write(pa.concat_tables(self._waiting))
        if self._writer is not None:
            self._writer.close()


def dictionaries(rows: pa.Table, known: Collection[str] = ()) -> list[str]:
    """The columns of a Parquet file that are worth a dictionary: those whose values repeat."""
    return [path for field in rows.schema for path in _dictionaries(field, rows.column(field.name), known)]


def _dictionaries(field: pa.Field, column: pa.ChunkedArray, known: Collection[str]) -> list[str]:
    if pa.types.is_map(field.type):
        return [f"{field.name}.key_value.key", f"{field.name}.key_value.value"]
    if field.type == pa.string() and field.name not in known:
        sample = column.slice(0, _SAMPLE)
        return [field.name] if 2 * pc.count_distinct(sample).as_py() < len(sample) else []
    return [] if field.type == pa.int64() else [field.name]

"""Chunks of columns into Arrow tables, a column at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from servo.fold.batch import Batch, Chunk, Each
from servo.fold.rows import Kind, Row, columns
from servo.partitions import PartitionKey

_TYPES = {
    Kind.TEXT: pa.string(),
    Kind.INTEGER: pa.int64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.TIME: pa.timestamp("us", tz="UTC"),
    Kind.TEXTS: pa.list_(pa.string()),
    Kind.TEXT_MAP: pa.map_(pa.string(), pa.string()),
}

_LAST_TEXT = "\U0010ffff"


def schema(table: type[Row]) -> pa.Schema:
    """The exact columns of a projection, in the order of its files."""
    return pa.schema([pa.field(name, _TYPES[kind]) for name, kind in columns(table).items()])


def table_of(names: Mapping[str, Kind], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows as a table with these columns."""
    fields = pa.schema([pa.field(name, _TYPES[kind]) for name, kind in names.items()])
    values = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return pa.table([pa.array(column, field.type) for column, field in zip(values, fields, strict=True)], schema=fields)


def tables(batch: Batch) -> dict[str, pa.Table]:
    """The rows of a batch by table; keys may repeat, for the merge to settle."""
    by_table: dict[type[Row], list[Chunk]] = {}
    for chunk in batch.chunks:
        by_table.setdefault(chunk.table, []).append(chunk)
    shared: Shared = {}
    return {table.table: rows(table, chunks, shared) for table, chunks in by_table.items()}


# Arrays by the lists they were made of: a set's keys go into the status and into the materializations.
Shared = dict[tuple[int, ...], pa.Array]


def rows(table: type[Row], chunks: Sequence[Chunk], shared: Shared | None = None) -> pa.Table:
    """All rows of the chunks as one Arrow table. Texts that are constant over a chunk come dictionary-encoded."""
    counts = [chunk.count for chunk in chunks]
    # For each row the number of its chunk, by which constants are spread over the rows.
    origin = None if all(count == 1 for count in counts) else _origins(counts)
    arrays: dict[str, pa.Array] = {}
    for field in schema(table):
        if field.name == "partition_values":
            arrays[field.name] = partition_values(arrays["partition_key"])
        else:
            arrays[field.name] = _array(field, chunks, counts, origin, {} if shared is None else shared)
    return pa.table(arrays)


def in_order(rows: pa.Table, names: list[str]) -> pa.Table:
    """The rows in the order of these columns; those of a run usually lie so already."""
    keys = sort_keys(rows, names)
    if is_sorted(keys):
        return rows
    return rows.take(pc.sort_indices(pa.table(keys, names), sort_keys=[(name, "ascending") for name in names]))


def sort_keys(rows: pa.Table, names: list[str]) -> list[pa.Array]:
    """Columns to sort by, with nulls as texts that come last, as DuckDB has them."""
    keys = [_decoded(rows.column(name)) for name in names]
    return [key.fill_null(_LAST_TEXT) if key.null_count else key for key in keys]


def is_sorted(keys: list[pa.Array]) -> bool:
    """Whether rows with these keys lie in their order."""
    if len(keys[0]) < 2:
        return True
    ordered = pa.repeat(True, len(keys[0]) - 1)
    for key in reversed(keys):
        before, after = key.slice(0, len(key) - 1), key.slice(1)
        ordered = pc.or_(pc.less(before, after), pc.and_(pc.equal(before, after), ordered))
    return bool(pc.all(ordered).as_py())


def _decoded(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array


def plain(table: type[Row], rows: pa.Table) -> pa.Table:
    """The rows with exactly the table's schema, for whoever does not take dictionaries for texts."""
    return rows.cast(schema(table))


def joined(parts: list[pa.Table]) -> pa.Table:
    """Rows of several tables with one schema, none of them copied."""
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


def _origins(counts: list[int]) -> pa.Array:
    numbers = pa.array(range(len(counts)), pa.int32())
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(pa.array(accumulate(counts), pa.int32()), numbers))


def _array(
    field: pa.Field, chunks: Sequence[Chunk], counts: list[int], origin: pa.Array | None, shared: Shared
) -> pa.Array:
    values = [chunk.columns.get(field.name) for chunk in chunks]
    if all(value is None for value in values):
        return pa.nulls(sum(counts), field.type)
    if any(isinstance(value, Each) for value in values):
        return _flat(field, values, counts, shared)
    if field.type == _TYPES[Kind.TEXT_MAP]:
        values = [None if value is None else list(value.items()) for value in values]
    constants = pa.array(values, field.type)
    if origin is None:
        return constants
    if field.type == _TYPES[Kind.TEXT]:
        encoded = constants.dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices.take(origin), encoded.dictionary)
    return constants.take(origin)


def _flat(field: pa.Field, values: list[Any], counts: list[int], shared: Shared) -> pa.Array:
    lists = [
        value.values if isinstance(value, Each) else [value] * count
        for value, count in zip(values, counts, strict=True)
    ]
    if not all(isinstance(value, Each) for value in values):
        return pa.array(list(chain.from_iterable(lists)), field.type)
    # The lists live as long as the batch, so their addresses are names.
    name = tuple(map(id, lists))
    if name not in shared:
        shared[name] = pa.array(list(chain.from_iterable(lists)), field.type)
    return shared[name]


def partition_values(keys: pa.Array) -> pa.Array:
    """The map from dimension to plain text for each key; only distinct dimensions are looked at one by one."""
    if pc.any(pc.equal(keys, "")).as_py():
        return _with_empty(keys)
    dimensions = pc.split_pattern(keys, ",")
    encoded = dimensions.flatten().dictionary_encode()
    parsed = [_dimension(text) for text in encoded.dictionary.to_pylist()]
    names = pa.array([name for name, _ in parsed], pa.string()).take(encoded.indices)
    texts = pa.array([text for _, text in parsed], pa.string()).take(encoded.indices)
    return pa.MapArray.from_arrays(dimensions.offsets, names, texts)


@lru_cache(1 << 16)
def _dimension(text: str) -> tuple[str, str]:
    if not text:
        return "", ""
    [(name, value)] = PartitionKey.parse(text).texts().items()
    return name, value


def _with_empty(keys: pa.Array) -> pa.Array:
    """Unpartitioned assets have the empty key, whose map is empty; splitting would give it one nameless dimension."""
    values: list[Any] = [list(PartitionKey.parse(key).texts().items()) for key in keys.to_pylist()]
    return pa.array(values, _TYPES[Kind.TEXT_MAP])

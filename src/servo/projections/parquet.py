"""Arrow tables as Parquet files. Apart from what reads need: half of Arrow comes with it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from servo.projections.manifest import ROW_GROUP

__all__ = ["read", "row_count", "write"]


def write(rows: pa.Table, path: Path) -> None:
    """A new Parquet file. Texts that differ from row to row are not worth a dictionary."""
    unlike = {pa.string(), pa.int64()}
    pq.write_table(
        rows,
        path,
        compression="zstd",
        row_group_size=ROW_GROUP,
        use_dictionary=[field.name for field in rows.schema if field.type not in unlike],
        store_schema=False,  # dictionaries are how we hold the rows, not what they are
    )


def read(path: Path) -> pa.Table:
    """The rows of a Parquet file that `write` made."""
    return pq.read_table(path)


def row_count(path: Path) -> int:
    """How many rows a file has, by what it says of itself."""
    return int(pq.read_metadata(path).num_rows)

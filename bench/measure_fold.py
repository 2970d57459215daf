"""How fast facts become visible, and how little room they take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb

from bench.figure import Figure, seconds
from bench.project import Project, million, sets, single

MILLION = 1_000_000
FEW = 1_000


def record_a_large_run() -> Iterator[Figure]:
    """12,000 partitions of one run, from the append to a fresh read that shows them."""
    project = Project()
    project.record(100_000)
    project.settle()
    project.reader.query("SELECT 1", fresh=True)
    proposals = list(sets(project.partitions, 12_000))
    count = "SELECT count(*) FROM partition_status"

    def work() -> None:
        project.ledger.append(proposals)
        assert project.reader.query(count, fresh=True).rows == [(112_000,)]

    spent = seconds(work)
    baseline = _write_again(project.files("partition_status"), project.folder / "again.parquet")
    yield Figure(
        id="record.run",
        value=spent,
        unit="s",
        size=12_000,
        ratio=spent / baseline,
        baseline="DuckDB writes a table of 100,000 partitions",
        aim="value < 1",
    )


def fold_million() -> Iterator[Figure]:
    """A million partitions in sets of a thousand, folded and published."""
    project = Project()
    project.record(MILLION)
    compactor = project.compactor()
    spent = seconds(compactor.compact)
    baseline = _write_again(project.files("partition_status"), project.folder / "again.parquet")
    yield Figure(
        id="fold.million",
        value=spent,
        unit="s",
        size=MILLION,
        ratio=spent / baseline,
        baseline="DuckDB writes the same partition_status to Parquet",
        aim="ratio <= 4",
    )


def fold_few_over_many() -> Iterator[Figure]:
    """A thousand new events over a million partitions, against the same over ten thousand."""
    small = Project()
    small.record(10_000)
    small.settle()
    large = million()
    # Each project is folded into several times, in turn; every event names another partition.
    rounds = 5
    spent = {"small": 0.0, "large": 0.0}
    for turn in range(rounds):
        for name, project in (("small", small), ("large", large)):
            step = project.partitions // FEW
            project.ledger.append([single(number * step + turn) for number in range(FEW)])
            compactor = project.compactor()
            spent[name] += seconds(compactor.compact)
            compactor.close()
            project.settle()
    yield Figure(
        id="fold.few",
        value=spent["large"] / rounds,
        unit="s",
        size=FEW,
        ratio=spent["large"] / spent["small"],
        baseline="the same over 10,000 partitions",
        aim="ratio <= 1.5",
    )


def bytes_on_disk() -> Iterator[Figure]:
    """Ledger and projections together, for each materialized partition."""
    for name, lineage in (("disk.partition", False), ("disk.partition_with_lineage", True)):
        project = Project()
        project.record(MILLION, lineage=lineage)
        project.settle()
        project.ledger.close()
        ledger = sum(path.stat().st_size for path in project.folder.glob("ledger.db*"))
        manifest = project.store.current()
        files = sum(file.bytes for files in manifest.tables.values() for file in files)
        yield Figure(
            id=name,
            value=(ledger + files) / MILLION,
            unit="bytes",
            size=MILLION,
            ratio=files / ledger,
            baseline="the ledger alone",
            aim="value <= 150",
        )


def _write_again(files: list[str], target: Path) -> float:
    """How long DuckDB takes to write the rows of these files, once they are in memory."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE rows AS SELECT * FROM read_parquet($files)", {"files": files})
    return seconds(lambda: connection.execute(f"COPY rows TO '{target}' (FORMAT parquet, COMPRESSION zstd)"))

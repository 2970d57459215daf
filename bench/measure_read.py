"""How fast questions are answered."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from bench.figure import Figure, alternating
from bench.project import Project, million

COUNTS = "SELECT asset_key, last_attempt_outcome, count(*) FROM {} GROUP BY ALL"
TIMES = 15


def count_million() -> Iterator[Figure]:
    yield _counts(million(), "read.count", 1_000_000, "ratio <= 2, value < 0.1")


def count_ten_million() -> Iterator[Figure]:
    project = Project()
    for _ in range(10):
        project.record(1_000_000)
    project.settle()
    yield _counts(project, "read.count_ten_million", 10_000_000, "value < 0.6")


def find_one() -> Iterator[Figure]:
    """One partition by its key, warm."""
    project = million()
    wanted = ["sales/asset_7", "date=d:2005-06-07,region=s:ZXUtd2VzdA"]
    sql = "SELECT * FROM {} WHERE asset_key = ? AND partition_key = ?"
    bare = duckdb.connect()
    relation = _relation(project)

    def ask() -> None:
        assert len(project.reader.query(sql.format("partition_status"), wanted, fresh=True).rows) == 1

    ours, theirs = alternating(ask, lambda: bare.execute(sql.format(relation), wanted).fetchall(), times=TIMES)
    yield Figure(
        id="read.key",
        value=ours,
        unit="s",
        size=project.partitions,
        ratio=ours / theirs,
        baseline="bare DuckDB on the same files",
        aim="value < 0.02",
    )


def _counts(project: Project, name: str, size: int, aim: str) -> Figure:
    """Counts by asset and outcome, warm, against bare DuckDB on the same files."""
    bare = duckdb.connect()
    relation = _relation(project)
    ours, theirs = alternating(
        lambda: project.reader.query(COUNTS.format("partition_status"), fresh=True),
        lambda: bare.execute(COUNTS.format(relation)).fetchall(),
        times=TIMES,
    )
    return Figure(
        id=name,
        value=ours,
        unit="s",
        size=size,
        ratio=ours / theirs,
        baseline="bare DuckDB on the same files",
        aim=aim,
    )


def _relation(project: Project) -> str:
    return f"read_parquet({project.files('partition_status')})"

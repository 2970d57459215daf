"""What a function makes now beside what it made then: computed into staging, compared, and never published."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from servo.errors import ServoError
from servo.execution.executor import Executor
from servo.execution.inputs import spark_schema, stored
from servo.execution.kept_session import KeptSession
from servo.execution.protocol import Log, Order, PartitionResult, Place, Recomputation, Staged
from servo.execution.reading import frame_of
from servo.execution.row_differences import column_types, rows_apart
from servo.execution.settings import SparkSettings
from servo.execution.storage import ParquetStaging, ParquetStorage
from servo.ledger.protocol import Workspace


class ScratchStorage(ParquetStorage):
    """A storage that only reads what is there, and whose staging is thrown away."""

    def __init__(self, root: str, workspace: Workspace, *, mint: Callable[[], str]) -> None:
        super().__init__(root, workspace, mint=mint)
        self._stagings: list[ParquetStaging] = []

    def stage(self, asset_id: str, *, run_id: str, attempt: int) -> ParquetStaging:
        staging = super().stage(asset_id, run_id=run_id, attempt=attempt)
        self._stagings.append(staging)
        return staging

    def publish(self, moves: Sequence[tuple[Staged, Place]]) -> None:
        raise AssertionError(f"nothing of this is ever published, and {len(moves)} were to be")

    def clear(self) -> None:
        while self._stagings:
            self._stagings.pop().discard()


def compute_again(
    settings: SparkSettings, storage: ScratchStorage, order: Order, *, then: Place, content_hash: str | None, log: Log
) -> Recomputation:
    """Carry out an order of one partition, and compare what it makes with what was made then."""
    results: list[PartitionResult] = []
    with KeptSession(settings) as session:
        try:
            Executor(storage, session).execute(order, commit=results.extend, log=log)
            [result] = results
            if result.staged is None:
                return Recomputation(failure=result.error or "nothing came of it")
            if result.staged.content_hash == content_hash:
                return Recomputation(reproduced_content_hash=content_hash, reproduced_rows=result.staged.rows)
            return _compared(session(), storage, result.staged, then)
        finally:
            storage.clear()


def _compared(spark: SparkSession, storage: ScratchStorage, staged: Staged, then: Place) -> Recomputation:
    found = Recomputation(reproduced_content_hash=staged.content_hash, reproduced_rows=staged.rows)
    address, schema = storage.staged(staged)
    now = stored(spark, spark_schema(schema)).parquet(address)
    try:
        before = frame_of(spark, storage, [then])
    except ServoError as gone:
        return msgspec.structs.replace(found, not_compared=gone.message)
    kinds = {field.name: field.dataType for field in before.schema}
    old, new = column_types(before.schema), column_types(now.schema)
    shared = [name for name in old if new.get(name) == old[name]]
    found = msgspec.structs.replace(
        found,
        columns_gone=[f"{name} {old[name]}" for name in old if name not in new],
        columns_new=[f"{name} {new[name]}" for name in new if name not in old],
        columns_changed=[f"{name} {old[name]} → {new[name]}" for name in old if name in new and new[name] != old[name]],
    )
    if not shared:
        return msgspec.structs.replace(found, not_compared="the two have no column in common")
    try:
        return msgspec.structs.replace(
            found, only_then=rows_apart(before, now, shared, kinds), only_now=rows_apart(now, before, shared, kinds)
        )
    except (ServoError, PySparkException, Py4JError) as problem:
        # That the content differs is known; which rows do is more than Spark can tell.
        return msgspec.structs.replace(found, not_compared=_first_line(problem))


def _first_line(problem: Exception) -> str:
    """What it is about; a Java exception that nobody translated has that in its second line."""
    if isinstance(problem, ServoError):
        return problem.message
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    told = [line.removeprefix(": ") for line in lines if not line.startswith("An error occurred while calling")]
    return (told or lines or [type(problem).__name__])[0]

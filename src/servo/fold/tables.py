"""All tables, by name."""

from __future__ import annotations

from servo.fold.access_rows import TokenRow
from servo.fold.automation_rows import (
    BackfillChunkRow,
    BackfillRow,
    ScheduleDefinitionRow,
    ScheduleStateRow,
    ScheduleTickRow,
    SensorDefinitionRow,
    SensorEvalRow,
    SensorStateRow,
)
from servo.fold.partition_rows import (
    AssetDefinitionRow,
    AssetVersionRow,
    DynamicPartitionRow,
    EqualCodeRow,
    LineageRow,
    MaterializationRow,
    PartitionStatusRow,
    RollbackRow,
)
from servo.fold.rows import Row
from servo.fold.run_rows import (
    CheckpointRow,
    CheckResultRow,
    RunKeyConflictRow,
    RunKeyRow,
    RunRow,
    TaskRow,
)

TABLES: tuple[type[Row], ...] = (
    AssetDefinitionRow,
    AssetVersionRow,
    BackfillChunkRow,
    BackfillRow,
    CheckResultRow,
    CheckpointRow,
    DynamicPartitionRow,
    EqualCodeRow,
    LineageRow,
    MaterializationRow,
    PartitionStatusRow,
    RollbackRow,
    RunKeyConflictRow,
    RunKeyRow,
    RunRow,
    ScheduleDefinitionRow,
    ScheduleStateRow,
    ScheduleTickRow,
    SensorDefinitionRow,
    SensorEvalRow,
    SensorStateRow,
    TaskRow,
    TokenRow,
)
TABLES_BY_NAME = {table.table: table for table in TABLES}

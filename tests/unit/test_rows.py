"""The shape of the projections: which tables and columns there are, and who decides what is in them."""

from __future__ import annotations

import msgspec
import pytest

from servo.fold import TABLES, TABLES_BY_NAME, Row
from servo.fold.rows import Kind, all_groups, columns

SPECIFIED = {
    "schedule_definitions",
    "schedule_state",
    "schedule_ticks",
    "sensor_definitions",
    "sensor_state",
    "sensor_evals",
    "runs",
    "tasks",
    "backfills",
    "backfill_chunks",
    "partition_status",
    "materializations",
    "lineage",
    "run_key_index",
    "run_key_conflicts",
    "checkpoints",
    "check_results",
    "asset_definitions",
}
every_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.table)


def test_every_table_of_the_specification_is_there() -> None:
    assert set(TABLES_BY_NAME) == SPECIFIED | {
        "asset_versions", "dynamic_partitions", "equal_code", "rollbacks", "tokens",
    }  # fmt: skip
    assert len(TABLES) == len(TABLES_BY_NAME)


@every_table
def test_every_column_is_decided_by_exactly_one_group(table: type[Row]) -> None:
    decided = [name for group in all_groups(table) for name in (group.version, *group.columns)]
    assert sorted([*table.key, *decided]) == sorted(columns(table))


@every_table
def test_versions_are_texts_and_only_keys_and_the_scope_are_always_there(table: type[Row]) -> None:
    kinds = columns(table)
    assert all(kinds[group.version] is Kind.TEXT for group in all_groups(table))
    required = {"tenant_id", "workspace_id", "row_version", *table.key}
    assert {field.name for field in msgspec.structs.fields(table) if field.required} == required


@every_table
def test_rows_are_scoped_first(table: type[Row]) -> None:
    assert list(columns(table))[:2] == ["tenant_id", "workspace_id"]


def test_partition_status_has_exactly_the_specified_columns() -> None:
    expected = {
        "tenant_id": Kind.TEXT,
        "workspace_id": Kind.TEXT,
        "asset_key": Kind.TEXT,
        "partition_key": Kind.TEXT,
        "last_materialization_run_id": Kind.TEXT,
        "last_materialization_at": Kind.TIME,
        "last_materialization_code_version": Kind.TEXT,
        "last_attempt_run_id": Kind.TEXT,
        "last_attempt_at": Kind.TIME,
        "last_attempt_outcome": Kind.TEXT,
        "stale_since": Kind.TIME,
        "stale_reason_code": Kind.TEXT,
        "partition_values": Kind.TEXT_MAP,
        "row_version": Kind.TEXT,
    }
    found = list(columns(TABLES_BY_NAME["partition_status"]).items())
    assert found[: len(expected)] == list(expected.items())
    assert {"materialization_id", "content_hash"} <= {name for name, _ in found[len(expected) :]}


def test_the_two_halves_of_a_status_have_versions_of_their_own() -> None:
    by_version = {group.version: group.columns for group in all_groups(TABLES_BY_NAME["partition_status"])}
    assert by_version["materialization_version"] == (
        "last_materialization_run_id",
        "last_materialization_at",
        "last_materialization_code_version",
        "materialization_id",
        "content_hash",
    )
    assert by_version["attempt_version"] == ("last_attempt_run_id", "last_attempt_at", "last_attempt_outcome")

"""One name for one asset: tables show what an asset is called now, or was at the time of an as-of read.

An event names the asset as it was called then. Its id stays, and the name of the newest deployment is shown for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from servo.fold.partition_rows import AssetDefinitionRow, AssetVersionRow
from servo.fold.rows import Row, columns
from servo.fold.tables import TABLES

__all__ = ["CURRENT_NAMES", "NAMED_TABLES", "NAMING_TABLES", "with_current_names"]

NAMING_TABLES = frozenset({AssetDefinitionRow.table, AssetVersionRow.table})
NAMED_TABLES = (
    frozenset(table.table for table in TABLES if {"asset_id", "asset_key"} <= set(columns(table))) - NAMING_TABLES
)
CURRENT_NAMES = """
    SELECT asset_id, asset_key FROM asset_definitions WHERE asset_key IS NOT NULL AND asset_id IN (
        SELECT asset_id FROM asset_versions WHERE asset_key IS NOT NULL GROUP BY asset_id
        HAVING min(asset_key) <> max(asset_key)
    )
"""
"""The current names of assets that had others before, by id."""

_NAMES = {"asset_key": "asset_id", "upstream_asset_key": "upstream_asset_id"}


def with_current_names(table: type[Row], renamed: Mapping[str, str]) -> str:
    """The columns of a table, with current names in place of those that its rows were written with.

    In SQL that DuckDB and Spark both run.
    """
    if not renamed or table.table not in NAMED_TABLES:
        return "*"
    whens = " ".join(f"WHEN {_text(asset_id)} THEN {_text(key)}" for asset_id, key in renamed.items())
    return ", ".join(
        f"CASE {_NAMES[name]} {whens} ELSE {name} END AS {name}" if name in _NAMES else name for name in columns(table)
    )


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

"""SQL over the projections' tables that DuckDB and Spark both run.

`merged` is the law of folding; `fold/rows.py` says the same for two rows in Python. The engines differ in one word:
what makes a struct of columns.

`with_current_names` shows what an asset is called now, or was at the time of an as-of read. An event names the asset as
it was called then. Its id stays, and the name of the newest deployment is shown for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from servo.fold.partition_rows import AssetDefinitionRow, AssetVersionRow
from servo.fold.rows import Group, Row, all_groups, columns
from servo.fold.tables import TABLES, RunKeyConflictRow

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


def merged(table: type[Row], relation: str, *, only: Collection[str] | None = None, struct: str = "struct_pack") -> str:
    """One row per key from a relation in which keys may repeat; `only` these columns, for who needs no others."""
    wanted = [name for name in columns(table) if only is None or name in only]
    groups = [
        (number, Group(group.version, tuple(name for name in group.columns if name in wanted), group.keep))
        for number, group in enumerate(all_groups(table))
        if not {group.version, *group.columns}.isdisjoint(wanted)
    ]
    picks = [f"{_edge(group)}({group.version}) AS {group.version}" for _, group in groups]
    picks += [f"{_pick(group, struct)} AS group_{number}" for number, group in groups if group.columns]
    source = {name: f"group_{number}.{name} AS {name}" for number, group in groups for name in group.columns}
    keys = ", ".join(table.key)
    names = ", ".join(source.get(name, name) for name in wanted)
    return f"SELECT {names} FROM (SELECT {', '.join([keys, *picks])} FROM {relation} GROUP BY {keys})"


def _edge(group: Group) -> str:
    return "min" if group.keep == "first" else "max"


def _pick(group: Group, struct: str) -> str:
    """The columns of a group from the contribution that it keeps; one without a version is passed over."""
    return f"{_edge(group)}_by({struct}({', '.join(group.columns)}), {group.version})"


def conflicts(requests: str, index: str) -> str:
    """Run requests whose key the index gives to another fingerprint, as rows of `run_key_conflicts`."""
    names = ", ".join(
        f"held.request_fingerprint AS {name}" if name == "existing_fingerprint" else f"request.{name}"
        for name in columns(RunKeyConflictRow)
    )
    return (
        f"SELECT {names} FROM {requests} AS request JOIN {index} AS held ON request.run_key = held.run_key"
        " WHERE request.conflicting_fingerprint <> held.request_fingerprint"
    )


def sort_order(table: type[Row]) -> list[str]:
    """How rows lie in a file: partitions of an asset side by side, so that one is found without reading all."""
    leading = [name for name in ("asset_key", "partition_key") if name in columns(table)]
    return list(dict.fromkeys([*leading, *table.key]))


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

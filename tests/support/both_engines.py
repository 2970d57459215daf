"""Every question about tables that live in rows is asked of SQLite and of DuckDB, which must say the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from servo.projections import reader
from servo.projections.row_store import ROW_TABLES
from servo.projections.snapshot import Answer, Tables, tables_in

__all__ = ["both_engines"]


@pytest.fixture(autouse=True)
def both_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """In effect for all tests of a folder whose conftest imports it."""
    from_one = Tables.query

    def from_both(self: Tables, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Answer:
        answer = from_one(self, sql, parameters)
        if self._snapshot.rows is not None and tables_in(sql) <= ROW_TABLES.keys():
            other = self._snapshot.query(sql, parameters)
            assert len(answer.columns) == len(other.columns)
            ordered = "ORDER BY" in sql
            assert _comparable(answer.rows, ordered=ordered) == _comparable(other.rows, ordered=ordered), sql
        return answer

    monkeypatch.setattr(Tables, "query", from_both)
    monkeypatch.setattr(reader, "_SEVERAL", 1)


def _comparable(rows: list[tuple[Any, ...]], *, ordered: bool) -> list[tuple[Any, ...]]:
    """Without an order, rows come as they like. Numbers stand for truth in SQLite, where a query computes it."""
    return rows if ordered else sorted(rows, key=lambda row: [str(int(one) if one in (0, 1) else one) for one in row])

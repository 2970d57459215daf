"""All tables, by name."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from servo.fold import automation_rows, partition_rows, run_rows  # noqa: F401 (they declare the other tables)
from servo.fold.rows import Group, Row, first


class TokenRow(Row, frozen=True, kw_only=True):
    table: ClassVar[str] = "tokens"
    key: ClassVar[tuple[str, ...]] = ("token_id",)
    groups: ClassVar[tuple[Group, ...]] = (
        first("created_version"),
        first("revoked_version", "revoked_at revoked_by revocation_reason"),
    )

    token_id: str
    name: str | None = None
    role: str | None = None
    secret_hash: str | None = None
    expires_at: datetime | None = None
    created_at: datetime | None = None
    created_by: str | None = None
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    revocation_reason: str | None = None
    row_version: str
    created_version: str | None = None
    revoked_version: str | None = None


TABLES: tuple[type[Row], ...] = tuple(sorted(Row.__subclasses__(), key=lambda table: table.__name__))
TABLES_BY_NAME = {table.table: table for table in TABLES}

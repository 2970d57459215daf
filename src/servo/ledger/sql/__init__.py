"""SQL in files: numbered migrations, and queries that have a name and a description.

Events and heads become rows of a SQL backend here. Times are microseconds since 1970 and chain hashes 32 bytes.
Payloads are canonical JSON, deflated where that pays: a set of a thousand partition keys shrinks to a tenth. JSON
starts with `{` and a zlib stream with `x`, so the first byte tells them apart.
"""

from __future__ import annotations

import re
import zlib
from functools import cache
from importlib.resources import files
from typing import Any

from servo.errors import LedgerCorrupt, LedgerNotFound, SchemaTooNew
from servo.events import RecordedEvent
from servo.events.fact import from_micros, to_micros
from servo.ledger.append import Known, hash_of
from servo.ledger.protocol import Head, Workspace

_NAMED = re.compile(r"^-- name: (\w+)\n(?:-- .*\n)+", re.MULTILINE)
_WORTH_DEFLATING = 2048  # below this the time costs more than the bytes
_FAST = 1

Row = tuple[Any, ...]


@cache
def queries(dialect: str) -> dict[str, str]:
    """The named queries of a dialect."""
    parts = _NAMED.split((files(__name__) / dialect / "queries.sql").read_text())
    return {name: body.strip().rstrip(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)}


@cache
def migrations(dialect: str) -> tuple[str, ...]:
    """The migrations of a dialect in order; the schema version is how many have run."""
    folder = files(__name__) / dialect
    names = sorted(item.name for item in folder.iterdir() if re.fullmatch(r"\d{4}_\w+\.sql", item.name))
    return tuple((folder / name).read_text() for name in names)


def pack(payload: bytes) -> bytes:
    return zlib.compress(payload, _FAST) if len(payload) >= _WORTH_DEFLATING else payload


def unpack(stored: bytes) -> bytes:
    return stored if stored.startswith(b"{") else zlib.decompress(stored)


def row_from(event: RecordedEvent, workspace_no: int) -> Row:
    return (
        workspace_no,
        event.position,
        event.event_id,
        event.event_type,
        event.event_version,
        to_micros(event.occurred_at),
        event.actor,
        event.idempotency_key,
        event.correlation_id,
        event.causation_id,
        pack(event.payload),
        bytes.fromhex(event.chain_hash),
    )


def event_from(row: Row, workspace: Workspace) -> RecordedEvent:
    try:
        return RecordedEvent(
            position=row[0],
            event_id=row[1],
            event_type=row[2],
            event_version=row[3],
            occurred_at=from_micros(row[4]),
            tenant_id=workspace.tenant,
            workspace_id=workspace.name,
            actor=row[5],
            idempotency_key=row[6],
            correlation_id=row[7],
            causation_id=row[8],
            payload=unpack(row[9]),
            chain_hash=row[10].hex(),
        )
    except (zlib.error, OverflowError) as problem:
        raise LedgerCorrupt(
            f"the event at position {row[0]} is damaged: {problem}", hint="run `servo ledger verify`"
        ) from problem


def known_from(row: Row) -> tuple[str, Known]:
    """A key and its holder, from a row that has the holder's payload or, where that is archived, its hash."""
    key, event_id, position, event_type, payload, payload_hash = row
    try:
        return key, Known(event_id, position, event_type, payload_hash or hash_of(unpack(payload)))
    except zlib.error as problem:
        raise LedgerCorrupt(
            f"the event at position {position} is damaged: {problem}", hint="run `servo ledger verify`"
        ) from problem


def key_row(row: Row, workspace_no: int) -> Row:
    """What stays of an event when it is archived, from the same row."""
    key, known = known_from(row)
    return (workspace_no, key, known.event_id, known.position, known.event_type, known.payload_hash)


def head_from(row: Row) -> Head:
    return Head(
        position=row[0],
        event_id=row[1],
        chain_hash=row[2],
        occurred_at=None if row[3] is None else from_micros(row[3]),
        trimmed_position=row[4],
        trimmed_chain_hash=row[5],
    )


def require_known_version(where: object, version: int, newest: int) -> None:
    """Refuse tables that a newer Servo has changed."""
    if version > newest:
        raise SchemaTooNew(
            f"{where} has schema version {version}, this Servo knows {newest}",
            hint="upgrade Servo; nothing was changed",
        )


def no_workspace(where: object, workspace: Workspace) -> LedgerNotFound:
    """The error for a database without this workspace."""
    return LedgerNotFound(
        f"{where} has no workspace {workspace.tenant}/{workspace.name}", hint="check SERVO_TENANT and SERVO_WORKSPACE"
    )


def position_between(where: object, low: int, high: int) -> int:
    """Where a search by halves ended; it ends early where a row is missing."""
    if low < high:
        raise LedgerCorrupt(
            f"{where} has no event at position {(low + high + 1) // 2}", hint="run `servo ledger verify`"
        )
    return int(low)

"""Events and heads as rows of a SQL backend.

Times are microseconds since 1970 and chain hashes 32 bytes. Payloads are canonical JSON, deflated where that pays: a
set of a thousand partition keys shrinks to a tenth. JSON starts with `{` and a zlib stream with `x`, so the first byte
tells them apart.
"""

from __future__ import annotations

import zlib
from typing import Any

from servo.errors import LedgerCorrupt
from servo.events import RecordedEvent
from servo.events.envelope import from_micros, to_micros
from servo.ledger.protocol import Head, Workspace
from servo.ledger.recording import Known, hash_of

_WORTH_DEFLATING = 2048  # below this the time costs more than the bytes
_FAST = 1

Row = tuple[Any, ...]


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

"""Events as JSON lines, for whoever wants them without Servo.

Each line is one event as canonical JSON: UTF-8, keys sorted, no whitespace, times in UTC with six digits of fraction,
the payload as an object. Anybody can recompute the chain from the lines alone:

1. `previous` is 32 zero bytes before the event at position 1, and for every other event the bytes of the line
   before: `bytes.fromhex(line["chain_hash"])`.
2. Take `chain_hash` out of the object and write what is left as canonical JSON again. In Python:
   `json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()`.
3. `chain_hash` is the hex of `sha256(previous + those bytes)`.
"""

from __future__ import annotations

from io import TextIOBase
from typing import BinaryIO, TextIO, cast

import msgspec

from servo.events import RecordedEvent
from servo.events.envelope import timestamp_text
from servo.ledger.history import History


class _Line(msgspec.Struct):
    """Every field of an event, in the order of their names."""

    actor: str
    causation_id: str | None
    chain_hash: str
    correlation_id: str
    event_id: str
    event_type: str
    event_version: int
    idempotency_key: str
    occurred_at: str
    payload: msgspec.Raw
    position: int
    tenant_id: str
    workspace_id: str


_encode_lines = msgspec.json.Encoder().encode_lines


def export(history: History, out: TextIO | BinaryIO, after: int = 0, until: int | None = None) -> int:
    """Write the events after a position, up to and including `until`, one line each; how many were written."""
    count = 0
    for events in history.batches(after, until):
        lines = _encode_lines([_line(event) for event in events])
        if isinstance(out, TextIOBase):
            out.write(lines.decode())
        else:
            cast(BinaryIO, out).write(lines)
        count += len(events)
    return count


def _line(event: RecordedEvent) -> _Line:
    return _Line(
        event.actor,
        event.causation_id,
        event.chain_hash,
        event.correlation_id,
        event.event_id,
        event.event_type,
        event.event_version,
        event.idempotency_key,
        timestamp_text(event.occurred_at),
        msgspec.Raw(event.payload),
        event.position,
        event.tenant_id,
        event.workspace_id,
    )

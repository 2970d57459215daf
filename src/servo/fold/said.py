"""What every statement about a row has in common."""

from __future__ import annotations

from typing import Any

import msgspec

from servo import canonical
from servo.events import RecordedEvent


def scope(event: RecordedEvent) -> dict[str, Any]:
    """The columns that say whose row it is, and which event spoke last."""
    return {
        "tenant_id": event.tenant_id,
        "workspace_id": event.workspace_id,
        "row_version": event.event_id,
    }


def as_json(value: Any) -> str | None:
    """Free-form parts of a fact, as canonical JSON text in one column."""
    return None if value is None else canonical.dumps(msgspec.to_builtins(value)).decode()

"""Old versions of facts, brought to the present.

A step takes the payload of one version of one event type and gives that of the next. Steps are chained, so each is
written once and never again. Nothing stored is ever rewritten: the chain hash covers what was written then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Payload = dict[str, Any]
Step = Callable[[Payload], Payload]

# (event type, version) -> the step from that version to the next.
STEPS: Mapping[tuple[str, int], Step] = {}


def upcast(
    event_type: str,
    version: int,
    payload: Payload,
    *,
    to: int,
    steps: Mapping[tuple[str, int], Step] = STEPS,
) -> Payload:
    """Apply the steps from `version` up to `to`; a missing one is a mistake in Servo, named as such."""
    for current in range(version, to):
        step = steps.get((event_type, current))
        if step is None:
            raise LookupError(f"no upcast from {event_type} version {current} to {current + 1}")
        payload = step(payload)
    return payload

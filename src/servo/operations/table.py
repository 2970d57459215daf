"""The table of operations: every door is a loop over it."""

from __future__ import annotations

from typing import Any

from servo.operations.assets import requests as assets
from servo.operations.automations import requests as automations
from servo.operations.backfills import requests as backfills
from servo.operations.checkpoints import requests as checkpoints
from servo.operations.lineage import requests as lineage
from servo.operations.operation import Operation
from servo.operations.partitions import requests as partitions
from servo.operations.runs import requests as runs

__all__ = ["OPERATIONS"]

_NOUNS = (
    assets,
    backfills,
    checkpoints,
    lineage,
    partitions,
    runs,
    automations,
)

OPERATIONS: tuple[type[Operation[Any]], ...] = tuple(
    kind
    for noun in _NOUNS
    for kind in vars(noun).values()
    if isinstance(kind, type) and kind.__module__ == noun.__name__ and hasattr(kind, "contract")
)

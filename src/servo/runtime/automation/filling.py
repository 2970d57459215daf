"""What a schedule asks for at a moment: the partitions that its definition names, or its function."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from servo.assets.selection import Statuses, select
from servo.errors import InvalidInput
from servo.events.definitions import ScheduleDefinition
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog

__all__ = ["LATEST", "filled"]

LATEST = "latest"


def filled(
    definition: ScheduleDefinition,
    known: Catalog,
    tick: datetime,
    statuses: Statuses | None,
    partitions: str | None = None,
) -> dict[str, PartitionSet]:
    """The partitions that a tick at this moment would ask for: those given, or else as the definition says."""
    texts = definition.asset_selection
    text = " or ".join(f"({one})" for one in texts) if len(texts) > 1 else "".join(texts)
    partitions = partitions or definition.settings.get("partitions") or LATEST
    try:
        return select(known.graph, text, now=tick, partitions=partitions, statuses=statuses)
    except InvalidInput:
        if partitions != LATEST:
            raise
        # What has no partitions has none that ended last, and needs none.
        with suppress(InvalidInput):
            return select(known.graph, text, now=tick, statuses=statuses)
        raise

"""What a schedule asks for at a moment: the partitions that its definition names, or its function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from servo.assets.loading import Definitions
from servo.assets.selection import Statuses, select, selection_of
from servo.assets.spec import Problem
from servo.assets.syntax import parse, terms
from servo.controllers.scheduling import Filling
from servo.errors import InvalidInput
from servo.events.definitions import ScheduleDefinition
from servo.planning.catalog import Catalog

__all__ = ["LATEST", "filled", "unfillable"]

LATEST = "latest"


def filled(
    definition: ScheduleDefinition,
    known: Catalog,
    tick: datetime,
    statuses: Statuses | None,
    partitions: str | None = None,
) -> Filling:
    """The partitions that a tick at this moment would ask for: those given, or else as the definition says.

    An asset of which no window has ended by then is left out, with the reason: it is no failure of the others.
    """
    texts = definition.asset_selection
    text = " or ".join(f"({one})" for one in texts) if len(texts) > 1 else "".join(texts)
    partitions = partitions or definition.settings.get("partitions") or LATEST
    try:
        without: dict[str, str] = {}
        found = selection_of(
            known.graph, text, now=tick, partitions=partitions, statuses=statuses, without_latest=without
        )
        left_out = {key: why for key, why in without.items() if key not in found.wanted}
        return Filling(found.wanted, left_out, found.added, found.only_stale, found.by_status)
    except InvalidInput:
        if partitions != LATEST:
            raise
        # What has no partitions has none that ended last, and needs none.
        with suppress(InvalidInput):
            found = selection_of(known.graph, text, now=tick, statuses=statuses)
            return Filling(found.wanted, {}, found.added, found.only_stale, found.by_status)
        raise


def unfillable(definitions: Definitions, now: datetime) -> Iterator[Problem]:
    """Schedules whose text of partitions does not fit what they select. Statuses are known only in a ledger."""
    for schedule in definitions.schedules.values():
        text = schedule.partitions
        asks = any(term.what.startswith("status:") for term in terms(parse(schedule.select)))
        if text is None or text == LATEST or asks:
            continue
        try:
            select(definitions.graph, schedule.select, now=now, partitions=text)
        except InvalidInput as problem:
            message = f"schedule {schedule.name}: partitions {text!r:.80}: {problem.message}"
            yield Problem(message=message, hint=problem.hint, source=schedule.source)

"""What schedules ask for: which moments are due, the tick and the run of each, and the partitions of that run.

A tick says what it was decided on (the definition's version, the assets, the partitions), so that whatever is edited
afterwards changes nothing about its run. It is recorded on condition that nothing happened to its schedule meanwhile,
so that of several drivers one is first and the others look again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice

import msgspec

from servo.assets.loading import Definitions
from servo.assets.selection import Statuses, select, selection_of
from servo.assets.spec import Problem
from servo.assets.syntax import parse, terms
from servo.controllers.automation_boards import ScheduleBoard, ScheduleState
from servo.controllers.decisions import Decision
from servo.controllers.requests import request
from servo.errors import PASSING, InvalidInput, InvalidPartition, ServoError
from servo.events.automation import ScheduleTicked
from servo.events.definitions import ScheduleDefinition, Source
from servo.events.fact import Fact
from servo.events.lifecycles import TickStatus
from servo.events.model import DEFINITIONS
from servo.partitions import PartitionSet
from servo.partitions.cron import firing
from servo.planning.catalog import Catalog

_PAUSED = "paused"
_LONGEST_LIST = 1_000  # partitions that a tick names one by one beside its selector
_MOST_MISSED = 1_000  # moments that are counted before it is only said that there are more
# A driver is never there at the very moment: what is less late than this is not late.
_ON_TIME = timedelta(minutes=1)
_LONGEST_WINDOW = 10 * 366 * 1440  # minutes: whatever a definition says, the clock must not overflow
LATEST = "latest"


class Filling(msgspec.Struct, frozen=True):
    """What a schedule asks for at a moment: partitions by asset, and the assets that have none for it yet, and why."""

    wanted: dict[str, PartitionSet]
    without: Mapping[str, str] = {}
    added: dict[str, PartitionSet] = {}  # of what is wanted, what only a `+` added
    only_stale: bool = False  # all of it is wanted for being stale
    by_status: dict[str, PartitionSet] = {}  # of what is wanted, what nothing but a `status:` selected

    @property
    def remark(self) -> str | None:
        """What is left out, in one line."""
        return "; ".join(f"{key} is left out: {why}" for key, why in self.without.items()) or None


Fill = Callable[[ScheduleState, datetime], Filling]


class Skipped(Exception):  # noqa: N818 (it is no error)
    """There is nothing to run for a moment, for this reason."""


class NotYet(Exception):  # noqa: N818 (it is no error)
    """The partitions of a moment are still being worked out: look again."""


class Due(msgspec.Struct, frozen=True):
    """The moments that a schedule has to tick for in one pass, and how many it came too late for."""

    moments: tuple[datetime, ...] = ()
    missed: int = 0
    problem: str | None = None  # why its cron or timezone does not read any more


def upcoming(definition: ScheduleDefinition, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """The moments of a schedule after one moment, up to and with another; at most `limit`."""
    found: list[datetime] = []
    for moment in islice(firing(definition.cron, definition.timezone, after), limit):
        if moment > until:
            break
        found.append(moment)
    return found


def due(schedule: ScheduleState, now: datetime) -> Due:
    """What is due: after the last tick, the creation and the beginning of the catch-up window, and not after now."""
    definition = schedule.definition
    window = max(timedelta(minutes=min(definition.catchup_window_minutes, _LONGEST_WINDOW)), _ON_TIME)
    after = max(schedule.since, now - window)
    try:
        moments = upcoming(definition, after, now, definition.max_catchup_ticks)
        missed = len(upcoming(definition, schedule.since, after, _MOST_MISSED)) if after > schedule.since else 0
    except (InvalidPartition, ArithmeticError, ValueError) as problem:
        # Whatever it says, one schedule must not stop all others.
        return Due(_unreadable(schedule.since, now), problem=str(problem))
    return Due(tuple(moments), missed)


def _unreadable(since: datetime, now: datetime) -> tuple[datetime, ...]:
    """When to say that a schedule cannot be read: nobody knows when it would be due, so once a day."""
    period = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (period,) if since < period else ()


def decide(
    board: ScheduleBoard, catalog: Catalog, now: datetime, fill: Fill, run_id_of: Callable[[str], str]
) -> Iterator[Decision]:
    """The ticks of every schedule that is due, schedule by schedule.

    `fill` tells what a schedule wants for a moment. It raises Skipped, NotYet, or an error that the tick then tells.
    """
    schedules = list(board.due(now))
    for schedule in schedules:
        board.again(schedule, now)  # until its tick is recorded, whatever becomes of this one, or of one before it
    for schedule in schedules:
        found = due(schedule, now)
        facts: list[Fact] = []
        with suppress(NotYet):
            for fact in _ticks(schedule, found, catalog, fill, run_id_of):
                facts.append(fact)  # one by one: what comes before what is not known yet is known
        if facts:
            yield Decision(
                facts=tuple(facts),
                position=board.position,
                subjects=frozenset({schedule.id, DEFINITIONS}),  # a deployment may say something new of it
                actor=f"schedule:{schedule.definition.name}",
                at=now,
            )
        elif not found.moments:
            board.wind(schedule, now)


def _ticks(
    schedule: ScheduleState, found: Due, catalog: Catalog, fill: Fill, run_id_of: Callable[[str], str]
) -> Iterator[Fact]:
    runs = list(schedule.runs)
    for number, moment in enumerate(found.moments):
        missed = _missed(found.missed) if not number else None
        if found.problem is not None:
            yield _tick(schedule, moment, TickStatus.FAILED, reason=found.problem)
        elif not schedule.enabled or (schedule.resumed_at is not None and moment <= schedule.resumed_at):
            # What was due while it was off is over, also where nobody looked before it was switched on again.
            yield _tick(schedule, moment, TickStatus.SKIPPED, reason=_PAUSED)
        elif runs and schedule.definition.overlap == "skip":
            yield _tick(schedule, moment, TickStatus.SKIPPED, reason=f"{runs[0]} has not ended, and overlap is skip")
        else:
            facts = tick_of(schedule, moment, catalog, fill, run_id_of, reason=missed)
            runs += [fact.run_id for fact in facts[:1] if fact.run_id is not None]
            yield from facts


def _missed(count: int) -> str | None:
    if not count:
        return None
    more = "more than " if count >= _MOST_MISSED else ""
    return f"{more}{count:,} before it were missed: they lie before the catch-up window"


def tick_of(
    schedule: ScheduleState,
    moment: datetime,
    catalog: Catalog,
    fill: Fill,
    run_id_of: Callable[[str], str],
    *,
    reason: str | None = None,
    request_id: str | None = None,
) -> tuple[ScheduleTicked, *tuple[Fact, ...]]:
    """The tick of a schedule for a moment, by itself or because a person wants it, and the request for its run."""
    part = f"{moment.timestamp():.0f}" if request_id is None else f"manual:{request_id}"
    tick_id, run_key = f"{schedule.id}:{part}", f"sched:{schedule.id}:{part}"
    definition, manual = schedule.definition, request_id is not None
    tags = {str(key): str(value) for key, value in (definition.settings.get("tags") or {}).items()}
    try:
        filling = fill(schedule, moment)
        if not filling.wanted and filling.remark:
            raise Skipped(filling.remark)
        asked = request(
            catalog,
            filling.wanted,
            added=filling.added,
            only_stale=filling.only_stale,
            run_key=run_key,
            run_id=run_id_of(run_key),
            source=Source(kind="schedule", id=schedule.id, detail=tick_id),
            priority=int(definition.settings.get("priority") or 0),
            tags=tags,
            queue=f"schedule:{schedule.id}" if definition.overlap == "queue" else None,
            on_behalf_of=None if manual or "declared" in definition.settings else schedule.created_by,
        )
    except Skipped as nothing:
        return (_tick(schedule, moment, TickStatus.SKIPPED, reason=str(nothing), request_id=request_id),)
    except (NotYet, *PASSING):
        raise
    except Exception as problem:  # noqa: BLE001 (whatever it is, one schedule must not stop all others)
        message = str(problem) if isinstance(problem, ServoError) else f"{type(problem).__name__}: {problem}"
        return (_tick(schedule, moment, TickStatus.FAILED, reason=message, request_id=request_id),)
    ticked = msgspec.structs.replace(
        _tick(schedule, moment, TickStatus.TRIGGERED, reason=_joined(reason, filling.remark), request_id=request_id),
        asset_selection=asked.asset_selection,
        partition_selection=_named([filling.wanted[key] for key in asked.asset_selection]),
        partitions=asked.partitions,
        run_key=run_key,
        run_id=asked.run_id,
        request_fingerprint=asked.request_fingerprint,
    )
    return ticked, asked


def _tick(
    schedule: ScheduleState, moment: datetime, status: TickStatus, *, reason: str | None, request_id: str | None = None
) -> ScheduleTicked:
    part = f"{moment.timestamp():.0f}" if request_id is None else f"manual:{request_id}"
    return ScheduleTicked(
        tick_id=f"{schedule.id}:{part}",
        schedule_id=schedule.id,
        scheduled_for=moment,
        definition_version=schedule.definition.version,
        status=status,
        manual=request_id is not None,
        asset_selection=schedule.definition.asset_selection,
        reason=reason,
    )


def _joined(*reasons: str | None) -> str | None:
    return "; ".join(filter(None, reasons)) or None


def _named(sets: Sequence[PartitionSet]) -> list[str] | None:
    """The keys of partitions, where they are few: their selector says the same of however many."""
    if sum(some.count for some in sets) > _LONGEST_LIST:
        return None
    return sorted({str(key) for some in sets for key in some})


# ── partitions ───────────────────────────────────────────────────────────────────────────────────────────────────────


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

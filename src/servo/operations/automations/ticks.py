"""Ticks of schedules: what they ask for at a moment, those that a person wants, and those to come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import merge
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Any

import msgspec

from servo import canonical
from servo.answers import build
from servo.answers.automations import Fill, Forecast, ForecastSchedule, Ticked, Upcoming
from servo.assets.evaluation import Evaluation
from servo.assets.selection import Selection, Statuses
from servo.controllers.automation_boards import ScheduleState
from servo.controllers.scheduling import Filling, Skipped, filled, tick_of
from servo.errors import (
    Conflict,
    EvaluationUnavailable,
    IdempotencyMismatch,
    InvalidInput,
    NotFound,
    ServoError,
    UserCodeFailed,
)
from servo.events.definitions import ScheduleDefinition
from servo.operations.automations.requests import TriggerSchedule
from servo.operations.fields import moment
from servo.operations.handling import Decision, Outside
from servo.partitions import PartitionSet
from servo.partitions.cron import TickGrid, day_rule, tick_grid
from servo.partitions.windows import DAY, local_time, moment_of, seconds_of
from servo.planning.catalog import Catalog
from servo.status.deployed import schedule_state
from servo.status.plans import frozen_among, let_readers_wait, refusals
from servo.status.selections import statuses_of
from servo.status.state import State

__all__ = ["ask_function", "forecast", "remarks", "trigger", "wanted_by"]

_TICK = "SELECT * FROM schedule_ticks WHERE tick_id = $tick_id"


def wanted_by(
    state: State,
    schedule: ScheduleState,
    moment: datetime,
    *,
    evaluation: Evaluation | None = None,
    coming: dict[str, PartitionSet] | None = None,
) -> Filling:
    """What a schedule wants for a moment: of a function, what that answered; else as its definition says.

    Raises Skipped where all of it is frozen, and InputsMissing where a run of it could do nothing otherwise, given what
    is there, what unfinished runs make, and what is `coming` by other ticks of the same pass, to which it is added.
    """
    partitions = None if evaluation is None else _answered(evaluation)
    try:
        found = filled(schedule.definition, state.catalog, moment, statuses_of(state, state.catalog), partitions)
        selection = Selection(wanted=found.wanted, added=found.added, by_status=found.by_status)
        if selection.by_status:
            selection = let_readers_wait(state.at_time(moment), selection)
        found = msgspec.structs.replace(found, added=selection.added)
        [problem] = refusals(state, [selection], coming={} if coming is None else coming)
        if problem is not None:
            frozen = frozen_among(state, found.wanted)
            if frozen and all(key in frozen and not some - frozen[key] for key, some in found.wanted.items()):
                raise Skipped(problem.message)  # as somebody wanted it, and no failure
            raise problem
        return found
    except (ServoError, Skipped):
        raise
    except Exception as problem:
        # A custom mapping is anybody's code, and one schedule must not stop all others.
        raise UserCodeFailed(f"what it asks for cannot be told: {type(problem).__name__}: {problem}") from problem


def _answered(evaluation: Evaluation) -> str:
    if evaluation.error is not None:
        raise UserCodeFailed(evaluation.error)
    if evaluation.skip is not None or not evaluation.requests:
        raise Skipped(evaluation.skip or "its function asked for nothing")
    return " | ".join(evaluation.requests[0].partitions or ())


# ── ticks that a person wants ────────────────────────────────────────────────────────────────────────────────────


def ask_function(outside: Outside, state: State, request: TriggerSchedule) -> Evaluation | None:
    """What the function of the schedule answers, where it has one and is to be asked."""
    schedule = schedule_state(state, request.schedule)
    if not schedule.definition.settings.get("function") or _recorded(state, schedule) is not None:
        return None
    _require_no_overlap(schedule)
    evaluation = outside.ask_schedule(schedule.definition, moment(request.at, "at") or state.now)
    if evaluation is not None and evaluation.unasked:
        raise EvaluationUnavailable(evaluation.error or "nobody could be asked", hint="try again")
    return evaluation


def trigger(state: State, request: TriggerSchedule, evaluation: Evaluation | None) -> Decision[Ticked]:
    """Tick for a moment (now, unless another one is given), without moving the schedule's clock.

    Where what it asks for cannot be done, nothing is recorded.
    """
    schedule, at = schedule_state(state, request.schedule), moment(request.at, "at")
    if (row := _recorded(state, schedule)) is not None:
        return _recorded_tick(state, row, at)
    _require_no_overlap(schedule)
    numbers: dict[str, int] = {}

    def fill(schedule: ScheduleState, moment: datetime) -> Filling:
        found = wanted_by(state, schedule, moment, evaluation=evaluation)
        numbers.update({key: some.count for key, some in found.wanted.items()})
        return found

    request_id = state.key or state.new_id()
    facts = tick_of(schedule, at or state.now, state.catalog, fill, state.run_id, request_id=request_id)
    tick = facts[0]
    if tick.status == "FAILED":
        raise InvalidInput(f"schedule {schedule.definition.name}: {tick.reason}")
    answer = build(Ticked, tick, event_id="", partitions=sum(numbers.values()), accepted_at=state.now, duplicate=False)
    # Where ticks must not overlap, another tick in between matters.
    alone = frozenset({tick.schedule_id}) if schedule.definition.overlap != "allow" else None
    return Decision(facts=facts, answer=answer, subjects=alone)


def _require_no_overlap(schedule: ScheduleState) -> None:
    if schedule.runs and schedule.definition.overlap == "skip":
        run_id = next(iter(schedule.runs))
        raise Conflict(
            f"{run_id} of schedule {schedule.definition.name} has not ended, and its overlap is skip",
            hint=f"wait for it, or cancel it: servo run cancel {run_id}",
        )


def _recorded(state: State, schedule: ScheduleState) -> dict[str, Any] | None:
    """The tick that was recorded under this key, also where the ledger has forgotten the key."""
    if state.key is None:
        return None
    rows = state.tables.query(_TICK, {"tick_id": f"{schedule.id}:manual:{state.key}"}).dicts()
    return rows[0] if rows else None


def _recorded_tick(state: State, row: dict[str, Any], at: datetime | None) -> Decision[Ticked]:
    # Without a moment, a tick is for when it came.
    first = None if row["scheduled_for"] == row["ticked_at"] else row["scheduled_for"]
    if first != at:
        raise IdempotencyMismatch(
            f"the request id {state.key!r:.80} was used for a tick at {row['scheduled_for'].isoformat()}",
            idempotency_key=state.key or "",
            hint="give this one another id",
        )
    answer = build(
        Ticked,
        row,
        event_id=row["tick_version"],
        partitions=_count(state, row),
        accepted_at=row["ticked_at"],
        duplicate=False,
    )
    return Decision(answer=answer, recorded=row["tick_version"])


def _count(state: State, row: dict[str, Any]) -> int:
    """How many partitions a tick asked for: by today's definitions where these have them all, else by those of then."""
    asked = canonical.loads((row["partitions"] or "{}").encode())

    def count(known: Catalog) -> int:
        return sum(PartitionSet.from_json(known.spec(key).partitions, some).count for key, some in asked.items())

    try:
        return count(state.catalog)
    except (InvalidInput, NotFound):
        return count(state.at(row["tick_version"]).catalog)


# ── what schedules would do ───────────────────────────────────────────────────────────────────────────────────────────


_WALL_DAY = 86_400


Ask = Callable[[ScheduleDefinition, datetime], Evaluation | None]
"""What the function of a schedule answers for a moment; None where it cannot be called."""


def forecast(
    definitions: Sequence[ScheduleDefinition],
    known: Catalog,
    statuses: Statuses,
    since: datetime,
    until: datetime,
    *,
    limit: int,
    stretches: int = 56,
    ask: Ask | None = None,
    ticked_until: Mapping[str, datetime] = MappingProxyType({}),
) -> Forecast:
    """What would fire after one moment and up to another. Without `ask`, no function of a schedule is asked.

    `ticked_until`: by the id of a schedule, the moment up to which it will not fire again.
    """
    first, last = seconds_of(since) + 1, seconds_of(until) + 1
    begins = {schedule_id: seconds_of(moment) + 1 for schedule_id, moment in ticked_until.items()}
    broken: dict[str, str] = {}
    sound: list[tuple[ScheduleDefinition, TickGrid]] = []
    for one in definitions:
        try:
            sound.append((one, tick_grid(one.cron, one.timezone)))
        except InvalidInput as problem:
            broken[one.name] = problem.message
    remarks_of = {one.schedule_id: remarks(one.cron, one.timezone, first, last) for one, _ in sound}
    edges = [first + (last - first) * number // stretches for number in range(stretches + 1)]
    ahead = merge(
        *(_moments(one, grid, max(first, begins.get(one.schedule_id, first)), last) for one, grid in sound),
        key=lambda due: (due[0], due[1].name),
    )
    answers = _Answers(ask)
    shown = [
        _tick(one, moment_of(at), known, statuses, answers, remark=remarks_of[one.schedule_id].get(at))
        for at, one in islice(ahead, limit)
    ]
    schedules = [
        _counted(one, grid, [max(edge, begins.get(one.schedule_id, edge)) for edge in edges]) for one, grid in sound
    ]
    return Forecast(
        since=since,
        until=until,
        total=sum(one.ticks for one in schedules),
        ticks=shown,
        schedules=schedules,
        paused=[one.name for one in definitions if not one.enabled],
        broken=broken,
    )


def _moments(
    one: ScheduleDefinition, grid: TickGrid, first: int, last: int
) -> Iterator[tuple[int, ScheduleDefinition]]:
    for number in range(grid.before(first), grid.before(last)):
        yield grid.tick(number), one


def _counted(one: ScheduleDefinition, grid: TickGrid, edges: list[int]) -> ForecastSchedule:
    before = [grid.before(edge) for edge in edges]
    counts = [later - earlier for earlier, later in pairwise(before)]
    return ForecastSchedule(
        schedule_id=one.schedule_id,
        name=one.name,
        ticks=before[-1] - before[0],
        by_stretch=counts,
        remark=day_rule(one.cron),
    )


class _Answers:
    """Of functions of schedules. One that failed is not asked again: it may have taken a minute to."""

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask
        self._failed: dict[str, Evaluation] = {}

    def __call__(self, one: ScheduleDefinition, at: datetime) -> Evaluation | None:
        if self._ask is None or not one.settings.get("function"):
            return None
        if one.schedule_id not in self._failed:
            answer = self._ask(one, at)
            if answer is None or answer.error is None:
                return answer
            self._failed[one.schedule_id] = answer
        return self._failed[one.schedule_id]


def _tick(
    one: ScheduleDefinition, at: datetime, known: Catalog, statuses: Statuses, answers: _Answers, *, remark: str | None
) -> Upcoming:
    by_function = bool(one.settings.get("function"))
    fills: list[Fill] = []
    problem = skip = None
    try:
        answer = answers(one, at)
        if answer is not None and answer.error is not None:
            problem = answer.error
        elif answer is not None and (answer.skip is not None or not answer.requests):
            skip = answer.skip or "its function asks for nothing"
        elif answer is not None or not by_function:
            given = None if answer is None else " | ".join(answer.requests[0].partitions or ())
            found = filled(one, known, at, statuses, given)
            fills = [
                Fill(asset_key=key, partitions=some.describe(), count=some.count) for key, some in found.wanted.items()
            ]
            if not fills and found.remark:
                skip = found.remark
            else:
                remark = "; ".join(filter(None, (remark, found.remark))) or None
                problem = None if fills else "no partition is selected"
    except (InvalidInput, NotFound) as wrong:
        problem = wrong.message
    return Upcoming(
        schedule_id=one.schedule_id,
        name=one.name,
        scheduled_for=at,
        local_time=at.astimezone(local_time(one.timezone).zone).isoformat(),
        timezone=one.timezone,
        fills=fills,
        by_function=by_function,
        skip=skip,
        remark=remark,
        problem=problem,
    )


# ── where the clocks change ──────────────────────────────────────────────────────────────────────────────────────


def remarks(cron: str, timezone: str, first: int, last: int) -> dict[int, str]:
    """What is to be said of ticks in [first, last) because the clocks change, by the moment of the tick."""
    local, grid = local_time(timezone), tick_grid(cron, timezone)
    walls = tick_grid(cron, "UTC")  # the times as they are written, on a clock that never changes
    minute, hour = cron.split()[:2]
    fixed = not minute.startswith("*") and not hour.startswith("*")
    found: dict[int, str] = {}
    for change in local.changes(last + DAY):
        if change.at < first - DAY:
            continue
        low, high = sorted((change.at + change.before, change.at + change.after))
        written = [walls.tick(number) for number in range(walls.before(low), walls.before(high))]
        if not written:
            continue
        if change.after > change.before:
            fires = grid.tick(grid.before(change.at))
            clock = _clock(fires + local.offset(fires))
            missing = _times(written)
            verb = "does" if len(written) == 1 else "do"
            end = f", fires at {clock}" if fixed else ""
            found[fires] = f"{missing} {verb} not exist{end}"
        else:
            for wall in written:
                both = (wall - change.before, wall - change.after)
                there = [at for at in both if _has(grid, at)]
                often = (
                    "each time" if len(there) > 1 else "the first time" if there[:1] == [both[0]] else "the second time"
                )
                found |= dict.fromkeys(there, f"{_clock(wall)} comes twice, fires {often}")
    return {at: remark for at, remark in found.items() if first <= at < last}


def _has(grid: TickGrid, at: int) -> bool:
    return grid.tick(grid.before(at)) == at


def _times(walls: list[int]) -> str:
    names = [_clock(wall) for wall in walls]
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}" if len(names) > 3 else " and ".join(names)


def _clock(wall: int) -> str:
    within = wall % _WALL_DAY
    return f"{within // 3600:02d}:{within % 3600 // 60:02d}"

"""Schedules and sensors on the terminal: what there are, what came of them and what is to come; and their changes."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click

from servo.answers.automations import Changed
from servo.answers.values import moment, text
from servo.cli.opening import Services
from servo.cli.options import Answer
from servo.cli.output import (
    COLOURS,
    Cell,
    aside,
    at_most,
    coloured_table,
    columns,
    draw,
    duration,
    facts,
    note,
    plain_struct,
    short_id,
)
from servo.operations.operation import Change
from servo.ui.marks import DIM, Line, Span, counted
from servo.ui.pictures import timeline
from servo.ui.proof import ago

if TYPE_CHECKING:
    from servo.answers.automations import (
        Accepted,
        AskedRun,
        EvalView,
        Forecast,
        ScheduleView,
        SensorView,
        Ticked,
        TickView,
        Upcoming,
    )

STATUS_COLOURS = {
    "TRIGGERED": "green",
    "NO_DATA": DIM,
    "SKIPPED": "yellow",
    "SKIPPED_STALE_CURSOR": "yellow",
    "FAILED": "red",
}
_OUTCOMES = {"started": "green", "duplicate": DIM, "conflict": "red", "dropped": "yellow"}
_MOST_RUNS = 20  # lines; --json has them all


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def changed(
    here: Services,
    request: Change[Changed],
    noun: str,
    words: str | Callable[[Changed], str],
    *,
    key: str | None = None,
    then: str | None = None,
    drives: str | None = None,
) -> Answer:
    """Change a schedule or a sensor, and tell what was done to it, or that it was so already.

    `then`: a verb to go on with. `drives`: what happens only while `servo up` or `servo tick` is there.
    """
    done = here.do(request, key=key)
    document = plain_struct(done)

    def confirm() -> None:
        already = " already" if done.duplicate else ""
        action = words if isinstance(words, str) else words(done)
        click.echo(f"✓ {done.name} {action}{already}, version {done.version}")
        if then is not None:
            note(f"servo {noun} {then} {done.name}")
        if drives is not None and "driver" not in here.at_work():
            aside(f"nothing is at work here: {drives} when `servo up` is, or with `servo tick`")

    return Answer({f"{noun}_id": document.pop("id"), **document}, confirm)


def created(done: Changed) -> str:
    return "was created" if done.duplicate else "is created"


def warn_if_idle(here: Services, consequence: str) -> None:
    """Warn where nothing is planned or computed."""
    if not here.works():
        aside(f"nothing is at work here: {consequence} when `servo up` does, or with `servo tick --work`")


# ── cells ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _when(at: datetime | None, now: datetime) -> str | None:
    """A time: on a terminal how long ago, or how long until then; in a pipe the time itself."""
    if at is None:
        return None
    return ago(at, now) if sys.stdout.isatty() else moment(at.replace(microsecond=0))


def _stamped(moment: datetime | None, now: datetime) -> str:
    """A time in a line: in UTC, and how long ago that is."""
    return "never" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%SZ} ({ago(moment, now)})"


def _status(name: str | None) -> Cell:
    """What came of a tick or an evaluation."""
    return name and Span(name, STATUS_COLOURS.get(name))


def _run_status(name: str | None) -> Cell:
    return name and Span(name, COLOURS.get(name))


def _state(one: ScheduleView | SensorView) -> Span:
    if not one.enabled:
        return Span("paused", "yellow")
    return Span("on", "green") if one.deployed else Span("new", "cyan")


def _origin(one: ScheduleView | SensorView) -> str:
    origin = f"declared at {one.source}" if one.declared else f"created by {one.created_by}"
    return origin + ("" if one.deployed else ", not deployed yet")


def _note_undeployed(listed: Sequence[ScheduleView | SensorView]) -> None:
    if sys.stdout.isatty() and any(not one.deployed for one in listed):
        note("new: declared here and not deployed yet; `servo up` or `servo tick` deploys it")


# ── schedules ────────────────────────────────────────────────────────────────────────────────────────────────────


def show_schedules(schedules: Sequence[ScheduleView], now: datetime) -> None:
    """Show a row for each. On a terminal times are relative, in a pipe they are absolute."""
    rows: list[list[Cell]] = []
    for one in schedules:
        last = one.last_tick
        rows.append(
            [
                _schedule_state(one),
                Span(one.name, bold=True),
                f"{one.cron} {one.timezone}",
                _selection(one),
                _when(one.next_at if one.enabled else None, now),
                _status(last.status) if last else None,
                _when(last.scheduled_for, now) if last else None,
                _run_status(last.run_status) if last else None,
                one.overlap if one.overlap != "allow" else "",
                one.source or one.created_by,
                one.schedule_id,
            ]
        )
    names = ["state", "name", "cron", "selects", "next", "last", "due", "run", "overlap", "from", "schedule"]
    coloured_table(names, rows, counted(len(rows), "schedule"), fitted=8)
    _note_undeployed(schedules)


def _schedule_state(one: ScheduleView) -> Span:
    return _state(one) if one.problem is None else Span("broken", "red")


def _selection(one: ScheduleView) -> str:
    assets = " or ".join(one.select)
    if one.function:
        return f"{assets} (function)"
    return assets if one.partitions in (None, "latest") else f"{assets} @ {one.partitions}"


def show_schedule(one: ScheduleView, now: datetime) -> None:
    """Show what a schedule declares, and how it stands."""
    name, identity = Span(f"  {one.name}", bold=True), Span(f"  {one.schedule_id}, version {one.version}", DIM)
    draw([[_schedule_state(one), name, identity]])
    if one.problem is not None:
        click.echo(f"it cannot fire: {text(one.problem)}")
    last, tick = one.last_tick, None
    if last is not None:
        reason = f": {last.reason}" if last.reason else ""
        run = f", {last.run_id} {last.run_status or ''}".rstrip() if last.run_id else ""
        tick = f"{_stamped(last.scheduled_for, now)} {last.status}{reason}{run}"
    facts(
        {
            "cron": f"{one.cron}, {one.timezone}",
            "selects": " or ".join(one.select),
            "partitions": "its function says which" if one.function else one.partitions or "latest",
            "overlap": one.overlap,
            "catch-up": f"{one.catchup_window_minutes:,} min, {counted(one.max_catchup_ticks, 'tick')} a pass",
            "tags": ", ".join(f"{key}={value}" for key, value in one.tags.items()),
            "origin": _origin(one),
            "created": one.created_at and _stamped(one.created_at, now),
            "clock": one.clock_since and f"since {_stamped(one.clock_since, now)}",
            "next": _stamped(one.next_at, now) if one.enabled else None,
            "last tick": tick,
        }
    )
    note(f"servo schedule next {one.name}; servo schedule ticks {one.name}")


def show_ticks(ticks: Sequence[TickView], limit: int, now: datetime) -> None:
    """Show a row for each tick."""
    terminal = sys.stdout.isatty()
    rows: list[list[Cell]] = [
        [
            _status(one.status),
            f"{one.scheduled_for.astimezone(UTC):%Y-%m-%d %H:%MZ}" if terminal else moment(one.scheduled_for),
            Span("manual", "magenta") if one.manual else None,
            Span("" if one.manual else _late(one.lateness_seconds), "yellow" if one.lateness_seconds > 60 else None),
            short_id(one.run_id),
            _run_status(one.run_status),
            one.reason,
            "; ".join(f"{fill.asset_key.rpartition('/')[2]} {fill.partitions}".rstrip() for fill in one.fills),
            _when(one.ticked_at, now),
            one.event_id,
        ]
        for one in ticks
    ]
    names = ["status", "due", "by", "late", "run", "run status", "reason", "partitions", "ticked", "event_id"]
    coloured_table(names, rows, at_most(len(rows), "tick", limit, "--before and --limit"), fitted=8)


def _late(seconds: float) -> str:
    """How late a tick was, where that is worth a word."""
    return "" if seconds < 1 or math.isnan(seconds) else duration(seconds)


def show_forecast(ahead: Forecast) -> None:
    """Show each tick; on a terminal with a picture of when they are, where that says more, and all remarks."""
    if sys.stdout.isatty():
        _fitted_forecast(ahead)
    else:
        names = ["local time", "utc", "schedule", "count", "partitions", "remark", "timezone"]
        coloured_table(names, [_upcoming(one) for one in ahead.ticks])
    for one in ahead.schedules:
        if one.remark:
            click.echo(f"servo: note: {one.name} {one.remark}", err=True)
    for name, why in ahead.broken.items():
        click.echo(f"servo: warning: {name} cannot fire: {text(why)}", err=True)
    for name in ahead.paused:
        click.echo(f"servo: warning: {name} is paused: its ticks would be skipped", err=True)


def _fitted_forecast(ahead: Forecast) -> None:
    if (len(ahead.schedules) > 1 or ahead.total > len(ahead.ticks)) and ahead.total:
        picture = timeline({one.name: one.by_stretch for one in ahead.schedules}, ahead.since, ahead.until, columns())
        if picture:
            draw(picture)
            note("· none, ● one, 2 to 9 so many, # more; days in UTC")
            click.echo()
    rows: list[list[Cell]] = []
    remarks: dict[tuple[str, str, str], list[str]] = {}  # a remark on a schedule, and the ticks that it is about
    for one in ahead.ticks:
        local = f"{one.scheduled_for.astimezone(ZoneInfo(one.timezone)):%a %d %b %H:%M %Z}"
        remark, colour = (one.problem, "red") if one.problem else (one.remark, "yellow")
        if remark:
            remarks.setdefault((one.name, remark, colour), []).append(local)
        count = sum(fill.count for fill in one.fills)
        start = Span(local, colour if remark else None)
        rows.append(
            [start, f"{one.scheduled_for:%H:%MZ}", one.name, f"{count:,}" if count else "", _fills(one, short=True)]
        )
    left = f" of {ahead.total:,}, see --limit" if ahead.total > len(ahead.ticks) else ""
    footer = f"{counted(len(ahead.ticks), 'tick')}{left}, until {ahead.until.astimezone(UTC):%a %d %b %H:%MZ}"
    coloured_table(["local time", "utc", "schedule", "count", "partitions"], rows, footer)
    for (name, remark, colour), ticks in remarks.items():
        more = f" and {counted(len(ticks) - 1, 'more tick')}" if len(ticks) > 1 else ""
        draw([[Span(f"{ticks[0]}{more} {name}: "), Span(remark, colour)]])


def _fills(one: Upcoming, *, short: bool) -> str:
    if one.skip is not None:
        return f"skipped: {one.skip}"
    if one.by_function and not one.fills and one.problem is None:
        return "as its function says"
    names = [fill.asset_key.rpartition("/")[2] if short else fill.asset_key for fill in one.fills]
    return "; ".join(f"{name} {fill.partitions}".rstrip() for name, fill in zip(names, one.fills, strict=True))


def _upcoming(one: Upcoming) -> list[Cell]:
    count = sum(fill.count for fill in one.fills)
    cells = [one.local_time, moment(one.scheduled_for), one.name, count or None, _fills(one, short=False)]
    return [*cells, one.problem or one.remark, one.timezone]


def show_ticked(here: Services, done: Ticked) -> None:
    """Show what came of a tick by hand."""
    draw([[Span(done.status, STATUS_COLOURS.get(done.status)), Span(f"  {done.tick_id}")]])
    if done.reason:
        click.echo(text(done.reason))
    if done.run_id is not None:
        note(f"servo run show {done.run_id}")
        warn_if_idle(here, "its run begins")


# ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────────


def show_sensors(sensors: Sequence[SensorView], now: datetime) -> None:
    """Show a row for each. On a terminal times are relative, in a pipe they are absolute."""
    rows: list[list[Cell]] = [
        [
            _sensor_state(one),
            Span(one.name, bold=True),
            _kind(one),
            _status(one.last_status),
            _when(one.last_evaluation_at, now),
            one.cursor,
            one.last_reason,
            Span(str(one.failures or ""), "red"),
            one.source or one.created_by,
            one.sensor_id,
        ]
        for one in sensors
    ]
    names = ["state", "name", "kind", "last", "evaluated", "cursor", "reason", "failures", "from", "sensor"]
    coloured_table(names, rows, counted(len(rows), "sensor"), fitted=7)
    _note_undeployed(sensors)


def _sensor_state(one: SensorView) -> Span:
    return Span("failing", "red") if one.enabled and one.failures else _state(one)


def _kind(one: SensorView) -> str:
    watch = "" if one.watch is None else f" {one.watch.get('kind', 'watch')}"
    return one.kind + watch if one.kind == "push" else f"{one.kind}{watch}, {duration(one.min_interval_seconds)}"


def show_sensor(one: SensorView, now: datetime) -> None:
    """Show what a sensor looks at, and how it stands."""
    name, identity = Span(f"  {one.name}", bold=True), Span(f"  {one.sensor_id}, version {one.version}", DIM)
    draw([[_sensor_state(one), name, identity]])
    if one.description:
        click.echo(text(one.description.splitlines()[0]))
    poll, quiet, following = one.kind == "poll", None, None
    if one.quiet_polls:
        why = f": {one.quiet_reason}" if one.quiet_reason else ""
        quiet = f"{_stamped(one.last_polled_at, now)}; {_quiet(one.quiet_polls, one.quiet_since)}{why}"
    if poll and one.enabled:
        following = "with the next pass" if one.next_at is None else _stamped(one.next_at, now)
    cursor = "none yet" if one.cursor is None else f"{text(one.cursor):.200}"
    facts(
        {
            "kind": _kind(one),
            "watches": one.watch and {key: value for key, value in one.watch.items() if key != "kind"},
            "selects": one.select and one.select + (f" @ {one.partitions}" if one.partitions else ""),
            "timeout": None if one.timeout_seconds is None else duration(one.timeout_seconds),
            "origin": _origin(one),
            "cursor": f"{cursor} (state version {one.state_version})" if poll else None,
            "evaluated": _stamped(one.last_evaluation_at, now),
            "looked": quiet,
            "next": following,
        }
    )
    if one.last_status is not None:
        why = f": {text(one.last_reason)}" if one.last_reason else ""
        draw([[Span("last       "), Span(one.last_status, STATUS_COLOURS.get(one.last_status)), Span(why)]])
    if one.failures:
        click.echo(f"failures   {one.failures} in a row")
    note(f"servo sensor evals {one.name}")


def show_evals(evals: Sequence[EvalView], limit: int, now: datetime) -> None:
    """Show a row for each on a terminal; in a pipe a row for each run that was asked for, too."""
    if not sys.stdout.isatty():
        _rows_of_all(evals)
        return
    rows: list[list[Cell]] = [
        [
            _status(one.status),
            _when(one.evaluated_at, now),
            one.trigger,
            _outcomes(one.runs),
            one.message_id or one.cursor_after or one.request_id,
            _reason(one),
        ]
        for one in evals
    ]
    footer = at_most(len(rows), "evaluation", limit, "--before and --limit")
    coloured_table(["status", "evaluated", "by", "runs", "message or cursor", "reason"], rows, footer)
    for one in evals:
        known = [run for run in one.runs if run.outcome in ("duplicate", "conflict")]
        for run in known[:_MOST_RUNS]:
            first = f", first asked for by {run.first_by}" if run.first_by else ""
            words = f"  {run.run_key}: the key of {short_id(run.run_id)}{first}"
            draw([[Span(f"{run.outcome:<9}", _OUTCOMES[run.outcome]), Span(words)]])
        if len(known) > _MOST_RUNS:
            note(f"and {len(known) - _MOST_RUNS} more: see --json")


def _quiet(number: int, since: datetime | None) -> str:
    at = "" if since is None else f" since {moment(since.replace(microsecond=0))}"
    return f"looked {number:,} {'time' if number == 1 else 'times'}{at}, nothing new"


def _reason(one: EvalView) -> str:
    """Why it ended so; of a poll also how often nothing was found before it."""
    before = f"before: {_quiet(one.quiet_polls, one.quiet_since)}" if one.quiet_polls else ""
    return "; ".join(part for part in (one.reason, before) if part)


def _rows_of_all(evals: Sequence[EvalView]) -> None:
    names = ["status", "evaluated", "by", "message", "cursor", "reason", "run key", "outcome", "run", "run status"]
    rows: list[list[Cell]] = []
    for one in evals:
        begin = [one.status, moment(one.evaluated_at), one.trigger, one.message_id, one.cursor_after, _reason(one)]
        runs: Sequence[AskedRun | None] = one.runs or [None]
        for run in runs:
            of_run = [None] * 5 if run is None else [run.run_key, run.outcome, run.run_id, run.run_status, run.first_by]
            rows.append([*begin, *of_run, one.event_id])
    coloured_table([*names, "first by", "event_id"], rows)


def _outcomes(runs: Sequence[AskedRun]) -> Line:
    line: Line = []
    for outcome, number in Counter(run.outcome for run in runs).items():
        line += [Span(" " if line else ""), Span(f"{number} {outcome}", _OUTCOMES[outcome])]
    return line


def _partitions_in_words(here: Services, partitions: dict[str, Any]) -> list[str]:
    """A line for each asset with its partitions."""
    from servo.partitions import PartitionSet  # noqa: PLC0415 (lists need not wait for calendars and zones)

    sets = {
        key: PartitionSet.from_json(here.definition(key, as_of=None), one, clip=True) for key, one in partitions.items()
    }
    return [f"{key}  {some.describe() or 'all of it'}" for key, some in sets.items()]


def show_accepted(here: Services, done: Accepted, *, dry_run: bool) -> None:
    """Show what came of a message, or of an evaluation by hand."""
    again = "  (it came before: nothing new was written)" if done.duplicate else ""
    tried = "  (dry run: nothing was written)" if dry_run else ""
    status = Span(done.status, STATUS_COLOURS.get(done.status))
    draw([[status, Span(f"  {done.eval_id}"), Span(again or tried, DIM)]])
    if done.reason:
        click.echo(text(done.reason))
    for key, run_id in list(zip(done.run_keys, done.run_ids, strict=False))[:_MOST_RUNS]:
        new = "" if run_id in done.started else "  (it is there already: nothing is started)"
        draw([[Span(f"  {run_id}"), Span(f"  {key}{new}", DIM)]])
        for line in _partitions_in_words(here, done.asked.get(run_id, {})):
            click.echo(f"    {text(line)}")
    if len(done.run_keys) > _MOST_RUNS:
        note(f"and {len(done.run_keys) - _MOST_RUNS} more: see --json")
    if done.started and not dry_run:
        warn_if_idle(here, "its run begins" if len(done.run_ids) == 1 else "its runs begin")

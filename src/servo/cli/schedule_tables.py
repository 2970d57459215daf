"""Schedules on the terminal: what there are, what came of their ticks, and what is to come."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from servo.answers.values import moment, text
from servo.cli.automation import NOT_DEPLOYED, late, run_status, stamped, status, when
from servo.cli.output import at_most, coloured_table, columns, draw, note, short_id
from servo.ui.marks import DIM, Line, Span, counted
from servo.ui.pictures import timeline

if TYPE_CHECKING:
    from servo.answers.automations import Forecast, ScheduleView, Ticked, TickView, Upcoming


def show_list(found: Sequence[ScheduleView], now: datetime) -> None:
    """A row for each. On a terminal times are relative, in a pipe they are absolute."""
    terminal = sys.stdout.isatty()
    rows: list[list[Line]] = []
    for one in found:
        last = one.last_tick
        rows.append(
            [
                _state(one),
                [Span(one.name, bold=True)],
                [Span(f"{one.cron} {one.timezone}")],
                [Span(_selection(one))],
                when(one.next_at if one.enabled else None, now, terminal=terminal),
                status(None if last is None else last.status),
                when(None if last is None else last.scheduled_for, now, terminal=terminal),
                run_status(None if last is None else last.run_status),
                [Span(one.overlap if one.overlap != "allow" else "")],
                [Span(one.source or one.created_by or "")],
                [Span(one.schedule_id)],
            ]
        )
    names = ["state", "name", "cron", "selects", "next", "last", "due", "run", "overlap", "from", "schedule"]
    if terminal:
        names, rows = names[:8], [row[:8] for row in rows]
    coloured_table(names, rows, counted(len(found), "schedule"))
    if terminal and any(not one.deployed for one in found):
        note(NOT_DEPLOYED)


def _state(one: ScheduleView) -> Line:
    if one.problem is not None:
        return [Span("broken", "red")]
    if not one.enabled:
        return [Span("paused", "yellow")]
    return [Span("on", "green")] if one.deployed else [Span("new", "cyan")]


def _selection(one: ScheduleView) -> str:
    what = " or ".join(one.select)
    return (
        f"{what} (function)"
        if one.function
        else what
        if one.partitions in (None, "latest")
        else f"{what} @ {one.partitions}"
    )


def show_one(one: ScheduleView, now: datetime) -> None:
    """What it says, and how it stands."""
    draw([[*_state(one), Span(f"  {one.name}", bold=True), Span(f"  {one.schedule_id}, version {one.version}", DIM)]])
    if one.problem is not None:
        click.echo(f"it cannot fire: {text(one.problem)}")
    click.echo(f"cron       {text(one.cron)}, {one.timezone}")
    click.echo(f"selects    {text(' or '.join(one.select))}")
    filled = "its function says which" if one.function else text(one.partitions or "latest")
    click.echo(f"partitions {filled}")
    click.echo(f"overlap    {one.overlap}")
    click.echo(f"catch-up   {one.catchup_window_minutes:,} min, {counted(one.max_catchup_ticks, 'tick')} a pass")
    if one.tags:
        click.echo(f"tags       {', '.join(f'{text(key)}={text(value)}' for key, value in one.tags.items())}")
    origin = f"declared at {one.source}" if one.declared else f"created by {text(one.created_by)}"
    deployed = "" if one.deployed else ", not deployed yet"
    click.echo(f"origin     {origin}{deployed}")
    if one.created_at is not None:
        click.echo(f"created    {stamped(one.created_at, now)}")
    if one.clock_since is not None:
        click.echo(f"clock      since {stamped(one.clock_since, now)}")
    if one.enabled:
        click.echo(f"next       {stamped(one.next_at, now)}")
    last = one.last_tick
    if last is not None:
        reason = f": {text(last.reason)}" if last.reason else ""
        run = f", {last.run_id} {last.run_status or ''}".rstrip() if last.run_id else ""
        click.echo(f"last tick  {stamped(last.scheduled_for, now)} {last.status}{reason}{run}")
    note(f"servo schedule next {one.name}; servo schedule ticks {one.name}")


def show_ticks(found: Sequence[TickView], limit: int, now: datetime) -> None:
    terminal = sys.stdout.isatty()
    rows: list[list[Line]] = [
        [
            status(one.status),
            [Span(_minute(one.scheduled_for) if terminal else moment(one.scheduled_for))],
            [Span("manual", "magenta")] if one.manual else [],
            [Span("" if one.manual else late(one.lateness_seconds), "yellow" if one.lateness_seconds > 60 else None)],
            [Span(short_id(one.run_id))],
            run_status(one.run_status),
            [Span(one.reason or "")],
            [Span(_partitions(one))],
            when(one.ticked_at, now, terminal=terminal),
            [Span(one.event_id)],
        ]
        for one in found
    ]
    names = ["status", "due", "by", "late", "run", "run status", "reason", "partitions", "ticked", "event_id"]
    if terminal:
        names, rows = names[:8], [row[:8] for row in rows]
    coloured_table(names, rows, at_most(len(found), "tick", limit, "--before and --limit"))


def _partitions(one: TickView) -> str:
    return "; ".join(f"{fill.asset_key.rpartition('/')[2]} {fill.partitions}".rstrip() for fill in one.fills)


def _minute(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%MZ}"


def show_forecast(ahead: Forecast) -> None:
    """Each tick; on a terminal with a picture of when they are, where that says more, and with the remarks in full."""
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
    rows: list[list[Line]] = []
    remarks: dict[tuple[str, str, str], list[str]] = {}  # a remark on a schedule, and the ticks that it is about
    for one in ahead.ticks:
        local = one.scheduled_for.astimezone(ZoneInfo(one.timezone))
        written = f"{local:%a %d %b %H:%M %Z}"
        said, colour = (one.problem, "red") if one.problem else (one.remark, "yellow")
        if said:
            remarks.setdefault((one.name, said, colour), []).append(written)
        count = sum(fill.count for fill in one.fills)
        rows.append(
            [
                [Span(written, colour if said else None)],
                [Span(f"{one.scheduled_for:%H:%MZ}")],
                [Span(one.name)],
                [Span(f"{count:,}" if count else "")],
                [Span(_fills(one, short=True))],
            ]
        )
    left = f" of {ahead.total:,}, see --limit" if ahead.total > len(ahead.ticks) else ""
    footer = f"{counted(len(ahead.ticks), 'tick')}{left}, until {ahead.until.astimezone(UTC):%a %d %b %H:%MZ}"
    coloured_table(["local time", "utc", "schedule", "count", "partitions"], rows, footer)
    for (name, said, colour), ticks in remarks.items():
        more = f" and {counted(len(ticks) - 1, 'more tick')}" if len(ticks) > 1 else ""
        draw([[Span(f"{ticks[0]}{more} {name}: "), Span(said, colour)]])


def _fills(one: Upcoming, *, short: bool) -> str:
    if one.skip is not None:
        return f"skipped: {one.skip}"
    if one.by_function and not one.fills and one.problem is None:
        return "as its function says"
    names = [fill.asset_key.rpartition("/")[2] if short else fill.asset_key for fill in one.fills]
    return "; ".join(f"{name} {fill.partitions}".rstrip() for name, fill in zip(names, one.fills, strict=True))


def _upcoming(one: Upcoming) -> list[Line]:
    count = sum(fill.count for fill in one.fills)
    cells = [one.local_time, moment(one.scheduled_for), one.name, str(count) if count else "", _fills(one, short=False)]
    return [[Span(cell)] for cell in (*cells, one.problem or one.remark or "", one.timezone)]


def show_ticked(done: Ticked) -> None:
    """What came of a tick by hand."""
    draw([[*status(done.status), Span(f"  {done.tick_id}")]])
    if done.reason:
        click.echo(text(done.reason))
    if done.run_id is not None:
        note(f"servo run show {done.run_id}")

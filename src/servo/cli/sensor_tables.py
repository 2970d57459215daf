"""Sensors on the terminal: what there are, what they found, and what became of it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from servo.answers.values import moment, text
from servo.cli.automation import NOT_DEPLOYED, stamped, status, when
from servo.cli.output import at_most, coloured_table, draw, duration, note, short_id
from servo.ui.marks import DIM, Line, Span, counted

if TYPE_CHECKING:
    from servo.answers.automations import Accepted, AskedRun, EvalView, SensorView
    from servo.cli.services import Services

_OUTCOMES = {"started": "green", "duplicate": DIM, "conflict": "red", "dropped": "yellow"}
_MOST_RUNS = 20  # lines; --json has them all


def show_list(found: Sequence[SensorView], now: datetime) -> None:
    """A row for each. On a terminal times are relative, in a pipe they are absolute."""
    terminal = sys.stdout.isatty()
    rows: list[list[Line]] = [
        [
            _state(one),
            [Span(one.name, bold=True)],
            [Span(_kind(one))],
            status(one.last_status),
            when(one.last_evaluation_at, now, terminal=terminal),
            [Span(one.cursor or "")],
            [Span(one.last_reason or "")],
            [Span(str(one.failures) if one.failures else "", "red")],
            [Span(one.source or one.created_by or "")],
            [Span(one.sensor_id)],
        ]
        for one in found
    ]
    names = ["state", "name", "kind", "last", "evaluated", "cursor", "reason", "failures", "from", "sensor"]
    if terminal:
        names, rows = names[:7], [row[:7] for row in rows]
    coloured_table(names, rows, counted(len(found), "sensor"))
    if terminal and any(not one.deployed for one in found):
        note(NOT_DEPLOYED)


def _state(one: SensorView) -> Line:
    if not one.enabled:
        return [Span("paused", "yellow")]
    if one.failures:
        return [Span("failing", "red")]
    return [Span("on", "green")] if one.deployed else [Span("new", "cyan")]


def _kind(one: SensorView) -> str:
    watch = "" if one.watch is None else f" {one.watch.get('kind', 'watch')}"
    return one.kind + watch if one.kind == "push" else f"{one.kind}{watch}, {duration(one.min_interval_seconds)}"


def show_one(one: SensorView, now: datetime) -> None:
    """What it looks at, and how it stands."""
    draw([[*_state(one), Span(f"  {one.name}", bold=True), Span(f"  {one.sensor_id}, version {one.version}", DIM)]])
    if one.description:
        click.echo(text(one.description.splitlines()[0]))
    click.echo(f"kind       {_kind(one)}")
    if one.watch is not None:
        click.echo(f"watches    {text({key: value for key, value in one.watch.items() if key != 'kind'})}")
    if one.select:
        click.echo(f"selects    {text(one.select)}{f' @ {text(one.partitions)}' if one.partitions else ''}")
    if one.timeout_seconds is not None:
        click.echo(f"timeout    {duration(one.timeout_seconds)}")
    origin = f"declared at {one.source}" if one.declared else f"created by {text(one.created_by)}"
    click.echo(f"origin     {origin}{'' if one.deployed else ', not deployed yet'}")
    if one.kind == "poll":
        at = "none yet" if one.cursor is None else f"{text(one.cursor):.200}"
        click.echo(f"cursor     {at} (state version {one.state_version})")
    click.echo(f"evaluated  {stamped(one.last_evaluation_at, now)}")
    if one.quiet_polls:
        why = f": {text(one.quiet_reason)}" if one.quiet_reason else ""
        click.echo(f"looked     {stamped(one.last_polled_at, now)}; {_quiet(one.quiet_polls, one.quiet_since)}{why}")
    if one.kind == "poll" and one.enabled:
        click.echo(f"next       {'with the next pass' if one.next_at is None else stamped(one.next_at, now)}")
    if one.last_status is not None:
        why = f": {text(one.last_reason)}" if one.last_reason else ""
        draw([[Span("last       "), *status(one.last_status), Span(why)]])
    if one.failures:
        click.echo(f"failures   {one.failures} in a row")
    note(f"servo sensor evals {one.name}")


def show_evals(found: Sequence[EvalView], limit: int, now: datetime) -> None:
    """A row for each on a terminal; in a pipe a row for each run that was asked for, too."""
    if not sys.stdout.isatty():
        _rows_of_all(found)
        return
    rows: list[list[Line]] = [
        [
            status(one.status),
            when(one.evaluated_at, now),
            [Span(one.trigger)],
            _outcomes(one.runs),
            [Span(one.message_id or one.cursor_after or one.request_id or "")],
            [Span(_reason(one))],
        ]
        for one in found
    ]
    footer = at_most(len(found), "evaluation", limit, "--before and --limit")
    coloured_table(["status", "evaluated", "by", "runs", "message or cursor", "reason"], rows, footer)
    for one in found:
        told = [run for run in one.runs if run.outcome in ("duplicate", "conflict")]
        for run in told[:_MOST_RUNS]:
            first = f", first asked for by {run.first_by}" if run.first_by else ""
            words = f"  {run.run_key}: the key of {short_id(run.run_id)}{first}"
            draw([[Span(f"{run.outcome:<9}", _OUTCOMES[run.outcome]), Span(words)]])
        if len(told) > _MOST_RUNS:
            note(f"and {len(told) - _MOST_RUNS} more: see --json")


def _quiet(number: int, since: datetime | None) -> str:
    at = "" if since is None else f" since {moment(since.replace(microsecond=0))}"
    return f"looked {number:,} {'time' if number == 1 else 'times'}{at}, nothing new"


def _reason(one: EvalView) -> str:
    """Why it ended so; of a poll also how often nothing was found before it."""
    before = f"before: {_quiet(one.quiet_polls, one.quiet_since)}" if one.quiet_polls else ""
    return "; ".join(part for part in (one.reason, before) if part)


def _rows_of_all(found: Sequence[EvalView]) -> None:
    names = ["status", "evaluated", "by", "message", "cursor", "reason", "run key", "outcome", "run", "run status"]
    names += ["first by", "event_id"]
    rows: list[list[Line]] = []
    for one in found:
        begin = [one.status, moment(one.evaluated_at), one.trigger, one.message_id, one.cursor_after, _reason(one)]
        asked: Sequence[AskedRun | None] = one.runs or [None]
        for run in asked:
            of_run = [None] * 5 if run is None else [run.run_key, run.outcome, run.run_id, run.run_status, run.first_by]
            rows.append([[Span(cell or "")] for cell in (*begin, *of_run, one.event_id)])
    coloured_table(names, rows)


def _outcomes(runs: Sequence[AskedRun]) -> Line:
    line: Line = []
    for outcome, number in Counter(run.outcome for run in runs).items():
        line += [Span(" " if line else ""), Span(f"{number} {outcome}", _OUTCOMES[outcome])]
    return line


def _asked_for(here: Services, partitions: dict[str, Any]) -> list[str]:
    """Of each asset which partitions, in words."""
    from servo.partitions import PartitionSet  # noqa: PLC0415 (lists need not wait for calendars and zones)

    sets = {
        key: PartitionSet.from_json(here.definition(key, as_of=None), one, clip=True) for key, one in partitions.items()
    }
    return [f"{key}  {some.describe() or 'all of it'}" for key, some in sets.items()]


def show_accepted(here: Services, done: Accepted, *, dry_run: bool) -> None:
    """What came of a message, or of an evaluation by hand."""
    again = "  (it came before: nothing new was written)" if done.duplicate else ""
    tried = "  (dry run: nothing was written)" if dry_run else ""
    draw([[*status(done.status), Span(f"  {done.eval_id}"), Span(again or tried, DIM)]])
    if done.reason:
        click.echo(text(done.reason))
    for key, run_id in list(zip(done.run_keys, done.run_ids, strict=False))[:_MOST_RUNS]:
        new = "" if run_id in done.started else "  (it is there already: nothing is started)"
        draw([[Span(f"  {run_id}"), Span(f"  {key}{new}", DIM)]])
        for line in _asked_for(here, done.asked.get(run_id, {})):
            click.echo(f"    {text(line)}")
    if len(done.run_keys) > _MOST_RUNS:
        note(f"and {len(done.run_keys) - _MOST_RUNS} more: see --json")

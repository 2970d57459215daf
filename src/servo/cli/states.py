"""States of runs, tasks and partitions: their colours, and which of them are the end."""

from __future__ import annotations

import click

ENDED = frozenset({"SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED"})

COLOURS = {
    "RUNNING": "cyan",
    "RETRY_WAIT": "yellow",
    "WAITING_APPROVAL": "magenta",
    "CANCELLING": "yellow",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "SKIPPED": "yellow",
    "CANCELLED": "yellow",
    "APPROVED": "green",
    "REJECTED": "red",
    "EXPIRED": "red",
    "SUPERSEDED": "yellow",
}
_MARKS = {"SUCCEEDED": "✓", "APPROVED": "✓"} | dict.fromkeys(
    ("FAILED", "CANCELLED", "REJECTED", "EXPIRED", "SUPERSEDED"), "✗"
)


def coloured(state: str) -> str:
    """The state in its colour; Click drops the colour where nobody would see it."""
    return click.style(state, fg=COLOURS.get(state))


def marked(state: str) -> str:
    """The same with a mark in front that can be told without colours."""
    return click.style(f"{_MARKS.get(state, '·')} {state}", fg=COLOURS.get(state))


def duration(seconds: float) -> str:
    """As people say it: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 07 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def counted(number: int, what: str) -> str:
    """`1 partition`, `1,200 partitions`."""
    return f"{number:,} {what}{'s'[: number != 1]}"

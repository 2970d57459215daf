"""The one law of folding: how two things said about a row become one.

Each group of columns keeps its newest contribution, or its first. This is commutative, associative and idempotent, so
neither order nor repetition of events matters beyond what their versions say.
"""

from __future__ import annotations

from typing import Any, TypeVar

from servo.fold.rows import Row, all_groups

R = TypeVar("R", bound=Row)


def merge(one: R, other: R) -> R:
    """The row that both contributions together describe. Both must have the same table and key."""
    table = type(one)
    merged: dict[str, Any] = {name: getattr(one, name) for name in table.key}
    for group in all_groups(table):
        winner = _winner(one, other, group.version, first=group.keep == "first")
        merged.update({name: getattr(winner, name) for name in (group.version, *group.columns)})
    return table(**merged)


def _winner(one: R, other: R, version: str, *, first: bool) -> R:
    mine, theirs = getattr(one, version), getattr(other, version)
    if mine is None or theirs is None:
        return other if mine is None else one
    return one if (mine <= theirs) == first else other

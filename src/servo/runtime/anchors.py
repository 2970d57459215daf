"""What the projections remember of the ledger, as witnesses from outside.

A ledger whose newest events are cut off, head included, is sound in itself, and so is one whose chain was forged anew
from some event on. But each version of the projections keeps the position and the chain hash that it was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from servo.errors import ServoError
from servo.ledger.history import History
from servo.ledger.verify import Verification
from servo.ledger.walk import MOST_PROBLEMS, Problem

if TYPE_CHECKING:
    from servo.projections import Manifest, Store


def witnesses(store: Store) -> tuple[list[Manifest], str | None]:
    """The versions that are still kept, one for each position; none and the reason where they cannot be read."""
    try:
        versions = store.versions()
    except ServoError as problem:
        return [], str(problem)  # damaged projections say nothing about the ledger
    return list({version.watermark.position: version for version in versions}.values()), None


def compared(found: Verification, versions: Iterable[Manifest], history: History) -> Verification:
    """What was found, and where the ledger contradicts versions that were made before it was looked at."""
    problems = [*found.problems, *_contradictions(found, sorted(versions, key=_position), history)]
    problems.sort(key=lambda problem: problem.position)
    return msgspec.structs.replace(found, problems=problems[:MOST_PROBLEMS])


def _contradictions(found: Verification, versions: list[Manifest], history: History) -> Iterator[Problem]:
    end = found.head.position
    if versions and _position(versions[-1]) > end:
        newest = versions[-1]
        detail = (
            f"the ledger ends at position {end}, but version {newest.version} of the projections was made from"
            f" events up to {_position(newest)}"
        )
        yield Problem(position=end + 1, kind="removed", detail=detail)
    for version in versions:
        if 0 < _position(version) <= end:
            yield from _contradiction(version, history)


def _contradiction(version: Manifest, history: History) -> Iterator[Problem]:
    mark = version.watermark
    try:
        events = history.read(mark.position - 1, 1)
    except (ServoError, ValueError, OverflowError):
        return  # it cannot be read, and the walk along the chain said so
    if events and events[0].chain_hash != mark.chain_hash:
        detail = (
            f"event {events[0].event_id} is not what version {version.version} of the projections was made from,"
            f" which was {mark.event_id} with the chain hash {mark.chain_hash}"
        )
        yield Problem(position=mark.position, kind="changed", detail=detail)


def _position(version: Manifest) -> int:
    return version.watermark.position

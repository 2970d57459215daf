"""New files: below a folder of this machine, or wherever Arrow's file systems reach.

A file came when its status last changed (ctime: moving a file in, or writing it, sets it, and nobody can set it back),
or when the folder was moved in that it is in. Files are given in that order. The cursor is a place in this order, the
floor, below which everything has been found, and the identities of what was found beyond it: so a file which turns up
with a time that is a little older than that of others is found too. What one look gives stays beyond the floor until
the next: whatever is made while a look goes on is found by the one after it, however long it takes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from heapq import nsmallest
from typing import NamedTuple

from servo.assets import patterns
from servo.assets.evaluation import FoundFile
from servo.assets.watch_cursors import IDENTITY_BYTES, FilesCursor
from servo.assets.watches import NewFiles
from servo.runtime.watches.folders import CLOSED, Listing, Walk, listing_at, walked
from servo.runtime.watches.found import LIMIT, Found
from servo.runtime.wiring import Project

__all__ = ["find", "new_files"]

_MOST_SEEN = 2_500  # identities beyond the floor: more than two looks can give
_MOST_FOLDERS = 256
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST = 300  # characters of a path in a key; keys of runs are kept in indexes

Place = tuple[int, str]  # when a file came, and its identity in hexadecimal


class _Seen(NamedTuple):
    """A file beyond the floor."""

    place: Place
    changed: int
    path: str
    size: int
    modified: int
    values: dict[str, str]


def new_files(watch: NewFiles, cursor: str | None, project: Project) -> Found:
    """Versions of files that were not found before; without a cursor, all that are there."""
    pattern = patterns.read(watch.pattern)
    listing = listing_at(pattern.root, project.settings.root)
    settled = None
    if watch.settle:
        settled = (project.clock() - watch.settle - _EPOCH) // timedelta(microseconds=1) * 1_000
    return find(pattern, listing, cursor, settled=settled)


def find(
    pattern: patterns.Pattern, listing: Listing, cursor: str | None, *, settled: int | None = None, limit: int = LIMIT
) -> Found:
    """The same for any listing. `settled`: what has changed after this moment, in nanoseconds, has to wait."""
    before = FilesCursor.read(cursor)
    seen = before.identities()
    walk = Walk(before.since, before.known_folders(), listing.overlap, before.floor[0])
    known: list[Place] = []  # found before, and still there beyond the floor

    def fresh() -> Iterable[_Seen]:
        for file in walked(pattern, listing, walk):
            came = max(file.changed, file.arrived)
            if came < before.floor[0]:  # as nearly all are: it takes no hash to tell
                continue
            identity = _identity(file.path, file.modified, file.size)
            place = (came, identity.hex())
            if place <= before.floor:
                continue
            if identity in seen:
                known.append(place)
            else:
                yield _Seen(place, file.changed, file.path, file.size, file.modified, file.values)

    # In order, up to the first that has to wait: so that there is one place up to which everything was found.
    waiting = nsmallest(limit + 1, fresh(), key=lambda one: one.place)
    given = waiting[:limit]
    if settled is not None:
        given = given[: next((place for place, one in enumerate(given) if one.changed > settled), len(given))]
    if not given and cursor is not None:
        return Found(cursor=cursor)
    left = waiting[len(given)].place if len(given) < len(waiting) else None
    after = _moved_on(before, walk, known, [one.place for one in given], left)
    items = [_item(one) for one in sorted(given, key=lambda one: (one.place[0], one.path))]
    return Found(items=items, cursor=after.text(), more=len(waiting) > limit)


def _moved_on(
    before: FilesCursor, walk: Walk, known: list[Place], given: list[Place], left: Place | None
) -> FilesCursor:
    """The cursor after a look: `known` was found before, `left` is the first that is still to be found."""
    found = sorted([*known, *given])
    recent = found[-1][0] - walk.overlap if found else -1
    # What may go below the floor: nothing beyond what is left, nor of this look, for others came while it went on.
    first = min([*given, *([] if left is None else [left])], default=(recent, ""))
    low = bisect_left(found, min(first, (recent, "")))
    low = max(low, min(len(found) - _MOST_SEEN, len(found) if left is None else bisect_left(found, left)))
    # Folders whose files are still to be found have to be remembered, and the first of all.
    folders = list(walk.folders.values())
    first_of_all, others = folders[:1], folders[1:]
    pending = {one.identity for one in others if one.arrived == CLOSED or (left is not None and one.arrived >= left[0])}
    since = walk.newest if len(pending) < _MOST_FOLDERS else min(walk.newest, found[-1][0] if found else -1)
    others.sort(key=lambda one: (one.identity in pending, one.changed), reverse=True)
    remembered = (first_of_all + others)[:_MOST_FOLDERS]
    return FilesCursor(
        floor=max(before.floor, found[low - 1]) if low else before.floor,
        seen=FilesCursor.packed(bytes.fromhex(identity) for _, identity in found[low:]),
        since=since,
        folders=FilesCursor.packed_folders((one.identity, one.arrived) for one in remembered),
    )


def _identity(path: str, modified: int, size: int) -> bytes:
    text = f"{modified}:{size}:{path}"
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=IDENTITY_BYTES).digest()


def _item(one: _Seen) -> FoundFile:
    path = _readable(one.path)
    shown = path if len(path) <= _LONGEST and path == one.path else f"{path[:_LONGEST]}~{_hash(one.path)}"
    return FoundFile(
        key=f"{shown}:{one.modified}:{one.size}",
        values={name: _readable(text) for name, text in one.values.items()},
        path=path,
        size=one.size,
        modified=_EPOCH + timedelta(microseconds=one.modified // 1_000),
    )


def _readable(text: str) -> str:
    """A name as text that can be kept: what is not UTF-8, or not printable, is written as an escape."""
    if text.isprintable():
        return text
    raw = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in raw)


def _hash(path: str) -> str:
    return blake2b(path.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()

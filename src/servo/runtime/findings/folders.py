"""Walking through folders by a pattern, and telling which of them have been moved in with all that is in them.

A file that is moved changes its time; what is in a folder that is moved does not. So folders are known by what they
are: one that changed since the last look, in a folder that changed as well, and is not known, has come since. One
that is taken for new although it is not is harmless: its files are found again under the keys that they had before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from servo.assets.patterns import DEEP, Pattern, matcher
from servo.assets.watch_cursors import IDENTITY_BYTES
from servo.errors import StorageFailed
from servo.runtime.findings.listing import Entry, Listing

__all__ = ["CLOSED", "Folder", "Walk", "Walked", "walked"]

_log = logging.getLogger("servo.watches")

CLOSED = -1
"""Instead of when a folder came: it could not be read. Once it can be, all that is in it is new."""


class Folder(NamedTuple):
    """A folder on the way, and when it came: 0 if it was there at the first look."""

    identity: bytes
    arrived: int
    changed: int


class Walked(NamedTuple):
    """A file that fits the pattern."""

    path: str
    changed: int
    modified: int
    size: int
    arrived: int  # when the latest of the folders above it came
    values: dict[str, str]


class Walk:
    """What is known of folders: before a walk from the cursor, after it from the walk."""

    def __init__(self, since: int | None, known: dict[bytes, int], overlap: int, floor: int) -> None:
        self._since, self._known, self.overlap, self._floor = since, known, overlap, floor
        self.newest = -1 if since is None else since
        self.folders: dict[bytes, Folder] = {}  # the first is the one in which it begins

    def enter(self, path: str, entry: Entry, *, above: bool) -> Folder:
        """Take a folder into account. `above`: whether the one that it is in may have got something new."""
        text = f"{entry.identity}:{path}"
        identity = blake2b(text.encode("utf-8", "surrogateescape"), digest_size=IDENTITY_BYTES).digest()
        arrived = self._known.get(identity)
        if arrived is None:
            arrived = entry.changed if above and self.is_recent(entry) else 0
        elif arrived == CLOSED:
            arrived = max(entry.changed, self._floor + 1)
        folder = Folder(identity, arrived, entry.changed)
        if entry.identity:
            self.folders[identity] = folder
        self.newest = max(self.newest, entry.changed)
        return folder

    def close(self, folder: Folder) -> None:
        """A folder could not be read."""
        self.folders[folder.identity] = folder._replace(arrived=CLOSED)

    def is_recent(self, entry: Entry) -> bool:
        """Whether something may have happened to it since the last look; there was none at the first."""
        return self._since is not None and entry.changed > self._since - self.overlap


def walked(pattern: Pattern, listing: Listing, walk: Walk) -> Iterator[Walked]:
    """The files that fit, in any order, each once."""
    root = listing.root()
    if root is None:
        return
    first = walk.enter("", root, above=True)
    # What is still to be looked into: a folder, which parts of the pattern may come next, when it came, what was kept.
    pending = [("", root, first, _reached(pattern.parts, {0: {}}), first.arrived)]
    while pending:
        path, here, folder, states, arrived = pending.pop()
        steps = _Steps(pattern.parts, states)
        recent = walk.is_recent(here)
        start = f"{path}/" if path else ""
        for entry in _readable(listing, path, walk, folder):
            inner = start + entry.name
            if not entry.folder:
                if steps.file is not None and (kept := steps.file(entry.name)) is not None:
                    shown = listing.shown + inner
                    yield Walked(shown, entry.changed, entry.modified, entry.size, arrived, {**steps.values, **kept})
            elif below := steps.into(entry.name):
                entered = walk.enter(inner, entry, above=recent)
                pending.append((inner, entry, entered, below, max(arrived, entered.arrived)))


def _readable(listing: Listing, path: str, walk: Walk, folder: Folder) -> Iterator[Entry]:
    try:
        yield from listing.entries(path)
    except PermissionError as problem:
        if not path:  # nothing could ever be found
            hint = "give this user the right to read it"
            raise StorageFailed(f"{listing.shown or '.'}: {problem.strerror}", hint=hint) from problem
        _log.warning("%s%s cannot be read, and is passed over", listing.shown, ascii(path)[1:-1])
        walk.close(folder)


_States = dict[int, dict[str, str]]  # by how many parts have been matched: what was kept on the way


def _reached(parts: tuple[str, ...], states: _States) -> _States:
    """With `**` also matching no folder at all."""
    found = dict(states)
    for place in sorted(states):
        values = states[place]
        while place < len(parts) and parts[place] == DEEP:
            place += 1  # noqa: PLW2901 (on to what comes after it)
            found.setdefault(place, values)
    return found


class _Steps:
    """What may come next in one folder."""

    def __init__(self, parts: tuple[str, ...], states: _States) -> None:
        last = len(parts) - 1
        self._parts = parts
        self._deep = [(place, values) for place, values in states.items() if place < last and parts[place] == DEEP]
        self._named = [
            (place, values, matcher(parts[place], values))
            for place, values in states.items()
            if place < last and parts[place] != DEEP
        ]
        self.values = states.get(last, {})
        self.file = matcher(parts[last], self.values) if last in states else None

    def into(self, name: str) -> _States:
        """What may come next in a folder of this name; nothing if no file below it can fit."""
        found: _States = {} if name.startswith(".") else dict(self._deep)
        for place, values, matched in self._named:
            kept = matched(name)
            if kept is not None:
                found.setdefault(place + 1, {**values, **kept})
        return _reached(self._parts, found) if found else found

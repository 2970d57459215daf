"""New files: below a folder of this machine, or wherever Arrow's file systems reach.

A file came when its status last changed (ctime: moving a file in, or writing it, sets it, and nobody can set it back),
or when the folder was moved in that it is in. Files are given in that order. The cursor is a place in this order, the
floor, below which everything has been found, and the identities of what was found beyond it: so a file which turns up
with a time that is a little older than that of others is found too. What one look gives stays beyond the floor until
the next: whatever is made while a look goes on is found by the one after it, however long it takes.

A file that is moved changes its time; what is in a folder that is moved does not. So folders are known by what they
are: one that changed since the last look, in a folder that changed as well, and is not known, has come since. One
that is taken for new although it is not is harmless: its files are found again under the keys that they had before.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from servo.assets import patterns
from servo.assets.evaluation import MOST_ITEMS, FoundFile, WatchResult
from servo.assets.patterns import DEEP, Pattern, matcher
from servo.assets.watches import IDENTITY_BYTES, FilesCursor, NewFiles
from servo.errors import StorageFailed
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    import pyarrow.fs as pafs

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


def new_files(watch: NewFiles, cursor: str | None, project: Project) -> WatchResult:
    """Versions of files that were not found before; without a cursor, all that are there."""
    pattern = patterns.read(watch.pattern)
    listing = listing_at(pattern.root, project.settings.root)
    settled = None
    if watch.settle:
        settled = (project.clock() - watch.settle - _EPOCH) // timedelta(microseconds=1) * 1_000
    return find(pattern, listing, cursor, settled=settled)


def find(
    pattern: patterns.Pattern,
    listing: Listing,
    cursor: str | None,
    *,
    settled: int | None = None,
    limit: int = MOST_ITEMS,
) -> WatchResult:
    """Find new files of any listing. `settled`: what has changed after this moment, in nanoseconds, has to wait."""
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
        return WatchResult(cursor=cursor)
    left = waiting[len(given)].place if len(given) < len(waiting) else None
    after = _moved_on(before, walk, known, [one.place for one in given], left)
    items = [_item(one) for one in sorted(given, key=lambda one: (one.place[0], one.path))]
    return WatchResult(items=items, cursor=after.text(), more=len(waiting) > limit)


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


# ── walking through folders ──────────────────────────────────────────────────────────────────────────────────────────


_log = logging.getLogger("servo.watches")


CLOSED = -1
"""Instead of when a folder came: it could not be read. Once it can be, all that is in it is new."""
_NS = 1_000_000_000


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
    """The known folders: before a walk from the cursor, after it from the walk."""

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
        for entry in _entries(listing, path, walk, folder):
            inner = start + entry.name
            if not entry.folder:
                if steps.file is not None and (kept := steps.file(entry.name)) is not None:
                    shown = listing.shown + inner
                    yield Walked(shown, entry.changed, entry.modified, entry.size, arrived, {**steps.values, **kept})
            elif below := steps.into(entry.name):
                entered = walk.enter(inner, entry, above=recent)
                pending.append((inner, entry, entered, below, max(arrived, entered.arrived)))


def _entries(listing: Listing, path: str, walk: Walk, folder: Folder) -> Iterator[Entry]:
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
    """The states, and those that `**` reaches by matching no folder at all."""
    found = dict(states)
    for place in sorted(states):
        values = states[place]
        while place < len(parts) and parts[place] == DEEP:
            place += 1  # noqa: PLW2901 (on to what comes after it)
            found.setdefault(place, values)
    return found


class _Steps:
    """The parts of a pattern that may come next in one folder."""

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


# ── listings ─────────────────────────────────────────────────────────────────────────────────────────────────────────
#
# What is in a folder, and when it came there: on this machine, or wherever Arrow's file systems reach.


class Entry(NamedTuple):
    """A file or folder. Times are in nanoseconds since 1970."""

    name: str
    folder: bool
    changed: int  # when it came here, or was written
    modified: int  # when it was written, as far as anybody knows
    size: int
    identity: str  # of a folder: another one at the same place has another


class Listing(Protocol):
    """A folder, and what is below it. Paths are relative to it, with slashes."""

    shown: str  # what paths begin with when they are shown
    overlap: int  # by how many nanoseconds something may turn up too late

    def root(self) -> Entry | None:
        """The folder itself; None if it is not there."""

    def entries(self, path: str) -> Iterator[Entry]:
        """What is in a folder, in any order; nothing if it has vanished. PermissionError where it may not be read."""


def listing_at(root: str, home: Path) -> Listing:
    """The listing of a folder, from the project's folder on, or of an address such as `s3://bucket/prefix`."""
    if "://" not in root:
        return FolderListing(home, root)
    # Arrow comes with this import, and most watches do without.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.fs as pafs  # noqa: PLC0415

    # The bucket alone is an address: what comes after it may hold what no address can.
    scheme, _, rest = root.partition("://")
    bucket, _, below = rest.partition("/")
    try:
        system, path = pafs.FileSystem.from_uri(f"{scheme}://{bucket}")
    except (OSError, ValueError, pa.ArrowException) as problem:
        raise StorageFailed(f"{root}: {problem}", hint="give an address that Arrow can open") from problem
    return StoreListing(system, f"{path.rstrip('/')}/{below}", root)


class FolderListing:
    """A folder of this machine. Links below it are nothing that appears there, and are not followed."""

    overlap = 60 * _NS

    def __init__(self, home: Path, root: str) -> None:
        self.shown = "" if root == "." else root if root.endswith("/") else f"{root}/"
        self._root = os.path.join(home, root)  # noqa: PTH118 (what is not UTF-8 stays as it is)

    def root(self) -> Entry | None:
        try:
            found = os.stat(self._root)  # noqa: PTH116 (as above; this one may be a link, for people wrote it down)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as problem:
            raise _unreadable(self._root, problem) from problem
        return _entry("", found) if stat.S_ISDIR(found.st_mode) else None

    def entries(self, path: str) -> Iterator[Entry]:
        try:
            with os.scandir(f"{self._root}/{path}") as listed:
                for one in listed:
                    try:
                        found = one.stat(follow_symlinks=False)
                    except OSError:  # gone since it was listed
                        continue
                    if stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode):
                        yield _entry(one.name, found)
        except (FileNotFoundError, NotADirectoryError):
            return
        except PermissionError:
            raise
        except OSError as problem:
            if problem.errno == errno.ENAMETOOLONG:  # nobody could open what is in it
                return
            raise _unreadable(f"{self._root}/{path}", problem) from problem


def _entry(name: str, found: os.stat_result) -> Entry:
    return Entry(
        name,
        stat.S_ISDIR(found.st_mode),
        found.st_ctime_ns,
        found.st_mtime_ns,
        found.st_size,
        f"{found.st_dev}:{found.st_ino}",
    )


def _unreadable(path: str, problem: OSError) -> StorageFailed:
    shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return StorageFailed(f"{shown:.200}: {problem.strerror or problem}", hint="see whether this user may read it")


class StoreListing:
    """An object store. It knows when something was written, by its own clock, and folders are only names."""

    # A large object may have the time at which its upload began, and turns up when that has ended.
    overlap = 6 * 3_600 * _NS

    def __init__(self, system: pafs.FileSystem, path: str, address: str) -> None:
        self.shown = f"{address.rstrip('/')}/"
        self._system, self._path = system, path.rstrip("/")

    def root(self) -> Entry | None:
        return Entry("", True, 0, 0, 0, "")

    def entries(self, path: str) -> Iterator[Entry]:
        # Arrow, as above.
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.fs as pafs  # noqa: PLC0415

        where = f"{self._path}/{path}".rstrip("/")
        try:
            listed = self._system.get_file_info(pafs.FileSelector(where, allow_not_found=True))
        except (OSError, pa.ArrowException) as problem:
            hint = "see whether the store can be reached, and whether its credentials are in the environment"
            raise StorageFailed(f"{self.shown}{path}: {problem!s:.200}", hint=hint) from problem
        for one in listed:
            if one.type == pafs.FileType.Directory:
                yield Entry(one.base_name, True, 0, 0, 0, "")
            elif one.type == pafs.FileType.File:
                written = one.mtime_ns or 0
                yield Entry(one.base_name, False, written, written, one.size or 0, "")

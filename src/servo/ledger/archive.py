"""The old part of a ledger, moved to immutable Parquet files.

    root/{tenant}/{workspace}/index.json                            what the archive holds; swapped atomically
    root/{tenant}/{workspace}/segments/{first}-{last}.parquet       written once, never touched again
    root/{tenant}/{workspace}/archive.lock                          one archiver at a time

A file that the index does not name does not exist for any reader. Events are in the index, checked and on disk, before
they leave the ledger: at every moment each event is in one of the two, or for a while in both.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from servo import decoders
from servo.errors import Conflict, InvalidInput, LedgerCorrupt, StorageFailed
from servo.events import GENESIS, RecordedEvent, chain
from servo.events.fact import to_micros
from servo.faults import reach
from servo.ids import ulid_offset
from servo.ledger.protocol import Head, Ledger, Workspace

if TYPE_CHECKING:
    from servo.ledger.segments import SegmentFile

Progress = Callable[[int, int], None]  # how many events are done, of how many

_BATCH_BYTES = 8 << 20
_BATCH_EVENTS = 8192
_FIRST_BATCH = 256  # before anything is known about how large the events are
_EVENT_OVERHEAD = 400  # what an event weighs besides its payload, roughly
_SEGMENT_BYTES = 512 << 20
_TRIM_STEP = 10_000  # appenders wait for one step, not for a whole segment
_FIRST_ULID = "0" * 26
_RANDOM_BITS = 80
_FILE_NAME = re.compile(r"(?P<first>\d{20})-(?P<last>\d{20})\.parquet")


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """What the index says about one file."""

    file: str
    first: int
    last: int
    first_event_id: str
    last_event_id: str
    chain_before: str
    chain_hash: str
    count: int
    bytes: int
    sha256: str


class _Index(msgspec.Struct, frozen=True, kw_only=True):
    format: int = 1
    tenant: str
    workspace: str
    segments: tuple[Segment, ...] = ()


class ArchiveReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of the archiver moved; positions are 0 where it was nothing."""

    first: int = 0
    last: int = 0
    count: int = 0
    bytes: int = 0


class Archive:
    """The archived part of one workspace. Safe to use from several threads, beside an archiver elsewhere."""

    def __init__(self, root: Path, workspace: Workspace) -> None:
        self.workspace = workspace
        self._folder = root / workspace.tenant / workspace.name
        self._index_path = self._folder / "index.json"
        self._loaded: tuple[tuple[int, ...], tuple[Segment, ...]] | None = None
        self._opened: tuple[Segment, SegmentFile] | None = None
        self._reading = threading.Lock()
        self._spoken_of: dict[tuple[str, str], array[int]] = {}  # hashes of subjects, by segment and type of event

    # ── what it holds ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first, as the index has them now: it is looked at again whenever it was swapped."""
        try:
            status = self._index_path.stat()
            signature = (status.st_ino, status.st_mtime_ns, status.st_size)
            if self._loaded is None or self._loaded[0] != signature:
                self._loaded = (signature, self._parsed(self._index_path.read_bytes()))
        except FileNotFoundError:
            return ()
        except OSError as problem:
            raise StorageFailed(f"{self._index_path}: {problem.strerror}", hint="check the disk") from problem
        return self._loaded[1]

    @property
    def last_position(self) -> int:
        segments = self.segments
        return segments[-1].last if segments else 0

    @property
    def last_event_id(self) -> str | None:
        segments = self.segments
        return segments[-1].last_event_id if segments else None

    @property
    def chain_hash(self) -> str:
        segments = self.segments
        return segments[-1].chain_hash if segments else GENESIS

    def path(self, segment: Segment) -> Path:
        return self._folder / "segments" / segment.file

    def paths(self) -> list[Path]:
        """The files, oldest first: the list to give to Spark or DuckDB, since others may lie beside them."""
        return [self.path(segment) for segment in self.segments]

    def read(self, after: int, limit: int = 1000) -> list[RecordedEvent]:
        """The next archived events after a position, oldest first, at most `limit`."""
        events: list[RecordedEvent] = []
        segments = self.segments
        for segment in segments[bisect_right(segments, after, key=lambda each: each.last) :]:
            if len(events) >= limit:
                break
            row = max(after + 1 - segment.first, 0)
            with self._reading:
                events += self._open(segment).read(row, limit - len(events))
        return events

    def position_at(self, event_id: str) -> int:
        """The position of the newest archived event whose id is not greater than `event_id`; 0 if there is none."""
        segments = self.segments
        number = bisect_right(segments, event_id, key=lambda each: each.first_event_id)
        if number == 0:
            return 0
        segment = segments[number - 1]
        if event_id >= segment.last_event_id:
            return segment.last
        with self._reading:
            return segment.first - 1 + bisect_right(self._open(segment).event_ids(), event_id)

    def find_key(self, idempotency_key: str, until: int) -> RecordedEvent | None:
        """The event with an idempotency key, if it is at a position up to this one."""
        for segment in self.segments:
            if segment.first > until:
                break
            with self._reading:
                file = self._open(segment)
                row = file.row_of_key(idempotency_key)
                if row is not None:
                    return file.read(row, 1)[0]
        return None

    def may_speak_of(self, subject: str, event_type: str) -> bool:
        """Whether an archived event of a type is about a subject. No is certain; yes may be an accident.

        Each segment is read once for a type: of its subjects nothing is kept but hashes.
        """
        wanted = hash(subject)
        return any(_holds(self._subjects(segment, event_type), wanted) for segment in self.segments)

    # ── for verification ────────────────────────────────────────────────────────────────────────────────────

    def damage(self, segment: Segment) -> str | None:
        """What is wrong with a file, judged by its bytes alone."""
        path = self.path(segment)
        try:
            with path.open("rb") as file:
                found = (os.fstat(file.fileno()).st_size, file_digest(file, "sha256").hexdigest())
        except FileNotFoundError:
            return f"the archived segment {path} is missing"
        except OSError as problem:
            raise StorageFailed(f"{path}: {problem.strerror}", hint="check the disk") from problem
        if found != (segment.bytes, segment.sha256):
            return f"the archived segment {path} is not the file that was written"
        return None

    def stored(self, segment: Segment) -> Iterator[list[RecordedEvent]]:
        """The events of a file as they are there, whether or not the file is still the one that was written."""
        return _segment_file()(self.path(segment)).batches()

    # ── for the archiver ─────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other archiver of this workspace out, in this process and in others."""
        with _storage(self._folder):
            (self._folder / "segments").mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / "archive.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(
                    f"somebody else is archiving {self.workspace.tenant}/{self.workspace.name} at this moment",
                    hint="wait until that is done, and repeat",
                ) from None
            yield
        finally:
            os.close(descriptor)

    def remove_leftovers(self, live_until: int) -> None:
        """Remove what an interrupted run left behind: files that the index does not name, of events still live."""
        named = {segment.file for segment in self.segments}
        with _storage(self._folder):
            for path in (self._folder / "segments").iterdir():
                name = _FILE_NAME.fullmatch(path.name)
                # Events beyond the ledger's end would be the only copy, after the ledger was set back to an old one.
                if name and path.name not in named and int(name["last"]) <= live_until:
                    path.unlink()

    def add(self, batches: Iterator[list[RecordedEvent]]) -> Segment:
        """Write, check and name one more segment."""
        folder = self._folder / "segments"
        unfinished = folder / "unfinished.tmp"
        with _storage(folder):
            try:
                _segment_file().write(unfinished, batches)
                segment = self._checked(unfinished)
                unfinished.replace(folder / segment.file)
            finally:
                unfinished.unlink(missing_ok=True)
            sync_file(folder)
            reach("archive.after_segment")
            self._swap_index((*self.segments, segment))
        reach("archive.after_index")
        return segment

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _subjects(self, segment: Segment, event_type: str) -> array[int]:
        name = (segment.sha256, event_type)
        found = self._spoken_of.get(name)
        if found is None:
            with self._reading:
                found = array("q", sorted(map(hash, self._open(segment).subjects(event_type))))
            self._spoken_of[name] = found
        return found

    def _open(self, segment: Segment) -> SegmentFile:
        if self._opened is None or self._opened[0] != segment:
            damage = self.damage(segment)
            if damage is not None:
                raise LedgerCorrupt(damage, hint="restore this file from a copy of the archive folder")
            self._opened = (segment, _segment_file()(self.path(segment)))
        return self._opened[1]

    def _parsed(self, text: bytes) -> tuple[Segment, ...]:
        try:
            index = decoders.decode(text, _Index)
        except msgspec.MsgspecError as problem:
            raise self._broken_index(str(problem)) from problem
        if (index.format, index.tenant, index.workspace) != (1, self.workspace.tenant, self.workspace.name):
            raise self._broken_index("it is the index of something else")
        position, chain_hash = 0, GENESIS
        for segment in index.segments:
            follows = (segment.first, segment.chain_before) == (position + 1, chain_hash)
            if not follows or segment.file != _file_name(segment.first, segment.last):
                raise self._broken_index(f"{segment.file} does not follow from the segment before it")
            position, chain_hash = segment.last, segment.chain_hash
        return index.segments

    def _broken_index(self, problem: str) -> LedgerCorrupt:
        return LedgerCorrupt(
            f"the archive's index {self._index_path} is damaged: {problem}",
            hint="restore it from a copy of the archive folder",
        )

    def _checked(self, path: Path) -> Segment:
        """Read back what was written and prove that it continues the archive; only then may events be trimmed."""
        first: RecordedEvent | None = None
        last_id, position, chain_hash = self.last_event_id or "", self.last_position, self.chain_hash
        chain_before = chain_hash
        for events in _segment_file()(path).batches():
            first = first or events[0]
            for event in events:
                position += 1
                scope = (event.tenant_id, event.workspace_id)
                if (
                    event.position != position
                    or event.event_id <= last_id
                    or scope != (self.workspace.tenant, self.workspace.name)
                    or event.chain_hash != chain(chain_hash, event)
                ):
                    raise LedgerCorrupt(
                        f"the event at position {position} does not follow from the one before it",
                        hint="run `servo ledger verify`; it was not archived and nothing was removed for it",
                    )
                last_id, chain_hash = event.event_id, event.chain_hash
        if first is None:
            raise LedgerCorrupt(f"{path} was written without events", hint="run `servo ledger verify`")
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
        return Segment(
            file=_file_name(first.position, position),
            first=first.position,
            last=position,
            first_event_id=first.event_id,
            last_event_id=last_id,
            chain_before=chain_before,
            chain_hash=chain_hash,
            count=position - first.position + 1,
            bytes=path.stat().st_size,
            sha256=digest,
        )

    def _swap_index(self, segments: tuple[Segment, ...]) -> None:
        index = _Index(tenant=self.workspace.tenant, workspace=self.workspace.name, segments=segments)
        unfinished = self._index_path.with_suffix(".tmp")
        with unfinished.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(index), indent=1))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._index_path)
        sync_file(self._folder)


def _holds(hashes: array[int], wanted: int) -> bool:
    place = bisect_left(hashes, wanted)
    return place < len(hashes) and hashes[place] == wanted


def archive_events(
    ledger: Ledger,
    archive: Archive,
    *,
    before: datetime,
    keys_before: datetime | None = None,
    segment_events: int = 50_000,
    progress: Progress | None = None,
) -> ArchiveReport:
    """Move the events that were recorded before a time from the ledger to its archive.

    Their idempotency keys stay in the ledger; those recorded before `keys_before` are forgotten there.

    Safe to interrupt at any moment and to repeat: nothing is lost, nothing is there twice. Raises Conflict while
    another archiver is at work, StorageFailed if the disk refuses, LedgerCorrupt if ledger and archive contradict
    each other; in each case nothing is trimmed that the archive does not hold.
    """
    if segment_events < 1:
        raise InvalidInput(f"a segment holds at least one event, not {segment_events}")
    forget_keys = "" if keys_before is None else last_id_of(_millisecond(keys_before) - 1)
    with archive.locked():
        reach("archive.begin")
        head = ledger.head()
        _require_same_story(ledger, archive, head)
        archive.remove_leftovers(live_until=head.position)
        start = archive.last_position
        _trim(ledger, head.trimmed_position, start, forget_keys)  # where an earlier run was interrupted
        end = ledger.position_at(last_id_of(_millisecond(before) - 1))
        moved = ArchiveReport()
        while archive.last_position < end:
            position = archive.last_position
            until = min(position + segment_events, end)
            segment = archive.add(_up_to_bytes(batches(ledger.read, position, until), _SEGMENT_BYTES))
            _trim(ledger, position, segment.last, forget_keys)
            reach("archive.after_trim")
            moved = ArchiveReport(
                first=start + 1,
                last=segment.last,
                count=segment.last - start,
                bytes=moved.bytes + segment.bytes,
            )
            if progress is not None:
                progress(moved.count, end - start)
        return moved


def batches(
    read: Callable[[int, int], list[RecordedEvent]], after: int, until: int | None
) -> Iterator[list[RecordedEvent]]:
    """Events after a position in lists bounded in number and, as far as can be foreseen, in bytes."""
    limit = _FIRST_BATCH
    while until is None or after < until:
        events = read(after, limit if until is None else min(limit, until - after))
        if not events:
            return
        yield events
        after = events[-1].position
        size = _EVENT_OVERHEAD + sum(len(event.payload) for event in events) // len(events)
        limit = max(16, min(_BATCH_EVENTS, _BATCH_BYTES // size))


def last_id_of(millisecond: int) -> str:
    """The greatest id that an event recorded in this millisecond since 1970 can have."""
    return ulid_offset(_FIRST_ULID, max((millisecond + 1 << _RANDOM_BITS) - 1, 0))


def last_id_at(moment: datetime) -> str:
    """The greatest id that an event recorded at a moment can have: ids know milliseconds."""
    return last_id_of(_millisecond(moment))


def _millisecond(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise InvalidInput(
            f"{moment.isoformat()} is a time without a timezone", hint="write it with one, such as a Z at the end"
        )
    return to_micros(moment) // 1000


def _require_same_story(ledger: Ledger, archive: Archive, head: Head) -> None:
    """Archive and ledger must meet without a gap and agree where they do, or else nothing may be moved."""
    last = archive.last_position
    if last < head.trimmed_position:
        raise missing_from_archive(last + 1, head.trimmed_position)
    if last > head.position:
        raise LedgerCorrupt(
            f"the archive goes to position {last}, but the ledger ends at {head.position}",
            hint="one of them was restored from an older copy; restore the other as well",
        )
    chain_hash = head.trimmed_chain_hash
    if last > head.trimmed_position:
        for segment in archive.segments:
            damage = archive.damage(segment) if segment.last > head.trimmed_position else None
            if damage is not None:
                raise LedgerCorrupt(damage, hint="restore this file; its events were not removed from the ledger")
        found = ledger.read(last - 1, 1)
        chain_hash = found[0].chain_hash if found else ""
    if chain_hash != archive.chain_hash:
        raise LedgerCorrupt(
            f"ledger and archive tell different stories at position {last}",
            hint="give the archive folder that belongs to this ledger; `servo ledger verify` says more",
        )


def missing_from_archive(first: int, last: int) -> LedgerCorrupt:
    """The error for events that left the ledger and are not in the archive."""
    return LedgerCorrupt(
        f"events {first}–{last} were moved to the archive, and it does not hold them",
        hint="restore the archive folder, or point Servo to where it is now",
    )


def _trim(ledger: Ledger, after: int, until: int, forget_keys: str) -> None:
    for position in (*range(after + _TRIM_STEP, until, _TRIM_STEP), until):
        ledger.trim(position, forget_keys)


def _up_to_bytes(parts: Iterator[list[RecordedEvent]], most: int) -> Iterator[list[RecordedEvent]]:
    """Stop after the batch that reaches so many bytes, so that no file grows beyond what one wants to copy."""
    for events in parts:
        yield events
        most -= sum(len(event.payload) for event in events)
        if most <= 0:
            return


def _file_name(first: int, last: int) -> str:
    return f"{first:020d}-{last:020d}.parquet"


def sync_file(path: Path) -> None:
    """See to it that a file, or the names in a folder, survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _storage(path: Path) -> Iterator[None]:
    """Turn the disk's own errors into one clear line."""
    try:
        yield
    except OSError as problem:
        raise StorageFailed(
            f"{path}: {problem.strerror or problem}",
            hint="free some space or make the folder writable, and repeat; nothing was removed from the ledger",
        ) from problem


def _segment_file() -> type[SegmentFile]:
    # The one lazy import: pyarrow takes half a second, and most commands never open an archived file.
    from servo.ledger.segments import SegmentFile  # noqa: PLC0415

    return SegmentFile

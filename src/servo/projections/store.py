"""Where versions of the projections lie on disk.

    files/<table>/<id>.parquet     immutable, written and synced before any manifest names them
    manifests/<version>-<epoch>    immutable, one per version
    CURRENT                        the pointer, swapped by a rename: a reader sees the old version or the new, whole
    EPOCH                          the fencing number: only its newest holder may swap the pointer
    LOCK                           held while the epoch is taken and the pointer swapped, never while folding
    WORK                           held while folding, so that compactors take turns; whoever does not ask is fenced
    staging/<id>/                  what a replay on Spark is making

`require_same_ledger` says whether projections and a ledger belong together. Events that only a newer Servo understands
are kept and skipped, never silently (`warn_of_unknown`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TextIO

import msgspec

from servo import decoders
from servo.errors import (
    FencedOut,
    ProjectionDamaged,
    ProjectionError,
    ProjectionMissing,
    SchemaTooNew,
    ServoError,
    StorageFailed,
)
from servo.faults import reach
from servo.fold.batch import Batch
from servo.ledger.archive import sync_file
from servo.ledger.history import History
from servo.projections.manifest import REBUILD, FileRef, Manifest, decode, encode, require_intact
from servo.projections.thinning import Thinning

log = logging.getLogger(__name__)

# A reader that opened a version may go on with it for this long.
KEEP_FOR = timedelta(minutes=10)
# Seconds between two attempts to become the one at work, and after which to say that somebody else is.
_LOOK_AGAIN, _SAY_SO = 0.05, 1.0


# Version and epoch.
_NAME = re.compile(r"[0-9]{12,}-[0-9]{6,}\.json")


class _Pointer(msgspec.Struct):
    manifest: str
    sha256: str


class Store:
    """The projections of one workspace."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._manifests = root / "manifests"
        self._pointer = root / "CURRENT"

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def current(self) -> Manifest:
        """The newest version, or an empty one at position 0 where nothing was ever published.

        One of an older fold counts as empty: all events are folded again, on top of it.
        """
        pointer = self._read_pointer()
        if pointer is None:
            return Manifest()
        found = self._published(pointer)
        if found.is_complete:
            return found
        return Manifest(version=found.version, epoch=found.epoch, created_at=found.created_at, replayed=found.version)

    def _read_pointer(self) -> _Pointer | None:
        """What the pointer names, or None where nothing was ever published; ProjectionDamaged if it names nothing."""
        try:
            pointer = decoders.decode(self._pointer.read_bytes(), _Pointer)
            if _NAME.fullmatch(pointer.manifest) is None:
                raise ValueError(f"{pointer.manifest!r:.60} is not the name of a manifest")
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise StorageFailed(f"{self._pointer}: {problem.strerror}", hint="check the disk") from problem
        except ValueError as problem:  # msgspec's errors are ValueErrors too
            raise ProjectionDamaged(f"the pointer {self._pointer} is damaged: {problem}", hint=REBUILD) from problem
        return pointer

    def _published(self, pointer: _Pointer) -> Manifest:
        """The manifest that the pointer names, just as it was published."""
        path = self._manifests / pointer.manifest
        try:
            data = self._read(path)
        except ProjectionMissing as problem:
            raise ProjectionMissing(
                f"{problem.message}, or the pointer {self._pointer} that names it is damaged", hint=REBUILD
            ) from None
        # Its own checksum and its format are looked at first: they tell a damaged manifest, a newer Servo's and a
        # damaged pointer apart.
        found = decode(data, str(path))
        if sha256(data).hexdigest() != pointer.sha256:
            raise ProjectionDamaged(
                f"the pointer {self._pointer} and the manifest {path} that it names do not fit together:"
                " one of them is damaged",
                hint=REBUILD,
            )
        return found

    def _read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise ProjectionMissing(f"projection manifest {path} is missing", hint=REBUILD) from None
        except OSError as problem:
            raise StorageFailed(f"{path}: {problem.strerror}", hint="check the disk") from problem

    def _load(self, path: Path, *, sealed: bool = False) -> Manifest:
        return decode(self._read(path), str(path), sealed=sealed)

    def versions(self) -> list[Manifest]:
        """Every version since the last replay that is still kept and proven to be what was published, oldest first.

        The pointer proves the newest, a checksum of its own any other. What is damaged, or was written without one by
        an older Servo, is passed over: nothing depends on it.
        """
        kept = []
        current, pointer = self.current(), self._read_pointer()
        for path in self._paths():
            try:
                manifest = self._load(path, sealed=pointer is None or path.name != pointer.manifest)
            except ServoError:
                continue
            if manifest.version <= current.version and manifest.is_since_replay_of(current):
                kept.append(manifest)
        return kept

    def version_at(self, position: int) -> Manifest:
        """The newest of those versions that is no further than a position; an empty one where there is none.

        The versions since a replay go ever further, so that few of them have to be read to find it.
        """
        current, pointer = self.current(), self._read_pointer()
        if pointer is None or current.watermark.position <= position:
            return current
        paths = [path for path in self._paths() if current.replayed <= _version_of(path) < current.version]
        found = Manifest()
        low, high = 0, len(paths)
        while low < high:
            middle = (low + high) // 2
            try:
                version = self._load(paths[middle], sealed=True)
            except ServoError:
                version = Manifest()
            if not version.is_since_replay_of(current):
                del paths[middle]
                high -= 1
            elif version.watermark.position <= position:
                found, low = version, middle + 1
            else:
                high = middle
        return found

    def _paths(self) -> list[Path]:
        """The manifests that are there, oldest first."""
        return sorted(path for path in self._manifests.glob("*.json") if _NAME.fullmatch(path.name))

    def path(self, table: str, file: FileRef) -> Path:
        return self.root / "files" / table / file.name

    def intact(self, table: str, files: Sequence[FileRef]) -> list[Path]:
        """Where files of a table lie, each of them just as it was written."""
        paths = [self.path(table, file) for file in files]
        for path, file in zip(paths, files, strict=True):
            require_intact(path, file)
        return paths

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def working(self, timeout: float = 0.0) -> Iterator[None]:
        """Be the one at work, waiting so many seconds for whoever is; FencedOut if it is still at it then.

        Compactors that take the epoch from each other would never get done. This only makes them take turns: that no
        two publish over each other is due to the epoch, also where one of them was suspended in the middle.
        """
        with storage_explained(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / "WORK").open("a+")
        with lock:
            self._take_turn(lock, timeout)
            yield

    def _take_turn(self, lock: TextIO, timeout: float) -> None:
        began, told = time.monotonic(), False
        # The kernel frees the lock with the process, so a killed compactor blocks nobody.
        while not _locks(lock):
            lock.seek(0)
            other = f"process {lock.read().strip() or 'unknown'} is at work on the projections"
            waited = time.monotonic() - began
            if waited >= timeout:
                raise FencedOut(f"{other} in {self.root}", hint="let it finish, or end it if it hangs")
            if waited > _SAY_SO and not told:
                log.warning("%s; waiting up to %g seconds", other, timeout, extra={"action": "projections.wait"})
                told = True
            time.sleep(_LOOK_AGAIN)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()

    def take_epoch(self) -> int:
        """Become the one compactor that may publish; whoever was it before is fenced out."""
        with storage_explained(self.root), self._locked():
            epoch = self._epoch() + 1
            replace_file(self.root / "EPOCH", str(epoch).encode())
            return epoch

    def publish(self, manifest: Manifest) -> None:
        """Make a version the current one. Its files must be on disk; it must follow the current version."""
        with storage_explained(self.root), self._locked():
            if self._epoch() != manifest.epoch:
                raise FencedOut(
                    f"a newer compactor (epoch {self._epoch()}) took over from epoch {manifest.epoch}",
                    hint="look again: its version is the current one",
                )
            current = self._pointer_version()
            if manifest.version != current + 1:
                raise FencedOut(
                    f"version {manifest.version} does not follow the current version {current}", hint="look again"
                )
            reach("manifest.before_write")
            self._manifests.mkdir(exist_ok=True)
            data = encode(manifest)
            name = f"{manifest.version:012d}-{manifest.epoch:06d}.json"
            replace_file(self._manifests / name, data)
            reach("manifest.after_write")
            pointer = _Pointer(manifest=name, sha256=sha256(data).hexdigest())
            reach("pointer.before_swap")
            replace_file(self._pointer, msgspec.json.encode(pointer))
            reach("pointer.after_swap")

    def remove_unneeded_files(self, now: datetime, epoch: int, thinning: Thinning) -> int:
        """Remove versions that nobody may be reading and that are not kept, and files that no version names; how many
        files.

        Only the holder of the epoch does: what it does not know of then belongs to nobody who could still publish it.
        """
        with storage_explained(self.root), self._locked():
            if self._epoch() != epoch:
                return 0
            current = self.current()
            manifests: dict[Path, Manifest] = {}
            for path in sorted(self._manifests.glob("*.json")):
                try:
                    manifests[path] = self._load(path)
                except ServoError:
                    path.unlink(missing_ok=True)
            # One of each number, in the order of the epochs: what a crash kept from being published has an earlier one.
            usable = {one.version: one for one in manifests.values() if one.is_since_replay_of(current)}
            wanted = {(one.version, one.epoch) for one in thinning.kept(usable.values(), now)}
            kept: set[tuple[str, str]] = set()
            for path, manifest in manifests.items():
                young = manifest.created_at is not None and now - manifest.created_at < KEEP_FOR
                needed = (manifest.version, manifest.epoch) in wanted
                if young or needed or manifest.version > current.version - thinning.newest:
                    kept |= {(table, file.name) for table, files in manifest.tables.items() for file in files}
                else:
                    path.unlink()
            self._remove_leftovers(older_than=now - KEEP_FOR)
            return self._remove_files(kept, older_than=now - KEEP_FOR)

    def _remove_leftovers(self, older_than: datetime) -> None:
        """What crashes left: the staging of a replay on Spark, and files that were never renamed to what they are."""
        for path in (*self.root.glob("staging/*"), *self.root.glob(".*.tmp"), *self._manifests.glob(".*.tmp")):
            if path.stat().st_mtime < older_than.timestamp():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def _remove_files(self, kept: set[tuple[str, str]], older_than: datetime) -> int:
        removed = 0
        for path in (self.root / "files").glob("*/*"):
            # A file that no version names yet may belong to a compactor at work: leave it while it is young.
            if (path.parent.name, path.name) not in kept and path.stat().st_mtime < older_than.timestamp():
                path.unlink(missing_ok=True)
                removed += 1
        return removed

    def _pointer_version(self) -> int:
        """The current version number. Where pointer or manifest are damaged it is that of the newest manifest there
        is: a replay must be able to replace them, and must not take a number that was used before."""
        with suppress(ProjectionError, SchemaTooNew):
            pointer = self._read_pointer()
            return 0 if pointer is None else self._published(pointer).version
        return max(map(_version_of, self._paths()), default=0)

    def next_version(self) -> int:
        return self._pointer_version() + 1

    def _epoch(self) -> int:
        # Only the order of epochs matters: whatever the file says, they go on after the newest one that published.
        published = max((int(path.stem.rpartition("-")[2]) for path in self._paths()), default=0)
        try:
            return max(int((self.root / "EPOCH").read_text()), published)
        except (FileNotFoundError, ValueError):
            return published

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "LOCK").open("w") as lock:
            # The kernel frees the lock with the process, so a killed compactor blocks nobody.
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _version_of(path: Path) -> int:
    """The version of a manifest, by its name."""
    return int(path.name.partition("-")[0])


def _locks(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def storage_explained(place: Path) -> Iterator[None]:
    """A full or read-only disk as one clear line."""
    try:
        yield
    except OSError as problem:
        what = problem.strerror or str(problem)
        raise StorageFailed(
            f"{problem.filename or place}: {what}", hint="the last published version stays readable"
        ) from problem


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a crash leaves either its old content or its new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    sync_file(temporary)
    temporary.replace(path)
    sync_file(path.parent)


def require_same_ledger(store: Store, history: History, manifest: Manifest) -> None:
    """A version continues only in the ledger that it was folded from: the chain hash at its watermark says which."""
    watermark = manifest.watermark
    if watermark.position == 0:
        return
    at = history.read(watermark.position - 1, 1)
    if not at or at[0].chain_hash != watermark.chain_hash:
        raise ProjectionDamaged(
            f"the projections in {store.root} were folded from another ledger, or this one has lost events since"
            f" (position {watermark.position})",
            hint=REBUILD,
        )


def warn_of_unknown(folded: Batch) -> None:
    """One line for each unknown type, however many events there are of it."""
    kinds = Counter((unknown.event_type, unknown.event_version) for unknown in folded.unknown)
    for (event_type, version), count in sorted(kinds.items()):
        log.warning(
            "skipped %s of unknown type %s version %s; a newer Servo will fold it on replay",
            "an event" if count == 1 else f"{count} events",
            event_type,
            version,
            extra={"action": "fold.unknown_event"},
        )

"""What a version of the projections consists of. Written once, never changed.

A file is held against what was written: Parquet has no checksum that its readers would look at.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import file_digest
from pathlib import Path
from typing import Any

import msgspec

from servo import canonical, decoders
from servo.errors import InvalidCanonicalValue, ProjectionDamaged, SchemaTooNew, StorageFailed
from servo.events import GENESIS, RecordedEvent

FORMAT = 1
# Counts up whenever the fold says more than it did: a table or a column more. A version that was folded by less is
# not read, for what it lacks looks like nothing at all; its events are folded again.
FOLD = 10
# Rows in one group of a file. Small, so that one partition is found by reading a few of many.
ROW_GROUP = 32_768
REBUILD = "rebuild the projections with `servo ledger replay`; the ledger is not affected"
# Files that this process has read from end to end, as they were then; one that was written since is read again.
_Fingerprint = tuple[str, str | None, int, int, int]
_intact: set[_Fingerprint] = set()


class Watermark(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the ledger is folded in."""

    position: int = 0
    event_id: str | None = None
    occurred_at: datetime | None = None
    chain_hash: str = GENESIS


def watermark_of(event: RecordedEvent | None) -> Watermark:
    """The watermark of a state whose newest event this is."""
    if event is None:
        return Watermark()
    return Watermark(
        position=event.position,
        event_id=event.event_id,
        occurred_at=event.occurred_at,
        chain_hash=event.chain_hash,
    )


class FileRef(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable Parquet file of a table."""

    name: str
    rows: int
    bytes: int
    sha256: str | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A version: for each table its files, oldest and largest first, and the watermark they all share.

    `replayed` is the version that the last replay made; those before it may be what the replay was needed for.
    `fold` is which fold made it; versions of before it was counted do not say.
    """

    version: int = 0
    epoch: int = 0
    watermark: Watermark = Watermark()
    tables: dict[str, list[FileRef]] = {}
    created_at: datetime | None = None
    replayed: int = 0
    format: int = FORMAT
    fold: int = 1

    @property
    def is_complete(self) -> bool:
        """Whether it says all that the fold of today says of its events."""
        return self.fold >= FOLD

    def is_since_replay_of(self, current: Manifest) -> bool:
        """Whether it says what a current version does, at an earlier moment: complete, and made since its replay."""
        return self.is_complete and self.replayed == current.replayed


_CHECKSUM = "checksum"
_FIELDS = frozenset(Manifest.__struct_fields__)


class _Format(msgspec.Struct):
    format: int


def seal(value: msgspec.Struct) -> bytes:
    """Encode a struct as JSON, with a checksum over all of its fields."""
    fields: dict[str, Any] = msgspec.to_builtins(value)
    return msgspec.json.format(msgspec.json.encode(fields | {_CHECKSUM: canonical.sha256_hex(fields)}), indent=1)


def is_sealed(data: bytes) -> bool:
    """Whether a JSON text has a checksum. Raises ValueError where it has one that does not fit, or is no JSON object.

    The checksum is over all fields that are written, so that it also fits where a newer Servo wrote more of them.
    """
    try:
        fields = decoders.decode(data, dict[str, Any])
        checksum = fields.pop(_CHECKSUM, None)
        if checksum is None:
            return False
        actual = canonical.sha256_hex(fields)
    except (msgspec.MsgspecError, InvalidCanonicalValue) as problem:
        raise ValueError(str(problem)) from problem
    if checksum != actual:
        raise ValueError("its content and its checksum do not fit together")
    return True


def encode(manifest: Manifest) -> bytes:
    return seal(manifest)


def decode(data: bytes, name: str, *, sealed: bool = False) -> Manifest:
    """Read a manifest strictly: whatever is wrong with it is one clear error.

    Manifests of older versions of Servo have no checksum; `sealed` refuses those too.
    """
    try:
        has_checksum = is_sealed(data)
        written = decoders.decode(data, _Format).format
        if written > FORMAT:
            raise SchemaTooNew(
                f"projection manifest {name} has format {written}, this Servo knows {FORMAT}",
                hint="upgrade Servo, or throw the projections away and " + REBUILD,
            )
        if not has_checksum and (sealed or decoders.decode(data, dict[str, Any]).keys() - _FIELDS):
            raise ValueError("it has no checksum")
        return decoders.decode(data, Manifest)
    except ValueError as problem:  # msgspec's errors are ValueErrors too
        raise ProjectionDamaged(f"projection manifest {name} is damaged: {problem}", hint=REBUILD) from problem


class FileMissing(ProjectionDamaged):
    """It is not there: gone from a version that needs it, or swept with one that is no longer kept."""


def file_ref(path: Path, rows: int) -> FileRef:
    """What a manifest says of a file that was just written."""
    file = FileRef(name=path.name, rows=rows, bytes=path.stat().st_size, sha256=_digest(path))
    _intact.add(_fingerprint(path, file))
    return file


def require_intact(path: Path, file: FileRef, *, again: bool = False) -> None:
    """Refuse a file of which a bit has changed. Each is read once in a process, unless `again` is asked for."""
    try:
        fingerprint = _fingerprint(path, file)
        if fingerprint in _intact and not again:
            return
        _intact.discard(fingerprint)
        # A manifest of an older Servo knows only the size.
        intact = path.stat().st_size == file.bytes and file.sha256 in (None, _digest(path))
    except FileNotFoundError:
        raise FileMissing(f"{path} is missing", hint=REBUILD) from None
    except OSError as problem:
        raise StorageFailed(f"{path}: {problem.strerror}", hint="check the disk") from problem
    if not intact:
        raise ProjectionDamaged(f"{path} is damaged: it is not what was written", hint=REBUILD)
    _intact.add(fingerprint)


def _fingerprint(path: Path, file: FileRef) -> _Fingerprint:
    path = path.resolve()  # the states of the past name a version's files by links of their own
    status = path.stat()
    return str(path), file.sha256, status.st_ino, status.st_size, status.st_mtime_ns


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()

"""Whether files are what was written: Parquet has no checksum that its readers would look at."""

from __future__ import annotations

from hashlib import file_digest
from pathlib import Path

from servo.errors import ProjectionDamaged, StorageFailed
from servo.projections.manifest import REBUILD, FileRef

# Files that this process has read from end to end, as they were then; one that was written since is read again.
_Looks = tuple[str, str | None, int, int, int]
_intact: set[_Looks] = set()


class FileMissing(ProjectionDamaged):
    """It is not there: gone from a version that needs it, or swept with one that is no longer kept."""


def file_ref(path: Path, rows: int) -> FileRef:
    """What a manifest says of a file that was just written."""
    file = FileRef(name=path.name, rows=rows, bytes=path.stat().st_size, sha256=_digest(path))
    _intact.add(_looks(path, file))
    return file


def require_intact(path: Path, file: FileRef, *, again: bool = False) -> None:
    """Refuse a file of which a bit has changed. Each is read once in a process, unless `again` is asked for."""
    try:
        looks = _looks(path, file)
        if looks in _intact and not again:
            return
        _intact.discard(looks)
        # A manifest of an older Servo knows only the size.
        intact = path.stat().st_size == file.bytes and file.sha256 in (None, _digest(path))
    except FileNotFoundError:
        raise FileMissing(f"{path} is missing", hint=REBUILD) from None
    except OSError as problem:
        raise StorageFailed(f"{path}: {problem.strerror}", hint="check the disk") from problem
    if not intact:
        raise ProjectionDamaged(f"{path} is damaged: it is not what was written", hint=REBUILD)
    _intact.add(looks)


def _looks(path: Path, file: FileRef) -> _Looks:
    status = path.stat()
    return str(path), file.sha256, status.st_ino, status.st_size, status.st_mtime_ns


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()

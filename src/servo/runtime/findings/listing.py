"""What is in a folder, and when it came there: on this machine, or wherever Arrow's file systems reach."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from servo.errors import StorageFailed

if TYPE_CHECKING:
    import pyarrow.fs as pafs

__all__ = ["Entry", "Listing", "StoreListing", "listing_at"]

_NS = 1_000_000_000


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

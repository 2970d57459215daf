"""The files below the storage's root: on this machine, or wherever Arrow's file systems reach."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs

from servo.errors import StorageFailed
from servo.execution.places import STAGING
from servo.execution.remote_stores import DEFAULT_SECONDS, RemoteStore, open_store
from servo.ledger.archive import sync_file

T = TypeVar("T")

# Above so many files, asking the system to write out everything it holds is quicker than asking file by file.
_FEW = 1000


class Entry(msgspec.Struct, frozen=True):
    """A file or folder; links are nothing that Servo made, and are never shown."""

    name: str
    folder: bool
    bytes: int


class Files(Protocol):
    """What the storage asks of a file system. Paths are relative to the root, with slashes."""

    def address(self, path: str) -> str:
        """The path as Spark takes it."""
        ...

    def entries(self, path: str) -> list[Entry]:
        """What is in a folder, by name; nothing if there is no such folder."""
        ...

    def open(self, path: str) -> Any:
        """The file, for Arrow to read."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Make a small file with this in it, in a folder that is there."""
        ...

    def create(self, path: str) -> None:
        """Make a folder, and those above it; it must not be there yet."""
        ...

    def move(self, moves: Sequence[tuple[str, str]], *, keep: bool = False) -> None:
        """Move folders of files (source, target) unless the target is there, durably; with `keep`, copy them.

        Folders that a move leaves empty go, up to that of all staging, which others use as well.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a folder with all that is in it; nothing if there is no such folder."""
        ...


def files_at(root: str, seconds: float = DEFAULT_SECONDS) -> Files:
    """The files below a folder, or below an address such as `s3://bucket/prefix`, where no call takes longer."""
    if "://" not in root:
        return LocalFiles(Path(root))
    if root.startswith("file://"):
        return LocalFiles(Path(root.removeprefix("file://")))
    return ArrowFiles(open_store(root, seconds))


def require_storage(root: str, seconds: float = DEFAULT_SECONDS) -> None:
    """Ask a remote store for what is there, in at most so many seconds; StorageFailed where that cannot be."""
    if "://" in root and not root.startswith("file://"):
        store = open_store(root, seconds)
        if not ArrowFiles(store).entries(""):
            store.require_bucket()


class LocalFiles:
    """A folder of this machine, or one that is mounted on it."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)

    def address(self, path: str) -> str:
        return f"file://{self._path(path)}"

    def entries(self, path: str) -> list[Entry]:
        with _explained(self._path(path)) as where:
            try:
                with os.scandir(where) as listed:
                    found = [_entry(one) for one in listed if not one.is_symlink()]
            except FileNotFoundError:
                return []
        return sorted((one for one in found if one is not None), key=lambda one: one.name)

    def open(self, path: str) -> Any:
        with _explained(self._path(path)) as where:
            return pa.memory_map(where) if Path(where).stat().st_size else pa.OSFile(where)

    def write(self, path: str, data: bytes) -> None:
        with _explained(self._path(path)) as where:
            Path(where).write_bytes(data)

    def create(self, path: str) -> None:
        with _explained(self._path(path)) as where:
            Path(where).parent.mkdir(parents=True, exist_ok=True)
            Path(where).mkdir()

    def move(self, moves: Sequence[tuple[str, str]], *, keep: bool = False) -> None:
        """By renaming, which happens or does not: the files reach the disk before it, their new names after it."""
        pending = [(Path(self._path(source)), Path(self._path(target))) for source, target in moves]
        pending = [one for one in pending if not one[1].is_dir()]
        with _explained(str(pending[0][0]) if pending else self._root):
            if keep:
                for source, target in pending:
                    shutil.copytree(source, target)
                return
            _flush([file for source, _ in pending for file in source.iterdir() if not file.name.startswith(".")])
            for source, target in pending:
                target.parent.mkdir(parents=True, exist_ok=True)
                source.rename(target)
            _flush(list({parent for _, target in pending for parent in list(target.parents)[:2]}))
        for parent in {source.parent for source, _ in pending}:
            with suppress(OSError):  # something is still in it
                while parent.name != STAGING:
                    parent.rmdir()
                    parent = parent.parent  # noqa: PLW2901 (upwards, to what is not ours alone)

    def remove(self, path: str) -> None:
        with _explained(self._path(path)) as where:
            try:
                shutil.rmtree(where)
            except FileNotFoundError:
                return

    def _path(self, path: str) -> str:
        """The path, unless a link on the way leads to somewhere else."""
        wanted = os.path.normpath(f"{self._root}/{path}")
        if os.path.realpath(wanted) != wanted or not f"{wanted}/".startswith(f"{self._root.rstrip('/')}/"):
            hint = "remove the link; to keep data elsewhere, change the setting `storage`"
            raise StorageFailed(f"{self._root}/{path} leads out of the storage", hint=hint)
        return wanted


class ArrowFiles:
    """A file system of Arrow's. Object stores know no rename: files are moved one by one, unseen until an event.

    Each call asks the store, and is given up after the store's limit.
    """

    def __init__(self, store: RemoteStore) -> None:
        assert store.system is not None
        self._store = store
        self._system = store.system

    def address(self, path: str) -> str:
        return f"{self._store.address}/{path}"

    def entries(self, path: str) -> list[Entry]:
        selector = pafs.FileSelector(self._at(path), allow_not_found=True)
        listed = self._call(path, lambda: self._system.get_file_info(selector))
        found = [Entry(one.base_name, one.type == pafs.FileType.Directory, one.size or 0) for one in listed]
        return sorted(found, key=lambda one: one.name)

    def open(self, path: str) -> Any:
        opened = self._call(path, lambda: self._system.open_input_file(self._at(path)))
        return pa.PythonFile(_LimitedFile(opened, lambda work: self._call(path, work)), mode="r")

    def write(self, path: str, data: bytes) -> None:
        def write() -> None:
            with self._system.open_output_stream(self._at(path)) as opened:
                opened.write(data)

        self._call(path, write)

    def create(self, path: str) -> None:
        self._call(path, lambda: self._system.create_dir(self._at(path), recursive=True))

    def move(self, moves: Sequence[tuple[str, str]], *, keep: bool = False) -> None:
        for source, target in moves:
            self.create(target)
            for entry in self.entries(source):
                self._move_one(f"{source}/{entry.name}", f"{target}/{entry.name}", keep=keep)
            if not keep:
                self._remove_if_empty(source)

    def _move_one(self, source: str, target: str, *, keep: bool) -> None:
        act = self._system.copy_file if keep else self._system.move
        self._call(target, lambda: act(self._at(source), self._at(target)))

    def remove(self, path: str) -> None:
        def remove() -> None:
            if self._system.get_file_info(self._at(path)).type != pafs.FileType.NotFound:
                self._system.delete_dir(self._at(path))

        self._call(path, remove)

    def _remove_if_empty(self, path: str) -> None:
        """Object stores keep empty folders as markers."""
        above, _, name = path.rpartition("/")
        if name != STAGING and not self.entries(path):
            self.remove(path)
            self._remove_if_empty(above)

    def _at(self, path: str) -> str:
        return f"{self._store.path}/{path}"

    def _call(self, path: str, work: Callable[[], T]) -> T:
        return self._store.call(self.address(path), work)


class _LimitedFile:
    """A file of a remote store, each read of which is given up after the limit."""

    def __init__(self, opened: Any, call: Callable[[Callable[[], Any]], Any]) -> None:
        self._opened = opened
        self._call = call

    @property
    def closed(self) -> bool:
        return bool(self._opened.closed)

    def read(self, size: int = -1) -> Any:
        return self._call(lambda: self._opened.read(None if size is None or size < 0 else size))

    def seek(self, position: int, whence: int = 0) -> Any:
        return self._opened.seek(position, whence)

    def tell(self) -> Any:
        return self._opened.tell()

    def close(self) -> None:
        self._opened.close()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True


def _entry(found: os.DirEntry[str]) -> Entry | None:
    try:
        status = found.stat(follow_symlinks=False)
    except FileNotFoundError:  # gone since it was listed
        return None
    folder = stat.S_ISDIR(status.st_mode)
    return Entry(found.name, folder, 0 if folder else status.st_size)


def _flush(paths: Sequence[Path]) -> None:
    """See to it that these files and folders survive a loss of power."""
    if len(paths) > _FEW:
        os.sync()
    elif paths:
        # At once: the disk is told to write but a few times for all of them.
        with ThreadPoolExecutor(min(len(paths), 16), thread_name_prefix="flush") as threads:
            list(threads.map(sync_file, paths))


@contextmanager
def _explained(where: str) -> Iterator[str]:
    """Say of every failure which path it is about and what to do."""
    try:
        yield where
    except OSError as problem:
        hints = {
            errno.ENOSPC: "free some space, then retry the run",
            errno.EDQUOT: "free some space, then retry the run",
            errno.EROFS: "mount it writable",
            errno.EACCES: "give this user the right to write there",
            errno.EPERM: "give this user the right to write there",
        }
        hint = hints.get(problem.errno or 0, "see whether the disk or the store is well")
        raise StorageFailed(f"{problem.filename or where}: {problem.strerror or problem}", hint=hint) from problem

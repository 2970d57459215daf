"""What was staged for an approval, byte by byte: a list of the files with a digest of each, beside them.

    {materialization_id}/_staged.json

The content hash in the ledger tells rows apart and takes Spark to compute; Parquet's checksums cover data pages alone.
A digest covers every byte, footers and all, and takes one read: right after a file was written, which is out of memory
as a rule, and once more when somebody approves. Only what waits for an approval is sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import TypeVar

import msgspec

from servo import decoders
from servo.errors import DataNotFound, StorageFailed
from servo.execution.files import Files
from servo.execution.places import is_data_file

__all__ = ["SEAL", "require_seals", "seal"]

SEAL = "_staged.json"  # neither Spark nor Servo takes a name like this for data
_AT_ONCE = 8 << 20
_THREADS = 4
_HINT = "reject it, and run it again"
T = TypeVar("T")
R = TypeVar("R")


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    sha256: str


class _Seal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    files: list[_File]


def seal(files: Files, folders: Sequence[str]) -> None:
    """Write down what the data files of each of these folders are."""
    present = {folder: _present(files, folder) for folder in folders}
    paths = [f"{folder}/{name}" for folder, names in present.items() for name in names]
    digests = dict(zip(paths, _all(lambda path: _digest(files, path), paths), strict=True))
    for folder, names in present.items():
        listed = [_File(name=name, sha256=digests[f"{folder}/{name}"]) for name in names]
        files.write(f"{folder}/{SEAL}", msgspec.json.encode(_Seal(version=1, files=listed)))


def require_seals(files: Files, folders: Sequence[str]) -> None:
    """Refuse, by its name, any file that is not as it was, is gone, or has come since."""
    sealed: dict[str, str] = {}
    for folder in folders:
        present, listed = _present(files, folder), _read(files, folder)
        for name in sorted({*present, *listed}):
            address = f"{files.address(folder)}/{name}"
            if name not in present:
                raise DataNotFound(f"{address} was staged, and is gone", hint=_HINT)
            if name not in listed:
                raise DataNotFound(f"{address} is not among the files that were staged", hint=_HINT)
            sealed[f"{folder}/{name}"] = listed[name]
    for path, digest in zip(sealed, _all(lambda path: _digest(files, path), sealed), strict=True):
        if digest != sealed[path]:
            raise DataNotFound(f"{files.address(path)} is not as it was staged: its bytes have changed", hint=_HINT)


def _present(files: Files, folder: str) -> list[str]:
    return [entry.name for entry in files.entries(folder) if is_data_file(entry.name)]


def _read(files: Files, folder: str) -> dict[str, str]:
    """The digest of each file that was staged."""
    address = f"{files.address(folder)}/{SEAL}"
    if all(entry.name != SEAL for entry in files.entries(folder)):
        raise DataNotFound(f"{address}, which says what was staged, is not there", hint=_HINT)
    with files.open(f"{folder}/{SEAL}") as opened:
        text = opened.read()
    try:
        found = decoders.decode(text, _Seal)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise DataNotFound(f"{address}, which says what was staged, cannot be read", hint=_HINT) from None
    return {one.name: one.sha256 for one in found.files}


def _digest(files: Files, path: str) -> str:
    found = sha256()
    with files.open(path) as opened:
        try:
            while len(part := opened.read_buffer(_AT_ONCE)):
                found.update(part)
        except OSError as problem:
            hint = "see whether the disk or the store is well"
            raise StorageFailed(f"{files.address(path)} cannot be read: {problem}", hint=hint) from problem
    return found.hexdigest()


def _all(work: Callable[[T], R], on: Iterable[T]) -> list[R]:
    """In a few threads: most of the time goes into what needs no lock of Python's."""
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="seal") as threads:
        return list(threads.map(work, on))

"""Materializations as folders of Parquet files: written once, moved into place, never touched again.

What is staged for an approval is sealed, byte by byte: a list of the files with a digest of each lies beside them.

    {materialization_id}/_staged.json

The content hash in the ledger tells rows apart and takes Spark to compute; Parquet's checksums cover data pages alone.
A digest covers every byte, footers and all, and takes one read: right after a file was written, which is out of memory
as a rule, and once more when somebody approves. Only what waits for an approval is sealed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from servo import decoders
from servo.errors import DataNotFound, StorageFailed
from servo.execution.files import Entry, Files, files_at
from servo.execution.places import is_data_file, materialization_folder, staging_folder, stored_folder
from servo.execution.protocol import Place, Staged, StoredFolder
from servo.execution.remote_stores import DEFAULT_SECONDS
from servo.ids import check_name
from servo.ledger.protocol import Workspace

# Where Spark writes its own description of the columns into a file's footer.
SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_NAME = re.compile(r"[a-z][a-z0-9_=-]*(/[a-z][a-z0-9_=-]*)?")
SEAL = "_staged.json"  # neither Spark nor Servo takes a name like this for data
_AT_ONCE = 8 << 20
_THREADS = 4
_HINT = "reject it, and run it again"
T = TypeVar("T")
R = TypeVar("R")


class ParquetStaging:
    """A folder below `_staging` that belongs to one attempt."""

    def __init__(self, files: Files, base: str, folder: str) -> None:
        self._files = files
        self._base = base
        self._folder = folder

    def address(self, name: str) -> str:
        return self._files.address(f"{self._base}/{self.place(name)}")

    def place(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot name staged data")
        return f"{self._folder}/{name}"

    def measure(self, name: str) -> tuple[int, int]:
        return _measured(self._files, f"{self._base}/{self.place(name)}")

    def spread(self, name: str, names: Sequence[str]) -> None:
        source = f"{self._base}/{self.place(name)}"
        self._files.move([(source, f"{self._base}/{self.place(other)}") for other in names], keep=True)

    def discard(self, name: str | None = None) -> None:
        self._files.remove(f"{self._base}/{self._folder if name is None else self.place(name)}")


class ParquetStorage:
    """The storage of one workspace, below a folder or at an address that Arrow and Spark both understand."""

    def __init__(
        self,
        root: str,
        workspace: Workspace,
        *,
        mint: Callable[[], str],
        files: Files | None = None,
        seconds: float = DEFAULT_SECONDS,
    ) -> None:
        self._files = files_at(root, seconds) if files is None else files
        self._base = f"{check_name(workspace.tenant)}/{check_name(workspace.name, 'workspace')}"
        self._mint = mint

    def stage(self, asset_id: str, *, run_id: str, attempt: int) -> ParquetStaging:
        folder = staging_folder(asset_id, run_id, attempt, self._mint())
        self._files.create(f"{self._base}/{folder}")
        return ParquetStaging(self._files, self._base, folder)

    def seal(self, staged: Sequence[Staged]) -> None:
        seal(self._files, [f"{self._base}/{one.place}" for one in staged])

    def require_seals(self, places: Sequence[Place]) -> None:
        """Refuse what is not, byte by byte, what was sealed before it was put there."""
        require_seals(self._files, [self._folder(place) for place in places])

    def publish(self, moves: Sequence[tuple[Staged, Place]]) -> None:
        self._files.move([(f"{self._base}/{staged.place}", self._folder(place)) for staged, place in moves])

    def addresses(self, places: Sequence[Place]) -> list[str]:
        for place in places:
            self._data_files(place)
        return [unglobbed(self._files.address(self._folder(place))) for place in places]

    def schema(self, place: Place) -> pa.Schema:
        return self._footer(self._data_files(place)[0])

    def read(self, places: Sequence[Place], *, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        if not places:
            return
        schema = self.schema(max(places, key=lambda place: place.materialization_id))
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        files = [path for place in places for path in self._data_files(place)]
        yield pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
        for path in files:
            for batch in self._batches(path, schema):
                yield _aligned(batch, schema)

    def measure(self, place: Place) -> tuple[int, int]:
        """Number and bytes of the data files that are there; nothing there is (0, 0)."""
        return _measured(self._files, self._folder(place))

    def staged(self, staged: Staged) -> tuple[str, pa.Schema]:
        """What Spark reads staged data from, and its columns."""
        folder = f"{self._base}/{staged.place}"
        names = _present(self._files, folder)
        return unglobbed(self._files.address(folder)), self._footer(f"{folder}/{names[0]}")

    def remove_condemned(
        self, condemned: Callable[[StoredFolder], bool], *, dry_run: bool
    ) -> list[tuple[StoredFolder, int]]:
        swept = []
        for asset in self._folders(self._base):
            for folder in self._folders(f"{self._base}/{asset}"):
                for name in self._folders(f"{self._base}/{asset}/{folder}"):
                    one = stored_folder(asset, folder, name)
                    if one is not None and condemned(one):
                        path = f"{self._base}/{asset}/{folder}/{name}"
                        swept.append((one, self._bytes(path)))
                        if not dry_run:
                            self._files.remove(path)
        return swept

    def _batches(self, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self._files.open(path) as opened:
            with self._whole(path):
                file = _parquet(opened)
                wanted = [name for name in schema.names if name in file.schema_arrow.names]
                batches = file.iter_batches(columns=wanted)
            with file:
                while True:
                    with self._whole(path):
                        batch = next(batches, None)
                    if batch is None:
                        return
                    yield batch

    @contextmanager
    def _whole(self, path: str) -> Iterator[None]:
        """Say of a file that is not what was written that it is not."""
        try:
            yield
        except (OSError, pa.ArrowInvalid) as problem:
            raise StorageFailed(
                f"{self._files.address(path)} is damaged, or cannot be read: {problem}",
                hint="materialize the partition again, or roll back to a version that is whole",
            ) from problem

    def _footer(self, path: str) -> pa.Schema:
        with self._files.open(path) as opened, self._whole(path), _parquet(opened) as file:
            return _typed(file.schema_arrow)

    def _folder(self, place: Place) -> str:
        return f"{self._base}/{materialization_folder(place)}"

    def _folders(self, path: str) -> list[str]:
        return [entry.name for entry in self._files.entries(path) if entry.folder]

    def _bytes(self, path: str) -> int:
        entries = self._files.entries(path)
        return sum(self._bytes(f"{path}/{entry.name}") if entry.folder else entry.bytes for entry in entries)

    def _data_files(self, place: Place) -> list[str]:
        folder = self._folder(place)
        names = _present(self._files, folder)
        if not names:
            raise DataNotFound(
                f"the files of materialization {place.materialization_id} are gone from {self._files.address(folder)}",
                hint="materialize the partition again, or roll back to a version that is there",
            )
        return [f"{folder}/{name}" for name in names]


def _parquet(opened: Any) -> pq.ParquetFile:
    # Spark may write timestamps in twelve bytes, which are no longer than any year that Spark knows.
    return pq.ParquetFile(opened, coerce_int96_timestamp_unit="us", page_checksum_verification=True)


def unglobbed(address: str) -> str:
    """Spark takes these characters of a path for a pattern."""
    return re.sub(r"([][{}*?\\\\])", r"\\\1", address)


def _typed(schema: pa.Schema) -> pa.Schema:
    """The columns, with the zone that a timestamp of twelve bytes cannot tell."""
    described = (schema.metadata or {}).get(SPARK_SCHEMA)
    if described is None:
        return schema
    instants = {field["name"] for field in json.loads(described)["fields"] if field["type"] == "timestamp"}
    for index, field in enumerate(schema):
        if field.name in instants and pa.types.is_timestamp(field.type) and field.type.tz is None:
            schema = schema.set(index, field.with_type(pa.timestamp("us", tz="UTC")))
    return schema


def _aligned(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in these columns: what an older version does not have is null."""
    columns = []
    for field in schema:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(len(batch), field.type))
            continue
        column = batch.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([pa.field(f.name, f.type) for f in schema]))


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


def _data(files: Files, folder: str) -> list[Entry]:
    """The data files of a folder, in the order of their names."""
    return [entry for entry in files.entries(folder) if not entry.folder and is_data_file(entry.name)]


def _present(files: Files, folder: str) -> list[str]:
    return [entry.name for entry in _data(files, folder)]


def _measured(files: Files, folder: str) -> tuple[int, int]:
    sizes = [entry.bytes for entry in _data(files, folder)]
    return len(sizes), sum(sizes)


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

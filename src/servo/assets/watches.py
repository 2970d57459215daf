"""Watches: what a sensor can look for without a function of its own. Declared here as values, with their cursors, which
say how far each has looked: canonical JSON, small whatever was found. `servo.runtime.watches` looks."""

from __future__ import annotations

import binascii
import logging
import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Self
from urllib.parse import parse_qsl, urlsplit

import msgspec

from servo import canonical, decoders
from servo.assets import patterns
from servo.assets.evaluation import EndedRun, FoundFile, FoundPartitions, Item, RunRequest
from servo.assets.spec import require
from servo.assets.syntax import parse, terms
from servo.assets.watch_requests import Graphed, by_template, by_values, readers_of, require_template, unpartitioned
from servo.errors import InvalidCanonicalValue, InvalidInput, InvalidPartition, ServoError

ENDS = ("SUCCEEDED", "FAILED", "CANCELLED")
_NAME = re.compile(r"[^\W\d][\w$]{0,62}")
_LONGEST_SETTLE = timedelta(days=7)
_SECRETS = ("password", "passfile", "sslkey", "sslpassword")
ENVIRONMENT = "env:"

_log = logging.getLogger("servo.watches")


# ── cursors ──────────────────────────────────────────────────────────────────────────────────────────────────────

IDENTITY_BYTES = 9
_FOLDER = struct.Struct(f">{IDENTITY_BYTES}sq")
_MOST = 2**63 - 1

Growing = int | str | datetime | date | Decimal
_WHERE = (
    "a cursor is what the sensor has left: `servo sensor show` has its own, `servo sensor evals --json` the earlier"
)


def position_of(text: str) -> int:
    """A cursor that is a position of the ledger."""
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or str(int(text[:20])) != text:
        hint = "give a position of the ledger in digits, such as 1204; 0 is its beginning"
        raise InvalidInput(f"{text!r:.60} is not a cursor of this sensor", hint=hint)
    return int(text)


class _Cursor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How far a watch has looked; empty before its first look."""

    example: ClassVar[str]  # of one that a person may write

    @classmethod
    def read(cls, text: str | None) -> Self:
        if text is None:
            return cls()
        try:
            return decoders.convert(canonical.loads(text.encode()), cls)
        except (InvalidCanonicalValue, msgspec.ValidationError, InvalidInput, AttributeError, UnicodeEncodeError):
            # What is wrong with it as JSON helps nobody: a cursor is not written by hand.
            hint = f"{_WHERE}; or {cls.example}"
            raise InvalidInput(f"{text!r:.60} is not a cursor of this sensor", hint=hint) from None

    def text(self) -> str:
        return canonical.dumps(msgspec.to_builtins(self)).decode()


class FilesCursor(_Cursor, frozen=True, kw_only=True):
    """All files up to a place have been found, and beyond it those that are named.

    Files are in the order of when they came, and of their identities where that is the same.
    """

    example: ClassVar[str] = '{"floor":[N,""]}, N nanoseconds after 1970; without one it begins anew'

    floor: tuple[int, str] = (-1, "")  # nanoseconds since 1970, and an identity in hexadecimal
    seen: str = ""  # identities of files beyond the floor, packed
    since: int | None = None  # the newest change of a folder that was taken into account
    folders: str = ""  # folders known by name, and when each came, packed

    def __post_init__(self) -> None:
        bytes.fromhex(self.floor[1])
        if not -1 <= self.floor[0] <= _MOST:
            raise ValueError("a time that no file can have")
        self.identities()
        self.known_folders()

    def identities(self) -> set[bytes]:
        packed = _unpacked(self.seen, IDENTITY_BYTES)
        return {packed[at : at + IDENTITY_BYTES] for at in range(0, len(packed), IDENTITY_BYTES)}

    def known_folders(self) -> dict[bytes, int]:
        return dict(_FOLDER.iter_unpack(_unpacked(self.folders, _FOLDER.size)))

    @staticmethod
    def packed(identities: Iterable[bytes]) -> str:
        return b64encode(b"".join(sorted(identities))).decode()

    @staticmethod
    def packed_folders(folders: Iterable[tuple[bytes, int]]) -> str:
        return b64encode(b"".join(_FOLDER.pack(*one) for one in sorted(folders))).decode()


def _unpacked(text: str, size: int) -> bytes:
    try:
        packed = b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("what is packed in it is damaged") from None
    if len(packed) % size:
        raise ValueError("what is packed in it is cut short")
    return packed


class RowsCursor(_Cursor, frozen=True, kw_only=True):
    """All rows up to a value have been found; of those with that very value so many.

    `until` and `writers`: these transactions were at work on the table when its greatest value was `until`.
    """

    example: ClassVar[str] = 'the last value, such as {"after":{"int":1204}}'

    after: dict[str, int | str] | None = None  # one value by the name of its type
    ties: int | None = None  # None: all there are
    until: dict[str, int | str] | None = None
    writers: list[str] = []

    def __post_init__(self) -> None:
        for typed in (self.after, self.until):
            if typed is not None:
                self.value(typed)

    @staticmethod
    def typed(value: Any) -> dict[str, int | str]:
        """A value of a growing column with the name of its type."""
        match value:
            case bool():
                pass
            case int():
                return {"int": value}
            case str():
                return {"text": value}
            case datetime():
                return {"timestamp": value.isoformat()}
            case date():
                return {"date": value.isoformat()}
            case Decimal() if value.is_finite():
                return {"decimal": str(value)}
        hint = "watch a column of integers, texts, dates, timestamps or decimals"
        raise InvalidInput(f"the column holds {value!r:.60}, a {type(value).__name__}", hint=hint)

    @staticmethod
    def value(typed: dict[str, int | str]) -> Growing:
        """The reverse of `typed`."""
        try:
            match list(typed.items()):
                case [("int", int() as number)]:
                    return number
                case [("text", str() as text)]:
                    return text
                case [("timestamp", str() as text)]:
                    return datetime.fromisoformat(text)
                case [("date", str() as text)]:
                    return date.fromisoformat(text)
                case [("decimal", str() as text)] if Decimal(text).is_finite():
                    return Decimal(text)
        except (ValueError, InvalidOperation):
            pass
        raise ValueError(f"{typed!s:.60} is no value with its type")


# ── watches ──────────────────────────────────────────────────────────────────────────────────────────────────────


class BuiltIn(msgspec.Struct, frozen=True):
    """The base of all watches.

    `default_min_interval` is the shortest time between two looks, where the sensor does not say it.
    """

    kind: ClassVar[str]
    default_min_interval: ClassVar[timedelta] = timedelta(seconds=30)

    def to_json(self) -> dict[str, Any]:
        """The watch as plain data; holds no secret."""
        return {"kind": self.kind, **msgspec.to_builtins(self)}

    def require_cursor(self, text: str) -> None:
        """Refuse a cursor that this watch could not have left: a position, unless it has cursors of its own."""
        position_of(text)

    def require_partitions(self, select: str, partitions: str | None, definitions: Graphed) -> None:  # noqa: ARG002 (for others)
        """Refuse, before anything is found, a selection of which it could never be told which partitions are meant."""
        if partitions is not None:
            require_template(partitions, self._names())

    def requests(
        self,
        item: Item,
        select: str,
        partitions: str | None,
        definitions: Graphed,
        *,
        now: datetime | None = None,
    ) -> list[RunRequest]:
        """The runs to ask for since this was found: one, or none where there is nothing to compute.

        What says no partition that there can be is passed over, with a warning in the log.

        `definitions`: whatever has the graph of assets. Dynamic dimensions have the values that it knows of.
        """
        try:
            if partitions is not None:
                return [RunRequest(key=item.key, select=select, partitions=by_template(partitions, item.values))]
            return self._by_default(item, select, definitions, now or _moment(item))
        except InvalidPartition as problem:
            # One file with a name that nobody thought of must not keep all others from being found.
            _log.warning("%s is passed over: %s", item.key, problem)
            return []

    def _names(self) -> tuple[str, ...] | None:
        """What a template can name; None if that is only known when something was found."""
        return None

    def _by_default(self, item: Item, select: str, definitions: Graphed, now: datetime) -> list[RunRequest]:
        raise NotImplementedError


class _Unplaced(BuiltIn, frozen=True):
    """A watch of things that say nothing of partitions."""

    finds: ClassVar[str]

    def require_partitions(self, select: str, partitions: str | None, definitions: Graphed) -> None:
        super().require_partitions(select, partitions, definitions)
        if partitions is None:
            unpartitioned(select, definitions, self.finds)

    def _by_default(self, item: Item, select: str, definitions: Graphed, now: datetime) -> list[RunRequest]:  # noqa: ARG002 (nor of windows)
        unpartitioned(select, definitions, self.finds)
        return [RunRequest(key=item.key, select=select)]


def _moment(item: Item) -> datetime:
    """When what was found came about: the same at every evaluation."""
    if isinstance(item, FoundPartitions | EndedRun):
        return item.at
    return item.modified if isinstance(item, FoundFile) else datetime(1970, 1, 1, tzinfo=UTC)


class NewFiles(BuiltIn, frozen=True):
    """Files that appear, or are written anew, below a folder or an address: `landing/{date}/*.json`, `s3://…`.

    A relative pattern begins at the project's folder. `settle`: found only once unchanged for so long.
    """

    kind: ClassVar[str] = "new_files"

    pattern: str
    settle: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        patterns.read(self.pattern)
        fits = isinstance(self.settle, timedelta) and timedelta(0) <= self.settle <= _LONGEST_SETTLE
        require(fits, "NewFiles: settle", self.settle, "give a timedelta from 0 to 7 days")

    def to_json(self) -> dict[str, Any]:
        settle = self.settle // timedelta(milliseconds=1)
        return {"kind": self.kind, "pattern": self.pattern, **({"settle_ms": settle} if settle else {})}

    def require_cursor(self, text: str) -> None:
        FilesCursor.read(text)

    def require_partitions(self, select: str, partitions: str | None, definitions: Graphed) -> None:
        super().require_partitions(select, partitions, definitions)
        if partitions is None:
            by_values(select, dict.fromkeys(self._names()), definitions)

    def _names(self) -> tuple[str, ...]:
        return patterns.read(self.pattern).names

    def _by_default(self, item: Item, select: str, definitions: Graphed, now: datetime) -> list[RunRequest]:  # noqa: ARG002 (files have no windows)
        texts = by_values(select, dict(item.values), definitions)
        return [RunRequest(key=item.key, select=select, partitions=texts)]


class NewPartitions(BuiltIn, frozen=True):
    """Partitions of an asset that become current: computed, approved, marked as made elsewhere, or rolled back to."""

    kind: ClassVar[str] = "new_partitions"
    default_min_interval = timedelta(seconds=1)  # woken by the append, so this only bounds how often

    asset: str

    def __post_init__(self) -> None:
        if not isinstance(self.asset, str) or not re.fullmatch(r"[a-z][a-z0-9_./]*", self.asset):
            hint = 'give the name of an asset: servo.NewPartitions("orders")'
            raise InvalidInput(f"NewPartitions: {self.asset!r:.80} is not the name of an asset", hint=hint)

    def require_partitions(self, select: str, partitions: str | None, definitions: Graphed) -> None:
        super().require_partitions(select, partitions, definitions)
        readers_of(self.asset, select, definitions, said=partitions is not None)

    def _by_default(self, item: Item, select: str, definitions: Graphed, now: datetime) -> list[RunRequest]:
        assert isinstance(item, FoundPartitions)
        found = readers_of(item.asset_key, select, definitions).reading(item.keys, now)
        return [] if found is None else [RunRequest(key=item.key, select=found.select, partitions=found.partitions)]


class RunEnded(_Unplaced, frozen=True):
    """Runs that end in one of some ways: FAILED unless other ones are said. `select`: runs of these assets alone."""

    kind: ClassVar[str] = "run_ended"
    default_min_interval = timedelta(seconds=1)
    finds: ClassVar[str] = "the end of a run"

    status: tuple[str, ...] | list[str] | str = ("FAILED",)
    select: str | None = None

    def __post_init__(self) -> None:
        given = (self.status,) if isinstance(self.status, str) else self.status
        hint = f"one or more of {', '.join(ENDS)}"
        texts = isinstance(given, tuple | list) and bool(given) and all(isinstance(one, str) for one in given)
        require(texts, "RunEnded: status", self.status, hint)
        unknown = next((one for one in given if one.upper() not in ENDS), None)
        if unknown is not None:
            raise InvalidInput(f"RunEnded: no run ends as {unknown!r:.80}", hint=hint)
        msgspec.structs.force_setattr(self, "status", tuple(one for one in ENDS if one in map(str.upper, given)))
        if self.select is not None:
            require(isinstance(self.select, str), "RunEnded: select", self.select, 'write select="orders"')
            if any(
                term.partitions is not None or term.what.startswith("status:") for term in terms(parse(self.select))
            ):
                hint = "name assets, groups or tags alone"
                raise InvalidInput(f"RunEnded: {self.select!r:.80} selects partitions", hint=hint)

    def _names(self) -> tuple[str, ...]:
        return ("run_id", "status")


class NewRows(_Unplaced, frozen=True):
    """Rows of a table whose `column` is greater than any before: of `sqlite:///path` or `postgresql://…`.

    `env:NAME` takes the address from the environment. A row has the values of `column` and of `columns`.
    """

    kind: ClassVar[str] = "new_rows"
    finds: ClassVar[str] = "a row"

    url: str
    table: str = msgspec.field(default="")
    column: str = msgspec.field(default="")
    columns: tuple[str, ...] | list[str] = ()

    def __post_init__(self) -> None:
        _require_address(self.url)
        if not isinstance(self.table, str) or not 1 <= len(self.table.split(".")) <= 2 or not _named(self.table):
            hint = 'write table="orders" or table="shop.orders"'
            raise InvalidInput(f"NewRows: {self.table!r:.80} is not the name of a table", hint=hint)
        require(isinstance(self.columns, tuple | list), "NewRows: columns", self.columns, 'write columns=("region",)')
        for column in (self.column, *self.columns):
            if not isinstance(column, str) or not _NAME.fullmatch(column):
                hint = 'write column="id"'
                raise InvalidInput(f"NewRows: {column!r:.80} is not the name of a column", hint=hint)
        others = tuple(dict.fromkeys(one for one in self.columns if one != self.column))
        msgspec.structs.force_setattr(self, "columns", others)

    def require_cursor(self, text: str) -> None:
        RowsCursor.read(text)

    def _names(self) -> tuple[str, ...]:
        return (self.column, *self.columns)


def _named(table: str) -> bool:
    return all(_NAME.fullmatch(part) for part in table.split("."))


def _require_address(url: object) -> None:
    hint = "write sqlite:///shop.db, postgresql://host/shop, or env:NAME to take it from the environment"
    if not isinstance(url, str) or not url.isprintable():
        raise InvalidInput("NewRows: the address of the database is not a text", hint=hint)
    if re.fullmatch(r"env:[A-Za-z_][A-Za-z0-9_]*", url) or re.fullmatch(r"sqlite:///[^?#]+", url):
        return
    if not re.match(r"postgres(ql)?://", url):
        raise InvalidInput(f"NewRows: {url.partition('@')[0]!r:.40} is not the address of a database", hint=hint)
    try:
        address = urlsplit(url)
        secret = address.password is not None or any(name in _SECRETS for name, _ in parse_qsl(address.query))
    except ValueError:
        raise InvalidInput("NewRows: the address of the database does not read", hint=hint) from None
    if secret:
        # What is declared goes into the ledger, for everybody to read and for ever.
        hint = "use env:NAME for the whole address, PGPASSWORD or a .pgpass file"
        raise InvalidInput("NewRows: the address holds a password, which would be recorded", hint=hint)


_KINDS: dict[str, Callable[..., BuiltIn]] = {
    NewFiles.kind: lambda pattern, settle_ms=0: NewFiles(pattern, timedelta(milliseconds=settle_ms)),
    NewPartitions.kind: NewPartitions,
    RunEnded.kind: lambda status, select=None: RunEnded(tuple(status), select),
    NewRows.kind: lambda url, table, column, columns=(): NewRows(url, table, column, tuple(columns)),
}


def watch_from_json(data: Mapping[str, Any]) -> BuiltIn:
    """The watch that `to_json` wrote."""
    try:
        arguments = dict(data)
        return _KINDS[arguments.pop("kind")](**arguments)
    except InvalidInput:
        raise
    except (ServoError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as problem:
        hint = "it may be of a newer Servo: upgrade this one"
        raise InvalidInput(f"not a watch: {str(data)[:200]}", hint=hint) from problem

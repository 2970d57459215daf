"""How far watches have looked, as text: canonical JSON, small whatever was found; anything else is refused."""

from __future__ import annotations

import binascii
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Self

import msgspec

from servo import canonical, decoders
from servo.errors import InvalidCanonicalValue, InvalidInput

IDENTITY_BYTES = 9
_FOLDER = struct.Struct(f">{IDENTITY_BYTES}sq")
_MOST = 2**63 - 1

Growing = int | str | datetime | date | Decimal
_WHERE = (
    "a cursor is what the sensor has left: `servo sensor show` has its own, `servo sensor evals --json` the earlier"
)


def position_of(text: str) -> int:
    """A position of the ledger."""
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or str(int(text[:20])) != text:
        hint = "give a position of the ledger in digits, such as 1204; 0 is its beginning"
        raise InvalidInput(f"{text!r:.60} is not a cursor of this sensor", hint=hint)
    return int(text)


class _Cursor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How far a watch has looked; where it has not, nothing."""

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


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────


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


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────


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

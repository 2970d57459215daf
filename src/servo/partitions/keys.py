"""Partition keys: typed values of named dimensions, with exactly one text each; and the ids of partitions.

    key       = "" | dimension ("," dimension)*       names unique and sorted
    dimension = name "=" tag ":" value                name: [a-z][a-z0-9_]*

    s  text        base64url of UTF-8, no padding     region=s:dXMtZWFzdA
    i  int64       decimal                            shard=i:-42
    b  bool        true | false                       active=b:true
    d  date        YYYY-MM-DD                         date=d:2025-01-15
    t  timestamp   YYYY-MM-DDTHH:MM:SS.ffffffZ        hour=t:2025-01-15T10:00:00.000000Z
    n  null        null                               shard=n:null

Reading is strict: `str(PartitionKey.parse(text)) == text`, or it raises.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from typing import TypeAlias

from servo.errors import InvalidName, InvalidPartitionKey

PartitionValue: TypeAlias = str | int | bool | date | datetime | None

# Room for any sensible key, and still below what a PostgreSQL index takes in one entry (2,704 bytes).
MAX_KEY_LENGTH = 2048

_FIRST_YEAR = 1970
_INT64 = range(-(2**63), 2**63)
# Explicit ASCII classes: \d and str.isdigit take the digits of every script.
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{6}"
_DIMENSION = re.compile(
    rf"""(?P<name>[a-z][a-z0-9_]*)=(?:
      d:(?P<d>{_DATE})
    | s:(?P<s>[A-Za-z0-9_-]*)
    | t:(?P<t>{_DATE}T{_TIME})Z
    | i:(?P<i>0|-?[1-9][0-9]{{0,18}})
    | b:(?P<b>true|false)
    | n:(?P<n>null)
    )""",
    re.VERBOSE,
)
_FORMS = {
    "s": "base64url text without padding, such as s:dGVzdA",
    "i": "a decimal without leading zeros or plus sign, such as i:7",
    "b": "b:true or b:false",
    "d": "a date, such as d:2025-01-15",
    "t": "a UTC timestamp with microseconds, such as t:2025-01-15T10:30:00.000000Z",
    "n": "n:null",
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True, repr=False)
class PartitionKey:
    """The identity of one partition of an asset; equal, hashed and ordered by its text."""

    # Values are left out of comparisons, since to Python True equals 1 although their texts differ.
    dimensions: tuple[tuple[str, PartitionValue], ...] = field(default=(), compare=False)
    _text: str = field(init=False)

    def __post_init__(self) -> None:
        dimensions, texts = [], []
        for name, given in _sorted_by_name(self.dimensions):
            value, text = _encode(name, given)
            dimensions.append((name, value))
            texts.append(f"{name}={text}")
        text = ",".join(texts)
        if len(text) > MAX_KEY_LENGTH:
            raise _too_long(text)
        _set_dimensions(self, tuple(dimensions))
        _set_text(self, text)

    @classmethod
    def of(cls, values: Mapping[str, PartitionValue]) -> PartitionKey:
        """The key of Python values, each converted by its type; aware datetimes become UTC."""
        return cls(dimensions=tuple(values.items()))

    @classmethod
    def parse(cls, text: str) -> PartitionKey:
        """The key whose canonical text this is, to the letter."""
        if len(text) > MAX_KEY_LENGTH:
            raise _too_long(text)
        dimensions = tuple(map(_decode, text.split(","))) if text else ()
        previous = ""
        for name, _ in dimensions:
            if name <= previous:
                raise _out_of_order(text, name, previous)
            previous = name
        # The text is known to be canonical here, so building it again from the values would be waste.
        key = _new(cls)
        _set_dimensions(key, dimensions)
        _set_text(key, text)
        return key

    @property
    def values(self) -> dict[str, PartitionValue]:
        """The typed value of each dimension."""
        return dict(self.dimensions)

    def texts(self) -> dict[str, str]:
        """The value of each dimension as people read it."""
        return {name: _plain(value) for name, value in self.dimensions}

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"PartitionKey.parse({self._text!r})"


_new = object.__new__
# A frozen class refuses plain assignment; its slots still take values, and faster than object.__setattr__.
_set_dimensions = PartitionKey.__dict__["dimensions"].__set__
_set_text = PartitionKey.__dict__["_text"].__set__


def assembled(dimensions: tuple[tuple[str, PartitionValue], ...], text: str) -> PartitionKey:
    """The key of parts that are known to be canonical and in order: for those who make 100,000 of them."""
    if len(text) > MAX_KEY_LENGTH:
        raise _too_long(text)
    key = _new(PartitionKey)
    _set_dimensions(key, dimensions)
    _set_text(key, text)
    return key


# Keys of one asset share most of their dimensions, so that most of them are read only once.
@lru_cache(maxsize=16_384)
def _decode(dimension: str) -> tuple[str, PartitionValue]:
    match = _DIMENSION.fullmatch(dimension)
    if match is None:
        raise _malformed(dimension)
    name, tag = match["name"], match.lastgroup or ""
    text = match[tag]
    value: PartitionValue
    try:
        match tag:
            case "d":
                value = date.fromisoformat(text)
            case "s":
                value = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
            case "t":
                value = datetime.fromisoformat(text).replace(tzinfo=UTC)
            case "i":
                value = int(text)
            case "b":
                value = text == "true"
            case _:
                value = None
    except ValueError as error:
        raise _invalid(name, f"{dimension!r:.200} is refused: {error}", f"write {_FORMS[tag]}") from None
    canonical = _encode(name, value)[1]
    if dimension != f"{name}={canonical}":
        raise _invalid(name, f"{dimension!r:.200} is not canonical", f"write {name}={canonical}")
    return name, value


def _encode(name: str, given: object) -> tuple[PartitionValue, str]:
    """The normal form of a value and its text with the tag."""
    if given is None:
        return None, "n:null"
    # To Python a bool is an int and a datetime is a date, so the narrower type is asked for first.
    if isinstance(given, bool):
        return given, "b:true" if given else "b:false"
    if isinstance(given, int):
        number = int(given)
        if number not in _INT64:
            raise _invalid(name, "the integer does not fit in 64 bits", "pass it as text")
        return number, f"i:{number}"
    if isinstance(given, str):
        text = str.__str__(given)
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise _invalid(name, f"{text!r:.200} holds a lone surrogate", "decode it as UTF-8") from None
        return text, "s:" + urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
    # Exactly these classes: a pandas Timestamp holds nanoseconds, which would be lost without a word.
    if type(given) is datetime:
        moment = _in_utc(name, given)
        return moment, f"t:{timestamp_text(moment)}"
    if type(given) is date:
        _check_year(name, given)
        return given, f"d:{given.isoformat()}"
    kind = type(given)
    if kind is float:
        raise _invalid(name, f"{given!r} is a float, which no key can hold", "pass an integer or a text")
    hint = "pass str, int, bool, datetime.date, an aware datetime.datetime or None"
    raise _invalid(name, f"no key can hold a value of type {kind.__module__}.{kind.__qualname__}", hint)


def _in_utc(name: str, given: datetime) -> datetime:
    if given.utcoffset() is None:
        raise _invalid(name, f"{given.isoformat()} has no timezone", "pass an aware datetime")
    try:
        moment = given.astimezone(UTC)
    except OverflowError:
        raise _invalid(name, f"{given.isoformat()} is out of range in UTC", "pass a nearer time") from None
    _check_year(name, moment)
    return moment


def _check_year(name: str, day: date) -> None:
    if day.year < _FIRST_YEAR:
        raise _invalid(name, f"{day.isoformat()} is before {_FIRST_YEAR}", f"begin at {_FIRST_YEAR}-01-01")


def timestamp_text(moment: datetime) -> str:
    """A moment in UTC as it stands in a key."""
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _plain(value: PartitionValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case datetime():
            return timestamp_text(value)
        case date():
            return value.isoformat()
        case _:
            return str(value)


def _sorted_by_name(
    dimensions: Iterable[tuple[str, PartitionValue]],
) -> list[tuple[str, PartitionValue]]:
    given = list(dimensions)
    for name, _ in given:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            hint = "use a lower-case letter, then letters, digits and _"
            raise InvalidPartitionKey(f"{name!r:.200} is not the name of a dimension", hint=hint)
    given.sort(key=lambda dimension: dimension[0])
    for (name, _), (following, _) in pairwise(given):
        if name == following:
            raise _invalid(name, "given twice", "name each dimension once")
    return given


def _malformed(dimension: str) -> InvalidPartitionKey:
    name, equals, value = dimension.partition("=")
    if not (equals and _NAME.fullmatch(name)):
        hint = "write name=tag:value, the name in lower case, such as date=d:2025-01-15"
        return InvalidPartitionKey(f"{dimension!r:.200} is not a dimension of a partition key", hint=hint)
    form = _FORMS.get(value[:1]) if value[1:2] == ":" else None
    hint = f"write {form}" if form else "begin the value with one of the tags s: i: b: d: t: n:"
    return _invalid(name, f"{value!r:.200} is not a canonical value", hint)


def _out_of_order(text: str, name: str, previous: str) -> InvalidPartitionKey:
    if name == previous:
        return _invalid(name, f"given twice in {text!r:.200}", "name each dimension once")
    return _invalid(name, f"comes after {previous!r} in {text!r:.200}", "sort the dimensions by name")


def _too_long(text: str) -> InvalidPartitionKey:
    message = f"the partition key {text[:60]!r}... has {len(text)} characters, more than {MAX_KEY_LENGTH}"
    return InvalidPartitionKey(message, hint="use shorter values, such as a hash or a number")


def _invalid(name: str, what: str, hint: str) -> InvalidPartitionKey:
    return InvalidPartitionKey(f"partition dimension {name[:60]!r}: {what}", hint=hint)


EMPTY = PartitionKey()


def partition_id(asset_id: str, key: PartitionKey | str) -> str:
    """`part_` and 32 hex digits: the same for the same asset and key, for ever. Text is read strictly."""
    # With a colon in it, another asset and key could give the same text to hash.
    if not asset_id or ":" in asset_id:
        raise InvalidName(f"{asset_id!r:.200} is not an asset id", hint="pass the asset's UUID")
    if not isinstance(key, PartitionKey):
        key = PartitionKey.parse(key)
    return "part_" + sha256(f"{asset_id}:{key}".encode()).hexdigest()[:32]

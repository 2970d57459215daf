"""Names and ids: who owns a thing, what it is called, and what it is known by for ever."""

from __future__ import annotations

import hmac
import re
import threading
from base64 import b32encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from servo.canonical import sha256_hex
from servo.errors import InvalidAssetKey, InvalidInput, InvalidName

__all__ = [
    "AssetKey",
    "UlidFactory",
    "check_name",
    "id_under",
    "is_ulid",
    "request_fingerprint",
    "run_id",
    "ulid_offset",
    "ulid_range",
    "ulid_time",
    "uuid7",
]

_SCOPE_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
_NAMESPACE = re.compile(r"[a-z][a-z0-9_]*")
_ASSET_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")


def check_name(name: str, what: str = "tenant") -> str:
    """The name itself, if it may name a tenant or workspace."""
    if isinstance(name, str) and _SCOPE_NAME.fullmatch(name):
        return name
    hint = "use 1 to 63 lower-case letters, digits and hyphens, a letter first"
    raise InvalidName(f"{name!r:.200} is not a {what} name", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AssetKey:
    """What an asset is called: `namespace/name`, where the name may hold dots."""

    namespace: str
    name: str

    def __post_init__(self) -> None:
        if not (_NAMESPACE.fullmatch(self.namespace) and _ASSET_NAME.fullmatch(self.name)):
            raise _not_an_asset_key(f"{self.namespace}/{self.name}")

    @classmethod
    def parse(cls, text: str) -> AssetKey:
        """The key written `namespace/name`."""
        namespace, slash, name = text.partition("/")
        if not slash:
            raise _not_an_asset_key(text)
        return cls(namespace=namespace, name=name)

    @property
    def display(self) -> str:
        """`namespace.name`, as people see it."""
        return f"{self.namespace}.{self.name}"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def _not_an_asset_key(text: str) -> InvalidAssetKey:
    hint = "write namespace/name in lower-case letters, digits and _, a letter first; a name may hold dots"
    return InvalidAssetKey(f"{text!r:.200} is not an asset key", hint=hint)


def run_id(tenant: str, workspace: str, run_key: str, secret: str | bytes) -> str:
    """The id of the run with this key: always the same, and not to be guessed without the tenant's secret."""
    scope = f"{check_name(tenant)}:{check_name(workspace, 'workspace')}"
    try:
        message = f"{scope}:{run_key}".encode()
    except UnicodeEncodeError:
        what = f"the run key {run_key!r:.200} holds a lone surrogate"
        raise InvalidName(what, hint="decode it as UTF-8") from None
    digest = hmac.digest(secret.encode() if isinstance(secret, str) else secret, message, "sha256")
    return "run_" + b32encode(digest[:16])[:26].decode("ascii").lower()


def request_fingerprint(assets: Iterable[AssetKey | str], partitions: Any) -> str:
    """What a run request asks for, as a hash: the assets in any order, and the selector or None."""
    if isinstance(assets, str):
        raise InvalidAssetKey(f"{assets!r:.200} is one asset key, not several", hint="pass a list")
    keys = sorted({str(asset) for asset in assets})
    return sha256_hex({"v": 1, "assets": keys, "partitions": partitions})


# ULIDs: 48 bits of milliseconds, 80 random bits, as 26 digits in Crockford's base 32.
# Our own encoder, since python-ulid takes 3 us per id and an append of thousands of events mints many.
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_TO_BASE32 = str.maketrans(_DIGITS, "0123456789abcdefghijklmnopqrstuv")
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_RANDOM_BITS = 80
_ULID_END = 1 << 128
_LONGEST_KEY = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class UlidFactory:
    """Mints ULIDs, each greater than all before it, whatever the clock does. Threads may share it."""

    __slots__ = ("_last", "_lock", "_now", "_prefix", "_prefix_number", "_random_bytes")

    def __init__(self, now: Callable[[], datetime], random_bytes: Callable[[int], bytes]) -> None:
        self._now = now
        self._random_bytes = random_bytes
        self._lock = threading.Lock()
        self._last = -1
        self._prefix_number, self._prefix = -1, ""

    def next(self, after: str | None = None, *, count: int = 1) -> str:
        """A new id, greater than every one from here and than `after`; with `count`, the first of so many in a row."""
        floor = -1 if after is None else _number(after)
        age = self._now() - _EPOCH
        millisecond = age.days * 86_400_000 + age.seconds * 1000 + age.microseconds // 1000
        with self._lock:
            last = max(self._last, floor)
            if millisecond > last >> _RANDOM_BITS and millisecond >= 0:
                number = millisecond << _RANDOM_BITS | int.from_bytes(self._random_bytes(10), "big")
            else:
                # The carry out of the random bits is the move to the next millisecond.
                number = last + 1
            # Ids of one burst share their first digits, which are written once.
            prefix_number = number >> 40
            if prefix_number != self._prefix_number:
                self._prefix = _text(number)[:18]
                self._prefix_number = prefix_number
            self._last = number + count - 1
            prefix = self._prefix
        low, pairs = number & 0xFFFFFFFFFF, _PAIRS
        return prefix + pairs[low >> 30] + pairs[low >> 20 & 1023] + pairs[low >> 10 & 1023] + pairs[low & 1023]


def is_ulid(text: str) -> bool:
    """Whether this is the canonical (upper-case) text of a ULID."""
    return isinstance(text, str) and _ULID.fullmatch(text) is not None


def ulid_time(ulid: str) -> datetime:
    """When it was minted: UTC, to the millisecond."""
    milliseconds = _number(ulid) >> _RANDOM_BITS
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        what = f"the ULID {ulid!r} lies after the year 9999"
        raise InvalidName(what, hint="pass an id minted by Servo") from None


def ulid_offset(ulid: str, n: int) -> str:
    """The n-th id after this one."""
    return _text(_number(ulid) + n)


def ulid_range(first: str, count: int) -> list[str]:
    """`count` consecutive ids from `first` on."""
    if count <= 0:
        return []
    start = _number(first)
    blocks = range(start >> 10, (start + count - 1 >> 10) + 1)
    # The last two digits run through one table, so only every 1,024th id is encoded.
    ids = [prefix + pair for block in blocks for prefix in (_text(block << 10)[:24],) for pair in _PAIRS]
    skipped = start & 1023
    return ids[skipped : skipped + count]


def id_under(what: str, key: str) -> str:
    """The id of what is created under an idempotency key: always the same, and a ULID in form."""
    if not key or len(key) > _LONGEST_KEY or not key.isprintable():
        hint = f"give 1 to {_LONGEST_KEY} printable characters"
        raise InvalidInput(f"{key!r:.80} cannot be a request id", hint=hint)
    return _text(int.from_bytes(sha256(f"{what}:{key}".encode()).digest()[:16], "big"))


def _number(ulid: str) -> int:
    if not is_ulid(ulid):
        hint = "pass 26 upper-case digits of Crockford's base 32"
        raise InvalidName(f"{ulid!r:.200} is not a ULID", hint=hint)
    return int(ulid.translate(_TO_BASE32), 32)


def _text(number: int) -> str:
    if not 0 <= number < _ULID_END:
        raise InvalidName("no ULID lies before the first or after the last", hint="check the id that was passed")
    pairs = _PAIRS
    return "".join([pairs[number >> shift & 1023] for shift in range(120, -1, -10)])


def uuid7(now_ms: int, random_bytes: Callable[[int], bytes]) -> str:
    """A UUID version 7 (RFC 9562): 48 bits of milliseconds, then 74 random ones."""
    if not 0 <= now_ms < 1 << 48:
        raise InvalidName(f"{now_ms} ms is no time that a UUID can hold", hint="pass milliseconds since 1970")
    random = int.from_bytes(random_bytes(10), "big")
    high, low = random >> 62 & 0xFFF, random & (1 << 62) - 1
    return str(UUID(int=now_ms << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low))

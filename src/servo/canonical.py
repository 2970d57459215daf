"""Canonical JSON: one value, one text. Every hash in Servo is taken over it.

UTF-8, keys sorted by code point, no whitespace, no floats, integers exact (Python stops at 4,300 digits).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from servo import decoders
from servo.errors import InvalidCanonicalValue

__all__ = ["MAX_DEPTH", "dumps", "loads", "sha256_hex"]

# Deep enough for any payload, shallow enough that a cycle is reported before the stack runs out.
MAX_DEPTH = 128

_LEAVES = frozenset({str, int, bool, type(None)})
_KEYS = frozenset({str})

# A property test proves this encoder equal to the standard library's on everything that `_fits` lets through.
_encoder = msgspec.json.Encoder(order="sorted")
_decoder = decoders.decoder(Any)


def dumps(value: Any) -> bytes:
    """The canonical JSON of `value`, or an InvalidCanonicalValue that names the path to what is wrong."""
    if not _fits(value, 0):
        raise _explained(value)
    try:
        return _encoder.encode(value)
    except ValueError as error:
        raise _explained(value) from error


def loads(data: bytes) -> Any:
    """The value of canonical JSON; text that `dumps` would write in another way is refused."""
    try:
        value = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidCanonicalValue(f"not canonical JSON: {error}", hint="write it with dumps") from error
    # One comparison finds key order, doubled keys, whitespace, needless escapes and -0 alike.
    if dumps(value) != data:
        raise InvalidCanonicalValue(
            "JSON, but not canonical: keys unsorted or doubled, whitespace, or another spelling",
            hint="write it with dumps",
        )
    return value


def sha256_hex(value: Any) -> str:
    """SHA-256 of the canonical JSON of `value`, as 64 hex digits."""
    return hashlib.sha256(dumps(value)).hexdigest()


def _fits(value: Any, depth: int) -> bool:
    """Whether `value` holds nothing but what canonical JSON has a place for."""
    kind = type(value)
    if kind in _LEAVES:
        return True
    if depth == MAX_DEPTH:
        return False
    children: Iterable[Any]
    if kind is dict:
        if not _KEYS.issuperset(map(type, value)):
            return False
        children = value.values()
    elif kind is list or kind is tuple:
        children = value
    else:
        return False
    # Most containers hold leaves only, and this asks them all without a loop in Python.
    if _LEAVES.issuperset(map(type, children)):
        return True
    return all(_fits(child, depth + 1) for child in children)


def _explained(value: Any) -> InvalidCanonicalValue:
    return _problem(value, "$", 0) or _refused("$", "changed while it was written", "pass a copy")


def _problem(value: Any, path: str, depth: int) -> InvalidCanonicalValue | None:
    """The first thing that is wrong with `value`; slow, and so only asked when something is."""
    kind = type(value)
    if kind is str:
        return None if _is_unicode(value) else _refused(path, "holds a lone surrogate", "decode it as UTF-8")
    if kind is int:
        return None if _is_printable(value) else _refused(path, "has too many digits", "use a text")
    if kind in _LEAVES:
        return None
    if kind is float:
        return _refused(path, f"is a float, {value!r}", "use an integer of a smaller unit, or a decimal text")
    if kind not in (dict, list, tuple):
        hint = "use dict, list, tuple, str, int, bool or None"
        return _refused(path, f"is of type {kind.__module__}.{kind.__qualname__}", hint)
    if depth == MAX_DEPTH:
        return _refused(path, f"is nested deeper than {MAX_DEPTH} levels, or contains itself", "flatten it")
    if kind is not dict:
        children = ((f"{path}[{index}]", child) for index, child in enumerate(value))
    else:
        for key in value:
            if type(key) is not str or not _is_unicode(key):
                return _refused(path, f"has the key {key!r}, which is not text", "use str keys")
        children = ((f"{path}.{key}", child) for key, child in value.items())
    found = (_problem(child, where, depth + 1) for where, child in children)
    return next(filter(None, found), None)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_printable(number: int) -> bool:
    try:
        str(number)
    except ValueError:
        return False
    return True


def _refused(path: str, what: str, hint: str) -> InvalidCanonicalValue:
    return InvalidCanonicalValue(f"{path} {what}; canonical JSON cannot hold it", hint=hint)

"""Decoders and converters of msgspec types that threads may use for the first time together.

msgspec builds the description of a Struct type the first time it is decoded or converted to, and stores it on the class
before it is complete. A second thread that asks for the type in that moment reads a description with holes in it, and
the process dies of a segmentation fault (msgspec 0.22.0). Dataclasses, named tuples and generic types are described in
the same way. Encoding, `to_builtins`, `structs.replace` and the like build nothing and are safe.

So everything that builds a description is here, behind one lock; a description that this module hands out is complete.
Lint refuses `msgspec.convert`, `msgspec.json.decode` and the `Decoder` classes anywhere else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import RLock
from typing import Any, TypeVar, overload

import msgspec

__all__ = ["convert", "decode", "decoder", "prepare"]

T = TypeVar("T")

_LOCK = RLock()
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
_PREPARED: dict[Any, Any] = {}

# A child that is forked while another thread builds a type would keep its half of the description for ever.
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@overload
def decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of JSON texts of type `kind`, one for the whole process."""
    try:
        return _DECODERS[kind]
    except KeyError:
        with _LOCK:
            return _DECODERS.setdefault(kind, msgspec.json.Decoder(kind))


@overload
def decode(data: bytes | str | msgspec.Raw) -> Any: ...
@overload
def decode(data: bytes | str | msgspec.Raw, kind: type[T], *, dec_hook: Callable[..., Any] | None = None) -> T: ...
@overload
def decode(data: bytes | str | msgspec.Raw, kind: Any, *, dec_hook: Callable[..., Any] | None = None) -> Any: ...
def decode(data: Any, kind: Any = Any, *, dec_hook: Callable[..., Any] | None = None) -> Any:
    """Decode a JSON text as `kind`; `dec_hook` makes values of types that msgspec does not know.

    Raises `msgspec.DecodeError` for whatever is no JSON, also for bytes that are not UTF-8.
    """
    if dec_hook is None:
        own = decoder(kind)
    else:
        with _LOCK:
            own = msgspec.json.Decoder(kind, dec_hook=dec_hook)
    try:
        return own.decode(data)
    except UnicodeDecodeError as problem:
        raise msgspec.DecodeError(f"not UTF-8 at byte {problem.start} of a text") from problem


@overload
def convert(value: Any, kind: type[T], *, strict: bool = True) -> T: ...
@overload
def convert(value: Any, kind: Any, *, strict: bool = True) -> Any: ...
def convert(value: Any, kind: Any, *, strict: bool = True) -> Any:
    """Convert dictionaries, lists and scalars to `kind`; `strict=False` also reads numbers and times from texts."""
    return msgspec.convert(value, prepare(kind), strict=strict)


def prepare(kind: Any) -> Any:
    """Build the description of `kind` and of all types in it, and return `kind` as the object that carries it.

    Two spellings of a generic type (`Page[Run]`) are equal but may be two objects, of which one is prepared.
    """
    try:
        return _PREPARED[kind]
    except KeyError:
        with _LOCK:
            msgspec.msgpack.Decoder(kind)
            return _PREPARED.setdefault(kind, kind)

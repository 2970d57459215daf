"""Payloads as stored: canonical JSON, deflated where that pays.

A set of a thousand partition keys shrinks to a tenth. JSON starts with `{` and a zlib stream with `x`, so the first
byte tells them apart.
"""

from __future__ import annotations

import zlib

_WORTH_DEFLATING = 2048  # below this the time costs more than the bytes
_FAST = 1


def pack(payload: bytes) -> bytes:
    return zlib.compress(payload, _FAST) if len(payload) >= _WORTH_DEFLATING else payload


def unpack(stored: bytes) -> bytes:
    return stored if stored.startswith(b"{") else zlib.decompress(stored)

"""Messages over a stream between two processes: the length in four bytes, then as many bytes."""

from __future__ import annotations

import socket
import struct

__all__ = ["MOST_BYTES", "Frames", "receive_frame", "send_frame"]

MOST_BYTES = 64 << 20
_LENGTH = struct.Struct("!I")
_STEP = 1 << 16


class Frames:
    """Puts frames together from whatever pieces arrive."""

    def __init__(self) -> None:
        self._data = bytearray()

    def take(self, piece: bytes) -> bytes | None:
        """Add a piece; the frame, if it is complete. Raises ValueError for one that is too long."""
        self._data += piece
        if len(self._data) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._data)
        if length > MOST_BYTES:
            raise ValueError(f"a frame of {length} bytes")
        if len(self._data) < _LENGTH.size + length:
            return None
        return bytes(self._data[_LENGTH.size : _LENGTH.size + length])


def send_frame(to: socket.socket, data: bytes) -> None:
    to.sendall(_LENGTH.pack(len(data)) + data)


def receive_frame(source: socket.socket) -> bytes | None:
    """The next frame; None where the other side is gone. Each is answered before the next, so no piece is of two."""
    frames = Frames()
    while piece := source.recv(_STEP):
        if (frame := frames.take(piece)) is not None:
            return frame
    return None

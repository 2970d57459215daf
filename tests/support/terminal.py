"""A command on a terminal of its own, as wide as a test wants it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

__all__ = ["on_terminal"]

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(columns: int, *command: str, cwd: Path | None = None) -> list[str]:
    """The lines that `servo …` writes to a terminal of so many columns, without their colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    started = subprocess.Popen(
        [sys.executable, "-m", "servo", *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**environ, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    written = bytearray()
    try:
        while piece := _read(ours):
            written += piece
    finally:
        os.close(ours)
        code = started.wait()
    said = _COLOURS.sub("", written.decode()).replace("\r\n", "\n")
    assert code == 0, said
    return said.splitlines()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # the other end is closed
        return b""

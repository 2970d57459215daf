"""Beside a server: definitions that change in the project's folder take effect by themselves.

In a process of its own, which ends with it: the user's code is never loaded a second time into one that goes on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from tempfile import TemporaryFile
from typing import IO

from servo import decoders
from servo.runtime.child_processes import exit_text
from servo.runtime.definitions_cache import code_stamps
from servo.runtime.environment import variables_of
from servo.runtime.settings import Settings

__all__ = ["FolderWatch"]

_SECONDS = 1.0  # between two looks, and as long as files must have been still
_SHARE = 50  # a look that takes long is not taken often: it is one part of so many of the time


class FolderWatch:
    """Looks at the files of a project, and deploys them when they have changed. Belongs to one thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen = self._deployed = code_stamps(settings)
        self._next = time.monotonic() + _SECONDS
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    def look(self) -> str | None:
        """What there is to tell, now and then."""
        if self._process is not None:
            return self._ended()
        began = time.monotonic()
        if began < self._next:
            return None
        now = code_stamps(self._settings)
        self._next = time.monotonic() + max(_SECONDS, (time.monotonic() - began) * _SHARE)
        still, self._seen = now == self._seen, now
        if still and now is not None and now != self._deployed:
            self._deployed = now
            self._start()
        return None

    def _start(self) -> None:
        self._said = TemporaryFile()  # noqa: SIM115 (closed when the process has ended)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "servo", "deploy", "--json"],
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=subprocess.STDOUT,
            cwd=self._settings.root,
            env={**os.environ, **variables_of(self._settings)},
            start_new_session=True,
        )

    def _ended(self) -> str | None:
        assert self._process is not None
        assert self._said is not None
        code = self._process.poll()
        if code is None:
            return None
        self._process = None
        with self._said:
            self._said.seek(0)
            lines = self._said.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
        if code:
            if code < 0:
                lines = [f"the process that deploys {exit_text(code)}; it is tried again with the next change"]
            return f"what changed in the folder was not deployed: {lines[-1].removeprefix('servo: ')}"
        said = decoders.decode(lines[-1].encode())
        if not said.get("changed"):
            return None
        history = "; ".join(change["sentence"] for change in said.get("changes", ()))
        return "what changed in the folder is deployed" + (f": {history}" if history else "")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

"""Compacting beside a server: in a process of its own, so that nobody who waits for an answer waits for that."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from contextlib import suppress

from servo.runtime.environment import variables_of
from servo.runtime.settings import Settings

__all__ = ["CompactionAside"]

log = logging.getLogger(__name__)

_GRACE_SECONDS = 30.0


class CompactionAside:
    """Starts a compaction unless one is under way. Belongs to one thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self) -> None:
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            if code:
                log.warning("a compaction ended with %s", code, extra={"action": "compaction.failed"})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "servo", "ledger", "compact", "--gently", "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._settings.root,
            env={**os.environ, **variables_of(self._settings)},
            start_new_session=True,  # a Ctrl-C in the terminal is for its parent
        )

    def wait(self, seconds: float) -> None:
        """Until the one that is under way has ended, but no longer; it goes on."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)

    def close(self) -> None:
        """Wait for the one that is under way."""
        if self._process is not None:
            try:
                self._process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

"""Compacting beside a server: in a process of its own, so that nobody who waits for an answer waits for that."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO

from servo.runtime.child_processes import exit_text
from servo.runtime.environment import variables_of
from servo.runtime.settings import Settings

__all__ = ["CompactionAside"]

log = logging.getLogger(__name__)

_GRACE_SECONDS = 30.0
_NEXT = {
    "compact": "reads fold what is new in memory meanwhile, and it is started again as long as there is something to"
    " fold",
    "replay": "it is started again as long as they cannot be read",
}


class CompactionAside:
    """Starts a compaction, or a replay, unless one of them is under way. Belongs to one thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._verb = "compact"

    def __call__(self) -> None:
        self._start("compact", "--gently")

    def replay(self) -> bool:
        """Have the projections rebuilt from the ledger; False where something is under way already."""
        return self._start("replay", "--no-check")

    def _start(self, *command: str) -> bool:
        if self._process is not None and self._process.poll() is None:
            return False
        self._report_end()
        self._verb = command[0]
        self._output = TemporaryFile()  # noqa: SIM115 (closed when the process has ended)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "servo", "ledger", *command, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._output,
            cwd=self._settings.root,
            env={**os.environ, **variables_of(self._settings)},
            start_new_session=True,  # a Ctrl-C in the terminal is for its parent
        )
        return True

    def wait(self, seconds: float) -> None:
        """Until the one that is under way has ended, but no longer; it goes on."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
                self._report_end()

    def close(self) -> None:
        """Wait for the one that is under way."""
        if self._process is not None:
            try:
                self._process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._report_end()

    def _report_end(self) -> None:
        """Warn of a compaction that failed, with the last thing that it said; forget the process."""
        if self._process is None or self._output is None:
            return
        code, self._process = self._process.returncode, None
        with self._output:
            self._output.seek(0)
            lines = self._output.read().decode(errors="replace").strip().splitlines()
        if code:
            log.warning(
                "the process that %ss the projections %s%s; %s",
                self._verb,
                exit_text(code),
                f" ({lines[-1]:.300})" if lines else "",
                _NEXT[self._verb],
                extra={"action": "compaction.failed"},
            )

"""Compaction of the projections in a child process, so that nobody who waits for an answer waits for that."""

from __future__ import annotations

import logging

from servo.runtime.child_processes import BackgroundCommand, exit_text
from servo.runtime.settings import Settings

__all__ = ["CompactionProcess"]

log = logging.getLogger(__name__)

_GRACE_SECONDS = 30.0
_NEXT = {
    "compact": "reads fold what is new in memory meanwhile, and it is started again as long as there is something to"
    " fold",
    "replay": "it is started again as long as they cannot be read",
}


class CompactionProcess:
    """Compactions and replays in a child process, one at a time. Belongs to one thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._command: BackgroundCommand | None = None
        self._verb = "compact"

    def __call__(self) -> None:
        self._start("compact", "--gently")

    def replay(self) -> bool:
        """Have the projections rebuilt from the ledger; False where something is under way already."""
        return self._start("replay", "--no-check")

    def _start(self, verb: str, *options: str) -> bool:
        if self._command is not None and self._command.is_running:
            return False
        self._report_end()
        self._verb = verb
        self._command = BackgroundCommand(self._settings, "ledger", verb, *options, "--json", errors_only=True)
        return True

    def wait(self, seconds: float) -> None:
        """Wait until the one that is under way has ended, but not longer than so many seconds; it goes on."""
        if self._command is not None:
            self._command.wait(seconds)
            self._report_end()

    def close(self) -> None:
        """Wait for the one that is under way."""
        if self._command is not None:
            self._command.end(_GRACE_SECONDS)
            self._report_end()

    def _report_end(self) -> None:
        """Warn of a compaction that failed, with the last thing that it said; forget the process."""
        if self._command is None or self._command.is_running:
            return
        (code, lines), self._command = self._command.result(), None
        if code:
            log.warning(
                "the process that %ss the projections %s%s; %s",
                self._verb,
                exit_text(code),
                f" ({lines[-1]:.300})" if lines else "",
                _NEXT[self._verb],
                extra={"action": "compaction.failed"},
            )

"""Work in child processes beside a server: compaction of the projections, and redeployment of changed definitions.

Nobody who waits for an answer waits for a compaction; and the user's code is never loaded a second time into a process
that goes on."""

from __future__ import annotations

import logging
import time

from servo import decoders
from servo.runtime.definitions_cache import code_stamps
from servo.runtime.processes.children import BackgroundCommand, exit_text
from servo.runtime.settings import Settings

__all__ = ["CompactionProcess", "Redeployment"]

log = logging.getLogger(__name__)


_GRACE_SECONDS = 30.0
_NEXT = {
    "compact": "reads fold what is new in memory meanwhile, and it is started again as long as there is something to"
    " fold",
    "replay": "it is started again as long as they cannot be read",
}
_SECONDS = 1.0  # between two looks, and as long as files must have been still
_SHARE = 50  # a look that takes long is not taken often: it is one part of so many of the time


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


# ── redeployment ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Redeployment:
    """Looks at the files of a project, and deploys them when they have changed. Belongs to one thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen = self._deployed = code_stamps(settings)
        self._next = time.monotonic() + _SECONDS
        self._command: BackgroundCommand | None = None

    def look(self) -> str | None:
        """What there is to tell, now and then."""
        if self._command is not None:
            return None if self._command.is_running else self._ended(self._command)
        began = time.monotonic()
        if began < self._next:
            return None
        now = code_stamps(self._settings)
        self._next = time.monotonic() + max(_SECONDS, (time.monotonic() - began) * _SHARE)
        still, self._seen = now == self._seen, now
        if still and now is not None and now != self._deployed:
            self._deployed = now
            self._command = BackgroundCommand(self._settings, "deploy", "--json")
        return None

    def _ended(self, command: BackgroundCommand) -> str | None:
        self._command = None
        code, lines = command.result()
        lines = lines or ["it said nothing"]
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
        if self._command is not None:
            self._command.end(0.0)
            self._command.result()

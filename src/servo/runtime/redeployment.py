"""Redeployment beside a server: definitions that change in the project's folder take effect by themselves.

In a process of its own: the user's code is never loaded a second time into one that goes on.
"""

from __future__ import annotations

import time

from servo import decoders
from servo.runtime.child_processes import BackgroundCommand, exit_text
from servo.runtime.definitions_cache import code_stamps
from servo.runtime.settings import Settings

__all__ = ["Redeployment"]

_SECONDS = 1.0  # between two looks, and as long as files must have been still
_SHARE = 50  # a look that takes long is not taken often: it is one part of so many of the time


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

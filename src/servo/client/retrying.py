"""How often, and how long after: twice as long each time, by chance a little less, and not for ever."""

from __future__ import annotations

import random
import time

__all__ = ["Patience"]

_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 5.0


class Patience:
    """Pauses between attempts at one thing, until there is no time left for another."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._attempts = 0

    def pause(self, at_least: float = 0.0) -> bool:
        """Wait for the next attempt; False where that is over."""
        longest = min(_FIRST_SECONDS * 2**self._attempts, _LONGEST_SECONDS)
        # By chance, so that those who were turned away together do not come back together.
        length = at_least + longest * random.uniform(0.5, 1.0)
        self._attempts += 1
        if time.monotonic() + length > self._until:
            return False
        time.sleep(length)
        return True

"""Events that only a newer Servo understands are kept and skipped, never silently."""

from __future__ import annotations

import logging
from collections import Counter

from servo.fold.batch import Batch

log = logging.getLogger(__name__)


def warn_of_unknown(folded: Batch) -> None:
    """One line for each unknown type, however many events there are of it."""
    kinds = Counter((unknown.event_type, unknown.event_version) for unknown in folded.unknown)
    for (event_type, version), count in sorted(kinds.items()):
        log.warning(
            "skipped %s of unknown type %s version %s; a newer Servo will fold it on replay",
            "an event" if count == 1 else f"{count} events",
            event_type,
            version,
            extra={"action": "fold.unknown_event"},
        )

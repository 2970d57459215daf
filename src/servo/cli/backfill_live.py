"""A backfill on a terminal while it goes on: the picture that `servo backfill status` has. Rich comes with this."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from servo.cli.values import text
from servo.ui.backfill import lines
from servo.ui.marks import Line

if TYPE_CHECKING:
    from servo.answers.backfills import BackfillTree

_MOST_FAILURES = 5  # the summary has more


class Picture:
    """A picture on stderr, which is gone when it is closed: what is said then says the same, and stays."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._screen = Live(console=self._console, transient=True, auto_refresh=False, vertical_overflow="ellipsis")
        self._lock = Lock()  # whoever closes it, at Ctrl-C, is another thread
        self._screen.start()

    def __call__(self, tree: BackfillTree) -> None:
        drawn = [_text(line) for line in lines(tree, self._console.width - 1, failures=_MOST_FAILURES)]
        with self._lock:
            if self._screen.is_started:
                self._screen.update(Text("\n").join(drawn), refresh=True)

    def close(self) -> None:
        with self._lock:
            self._screen.stop()


def _text(line: Line) -> Text:
    """A line as Rich has it. What users wrote may hold anything: control characters are written out."""
    found = Text(no_wrap=True)
    for span in line:
        found.append(text(span.text), style=" ".join(filter(None, [span.colour, "bold" if span.bold else ""])))
    return found

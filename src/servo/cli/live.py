"""What Rich draws on a terminal while runs and backfills go on. Rich comes with this module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID
from rich.progress import TimeElapsedColumn as Elapsed
from rich.progress import TimeRemainingColumn as Remaining
from rich.text import Text

from servo.answers.values import text
from servo.cli.backfill_progress import Show
from servo.cli.output import COLOURS, ENDED
from servo.ui.backfill import lines
from servo.ui.marks import Line

if TYPE_CHECKING:
    from servo.answers.backfills import BackfillTree
    from servo.answers.runs import RunProgress, TaskProgress

_MOST_BARS = 16  # more tasks than this, and those that have ended or not begun make way
_MOST_FAILURES = 5  # the summary has more


class _State(ProgressColumn):
    def render(self, task: Task) -> Text:
        state = task.fields["state"]
        return Text(f"{state:<10}", style=COLOURS.get(state, ""))


class _Name(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(task.description, overflow="ellipsis", no_wrap=True)


class _Failed(ProgressColumn):
    def render(self, task: Task) -> Text:
        lost = [f"{task.fields[what]} {what}" for what in ("failed", "skipped") if task.fields[what]]
        return Text(", ".join([*lost, *filter(None, [task.fields["remark"]])]), style="red" if lost else "dim")


class Bars:
    """Draws a run's progress whenever it changes."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bars: dict[str, TaskID] = {}

    def __call__(self, run: RunProgress) -> None:
        shown = {task.task_key for task in _worth_showing(run.tasks)}
        for task in run.tasks:
            bar = self._bars.get(task.task_key)
            if bar is None:
                bar = self._bars[task.task_key] = self._progress.add_task(
                    task.task_key, start=False, total=task.total, state=task.state, failed=0, skipped=0, remark=""
                )
            if task.state == "RUNNING" and not self._progress.tasks[bar].started:
                self._progress.start_task(bar)
            self._progress.update(
                bar,
                completed=task.succeeded + task.failed + task.skipped,
                total=task.total,
                visible=task.task_key in shown,
                state=task.state,
                failed=task.failed,
                skipped=task.skipped,
                remark=_remark(task),
            )
            if task.state in ENDED:
                self._progress.stop_task(bar)


@contextmanager
def bars() -> Iterator[Bars]:
    """Bars on stderr, which are gone when the block ends: the summary says the same, and stays."""
    columns = (_State(), _Name(), BarColumn(bar_width=24), MofNCompleteColumn(), Elapsed(), Remaining(), _Failed())
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as progress:
        yield Bars(progress)


def _worth_showing(tasks: list[TaskProgress]) -> list[TaskProgress]:
    """What is going on first, then what comes next, then what is done; in the run's order."""
    if len(tasks) <= _MOST_BARS:
        return tasks

    def rank(task: TaskProgress) -> int:
        return 1 if task.state in ("PLANNED", "READY") else 2 if task.state in ENDED else 0

    return sorted(tasks, key=rank)[:_MOST_BARS]


def _remark(task: TaskProgress) -> str:
    if task.state == "RETRY_WAIT" and task.retry_at is not None:
        return f"attempt {task.attempt + 1} at {task.retry_at.astimezone():%H:%M:%S}"
    return f"attempt {task.attempt}" if task.state == "RUNNING" and task.attempt > 1 else ""


class Picture(Show):
    """A picture on stderr, which is gone when it is closed: the summary says the same, and stays."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._screen = Live(console=self._console, transient=True, auto_refresh=False, vertical_overflow="ellipsis")
        self._lock = Lock()  # at Ctrl-C another thread closes it
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

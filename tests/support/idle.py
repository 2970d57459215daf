"""A whole project at work but for Spark: real ledger, control loops and workers, and an executor that computes nothing.

What is under test with it is who decides what when; what Spark makes of it has tests of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from threading import Event, Thread
from typing import Any

from servo.answers.backfills import Backfilled, BackfillTree
from servo.assets.loading import load
from servo.controllers import backfilling
from servo.errors import WorkCancelled
from servo.events import RecordedEvent, decode
from servo.events.columns import Outcome
from servo.events.fact import Fact
from servo.execution.executor import Executor
from servo.execution.protocol import Commit, Order, PartitionResult, Place, Staged
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.backfill_book import BackfillBook
from servo.runtime.backfill_planning import BackfillRequest
from servo.runtime.backfills import Backfills
from servo.runtime.control import Control
from servo.runtime.deploying import deploy
from servo.runtime.tracker import RunTracker
from servo.runtime.worker import Worker

ME = "person:tester"
PATIENCE = 240.0  # seconds; a wait ends as soon as what is waited for is so


class IdleStorage:
    """Keeps nothing: whatever is published is taken to be there."""

    def publish(self, moves: Sequence[tuple[Staged, Place]]) -> None:
        pass

    def seal(self, staged: Sequence[Staged]) -> None:
        pass


class IdleExecutor(Executor):
    """Says of every partition that it was made, waits for an approval, or failed, without computing it."""

    def __init__(
        self, *, fails: Callable[[Order, str], bool] = lambda _, __: False, works: Callable[[Order], None] | None = None
    ) -> None:
        super().__init__(IdleStorage(), _no_spark)  # type: ignore[arg-type]  # all that is asked of it
        self._fails = fails
        self._works = works or (lambda _: None)
        self.stopped: set[str] = set()

    def execute(self, order: Order, *, commit: Commit, log: Any, scope: Any = lambda _: nullcontext()) -> None:
        self._works(order)
        if order.run_id in self.stopped:
            raise WorkCancelled(f"{order.run_id} was cancelled")
        commit([self._result(order, key) for key in order.keys])

    def cancel(self, run_id: str) -> None:
        self.stopped.add(run_id)

    def _result(self, order: Order, key: str) -> PartitionResult:
        if self._fails(order, key):
            return PartitionResult(key=key, outcome=Outcome.FAILED, error=f"{key} is poisoned")
        staged = Staged(place=key, rows=1, bytes=1, files=1, content_hash=f"{order.run_id}:{key}")
        waits = order.asset.spec.approval is not None
        return PartitionResult(key=key, outcome=Outcome.STAGED if waits else Outcome.SUCCEEDED, staged=staged)


def _no_spark() -> Any:
    raise AssertionError("nobody asked for Spark")


class Plant:
    """The project, and short ways to ask it and to wait for it."""

    def __init__(self, project: Project, said: Callable[[], str] = lambda: "") -> None:
        self.project = project
        self._said = said  # what its processes wrote, for who wants to know why a test failed
        self.backfills = Backfills(project)
        self.book = BackfillBook(project)

    def create(self, *assets: str, request_id: str | None = None, **asked: Any) -> Backfilled:
        return self.backfills.create(BackfillRequest(assets=assets, **asked), request_id=request_id, actor=ME)

    def tree(self, backfill: str) -> BackfillTree:
        return self.book.tree(*self.backfills.find(backfill))

    def until(self, happened: Callable[[], Any], what: str, seconds: float = PATIENCE) -> None:
        """Look again whenever something was recorded."""
        deadline = time.monotonic() + seconds
        while True:
            position = self.project.ledger.head().position
            if happened():
                return
            assert time.monotonic() < deadline, f"not in {seconds} seconds: {what}\n{self._said()}"
            self.project.ledger.head(beyond=position, timeout=0.2)

    def at_rest(self) -> None:
        """Wait until nothing happens by itself: no run can go on, and no backfill can plan another chunk."""
        tracker = RunTracker(self.project, backfills=True)

        def resting() -> bool:
            tracker.refresh()
            assert tracker.backfills is not None
            decided = backfilling.decide(tracker.backfills, tracker.catalog, self.project.clock(), str)
            return all(run.parked for run in tracker.board.runs.values()) and not list(decided)

        self.until(resting, "nothing is under way")

    def ended(self, backfill: str, seconds: float = PATIENCE) -> BackfillTree:
        """The tree once all of it has ended."""
        self.until(lambda: self.tree(backfill).over, f"{backfill} has ended", seconds)
        return self.tree(backfill)

    def events(self) -> list[RecordedEvent]:
        return list(self.project.history.events(0))

    def facts(self, *kinds: type[Fact]) -> list[Any]:
        names = {kind.event_type for kind in kinds}
        return [decode(event) for event in self.events() if event.event_type in names]


@contextmanager
def plant(folder: Path, definitions: str, *, toml: str = "") -> Iterator[Plant]:
    """A project with these definitions, deployed; nobody is at work yet."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "servo.toml").write_text(f'namespace = "shop"\n{toml}')
    (folder / "definitions.py").write_text(definitions)
    settings = load_settings(folder, {})
    with open_workspace(settings, create=True) as project:
        deploy(project, load(settings), actor=ME)
        yield Plant(project)


@contextmanager
def at_work(place: Plant, executor: Executor | None = None, *, controls: int = 1, workers: int = 1) -> Iterator[None]:
    """Control loops and workers, each with the project to itself as in a process of its own."""
    settings, stop = place.project.settings, Event()
    definitions = load(settings)
    doer = executor or IdleExecutor()
    with ExitStack() as stack:
        threads = []
        for number in range(controls + workers):
            project = stack.enter_context(open_workspace(settings, clock=place.project.clock))
            run = Control(project).run if number < controls else Worker(project, lambda: definitions, doer).run
            threads.append(Thread(target=run, args=(stop,), daemon=True))
        stack.callback(lambda: [thread.join(30) for thread in threads])
        stack.callback(stop.set)
        for thread in threads:
            thread.start()
        yield

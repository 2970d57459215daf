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

from servo.assets.loading import load
from servo.errors import WorkCancelled
from servo.events.columns import Outcome
from servo.execution.executor import Executor
from servo.execution.protocol import Commit, Order, PartitionResult, Place, Staged
from servo.runtime import load_settings, open_workspace
from servo.runtime.loop.control import Control
from servo.runtime.worker.worker import Worker
from tests.support.workshop import Workshop

__all__ = ["IdleExecutor", "IdleStorage", "at_work", "work_for_ever"]


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


@contextmanager
def at_work(
    place: Workshop,
    executor: Executor | None = None,
    *,
    controls: int = 1,
    workers: int = 1,
    reloading: bool = False,
) -> Iterator[None]:
    """Control loops and workers, each with the project to itself as in a process of its own.

    `reloading`: workers load the project's files anew for each task, as a test edits them.
    """
    settings, stop = place.project.settings, Event()
    loaded = load(settings)
    definitions = (lambda: load(settings)) if reloading else (lambda: loaded)
    doer = executor or IdleExecutor()
    with ExitStack() as stack:
        threads = []
        for number in range(controls + workers):
            project = stack.enter_context(open_workspace(settings, clock=place.project.clock))
            run = Control(project).run if number < controls else Worker(project, definitions, doer).run
            threads.append(Thread(target=run, args=(stop,), daemon=True))
        stack.callback(lambda: [thread.join(30) for thread in threads])
        stack.callback(stop.set)
        for thread in threads:
            thread.start()
        yield


def work_for_ever(folder: Path, seconds: float) -> None:
    """Be a control loop and a worker, which takes so long for each partition, until somebody kills the process."""
    with open_workspace(load_settings(folder, {})) as project:
        executor = IdleExecutor(works=lambda order: time.sleep(seconds * len(order.keys)))
        with at_work(Workshop(project), executor):
            Event().wait()

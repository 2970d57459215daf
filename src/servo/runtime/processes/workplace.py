"""Work without a server: a control loop and a worker for as long as a command needs them, unless some are running.

Those of `servo up` and `servo worker` are left to it. Otherwise the control loop is a thread here, and the worker a
child process: Spark and its JVM never live in the process that decides.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from threading import Event

from servo.errors import EnvironmentProblem, StorageFailed
from servo.execution.spark_target import require_spark
from servo.ledger.leases import Holder, Kind
from servo.runtime.doctor import require_remote_storage
from servo.runtime.loop.control import Control
from servo.runtime.loop.service_loop import ServiceThread
from servo.runtime.processes.children import exit_text, start_servo, tasks_of_worker, write_last_words
from servo.runtime.settings import Settings
from servo.runtime.wiring import Project

_GRACE_SECONDS = 20.0
_MOST_LIVES = 4  # of a worker that is killed again and again


class Workplace:
    """The control loop and the worker that do the work: those that run already, or those started for it."""

    def __init__(self, project: Project, run_id: str | None, stack: ExitStack, *, computing: bool) -> None:
        self._project = project
        self._computing = computing
        self._options = ("--for", run_id) if run_id else ()
        self._stack = stack
        self._control: ServiceThread | None = None
        self._child: ChildWorker | None = None
        self._lives = 0

    @property
    def embedded(self) -> bool:
        """Whether the worker was started here, and ends with the block."""
        return self._child is not None

    def alive(self) -> None:
        """Start what is missing for work to go on; raises once it cannot. To be called repeatedly.

        A process that was at work before may leave, or be found to have died long ago.
        """
        if self._control is not None:
            self._control.require_well()
        elif not _is_alive(self._project, "control"):
            self._control = self._stack.enter_context(controlling(self._project))
        if not self._computing:
            return
        if self._child is None:
            if not _is_alive(self._project, "worker"):
                self._start()
        elif self._child.has_left():
            pid, code = self._child.process.pid, self._child.process.returncode
            if code:
                write_last_words(self._project, tasks_of_worker(self._project, pid), pid, code)
            if self._lives >= _MOST_LIVES:
                how = exit_text(self._child.process.returncode)
                raise EnvironmentProblem(
                    f"the worker died {self._lives} times; the last one {how}",
                    hint=f"see {self._child.output}, and whether memory is short",
                )
            self._start()

    def _start(self) -> None:
        self._lives += 1
        self._child = self._stack.enter_context(child_worker(self._project, *self._options))


def _is_alive(project: Project, kind: Kind) -> bool:
    return any(holder.kind == kind and not _is_dead(holder) for holder in project.leases.live())


def _is_dead(holder: Holder) -> bool:
    """Whether a process of this machine is gone although its lease has not run out yet."""
    if holder.host != socket.gethostname():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # it is somebody else's
    return False


def require_workable(project: Project) -> None:
    """Refuse where a worker that is started here could not work, before a run is requested."""
    if project.unbegun or not _is_alive(project, "worker"):
        require_spark(project.settings.spark)
        _require_storage(project.settings)


def _require_storage(settings: Settings) -> None:
    """Refuse a folder for data that cannot be made or written to, and a remote store that does not answer."""
    if "://" in settings.storage:
        require_remote_storage(settings)
        return
    try:
        Path(settings.storage).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=settings.storage).close()
    except OSError as problem:
        raise StorageFailed(
            f"no data can be written to {settings.storage}: {problem.strerror or problem}",
            hint="choose another folder: `storage` in servo.toml, or SERVO_STORAGE",
        ) from problem


@contextmanager
def working(project: Project, *, run_id: str | None = None, computing: bool = True) -> Iterator[Workplace]:
    """Have work done inside the block. `computing`: whether more than decisions are wanted."""
    with ExitStack() as stack:
        place = Workplace(project, run_id, stack, computing=computing)
        place.alive()
        yield place


@contextmanager
def controlling(project: Project) -> Iterator[ServiceThread]:
    """A control loop in a thread of this process, and the sender to OpenLineage where one is set."""
    stop = Event()
    with lineage_sender(project):
        thread = ServiceThread(Control(project), stop)
        thread.start()
        try:
            yield thread
        finally:
            stop.set()
            thread.join(_GRACE_SECONDS)


def lineage_sender(project: Project) -> AbstractContextManager[object]:
    """The sender to OpenLineage for a block; nothing where no server is set."""
    if not os.environ.get("OPENLINEAGE_URL"):
        return nullcontext()
    from servo.runtime.telemetry.openlineage import openlineage_sender  # noqa: PLC0415 (HTTP comes with it, and few need it)

    return openlineage_sender(project)


class ChildWorker:
    """A worker process, and the end of its log where it died."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self.output = output
        self._asked = False

    def has_left(self) -> bool:
        """Whether it ended by itself or was killed; raises if it ended because it could not work."""
        code = self.process.poll()
        if code is None or code <= 0:
            return code is not None
        lines = self.output.read_text(errors="replace").strip().splitlines()
        # A worker says in its last line what it died of; the JVM may have something to add.
        said = [line.removeprefix("servo: ") for line in lines if line.startswith("servo: ")] or lines
        why = said[-1] if said else f"exit code {code}"
        raise EnvironmentProblem(f"the worker ended: {why}", hint=f"see {self.output}")

    def ask_to_end(self) -> None:
        """Let it hand back what it is at. Only once: asked again, it would leave at once."""
        if not self._asked and self.process.poll() is None:
            self._asked = True
            self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.ask_to_end()
            try:
                self.process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextmanager
def child_worker(project: Project, *options: str) -> Iterator[ChildWorker]:
    """A worker in a process of its own, in the same project, until the end of the block."""
    folder = project.settings.home / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / f"worker-{project.mint().lower()}.log"
    with output.open("wb") as sink:
        # Its standard input ends when this process does, however that ends: then the worker ends too.
        process = start_servo(project.settings, "worker", "--child", *options, stdin=subprocess.PIPE, stdout=sink)
    worker = ChildWorker(process, output)
    try:
        yield worker
    finally:
        worker.stop()
        if process.stdin is not None:
            process.stdin.close()

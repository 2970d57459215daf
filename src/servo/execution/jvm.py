"""The JVM of a classic session: started in silence, given up when it does not come up, forgotten when it is dead.

PySpark starts it with a pipe for its input, and it ends by itself when that pipe breaks: a Python that is killed leaves
no JVM behind that goes on writing. What it says goes through a thread of ours, which keeps back what Spark says every
time it starts and, when the start fails, everything: then the error says it in one line.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from servo.execution.settings import at_launch

log = logging.getLogger(__name__)

# Said at every start, whether or not something is wrong.
_CHATTER = re.compile(
    rb"WARNING: Using incubator modules"
    rb"|Using Spark's (default|repl) log4j profile"
    rb"|Setting default log level to"
    rb"|To adjust logging level use"
    rb"|Setting Spark log level to"
    rb"|.* WARN NativeCodeLoader: Unable to load native-hadoop library"
)
# What these log of a failed or cancelled task, with a page of Java for each, is in the exception that Python gets.
_REPEATERS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.FileFormatWriter",
    "org.apache.spark.util.Utils",
)
_PING_SECONDS, _PATIENCE_SECONDS = 15.0, 120.0
_KEPT = 200
_LAST = 50  # lines that are remembered of a JVM that is up
_MEMORY = re.compile(r"OutOfMemoryError[^\n]*|Java heap space|GC overhead limit exceeded|insufficient memory")
_OUT_OF_MEMORY = 52  # Spark ends its JVM with this code
_JAVA_ERROR = re.compile(
    r"(?:Exception in thread .*?)?\b[\w.$]+(?:Exception|Error)\b.*|.* ERROR .*|Error: .*|.*JAVA_HOME.*"
)


class SharedSession:
    """Stands in for an attribute of PySpark's session class that holds one session for the whole process.

    See `call_session`, where a thread that is in a call has the session of its call instead.
    """

    def __init__(self, session: SparkSession | None) -> None:
        self.session = session


class Stderr:
    """What the JVM says: held back until it is up, then passed on as it comes."""

    def __init__(self, source: IO[bytes]) -> None:
        self._lock = threading.Lock()
        self._held: deque[bytes] | None = deque(maxlen=_KEPT)
        self._last: deque[bytes] = deque(maxlen=_LAST)
        threading.Thread(target=self._read, args=(source,), name="spark-stderr", daemon=True).start()

    def _read(self, source: IO[bytes]) -> None:
        with source:
            for line in source:
                if _CHATTER.match(line):
                    continue
                with self._lock:
                    self._last.append(line)
                    if self._held is None:
                        _write_stderr(line)
                    else:
                        self._held.append(line)

    def release(self) -> None:
        """The start went well: pass on what was held back, which is a warning then, and all that follows."""
        with self._lock:
            held, self._held = self._held or (), None
            for line in held:
                _write_stderr(line)

    def last_of_memory(self) -> str | None:
        """What the JVM said about memory in its last lines."""
        with self._lock:
            text = b"".join(self._last).decode(errors="replace")
        found = _MEMORY.search(text)
        return None if found is None else found[0].strip()

    def reason(self) -> str | None:
        """The line that says why a start failed, as far as one can tell."""
        with self._lock:
            lines = [line.decode(errors="replace").strip() for line in self._held or ()]
        telling = [line for line in lines if _JAVA_ERROR.fullmatch(line)]
        return telling[0] if telling else (lines[-1] if lines else None)


def _write_stderr(line: bytes) -> None:
    with suppress(OSError):  # nobody listens any more
        os.write(2, line)  # the file itself, as a JVM that inherits it would


def launch(conf: Mapping[str, str], environ: Mapping[str, str]) -> Stderr | None:
    """Start a JVM for this process; None if it has one already, or is itself the child of one."""
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    given = SparkConf(loadDefaults=False)
    # These become arguments of a process, for everybody on the machine to see. The session itself gets them all.
    for name, value in at_launch(conf).items():
        given.set(name, value)
    options: dict[str, object] = {"stderr": subprocess.PIPE}
    with _environment(environ):
        gateway = launch_gateway(given, options)  # type: ignore[no-untyped-call]  # PySpark has no types there
    stderr = gateway.servo_stderr = Stderr(gateway.proc.stderr)
    SparkContext._ensure_initialized(gateway=gateway)
    return stderr


def quieten(spark: SparkSession) -> None:
    """Leave out of the log what the exception says anyway."""
    log4j = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # a started session has its JVM
    for name in _REPEATERS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


@contextmanager
def at_most(seconds: float | None) -> Iterator[threading.Event]:
    """Kill the JVM of this process if the block takes longer; the event says whether that happened.

    Spark tries for a minute to find its master, and cannot be told to give up earlier.
    """
    late = threading.Event()
    started = process()

    def give_up() -> None:
        late.set()
        if started is not None:
            started.kill()

    timer = None if seconds is None else threading.Timer(seconds, give_up)
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield late
    finally:
        if timer is not None:
            timer.cancel()


def process() -> subprocess.Popen[bytes] | None:
    """The JVM that this process started and has not given up."""
    found: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return found


def is_here() -> bool:
    """Whether the driver of the session is a JVM that this process started."""
    return process() is not None


def is_local() -> bool:
    """Whether that JVM is also where tasks are computed."""
    context = SparkContext._active_spark_context
    return context is not None and str(context.master).startswith("local")


def has_ended() -> bool:
    """Whether the JVM of this process has gone, or Spark's context in it has stopped, as it does before it goes."""
    if is_dead():
        return True
    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return False
    try:
        return bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def has_stopped() -> bool:
    """Whether this process had a JVM, and has no context in it that still answers."""
    if SparkContext._gateway is None:
        return False
    context = SparkContext._active_spark_context
    return context is None or context._jsc is None or has_ended()


def watch(stop: threading.Event, *, every: float = _PING_SECONDS, patience: float = _PATIENCE_SECONDS) -> None:
    """Kill the JVM of this process when it has not answered for so long, so that its tasks end and are tried again.

    A JVM that hangs, as in a garbage collection without end, would keep them for ever.
    """
    while not stop.wait(every):
        watched, context = process(), SparkContext._active_spark_context
        if watched is None or watched.poll() is not None or context is None or context._jsc is None:
            continue
        answered = threading.Event()
        threading.Thread(target=_ping, args=(context, answered), name="spark-ping", daemon=True).start()
        if not answered.wait(patience):
            told = "the JVM of Spark has not answered for %.0f s and is killed; its tasks are tried again in another"
            log.error(told, patience, extra={"action": "worker.jvm_hangs"})
            watched.kill()


def _ping(context: SparkContext, answered: threading.Event) -> None:
    with suppress(Py4JError, OSError, AttributeError):  # it may end at this moment, which is an answer too
        context._jsc.sc().isStopped()
    answered.set()


def is_dead() -> bool:
    """Whether this process had a JVM and it has gone."""
    found = process()
    return found is not None and found.poll() is not None


def cause_of_death(seconds: float) -> tuple[str, bool] | None:
    """What the JVM of this process died of, in words, and whether that is a lack of memory; None if it is alive.

    It may be about to end, so it is given some seconds.
    """
    gateway, dying = SparkContext._gateway, process()
    if dying is None:
        return None
    try:
        code = dying.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    stderr: Stderr | None = getattr(gateway, "servo_stderr", None)
    said = stderr.last_of_memory() if stderr is not None else None
    if said is not None or code == _OUT_OF_MEMORY:
        return f"its JVM ran out of memory ({said or f'exit code {code}'})", True
    if code == -signal.SIGKILL:
        return "its JVM was killed (SIGKILL), as the kernel does when the machine has no memory left", True
    if code < 0:
        return f"its JVM was ended by {signal.Signals(-code).name}", False
    return f"its JVM ended with exit code {code}", False


def give_up() -> None:
    """Make way for another session after this one has ended: with its JVM, where this process started that."""
    context = SparkContext._active_spark_context
    if is_here() or context is None:
        forget()
    else:
        context.stop()


def forget() -> None:
    """Make way for another JVM: PySpark itself never looks whether the one it has is alive."""
    gateway = SparkContext._gateway
    if gateway is not None:
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.kill()
            process.wait()
            process.stdin.close()
        with suppress(Py4JError, OSError):  # there is nobody to say goodbye to
            gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    for name in ("_instantiatedSession", "_activeSession"):
        shared = SparkSession.__dict__[name]
        if isinstance(shared, SharedSession):
            shared.session = None  # and threads that are in a call still see the session of their call, which is lost
        else:
            setattr(SparkSession, name, None)


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Variables for the child; those that are set already stay as they are."""
    fresh = {name: value for name, value in changes.items() if name not in os.environ}
    os.environ.update(fresh)
    try:
        yield
    finally:
        for name in fresh:
            os.environ.pop(name, None)

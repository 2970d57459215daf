"""Real clusters on the loopback, from the installed PySpark: a standalone master with two workers, a Connect server.

Every process picks its own free port and says in its log which; nobody else can take it in between. A cluster dies
with the process that started it, even when that one is killed.

Tests share one of each, unless they do something to it: see cluster_fixtures.py.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

_HOME = Path(pyspark.__file__).parent
_START_SECONDS = 600  # a wait ends as soon as what is waited for is so
_STOP_SECONDS = 15
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # looked up here: between fork and exec nothing may be imported
_LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One process of a cluster."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def said(self, pattern: str) -> re.Match[str]:
        """Wait until its log has a line like that; no more than it takes to start on a busy machine."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            gone = self.process.poll() is not None  # asked first: what it said last is in the log by then
            text = self.log.read_text(errors="replace")
            if found := re.search(pattern, text):
                return found
            if gone or time.monotonic() > deadline:
                fate = f"ended with {self.process.returncode}" if gone else f"did not start in {_START_SECONDS} s"
                raise AssertionError(f"{self.name} {fate}:\n{text[-3000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """At once and without a word, as when a machine is lost."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it, and whatever it started: a worker ends its executors when it is asked politely."""
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_SECONDS)
        with suppress(ProcessLookupError):  # nobody of the group is left
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass(frozen=True, kw_only=True)
class Standalone:
    """A standalone cluster: `address` is what a session takes as its master."""

    address: str
    master: Part
    workers: tuple[Part, ...]


@dataclass(frozen=True, kw_only=True)
class Connect:
    """A Connect server: `address` is what a session takes as its remote."""

    address: str
    server: Part


@contextmanager
def standalone(folder: Path, *, workers: int = 2, cores: int = 1) -> Iterator[Standalone]:
    """A master and its workers, all registered."""
    with ExitStack() as stack:
        master = _start(
            stack, folder, "master", ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0"]
        )
        address = master.said(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")[1]
        kind = ("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--port", "0")
        started = [
            _start(
                stack,
                folder,
                f"worker-{number}",
                [*kind, "--cores", str(cores), "--memory", "1g", "--work-dir", str(folder / f"work-{number}"), address],
            )
            for number in range(workers)
        ]
        for worker in started:
            worker.said("Successfully registered with master")
        yield Standalone(address=address, master=master, workers=tuple(started))


@contextmanager
def connect_server(folder: Path, *, master: str = "local[2]") -> Iterator[Connect]:
    """A Connect server that takes sessions."""
    settings = {
        "spark.master": master,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.pyspark.python": sys.executable,
    }
    pairs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    kind = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with ExitStack() as stack:
        server = _start(
            stack,
            folder,
            "connect",
            ["org.apache.spark.deploy.SparkSubmit", "--class", kind, *pairs, "spark-internal"],
        )
        port = server.said(r"Spark Connect server started at: \S*?:(\d+)")[1]
        yield Connect(address=f"sc://127.0.0.1:{port}", server=server)


def _start(stack: ExitStack, folder: Path, name: str, command: Sequence[str]) -> Part:
    folder.mkdir(parents=True, exist_ok=True)
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING)
    log = folder / f"{name}.log"
    # Settings of the machine's own Spark, if it has one, are no part of the test. What makes the JVMs of tests start
    # quickly is, for executors too. A folder of settings would come first on the class path, and fit no archive.
    options = f"{os.environ.get('SPARK_DAEMON_JAVA_OPTS', '')} -Dlog4j2.configurationFile={logging}"
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environ |= {
        "SPARK_HOME": str(_HOME),
        "JAVA_TOOL_OPTIONS": options,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_MASTER_WEBUI_PORT": "0",
        "SPARK_WORKER_WEBUI_PORT": "0",
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(_HOME / "bin" / "spark-class"), *command],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # the group goes as a whole, executors and Python workers with it
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - it makes one system call, and takes no lock
        )
    part = Part(name=name, process=process, log=log)
    stack.callback(part.stop)
    return part


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

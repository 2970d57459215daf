"""A real `servo up` for benchmarks, and what its clients need."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple

from servo.runtime import Project, load_settings, open_workspace
from tests.support.traffic import free_port, is_ready

__all__ = ["Up", "closed_loop", "connected", "cpu_seconds", "get", "memory_of", "percentile", "timed", "up"]


class Up(NamedTuple):
    """A server, seen from another process."""

    project: Project
    port: int
    pid: int
    folder: Path


@contextmanager
def up(
    definitions: str,
    variables: dict[str, str] | None = None,
    command: list[str] | None = None,
    fill: Callable[[Project], None] | None = None,
) -> Iterator[Up]:
    """`servo up` without workers on SQLite, or on what the variables say; `fill` is given the project before."""
    variables = variables or {}
    with tempfile.TemporaryDirectory(prefix="servo-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "servo.toml").write_text('namespace = "shop"\n')
        (folder / "definitions.py").write_text(definitions)
        settings = load_settings(folder, {name: text for name, text in variables.items() if name.startswith("SERVO_")})
        if fill is not None:
            with open_workspace(settings, create=True) as project:
                fill(project)
        port = free_port()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}
        with (folder / "said.log").open("wb") as sink:
            process = subprocess.Popen(
                [*(command or [sys.executable, "-m", "servo"]), "up", "--workers", "0", "--port", str(port)],
                cwd=folder,
                env=kept | variables,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        try:
            while not is_ready(port):
                assert process.poll() is None, (folder / "said.log").read_text()
                time.sleep(0.05)
            with open_workspace(settings) as project:
                yield Up(project, port, process.pid, folder)
        finally:
            process.terminate()
            assert process.wait(60) == 0, (folder / "said.log").read_text()


def closed_loop(port: int, clients: int, seconds: float, send: Callable[[http.client.HTTPConnection, int], Any]) -> int:
    """How many were answered, by clients that each ask as soon as they were answered."""
    done, lock, end = 0, Lock(), time.perf_counter() + seconds

    def client(number: int) -> None:
        nonlocal done
        turn = 0
        with closing(connected(port)) as connection:
            while time.perf_counter() < end:
                send(connection, number + turn * clients)
                turn += 1
        with lock:
            done += turn

    threads = [Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def timed(port: int, paths: list[str], *, before: Callable[[], None] = lambda: None) -> list[float]:
    """Seconds of each GET, one after another on one connection; `before` each of them something else is done."""
    took: list[float] = []
    with closing(connected(port)) as connection:
        for path in paths:
            before()
            began = time.perf_counter()
            get(connection, path)
            took.append(time.perf_counter() - began)
    return took


def get(connection: http.client.HTTPConnection, path: str) -> None:
    connection.request("GET", path)
    with connection.getresponse() as answer:
        text = answer.read()
    assert answer.status == 200, text


def connected(port: int) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60.0)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def percentile(values: list[float], part: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * part // 100)]


def memory_of(pid: int) -> float:
    """Megabytes of a process that are in memory."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def cpu_seconds(pids: list[int]) -> float:
    """Processor time that processes have taken."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")

"""Where Spark should be, and whether anybody is there. This file knows no Spark: it is asked before any is started.

The Java that Spark would start is found and asked for its version without starting Spark.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from servo.errors import InvalidSettings, JavaMissing, SparkUnavailable
from servo.execution.settings import LOCAL, SparkSettings

_MASTERS = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|spark://.+|yarn(-\w+)?|k8s://.+")
_MASTER_HINT = (
    "masters are local[*], spark://host:port, yarn and k8s://https://host:port; a Connect server is spark.remote"
)
_CONNECT_PORT = 15002
_HERE = ("127.0.0.1", "localhost", "::1")
# A machine that is there takes a connection sooner than this, however long its Spark takes to answer.
_REACH_SECONDS = 10.0
# Set by spark-submit, which has started a JVM already and has its own idea of the master.
SUBMITTED = "PYSPARK_GATEWAY_PORT"
_OLDEST = 17
_HINT = "install Java 17 or newer (Debian: `apt-get install openjdk-17-jre-headless`), or set JAVA_HOME"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session is to run: a cluster by its master, or a Connect server (`remote`).

    `hosts` are who must be there before Spark starts, any one of them; nobody where Spark looks for itself.
    """

    address: str  # as PySpark takes it: that of a Connect server may hold a token
    remote: bool = False
    hosts: tuple[tuple[str, int], ...] = ()

    @property
    def stays_here(self) -> bool:
        """Whether nothing outside this machine has any business with the session."""
        is_local = not self.remote and self.address.startswith("local")
        return is_local or (bool(self.hosts) and all(host in _HERE for host, _ in self.hosts))

    @property
    def shown(self) -> str:
        """The address as it may be shown."""
        if not self.remote:
            return self.address
        host, port = self.hosts[0]
        return f"sc://{f'[{host}]' if ':' in host else host}:{port}"

    def reach(self, seconds: float) -> None:
        """Say at once that nobody is there: Spark would try for a minute, loudly, and take the JVM with it."""
        if not self.hosts:
            return
        problem: OSError | None = None
        for host in self.hosts:
            try:
                socket.create_connection(host, timeout=min(seconds, _REACH_SECONDS) / len(self.hosts)).close()
            except OSError as failure:
                problem = failure
            else:
                return
        assert problem is not None
        raise self.unavailable((problem.strerror or str(problem) or "no answer").lower()) from problem

    def unavailable(self, reason: str) -> SparkUnavailable:
        """That it is of no use, in one line."""
        if self.remote:
            what, hint = "Connect server", "start it, or set spark.remote or SPARK_REMOTE to where it is"
        else:
            what, hint = "master", "start it, or set spark.master to where it is; local[*] needs none"
        return SparkUnavailable(f"no Spark {what} answers at {self.shown}: {reason}", hint=hint)


def require_spark(settings: SparkSettings) -> Target:
    """Where the session is to run. Raises where there is no Java for it, or nobody is there; starts nothing."""
    found = target(settings)
    if not found.remote and SUBMITTED not in os.environ:
        require_java(os.environ)
    found.reach(settings.timeout_seconds)
    return found


def target(settings: SparkSettings) -> Target:
    """Where the settings say that a session is to run: what Spark's own settings say of that wins, and a Connect server
    over a local master. Two clusters cannot both be meant."""
    remote = settings.conf.get("spark.remote", settings.remote)
    master = settings.conf.get("spark.master", settings.master)
    if master == LOCAL:
        remote = remote or os.environ.get("SPARK_REMOTE") or None  # as for every other program that uses PySpark
    elif remote is not None and not master.startswith("local"):
        raise InvalidSettings(f"spark.master is {master} and spark.remote is set too", hint="keep one of them")
    if remote is not None:
        return Target(address=remote, remote=True, hosts=(_connect_server(remote),))
    if not _MASTERS.fullmatch(master):
        raise InvalidSettings(f"{master!r} is not a Spark master", hint=_MASTER_HINT)
    return Target(address=master, hosts=_masters(master))


def _masters(master: str) -> tuple[tuple[str, int], ...]:
    """Of `spark://one:7077,two:7077`, where any of them may be the leader; nobody for other kinds of masters."""
    if not master.startswith("spark://"):
        return ()
    try:
        parts = [urlsplit(f"//{part}") for part in master.removeprefix("spark://").split(",")]
        hosts = [(part.hostname, part.port) for part in parts]
    except ValueError:
        hosts = []
    known = tuple([(host, port) for host, port in hosts if host and port])
    if not hosts or len(known) < len(hosts):
        raise InvalidSettings(f"{master!r} is not the address of a standalone master", hint="write spark://host:7077")
    return known


def _connect_server(remote: str) -> tuple[str, int]:
    """Of `sc://host:port/;name=value…`."""
    try:
        parts = urlsplit(remote)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    else:
        if parts.scheme != "sc":
            host = None
    if host is None:
        said = remote.partition(";")[0].rpartition("@")[2]  # what else there is may let somebody in
        raise InvalidSettings(f"{said!r} is not the address of a Spark Connect server", hint="write sc://host:15002")
    return host, port or _CONNECT_PORT


def require_java(environ: Mapping[str, str]) -> str:
    """The version and place of a Java that Spark can use."""
    home = environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environ.get("PATH"))
    if java is None:
        raise JavaMissing("there is no Java on the PATH, and Spark does not start without it", hint=_HINT)
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise JavaMissing(f"{java} does not run: {failure}", hint=_HINT) from failure
    found = re.search(r'version "((\d+)(?:\.(\d+))?[^"]*)"', answer.stderr + answer.stdout)
    if answer.returncode or found is None:
        raise JavaMissing(f"{java} does not tell its version", hint=_HINT)
    major = int(found[2]) if found[2] != "1" else int(found[3] or 0)  # Java 8 calls itself 1.8
    if major < _OLDEST:
        raise JavaMissing(f"{java} is Java {found[1]}, which is too old for Spark", hint=_HINT)
    return f"{found[1]} at {java}"

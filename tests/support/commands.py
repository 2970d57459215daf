"""Commands in processes of their own, without the seconds that Python takes to load them.

`servo(...)` is `python -m servo ...`, run by a child of a process that has loaded everything and opened nothing: each
command is a fork of it, with its own folder, environment and output. Whatever depends on how Python itself is started
has to be started for real; so is what lives long or runs Spark itself. What runs Spark finds a warm JVM.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn

from tests.support.warm_spark import warm_jvm

ROOT = Path(__file__).parents[2]
_FOR_REAL = {"up", "worker", "demo", "reproduce"}
_ON_SPARK = {"materialize", "reproduce", "worker"}
_OF_SPARK = ("JAVA", "PATH", "PYSPARK_", "SPARK_", "SERVO_SPARK", "TZ")
# What PySpark takes it for anyway; a command that has it starts a JVM of its own.
OWN_JVM = {"PYSPARK_SUBMIT_ARGS": "pyspark-shell"}
_MOST = 1 << 20  # bytes of a request
PATIENCE = 600.0  # seconds; a wait ends as soon as what is waited for is so


def servo(
    args: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """What a command says and how it ends."""
    if args and args[0] in _ON_SPARK and not {"--no-wait", "--help"} & {*args} and not _differs(env, *_OF_SPARK):
        with warm_jvm() as variables:
            return servo(args, cwd=cwd, env={**env, **variables}, timeout=timeout)
    if not args or args[0] in _FOR_REAL or _differs(env, "PYTHON", "LC_", "LANG", "TZ"):
        command = [sys.executable, "-m", "servo", *args]
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    return _nest().run(args, cwd, env, timeout)


class Commands:
    """Commands that are typed in a folder (`here`), with variables of their own in their environment."""

    here: Path
    variables: dict[str, str]

    def environment(self) -> dict[str, str]:
        """That of this process with these variables, and without its own settings of Servo."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}
        return kept | self.variables

    def servo(self, *args: str, python: Sequence[str] = (), **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command; with options of Python's own, by a Python that is started for it."""
        env = self.environment() | variables
        if not python:
            return servo(args, cwd=self.here, env=env)
        command = [sys.executable, *python, "-m", "servo", *args]
        return subprocess.run(
            command, cwd=self.here, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def ok(self, *args: str) -> str:
        """What a command that must succeed, without a word on stderr, says."""
        done = self.servo(*args)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def json(self, *args: str) -> Any:
        """The one JSON document that a command answers."""
        return json.loads(self.ok(*args, "--json"))

    def fails(self, code: int, *args: str) -> str:
        """The one line in which a command says why it fails; nothing but that, and nothing on stdout."""
        done = self.servo(*args)
        assert done.returncode == code, done
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith("servo: ")
        return done.stderr

    def json_of_failing(self, *args: str) -> Any:
        """What a command that finds something wrong answers."""
        done = self.servo(*args, "--json")
        assert (done.returncode, done.stderr) == (1, ""), done
        return json.loads(done.stdout)


def _differs(env: Mapping[str, str], *prefixes: str) -> bool:
    """Whether a variable whose name begins so is otherwise than in this process."""
    names = (name for name in {*env, *os.environ} if name.startswith(prefixes))
    return any(env.get(name) != os.environ.get(name) for name in names)


# ── in the tests ─────────────────────────────────────────────────────────────────────────────────────────────────────

_nests: list[_Nest] = []
_lock = Lock()


def _nest() -> _Nest:
    with _lock:
        if not _nests:
            _nests.append(_Nest())
        return _nests[0]


class _Nest:
    """The process that forks; it ends with this one."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="servo-commands-")
        self._address = str(Path(self._folder.name) / "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._address)
            listener.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.commands", str(listener.fileno())],
                cwd=ROOT,
                stdin=subprocess.PIPE,  # closed when this process ends
                pass_fds=[listener.fileno()],
            )
        atexit.register(self._process.kill)

    def run(
        self, args: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        asked = json.dumps({"args": list(args), "cwd": str(cwd), "env": dict(env)}).encode()
        with (
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as errors,
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line,
        ):
            line.settimeout(timeout)
            line.connect(self._address)
            socket.send_fds(line, [len(asked).to_bytes(4)], [out.fileno(), errors.fileno()])
            line.sendall(asked)
            try:
                code = line.recv(16)
            except TimeoutError:
                raise subprocess.TimeoutExpired(["servo", *args], timeout, _text(out), _text(errors)) from None
            assert code, "the process that runs commands has ended"
            return subprocess.CompletedProcess(["servo", *args], int(code), _text(out), _text(errors))


def _text(file: Any) -> str:
    file.seek(0)
    text: str = file.read().decode()
    return text


# ── in the process that forks ────────────────────────────────────────────────────────────────────────────────────────


def _serve(listener: socket.socket) -> None:
    waiting: dict[int, socket.socket] = {}
    woken, wakes = socket.socketpair()
    for end in (woken, wakes):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes.fileno())
    with selectors.DefaultSelector() as ready:
        for one in (listener, woken, sys.stdin):
            ready.register(one, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is woken:
                    woken.recv(4096)
                    _bury(waiting)
                else:
                    line, _ = listener.accept()
                    waiting[_forked(line)] = line


def _bury(waiting: dict[int, socket.socket]) -> None:
    """Tell of everybody who has ended how they did."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            with contextlib.suppress(OSError), waiting.pop(pid) as line:
                line.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _forked(line: socket.socket) -> int:
    size, files, _, _ = socket.recv_fds(line, 4, 2)
    asked = b""
    while len(asked) < int.from_bytes(size):
        asked += line.recv(_MOST)
    pid = os.fork()
    if pid == 0:
        _command(json.loads(asked), *files)
    for file in files:
        os.close(file)
    return pid


def _command(asked: dict[str, Any], out: int, errors: int) -> NoReturn:
    """Become what `python -m servo` would have become."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for here, there in ((nothing, 0), (out, 1), (errors, 2)):
        os.dup2(here, there)
    os.closerange(3, 256)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = ["servo", *asked["args"]]
    sys.path[0] = asked["cwd"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    from servo.cli.main import main

    try:
        main()
    finally:
        os._exit(1)


def _load() -> None:
    """Everything that commands load, before anybody asks."""
    from servo.cli.opening import do_without_pandas

    do_without_pandas()
    import servo.cli

    for found in pkgutil.walk_packages(servo.cli.__path__, "servo.cli."):
        importlib.import_module(found.name)
    for name in ("duckdb", "pyarrow", "pyarrow.compute", "psycopg", "servo.projections.arrow", "servo.client"):
        importlib.import_module(name)


if __name__ == "__main__":
    _load()
    _serve(socket.socket(fileno=int(sys.argv[1])))

"""The process that forks evaluators: `python -m servo.runtime.evaluation.evaluator FD PARENT`.

It loads the project's definitions once, has no threads, and does nothing more itself: for each evaluator that is wanted
it forks a child, which answers one question after the other over a socket of its own. A child has its own session, so
that what it started can be ended with it; a bound on its memory; and nothing to read. Its output goes to a pipe.

When whoever started it is gone, it ends its children and itself; when it is gone, the kernel ends its children.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import struct
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from servo import decoders
from servo.assets.evaluation import Answer, Question
from servo.assets.loading import Definitions, load
from servo.errors import ServoError
from servo.runtime.evaluation.user_functions import UserFunctions
from servo.runtime.processes.children import ENDED_BY_US, children_of, end_tree, reap
from servo.runtime.settings import Settings
from servo.runtime.worker.code import settle

ORDER = struct.Struct("!Bq")  # what to do, and with which process
RESULT = struct.Struct("!q")  # the process that was forked, or how it ended
FORK, END = 0, 1
NOT_FORKED = -1
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 1.0
MOST_BYTES = 64 << 20
_LENGTH = struct.Struct("!I")
_STEP = 1 << 16


def _path(kind: type, text: Any) -> Any:
    if kind is Path:
        return Path(text)
    raise NotImplementedError(kind)


# ── the zygote ───────────────────────────────────────────────────────────────────────────────────────────


def main(control: socket.socket, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        # What was said before an evaluation had to be stopped is to be seen.
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _end_with_parent(parent)
    data = receive_frame(control)
    if data is None:
        return
    settings = decoders.decode(data, Settings, dec_hook=_path)
    # Before the project's code is imported, which may have its own mind about logging.
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    sys.dont_write_bytecode = True
    try:
        settle(settings)
        definitions = load(settings)
        if any(sensor.watch is not None for sensor in definitions.sensors.values()):
            import_module("servo.runtime.watches")  # once here, and not in each child
    except (ServoError, OSError) as problem:
        send_frame(control, msgspec.json.encode(" ".join(str(problem).split())))
        return
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    gc.collect()
    gc.freeze()  # what is here now is shared with the children; looking for garbage in it would copy it
    send_frame(control, msgspec.json.encode(None))  # nothing is wrong with the definitions
    _Forking(control, settings, definitions).serve()


def _end_with_parent(parent: int) -> None:
    """End with the parent also while definitions are loaded, when no order is read: look for it by a timer."""

    def look(*_: object) -> None:
        if os.getppid() != parent:
            os._exit(1)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)


class _Forking:
    def __init__(self, control: socket.socket, settings: Settings, definitions: Definitions) -> None:
        self._control = control
        self._settings = settings
        self._definitions = definitions
        self._children: set[int] = set()

    def serve(self) -> None:
        """Carry out orders until the parent is gone."""
        try:
            while True:
                order, fds, _, _ = socket.recv_fds(self._control, ORDER.size, 2)
                if len(order) < ORDER.size:
                    break
                what, pid = ORDER.unpack(order)
                done = self._fork(*fds) if what == FORK else self._end(pid)
                self._control.sendall(RESULT.pack(done))
        except OSError:
            pass  # the parent is gone, which is what it was waited for
        finally:
            for pid in {*self._children, *children_of(os.getpid())}:
                end_tree(pid)

    def _fork(self, line: int, output: int) -> int:
        zygote = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError:
            pid = NOT_FORKED
        if pid == 0:
            try:
                self._control.close()
                _serve(zygote, line, output, self._settings, self._definitions)
            except BaseException:  # noqa: BLE001 (it must not go on as the one that forks, whatever happens)
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(1)
        os.close(line)
        os.close(output)
        if pid != NOT_FORKED:
            self._children.add(pid)
        return pid

    def _end(self, pid: int) -> int:
        if pid not in self._children:
            return ENDED_BY_US
        self._children.discard(pid)
        code = end_tree(pid)
        # What lost its parent became a child of ours; it may be another evaluator's, and only what ended is let go.
        for orphan in children_of(os.getpid()) - self._children:
            reap(orphan)
        return code


# ── its children ─────────────────────────────────────────────────────────────────────────────────────────


def _serve(zygote: int, line: int, output: int, settings: Settings, definitions: Definitions) -> NoReturn:
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != zygote:
        os._exit(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, wanted in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(fd, wanted)
    os.close(nothing)
    os.close(output)
    before = _bound_memory(settings.sensors.memory_mb << 20)
    _answer(
        socket.socket(fileno=line), UserFunctions(settings, definitions), before + (settings.sensors.memory_mb << 19)
    )


def _answer(line: socket.socket, functions: UserFunctions, most: int) -> NoReturn:
    own = os.getpid()
    while (data := receive_frame(line)) is not None:
        evaluation = functions.answer(decoders.decode(data, Question))
        if os.getpid() != own:
            os._exit(0)  # a copy that the user's code has forked and let come back
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        # What the user's code keeps would one day leave no room: half is time enough for a new process.
        spent = functions.spent or _memory()[0] > most
        send_frame(line, msgspec.json.encode(Answer(evaluation=evaluation, spent=spent)))
    os._exit(0)


def _bound_memory(most: int) -> int:
    """Limit the process to so many bytes more than it has; give how many it has.

    Address space alone costs nothing, and threads and libraries reserve it freely: its bound is a wider one.
    """
    data, space = _memory()
    for kind, size in ((resource.RLIMIT_DATA, data + most), (resource.RLIMIT_AS, space + 4 * most)):
        _, hard = resource.getrlimit(kind)
        limit = size if hard == resource.RLIM_INFINITY else min(size, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (limit, limit))
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return data


def _memory() -> tuple[int, int]:
    """Bytes of data, and of address space."""
    try:
        fields = Path("/proc/self/statm").read_bytes().split()
    except (OSError, MemoryError):
        return 0, 0
    page = resource.getpagesize()
    return int(fields[5]) * page, int(fields[0]) * page


def _prctl(option: int, value: int) -> None:
    """Call prctl, which only Linux has; elsewhere the zygote ends its children, unless it is killed itself."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# ── frames ───────────────────────────────────────────────────────────────────────────────────────────────────────────
#
# Messages over a stream between two processes: the length in four bytes, then as many bytes.


class Frames:
    """Puts frames together from whatever pieces arrive."""

    def __init__(self) -> None:
        self._data = bytearray()

    def take(self, piece: bytes) -> bytes | None:
        """Add a piece; the frame, if it is complete. Raises ValueError for one that is too long."""
        self._data += piece
        if len(self._data) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._data)
        if length > MOST_BYTES:
            raise ValueError(f"a frame of {length} bytes")
        if len(self._data) < _LENGTH.size + length:
            return None
        return bytes(self._data[_LENGTH.size : _LENGTH.size + length])


def send_frame(to: socket.socket, data: bytes) -> None:
    to.sendall(_LENGTH.pack(len(data)) + data)


def receive_frame(source: socket.socket) -> bytes | None:
    """The next frame; None where the other side is gone. Each is answered before the next, so no piece is of two."""
    frames = Frames()
    while piece := source.recv(_STEP):
        if (frame := frames.take(piece)) is not None:
            return frame
    return None


if __name__ == "__main__":
    try:
        main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    finally:
        sys.stderr.flush()
        sys.stdout.flush()
    os._exit(0)

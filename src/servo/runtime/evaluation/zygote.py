"""The parent's side of `servo.runtime.evaluation.evaluator`: the process that forks, and its children that answer."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from tempfile import TemporaryFile
from threading import Lock

import msgspec

from servo import decoders
from servo.assets.evaluation import Answer, Evaluation, Question
from servo.runtime.evaluation.evaluator import (
    END,
    FORK,
    NOT_FORKED,
    ORDER,
    RESULT,
    Frames,
    receive_frame,
    send_frame,
)
from servo.runtime.processes.children import ENDED_BY_US, exit_text
from servo.runtime.settings import Settings

__all__ = ["Evaluator", "LostError", "UnavailableError", "Zygote"]

_LOAD_SECONDS = 120.0
_ORDER_SECONDS = 15.0
_CLOSE_SECONDS = 5.0
_LOG_BYTES = 4_096
_LOUD_BYTES = 1 << 20  # after which output is read no faster than a disk would take it
_STEP = 1 << 16


class UnavailableError(Exception):
    """No process can evaluate; the message says why."""


class LostError(UnavailableError):
    """The zygote was gone before the question was asked; another one may be asked instead."""


class Zygote:
    """A process that has loaded the project's definitions, once it is ready."""

    def __init__(self, settings: Settings) -> None:
        self.users = 0  # questions that it is needed for
        self.failed_at: float | None = None
        self.is_lost = False
        self._failure: str | None = None
        self._ready = False
        self._closed = False
        self._lock = Lock()
        self._output_file = TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._control, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "servo.runtime.evaluation.evaluator",
                    str(theirs.fileno()),
                    str(os.getpid()),
                ],
                cwd=settings.root,
                stdin=subprocess.DEVNULL,
                stdout=self._output_file,
                stderr=self._output_file,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError as problem:
            self._control.close()
            self._output_file.close()
            raise UnavailableError(f"no process could be started to evaluate it: {problem}") from None
        finally:
            theirs.close()
        with suppress(OSError):  # if it is gone already, that is seen when it should be ready
            self._control.settimeout(_ORDER_SECONDS)
            send_frame(self._control, msgspec.json.encode(settings, enc_hook=str))

    def require_ready(self) -> None:
        """Wait until the definitions are loaded; raise UnavailableError where they cannot be."""
        with self._lock:
            if not self._ready and self._failure is None:
                self._failure = self._load()
                if self._failure is None:
                    self._ready = True
                else:
                    self.failed_at = time.monotonic()
        if self._failure is not None:
            raise UnavailableError(self._failure)

    def _load(self) -> str | None:
        """Wait for the definitions; give why they cannot be loaded."""
        try:
            self._control.settimeout(_LOAD_SECONDS)
            data = receive_frame(self._control)
        except TimeoutError:
            return f"the project's definitions take longer than {_LOAD_SECONDS:g} s to load"
        except OSError:
            data = None
        if data is None:
            return f"the process that loads the project's definitions ended: {self._last_output()}"
        error: str | None = decoders.decode(data, str | None)
        return error

    def _last_output(self) -> str:
        how = self._exit_text()
        try:
            self._output_file.seek(0)
            lines = self._output_file.read().decode(errors="replace").split("\n")
        except (OSError, ValueError):
            lines = []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return f"{last:.300} ({how})"

    def _exit_text(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.poll()
        return exit_text(code if code is not None else ENDED_BY_US)

    def fork(self) -> Evaluator:
        """A new child, ready for its first question."""
        self.require_ready()
        ours, theirs = socket.socketpair()
        output, their_output = os.pipe()
        try:
            pid = self._order(FORK, 0, (theirs.fileno(), their_output))
        except OSError:
            ours.close()
            os.close(output)
            self.is_lost = True
            raise LostError(f"the process that evaluates sensors and schedules {self._exit_text()}") from None
        finally:
            theirs.close()
            os.close(their_output)
        if pid == NOT_FORKED:
            ours.close()
            os.close(output)
            raise UnavailableError("no further process could be started to evaluate it")
        return Evaluator(self, pid, ours, output)

    def end(self, pid: int) -> int:
        """End a child and all that it has started; give its exit code."""
        try:
            return self._order(END, pid)
        except OSError:
            self.is_lost = True
            return ENDED_BY_US

    def _order(self, what: int, pid: int, fds: tuple[int, ...] = ()) -> int:
        with self._lock:
            if self._closed:
                raise ConnectionError("closed")
            self._control.settimeout(_ORDER_SECONDS)
            socket.send_fds(self._control, [ORDER.pack(what, pid)], fds)
            answer = self._control.recv(RESULT.size)
            if len(answer) < RESULT.size:
                raise ConnectionError("the other side is gone")
            result: int = RESULT.unpack(answer)[0]
            return result

    def close(self) -> None:
        """End the process and its children; questions to them fail."""
        if not self._ready:  # it may be stuck in the user's code, and has no children
            self._kill()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._control.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()
        self._output_file.close()

    def _kill(self) -> None:
        # It was not waited for, or this does nothing: the number cannot be anybody else's.
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


class Evaluator:
    """A child that answers one question at a time."""

    def __init__(self, zygote: Zygote, pid: int, line: socket.socket, output: int) -> None:
        self.zygote = zygote
        self.pid = pid
        self.usable = True
        self._line = line
        self._output = output
        os.set_blocking(output, False)

    @property
    def is_there(self) -> bool:
        """Whether the child waits for a question: unasked, only its end makes the socket readable."""
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        return not poll.poll(0)

    def ask(self, question: Question) -> Evaluation:
        """Ask the child a question; where it gives no answer, the evaluation says why.

        Unless `usable` afterwards, it must be ended.
        """
        began = time.monotonic()
        self.usable = False
        log = _Tail(self._output)
        log.discard()
        try:
            evaluation = self._receive_answer(question, began + question.timeout, log)
        except TimeoutError:
            self.end()
            evaluation = _failed(question, f"it took longer than {question.timeout:g} s and was stopped")
        except (OSError, EOFError):
            evaluation = _failed(question, f"its process {exit_text(self.end())} before it answered")
        except (ValueError, msgspec.MsgspecError):
            self.end()
            evaluation = _failed(question, "it answered with what cannot be read")
        log.drain()
        return msgspec.structs.replace(evaluation, log=log.text, seconds=time.monotonic() - began)

    def _receive_answer(self, question: Question, until: float, log: _Tail) -> Evaluation:
        self._line.settimeout(max(0.001, question.timeout))
        send_frame(self._line, msgspec.json.encode(question))
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        poll.register(self._output, select.POLLIN)
        frames = Frames()
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            ready = dict(poll.poll(left * 1000))
            if self._output in ready and not log.read():
                poll.unregister(self._output)  # its own end is closed; it can still answer
            if self._line.fileno() in ready:
                piece = self._line.recv(_STEP)
                if not piece:
                    raise EOFError
                if (frame := frames.take(piece)) is not None:
                    answer = decoders.decode(frame, Answer)
                    self.usable = not answer.spent
                    return answer.evaluation

    def end(self) -> int:
        self.usable = False
        return self.zygote.end(self.pid)

    def close(self) -> None:
        self._line.close()
        os.close(self._output)


class _Tail:
    """The last of what comes out of a pipe."""

    def __init__(self, output: int) -> None:
        self._output = output
        self._kept = b""
        self._taken = 0

    def read(self) -> bool:
        """Read what is there; False at the end of the pipe."""
        try:
            data = os.read(self._output, _STEP)
        except BlockingIOError:
            return True
        self._kept = (self._kept + data)[-_LOG_BYTES:]
        self._taken += len(data)
        if self._taken > _LOUD_BYTES:
            time.sleep(0.001)
        return bool(data)

    def drain(self) -> None:
        """Read what is left, but no more than a pipe holds: other processes may write on."""
        for _ in range(16):
            before = self._taken
            if not self.read() or self._taken == before:
                break

    def discard(self) -> None:
        """Forget what was written after the last answer."""
        self.drain()
        self._kept, self._taken = b"", 0

    @property
    def text(self) -> str:
        return self._kept.decode(errors="ignore")


def _failed(question: Question, error: str) -> Evaluation:
    return Evaluation(error=error, cursor=question.cursor)

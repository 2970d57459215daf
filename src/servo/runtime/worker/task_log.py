"""The logs of tasks: each attempt writes JSON lines to a file of its own, and all of a run are read as one stream.

    {home}/logs/{tenant}/{workspace}/{run_id}/{task_key}/{attempt}.jsonl

How what a thread prints gets there is in `log_capture`.

A log never fails the work: where it cannot be written, it is left out. Nor does it grow without bounds: long messages
are cut, and from a log that is too long everything below a warning is left out.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from hashlib import sha256
from heapq import merge
from pathlib import Path
from threading import Lock, get_ident
from typing import Any, Self
from urllib.parse import quote

import msgspec

from servo import decoders
from servo.answers.runs import Record, Stream
from servo.clock import Clock, system_clock
from servo.errors import InvalidInput, StorageFailed
from servo.runtime.settings import Settings

MESSAGE_BYTES = 64 * 1024
LOG_BYTES = 32 * 1024 * 1024  # past this only warnings and errors are kept, past twice this nothing
_NAME_CHARACTERS = 150  # file systems take 255 bytes
_LEVEL_OF: dict[Stream, str] = {"stdout": "INFO", "stderr": "WARNING"}
_SEVERE = frozenset({"WARNING", "ERROR", "CRITICAL"})
_BLOCK_BYTES = 32 * 1024  # read at once: many files are merged, and none of them is kept open
_LOOK_AGAIN_SECONDS = 0.25
_RECORD = decoders.decoder(Record)
log = logging.getLogger(__name__)


def logs_folder(settings: Settings, run_id: str) -> Path:
    """The folder of a run's logs, inside that of its workspace whatever the id is."""
    return settings.home / "logs" / settings.tenant / settings.workspace / safe_name(run_id)


def safe_name(text: str) -> str:
    """A name for a file or folder: never a path, never hidden, and another one for each text."""
    name = quote(text, safe="", errors="surrogatepass").replace("~", "%7E")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if not name:
        raise InvalidInput("a log has no place without the ids of its run and task", hint="give both")
    if len(name) > _NAME_CHARACTERS:
        name = f"{name[:_NAME_CHARACTERS]}~{sha256(name.encode()).hexdigest()[:32]}"
    return name


class TaskLog(logging.LoggerAdapter[logging.Logger]):
    """The log of one attempt at a task; a logger like any other. Threads may share it."""

    def __init__(
        self,
        path: Path,
        *,
        run_id: str,
        task_key: str,
        attempt: int,
        clock: Clock = system_clock,
    ) -> None:
        # A logger of its own, unknown to `logging.getLogger`: it goes with this object.
        logger = logging.Logger(f"task.{task_key}", logging.DEBUG)  # noqa: LOG001 – that is the point
        super().__init__(logger, {})
        self.logger.addHandler(_ToTask(self))
        self.path = path
        self._run_id = _cut(run_id)
        self._task_key = _cut(task_key)
        self._attempt = attempt
        self._clock = clock
        self._lock = Lock()
        self._size = 0
        self._is_torn = False
        self._descriptor: int | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._size = os.fstat(self._descriptor).st_size
            self._is_torn = self._size > 0 and os.pread(self._descriptor, 1, self._size - 1) != b"\n"
        except OSError as problem:
            log.warning("%s: %s; what the task says is lost", path, problem.strerror)

    @classmethod
    def open(
        cls,
        settings: Settings,
        run_id: str,
        task_key: str,
        attempt: int,
        *,
        clock: Clock = system_clock,
    ) -> Self:
        """The log of an attempt, in its place."""
        path = logs_folder(settings, run_id) / safe_name(task_key) / f"{attempt:d}.jsonl"
        return cls(path, run_id=run_id, task_key=task_key, attempt=attempt, clock=clock)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs  # unlike the inherited one it leaves `extra` to the caller, who may name a partition

    def write(self, message: str, *, level: str = "INFO", stream: Stream = "log", partition: str | None = None) -> None:
        """Add one record, now."""
        text, level = _cut(message), _cut(level)
        with self._lock:
            if self._descriptor is None or self._is_full(level):
                return
            record = Record(
                time=self._clock(),
                level=level,
                message=text,
                run=self._run_id,
                task=self._task_key,
                attempt=self._attempt,
                asset=self._task_key.partition("#")[0],
                partition=None if partition is None else _cut(partition),
                stream=stream,
            )
            line = (b"\n" if self._is_torn else b"") + msgspec.json.encode(record) + b"\n"
            written = 0
            with suppress(OSError):  # the disk is full, say: the work goes on
                written = os.write(self._descriptor, line)
            self._is_torn = 0 < written < len(line) or (self._is_torn and written == 0)
            self._size += written

    def close(self) -> None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_full(self, level: str) -> bool:
        if self._size < LOG_BYTES:
            return False
        return level not in _SEVERE or self._size >= 2 * LOG_BYTES


def _cut(message: str) -> str:
    """A text that JSON can hold, and no longer than what is allowed."""
    data = message.encode("utf-8", "backslashreplace")
    left_out = len(data) - MESSAGE_BYTES
    return data[:MESSAGE_BYTES].decode("utf-8", "ignore") + (f"… ({left_out} more bytes)" if left_out > 0 else "")


def formatted(record: logging.LogRecord) -> str:
    """The message with its traceback. Arguments that do not fit it are shown beside it: nothing is lost by a typo."""
    try:
        return _FORMATTER.format(record)
    except Exception:  # noqa: BLE001 – whatever user code passes to a logger, it does not fail the task
        return f"{record.msg} {record.args!r}"


_FORMATTER = logging.Formatter("%(message)s")


class _ToTask(logging.Handler):
    """Writes the records of a task's logger to its file."""

    def __init__(self, task: TaskLog) -> None:
        super().__init__()
        self._task = task

    def emit(self, record: logging.LogRecord) -> None:
        sink = entered_log()
        inherited = sink.partition if sink is not None and sink.log is self._task else None
        named = getattr(record, "partition", None)
        partition = inherited if named is None else str(named)
        self._task.write(formatted(record), level=record.levelname, partition=partition)


# ── output of a thread ───────────────────────────────────────────────────────────────────────────────────────────


class Sink:
    """The log that the output of a thread goes to, and its lines that have not ended yet."""

    def __init__(self, log: TaskLog, partition: str | None) -> None:
        self.log = log
        self.partition = partition
        self.is_open = True
        self._lock = Lock()
        # By thread: a context can be copied into others, whose lines must not mix.
        self._begun: dict[tuple[int, Stream], str] = {}

    def take(self, stream: Stream, text: str) -> None:
        key = get_ident(), stream
        with self._lock:
            *lines, rest = (self._begun.pop(key, "") + text).split("\n")
            if len(rest) > MESSAGE_BYTES:
                lines, rest = [*lines, rest], ""
            if rest:
                self._begun[key] = rest
        for line in lines:
            self._write_line(stream, line)

    def close(self) -> None:
        with self._lock:
            self.is_open = False
            begun, self._begun = self._begun, {}
        for (_, stream), line in begun.items():
            self._write_line(stream, line)

    def _write_line(self, stream: Stream, line: str) -> None:
        # A progress bar writes over itself: what stands there in the end counts.
        line = line.rstrip("\r").rpartition("\r")[2]
        self.log.write(line, level=_LEVEL_OF[stream], stream=stream, partition=self.partition)


# Threads start with an empty context, so this is by thread; and tasks of asyncio inherit it.
current: ContextVar[Sink | None] = ContextVar("servo_task_log", default=None)


def entered_log() -> Sink | None:
    """The task's log that this thread is in."""
    sink = current.get()
    return sink if sink is not None and sink.is_open else None


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────


def read_logs(
    settings: Settings,
    run_id: str,
    task_key: str | None = None,
    *,
    follow: bool = False,
    ended: Callable[[], bool] = lambda: True,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[Record]:
    """Read the records of a run or of one of its tasks, of all attempts, oldest first.

    A task that was cut into several is all of these (`sales/orders` is also `sales/orders#2`). With `follow` it goes
    on with what is said from now on, until the run has `ended`. Lines that are still being written, or that a crash
    cut short, are not among them.
    """
    folder = logs_folder(settings, run_id)
    task = None if task_key is None else safe_name(task_key)
    read: dict[Path, int] = {}
    while True:
        is_last = not follow or ended()  # asked before the look: what was said before the end is seen by it
        files = [_new_records(path, read) for path in _files(folder, task)]
        yield from merge(*files, key=lambda record: record.time)
        if is_last:
            return
        wait(_LOOK_AGAIN_SECONDS)


def _files(folder: Path, task: str | None) -> list[Path]:
    try:
        tasks = [entry for entry in folder.iterdir() if task is None or _is_of(entry.name, task)]
        files = [path for entry in tasks if entry.is_dir() for path in entry.glob("*.jsonl")]
    except FileNotFoundError:
        return []  # nobody has said anything yet
    except OSError as problem:
        raise StorageFailed(f"{folder}: {problem.strerror}", hint="make it readable") from problem
    return sorted(files)


def _is_of(name: str, task: str) -> bool:
    return name == task or name.startswith(f"{task}%23")


def _new_records(path: Path, read: dict[Path, int]) -> Iterator[Record]:
    """The whole lines of a file that were not read before, up to where it ends now."""
    size = _BLOCK_BYTES
    end: int | None = None
    while end is None or read.get(path, 0) < end:
        start = read.get(path, 0)
        try:
            with path.open("rb") as file:
                end = os.fstat(file.fileno()).st_size if end is None else end
                file.seek(start)
                block = file.read(min(size, end - start)) if end > start else b""
        except FileNotFoundError:
            return
        except OSError as problem:
            raise StorageFailed(f"{path}: {problem.strerror}", hint="make it readable") from problem
        whole, newline, _ = block.rpartition(b"\n")
        if not newline:
            if start + size >= end:
                return
            size *= 2  # a line that is longer than a block
            continue
        for line in whole.split(b"\n"):
            start += len(line) + 1
            read[path] = start
            if (record := _decoded(line)) is not None:
                yield record


def _decoded(line: bytes) -> Record | None:
    try:
        return _RECORD.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # cut short by a crash

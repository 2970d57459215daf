"""What tasks say, as it is read: all attempts of a run in one stream, also while they go on.

How it is written is in `task_log`, and how what a thread prints gets there in `log_capture`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from heapq import merge
from pathlib import Path

import msgspec

from servo import decoders
from servo.answers.runs import Record
from servo.errors import StorageFailed
from servo.runtime.log_capture import capture, in_log
from servo.runtime.settings import Settings
from servo.runtime.task_log import TaskLog, logs_folder, safe_name

__all__ = ["TaskLog", "capture", "in_log", "logs_folder", "read_logs"]

_BLOCK_BYTES = 32 * 1024  # read at once: many files are merged, and none of them is kept open
_LOOK_AGAIN_SECONDS = 0.25


def read_logs(
    settings: Settings,
    run_id: str,
    task_key: str | None = None,
    *,
    follow: bool = False,
    ended: Callable[[], bool] = lambda: True,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[Record]:
    """What a run or one of its tasks said, in all attempts, oldest first.

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


_RECORD = decoders.decoder(Record)

"""What threads print and log gets to the task that they work on, and nothing of it elsewhere."""

from __future__ import annotations

import contextvars
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from servo.answers.runs import Record
from servo.runtime.settings import Settings, load_settings
from servo.runtime.worker.log_capture import capture
from servo.runtime.worker.task_log import TaskLog, read_logs

FAR = 10.0


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(tmp_path, {})


@pytest.fixture
def log(settings: Settings) -> Iterator[TaskLog]:
    with TaskLog.open(settings, "run_1", "a/b", 1) as log:
        yield log


def said(settings: Settings, task: str | None = None) -> list[tuple[str, str, str]]:
    return [(one.stream, one.level, one.message) for one in read_logs(settings, "run_1", task)]


def records(settings: Settings, task: str | None = None) -> list[Record]:
    return list(read_logs(settings, "run_1", task))


def test_everything_that_a_thread_says(
    settings: Settings, log: TaskLog, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    streams, level, handlers = (sys.stdout, sys.stderr), logging.getLogger().level, list(logging.getLogger().handlers)
    with capture(log):
        print("out", 1)
        print("in ", end="")
        print("parts\nand more")
        print("err", file=sys.stderr)
        sys.stdout.writelines(["a\n", "b\n"])
        logging.getLogger("user.code").info("info %d", 3)
        logging.getLogger("user.code").debug("not asked for")
        log.info("by its own logger")
        assert not sys.stdout.isatty()
        sys.stdout.flush()
        print("no end", end="")
    print("outside")
    logging.getLogger("user.code").warning("outside too")
    texts = said(settings)
    assert texts == [
        ("stdout", "INFO", "out 1"),
        ("stdout", "INFO", "in parts"),
        ("stdout", "INFO", "and more"),
        ("stderr", "WARNING", "err"),
        ("stdout", "INFO", "a"),
        ("stdout", "INFO", "b"),
        ("log", "INFO", "info 3"),
        ("log", "INFO", "by its own logger"),
        ("stdout", "INFO", "no end"),
    ]
    assert capsys.readouterr() == ("outside\n", "")
    assert [record.message for record in caplog.records] == ["outside too"]
    assert (sys.stdout, sys.stderr) == streams
    assert (logging.getLogger().level, logging.getLogger().handlers) == (level, handlers)
    assert all(not handler.filters for handler in handlers)


def test_threads_do_not_mix(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    rounds = 50
    together = threading.Barrier(4)

    def work(task: str | None) -> None:
        def talk() -> None:
            for number in range(rounds):
                sys.stdout.write(f"{task} ")
                logging.getLogger("user").warning("%s logs %d", task, number)
                sys.stdout.write(f"prints {number}\n")

        together.wait(FAR)
        if task is None:
            talk()
            return
        with TaskLog.open(settings, "run_1", task, 1) as log, capture(log):
            talk()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, ["a/a", "a/b", "a/c", None]))
    for task in ("a/a", "a/b", "a/c"):
        messages = [record.message for record in records(settings, task)]
        assert messages == [f"{task} {what} {n}" for n in range(rounds) for what in ("logs", "prints")]
    assert "".join(capsys.readouterr().out.split()) == "".join(f"Noneprints{n}" for n in range(rounds))


def test_threads_for_partitions(settings: Settings, log: TaskLog, capsys: pytest.CaptureFixture[str]) -> None:
    def work(key: str) -> str:
        print("printed")
        logging.getLogger("user").warning("logged")
        log.info("by the task's logger")
        return key

    with capture(log), ThreadPoolExecutor(2) as threads:
        print("whole")
        futures = [threads.submit(capture(log, key)(work), key) for key in ("p1", "p2")]
        assert [future.result() for future in futures] == ["p1", "p2"]
        # Without it a thread is nobody's.
        threads.submit(print, "stray").result()
        with capture(log, "p3"):
            print("inner")
        print("outer")
    by_partition: dict[str | None, list[str]] = {}
    for record in records(settings):
        by_partition.setdefault(record.partition, []).append(record.message)
    each = ["printed", "logged", "by the task's logger"]
    assert by_partition == {None: ["whole", "outer"], "p1": each, "p2": each, "p3": ["inner"]}
    assert capsys.readouterr().out == "stray\n"


def test_a_copied_context_carries_the_log(settings: Settings, log: TaskLog, capsys: pytest.CaptureFixture[str]) -> None:
    started, ended = threading.Event(), threading.Event()

    def work() -> None:
        print("half ", end="")
        started.set()
        ended.wait(FAR)
        print("late")

    with capture(log, "p"):
        thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
        thread.start()
        assert started.wait(FAR)
        print("mine")
    ended.set()
    thread.join()
    assert [(one.partition, one.message) for one in records(settings)] == [("p", "mine"), ("p", "half ")]
    assert capsys.readouterr().out == "late\n"


def test_progress_bars_and_lines_without_end(settings: Settings, log: TaskLog) -> None:
    with capture(log):
        for percent in range(0, 101, 10):
            sys.stderr.write(f"\r{percent}%")
        sys.stderr.write("\n")
        print("windows\r")
        sys.stdout.write("x" * 70_000)
        print()
    assert [one.message[:10] for one in records(settings)] == ["100%", "windows", "x" * 10, ""]


def test_servos_own_words_are_the_workers(
    settings: Settings, log: TaskLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other files of tests may have left handlers whose streams are closed, which would complain in here.
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with capture(log):
        logging.getLogger("servo.runtime.worker.worker").warning("fenced")
        logging.getLogger("py4j.clientserver").info("noise")
        logging.getLogger("py4j.clientserver").warning("no noise")
    assert [one.message for one in records(settings)] == ["no noise"]
    assert [record.getMessage() for record in caplog.records] == ["fenced"]


def test_others_see_no_more_than_before(settings: Settings, log: TaskLog, caplog: pytest.LogCaptureFixture) -> None:
    loud = logging.getLogger("loud")
    loud.setLevel(logging.DEBUG)

    def elsewhere() -> None:
        logging.getLogger("quiet").info("below the root's level")
        loud.debug("by its own level")

    try:
        with capture(log):
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
    finally:
        loud.setLevel(logging.NOTSET)
    assert [record.message for record in caplog.records] == ["by its own level"]
    assert records(settings) == []


def test_an_exception_leaves_nothing_behind(settings: Settings, log: TaskLog) -> None:
    streams = sys.stdout, sys.stderr

    def fail() -> None:
        print("before it fails", end="")
        raise KeyError("x")

    with pytest.raises(KeyError), capture(log):
        fail()
    assert (sys.stdout, sys.stderr) == streams
    assert [one.message for one in records(settings)] == ["before it fails"]


SCRIPT = """
import logging, sys, threading, warnings
from pathlib import Path
from servo.runtime.worker.log_capture import capture
from servo.runtime.worker.task_log import TaskLog
from servo.runtime.settings import load_settings

settings = load_settings(Path(sys.argv[1]), {})

def work():
    with TaskLog.open(settings, "run_1", "a/b", 1) as log, capture(log):
        logging.getLogger("user").info("in the task")
        other = threading.Thread(target=logging.getLogger("user").warning, args=("in another thread",))
        other.start()
        other.join()
        print("printed")
        warnings.warn("careful")

work()
logging.getLogger("user").info("nobody hears this")
"""


def test_in_a_program_that_set_up_no_logging(settings: Settings, tmp_path: Path) -> None:
    """Python writes warnings to stderr where there is no handler; ours must not change that."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == ""
    assert done.stderr == "in another thread\n"
    texts = [one.message for one in records(settings)]
    assert texts.pop(2).endswith("UserWarning: careful")
    assert texts == ["in the task", "printed"]

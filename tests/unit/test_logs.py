"""Logs of tasks: where they are, what they hold, and how they are read while they grow."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from servo.answers.runs import Record
from servo.errors import InvalidInput
from servo.runtime.settings import Settings, load_settings
from servo.runtime.worker import task_log
from servo.runtime.worker.task_log import TaskLog, logs_folder, read_logs

START = datetime(2025, 1, 15, 12, tzinfo=UTC)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(tmp_path, {})


@pytest.fixture
def clock() -> Callable[[], datetime]:
    seconds = count()
    return lambda: START + timedelta(seconds=next(seconds))


def messages(settings: Settings, run: str, task: str | None = None) -> list[str]:
    return [record.message for record in read_logs(settings, run, task)]


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────

NAMES = [
    "sales/orders",
    "sales/orders#2",
    "sales%2Forders",
    "sales_orders",
    "..",
    ".",
    "../../etc/passwd",
    "/etc/passwd",
    "a\\b",
    "nul\0",
    "new\nline",
    "surrogate\ud800",
    "☃" * 100,
    "☃" * 100 + "x",
    "x" * 5000,
    "x" * 150,
    "x" * 151,
    "~root",
    "a:b*c?",
]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_leaves_the_folder(settings: Settings, name: str) -> None:
    place = settings.home / "logs" / "default" / "default"
    with TaskLog.open(settings, name, name, 1) as log:
        log.info("here")
    files = [path for path in settings.root.rglob("*") if path.is_file()]
    assert files == [log.path]
    assert log.path.parent.parent.parent == place
    assert log.path.resolve().is_relative_to(place)
    assert messages(settings, name, name) == ["here"]


def test_different_names_have_different_places(settings: Settings) -> None:
    assert len({logs_folder(settings, name) for name in NAMES}) == len(NAMES)
    assert not any(logs_folder(settings, name).name.startswith((".", "~")) for name in NAMES)


def test_no_name_is_none(settings: Settings) -> None:
    with pytest.raises(InvalidInput):
        TaskLog.open(settings, "", "a/b", 1)


def test_tenants_and_workspaces_do_not_see_each_other(settings: Settings) -> None:
    others = [load_settings(settings.root, {name: "other"}) for name in ("SERVO_TENANT", "SERVO_WORKSPACE")]
    with TaskLog.open(settings, "run_1", "a/b", 1) as log:
        log.info("mine")
    assert messages(settings, "run_1") == ["mine"]
    assert [messages(other, "run_1") for other in others] == [[], []]


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_record_has_everything(settings: Settings, clock: Callable[[], datetime]) -> None:
    with TaskLog.open(settings, "run_1", "sales/orders#2", 3, clock=clock) as log:
        log.warning("%d rows of %s", 7, "naïve ☃\nsecond line", extra={"partition": "day=d:2025-01-15"})
        log.write("printed", stream="stdout")
    about = {"run": "run_1", "task": "sales/orders#2", "attempt": 3, "asset": "sales/orders"}
    first = {"time": "2025-01-15T12:00:00Z", "level": "WARNING", "message": "7 rows of naïve ☃\nsecond line"}
    second = {"time": "2025-01-15T12:00:01Z", "level": "INFO", "message": "printed"}
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert lines == [
        first | about | {"partition": "day=d:2025-01-15", "stream": "log"},
        second | about | {"partition": None, "stream": "stdout"},
    ]
    assert next(read_logs(settings, "run_1")) == Record(
        time=START,
        level="WARNING",
        message="7 rows of naïve ☃\nsecond line",
        run="run_1",
        task="sales/orders#2",
        attempt=3,
        asset="sales/orders",
        partition="day=d:2025-01-15",
    )


def test_it_is_a_logger_like_any_other(settings: Settings) -> None:
    with TaskLog.open(settings, "run_1", "a/b", 1) as log:
        part = logging.LoggerAdapter(log, {"partition": "p"})
        part.info("of a part")
        log.debug("fine")
        log.info("too %s %s", "few")  # noqa: PLE1206 – that is the point
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("it failed")
    records = list(read_logs(settings, "run_1"))
    assert [(record.level, record.partition) for record in records] == [
        ("INFO", "p"),
        ("DEBUG", None),
        ("INFO", None),
        ("ERROR", None),
    ]
    assert records[2].message == "too %s %s ('few',)"
    assert records[3].message.startswith("it failed\nTraceback")
    assert records[3].message.endswith("ValueError: broken")
    assert not any(name.startswith("task") for name in logging.root.manager.loggerDict)


def test_long_and_odd_messages(settings: Settings) -> None:
    with TaskLog.open(settings, "run_1", "a/b", 1) as log:
        log.write("☃" * 30_000)
        log.write("x" * (64 * 1024))
        log.write("a\ud800b\0c")
        log.info("of no text", extra={"partition": 3})
        log.write("", partition="\ud800")
    long, exact, odd, _, _ = messages(settings, "run_1")
    assert len(long.encode()) < 65 * 1024
    assert long.endswith("☃… (24464 more bytes)")
    assert exact == "x" * (64 * 1024)
    assert odd == "a\\ud800b\0c"
    assert [record.partition for record in read_logs(settings, "run_1")][3:] == ["3", "\\ud800"]


def test_a_log_is_bounded_and_keeps_what_is_severe(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_log, "LOG_BYTES", 10_000)
    with TaskLog.open(settings, "run_1", "a/b", 1) as log:
        for _ in range(200):
            log.info("x" * 100)
        log.error("it failed")
        for _ in range(200):
            log.error("y" * 100)
    said = messages(settings, "run_1")
    assert 0 < said.count("x" * 100) < 100
    assert "it failed" in said
    assert said.count("y" * 100) < 100
    assert log.path.stat().st_size < 21_000


def test_a_log_that_cannot_be_written_fails_nothing(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    settings.home.mkdir()
    (settings.home / "logs").write_text("a file where a folder should be")
    with TaskLog.open(settings, "run_1", "a/b", 1) as log:
        log.info("lost")
    assert "what the task says is lost" in caplog.text
    log.info("after the end")
    log.close()


def test_a_disk_that_is_full_fails_nothing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    room = [30]

    def little_room(descriptor: int, data: bytes) -> int:
        taken = data[: room[0]]
        room[0] -= len(taken)
        if not taken:
            raise OSError(28, "No space left on device")
        return write(descriptor, taken)

    with TaskLog.open(settings, "run_1", "a/b", 1) as log:
        log.info("before")
        monkeypatch.setattr(os, "write", little_room)
        log.info("cut short")
        log.info("lost")
        monkeypatch.undo()
        log.info("after")
    assert messages(settings, "run_1") == ["before", "after"]


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_was_said(settings: Settings) -> None:
    assert messages(settings, "run_1") == []
    assert messages(settings, "run_1", "a/b") == []


def test_tasks_and_attempts_are_merged_by_time(settings: Settings, clock: Callable[[], datetime]) -> None:
    logs = [
        TaskLog.open(settings, "run_1", task, attempt, clock=clock)
        for task, attempt in (("a/b", 1), ("a/c", 1), ("a/b", 2), ("a/b#2", 1), ("a/bc", 1), ("a/b", 10))
    ]
    for number in range(12):
        logs[number % 6].info(str(number))
    assert messages(settings, "run_1") == [str(number) for number in range(12)]
    assert messages(settings, "run_1", "a/b") == ["0", "2", "3", "5", "6", "8", "9", "11"]
    assert messages(settings, "run_1", "a/b#2") == ["3", "9"]
    assert messages(settings, "run_1", "a/x") == []
    assert messages(settings, "run_2") == []
    for log in logs:
        log.close()


def test_lines_longer_than_a_block_and_many_lines(settings: Settings, clock: Callable[[], datetime]) -> None:
    with TaskLog.open(settings, "run_1", "a/b", 1, clock=clock) as log:
        wanted = [("z" * length) for length in (10, 60_000, 5, 32_768, 1) for _ in range(20)]
        for message in wanted:
            log.info(message)
    assert messages(settings, "run_1") == wanted


@pytest.mark.parametrize("rest", [b'{"time": "20', b'{"time": 3}\n', b"\xff\xfe\n", b"\0" * 50_000, b"\n\n"])
def test_lines_that_are_none_are_passed_over(settings: Settings, rest: bytes) -> None:
    with TaskLog.open(settings, "run_1", "a/b", 1) as log:
        log.info("one")
    with log.path.open("ab") as file:
        file.write(rest)
    assert messages(settings, "run_1") == ["one"]
    with TaskLog.open(settings, "run_1", "a/b", 1) as log:
        log.info("two")
    assert messages(settings, "run_1") == ["one", "two"]


def test_following(settings: Settings, clock: Callable[[], datetime]) -> None:
    """What happens between two looks is decided here, step by step."""
    log = TaskLog.open(settings, "run_1", "a/b", 1, clock=clock)
    log.info("before")
    half = log.path.read_bytes().replace(b"before", b"half")
    over = [False]

    def first() -> None:
        log.info("one")

    def half_a_line() -> None:
        with log.path.open("ab") as file:
            file.write(half[:20])

    def the_other_half() -> None:
        with log.path.open("ab") as file:
            file.write(half[20:])

    def another_attempt() -> None:
        with TaskLog.open(settings, "run_1", "a/b", 2, clock=clock) as second:
            second.info("again")

    def ends() -> None:
        log.info("the last word")
        over[0] = True

    steps = iter([first, half_a_line, the_other_half, lambda: None, another_attempt, ends])
    seen: list[list[str]] = [[]]

    def wait(seconds: float) -> None:
        assert 0 < seconds < 1
        seen.append([])
        next(steps)()

    for record in read_logs(settings, "run_1", follow=True, ended=lambda: over[0], wait=wait):
        seen[-1].append(record.message)
    assert seen == [["before"], ["one"], [], ["half"], [], ["again"], ["the last word"]]
    log.close()


def test_following_what_has_ended_or_never_began(settings: Settings) -> None:
    def wait(seconds: float) -> None:
        raise AssertionError("there is nothing to wait for")

    assert list(read_logs(settings, "run_1", follow=True, ended=lambda: True, wait=wait)) == []


def test_a_log_that_is_removed_while_it_is_read(settings: Settings) -> None:
    with TaskLog.open(settings, "run_1", "a/b", 1) as log:
        for _ in range(3):
            log.info("x" * 40_000)
    records = read_logs(settings, "run_1")
    assert next(records).message == "x" * 40_000
    log.path.unlink()
    assert len(list(records)) < 3

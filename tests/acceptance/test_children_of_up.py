"""A `servo up` whose children die by signals: it says which one, of what, at which work, and what happens next."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from servo.runtime import load_settings
from servo.runtime.processes.children import CompactionProcess, exit_text
from tests.acceptance.support import Folder
from tests.support.workshop import children

SETTINGS = """
namespace = "shop"

[spark]
master = "local[1]"
"""
# `crash-call` ends the process that computes, once; `crash-load` whoever loads the definitions.
DEFINITIONS = """
import os, signal
from pathlib import Path
from typing import Any

from servo import Daily, asset

HERE = Path(__file__).parent


@asset(partitions=Daily("date", start="2025-01-01", end="2025-01-04"))
def orders(context):
    if (HERE / "crash-call").exists():
        (HERE / "crash-call").unlink()
        os.kill(os.getpid(), signal.SIGSEGV)
    return context.spark.range(3)
"""
TIMED = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ ")
CRASHING = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"


def test_exit_codes_and_signals_in_words() -> None:
    assert exit_text(3) == "ended with exit code 3"
    assert exit_text(-signal.SIGSEGV) == "was ended by SIGSEGV (a crash in native code)"
    assert "memory" in exit_text(-signal.SIGKILL)
    assert exit_text(-signal.SIGTERM) == "was ended by SIGTERM"
    assert exit_text(-60) == "was ended by signal 60"


@contextmanager
def up_in(shop: Folder, *options: str) -> Iterator[tuple[Path, Callable[[Callable[[], bool]], None]]]:
    """A `servo up`: the file with what it said, and what waits until something is so."""
    said = shop.path / "said.log"
    with said.open("wb") as sink:
        up = subprocess.Popen(
            [sys.executable, "-m", "servo", "up", "--port", "0", *options],
            cwd=shop.path,
            env={**os.environ, **shop.environment()},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )

    def until(happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 600
        while not happened():
            assert up.poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.3)

    try:
        until(lambda: "up at" in said.read_text())
        yield said, until
    finally:
        up.send_signal(signal.SIGTERM)
        assert up.wait(600) in (0, 143, -15), said.read_text()


def _checks(url: str) -> dict[str, Any]:
    """What the server says of its readiness, by the name of the check."""
    return {one["name"]: one for one in httpx.get(f"{url}/readyz", timeout=60).json()["checks"]}


def test_up_rebuilds_projections_whose_pointer_is_damaged_and_says_so(compacted: Folder) -> None:
    pointer, sql = compacted.projections / "CURRENT", "SELECT * FROM runs ORDER BY ALL"
    before = compacted.rows(sql)
    (compacted.path / "servo.toml").write_text(SETTINGS)
    (compacted.path / "definitions.py").write_text(DEFINITIONS)
    with up_in(compacted, "--workers", "0") as (said, until):
        url = re.search(r"up at (http://[\d.:]+)", said.read_text())[1]  # type: ignore[index]
        until(lambda: {"name": "control", "ok": True}.items() <= _checks(url)["control"].items())
        until(lambda: compacted.json("ledger", "status")["projection_lag"] == 0)
        data = bytearray(pointer.read_bytes())
        data[20] ^= 0x80
        damaged = pointer.with_name("damaged")
        damaged.write_bytes(data)
        damaged.replace(pointer)
        until(lambda: pointer.read_bytes() != data and "rebuilt" in said.read_text())
        line = next(line for line in said.read_text().splitlines() if "rebuilt" in line)
        assert f"the pointer {pointer} is damaged" in line
        assert "the projections are rebuilt from the ledger now" in line
        assert TIMED.match(line)
        assert compacted.rows(sql) == before
    assert compacted.json("ledger", "replay")["equal"] is True


def test_up_that_finds_a_damaged_pointer_rebuilds_before_it_begins(compacted: Folder) -> None:
    pointer, sql = compacted.projections / "CURRENT", "SELECT * FROM runs ORDER BY ALL"
    before = compacted.rows(sql)
    (compacted.path / "servo.toml").write_text(SETTINGS)
    (compacted.path / "definitions.py").write_text(DEFINITIONS)
    data = bytearray(pointer.read_bytes())
    data[20] ^= 0x80
    pointer.write_bytes(data)
    with up_in(compacted, "--workers", "0") as (said, _):
        told = said.read_text().splitlines()
        [line] = [line for line in told if "rebuilt" in line]
        assert f"the pointer {pointer} is damaged" in line
        assert told.index(line) < next(number for number, line in enumerate(told) if "up at" in line)
        assert compacted.rows(sql) == before
    assert compacted.json("ledger", "replay")["equal"] is True


def test_up_tells_of_a_worker_and_a_deployer_that_crash(tmp_path: Path) -> None:
    shop = Folder(tmp_path)
    (tmp_path / "servo.toml").write_text(SETTINGS)
    (tmp_path / "definitions.py").write_text(DEFINITIONS)
    (tmp_path / "crash-call").touch()
    with up_in(shop) as (said, until):
        run = shop.json("materialize", "orders", "--partitions", "2025-01-01..2025-01-02", "--no-wait")
        until(lambda: shop.rows("SELECT status FROM runs") == [["SUCCEEDED"]])
        [line] = [line for line in said.read_text().splitlines() if "worker 1 (process" in line]
        assert "was ended by SIGSEGV (a crash in native code) while it worked on shop/orders (2 partitions" in line
        assert run["run_id"] in line
        assert TIMED.match(line)
        assert "another attempt begins once its lease has run out, in at most 15 s; it is started again in" in line
        assert Path(line.rpartition("see ")[2]).is_file()
        logs = shop.servo("run", "logs", run["run_id"]).stdout
        assert "was ended by SIGSEGV (a crash in native code): this attempt is over, another follows" in logs

        home_logs = tmp_path / ".servo" / "logs"
        [worker] = children(os.getpid(), "servo\0worker")
        os.kill(worker, signal.SIGUSR1)
        until(lambda: any("most recent call first" in log.read_text() for log in home_logs.glob("worker-*.log")))

        part = tmp_path / ".part"
        part.write_text(CRASHING)
        part.replace(tmp_path / "definitions.py")
        until(lambda: "was not deployed" in said.read_text())
        [line] = [line for line in said.read_text().splitlines() if "was not deployed" in line]
        assert "the process that deploys was ended by SIGSEGV (a crash in native code)" in line
        assert "tried again with the next change" in line


@pytest.mark.parametrize("closing", [False, True])
def test_a_compactor_that_is_killed_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture, closing: bool) -> None:
    shop = Folder(tmp_path)
    with shop.project() as project:
        project.ledger.head()
    aside = CompactionProcess(load_settings(tmp_path, shop.variables))
    aside()
    assert aside._command is not None
    aside._command._process.send_signal(signal.SIGSEGV)
    with caplog.at_level(logging.WARNING):
        if closing:
            aside.close()
        else:
            aside.wait(600)
            aside()
            aside.close()
    [told] = [record.getMessage() for record in caplog.records]
    assert told.startswith("the process that compacts the projections was ended by SIGSEGV"), told
    assert "it is started again" in told

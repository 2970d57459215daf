"""The program as a whole: help, usage, settings, imports, the doctor."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.acceptance.support import Folder, FromTheFuture

HEAVY = {"duckdb", "pyarrow", "pyspark", "py4j", "rich", "psycopg", "pandas", "msgspec", "sqlite3"}


def imported(folder: Folder, *args: str) -> set[str]:
    """The top-level packages that a command imports."""
    done = folder.servo(*args, python=["-X", "importtime"])
    assert done.returncode == 0, done
    names = re.findall(r"^import time:.*\| +([\w.]+)$", done.stderr, re.MULTILINE)
    return {name.partition(".")[0] for name in names}


def test_help_is_light(empty: Folder) -> None:
    assert not imported(empty, "--help") & HEAVY
    assert not imported(empty, "ledger", "--help") & HEAVY
    assert not imported(empty, "query", "--help") & HEAVY
    assert not imported(empty, "--version") & HEAVY


def test_reads_are_light(folder: Folder) -> None:
    assert not imported(folder, "ledger", "verify") & {"pyspark", "py4j", "pyarrow", "rich", "psycopg"}
    assert not imported(folder, "ledger", "export") & {"pyspark", "py4j", "duckdb", "pyarrow", "rich", "psycopg"}
    folder.ok("ledger", "compact")
    for command in (["query", "SELECT count(*) FROM runs"], ["ledger", "status"], ["doctor"]):
        assert not imported(folder, *command) & {"pyspark", "py4j", "pyarrow", "rich", "psycopg"}


@pytest.mark.parametrize("command", [["ledger", "replay"], ["ledger", "archive", "--keep-days", "1"]])
def test_no_local_command_imports_spark(folder: Folder, command: list[str]) -> None:
    assert not imported(folder, *command) & {"pyspark", "py4j"}


def test_help_lists_the_commands(empty: Folder) -> None:
    said = empty.ok("--help")
    for name in ("demo", "doctor", "ledger", "query"):
        assert re.search(rf"^  {name} ", said, re.MULTILINE)
    for verb in ("verify", "replay", "archive", "export", "compact", "status"):
        assert verb in empty.ok("ledger", "--help")


def test_version(empty: Folder) -> None:
    assert re.fullmatch(r"servo, version \d+\.\d+\.\d+\n", empty.ok("--version"))


def test_usage_errors(empty: Folder) -> None:
    assert "Did you mean 'query'?" in empty.fails(2, "qurey")
    assert "servo ledger --help" in empty.fails(2, "ledger", "verfiy")
    assert "--frehs" in empty.fails(2, "query", "SELECT 1", "--frehs")
    assert "Missing argument" in empty.fails(2, "query")
    assert "takes no SQL" in empty.fails(2, "query", "SELECT 1", "--tables")
    done = empty.servo("query", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert json.loads(done.stderr)["error"]["code"] == "usage"


def test_completion(empty: Folder) -> None:
    empty.variables |= {"_SERVO_COMPLETE": "bash_complete", "COMP_WORDS": "servo led", "COMP_CWORD": "1"}
    assert empty.ok() == "plain,ledger\n"


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_settings_are_found_from_below(empty: Folder) -> None:
    (empty.path / "servo.toml").write_text('home = "state"\ntenant = "acme"\n')
    empty.record_runs(1)
    below = empty.path / "src" / "deep"
    below.mkdir(parents=True)
    assert Folder(below).rows("SELECT tenant_id FROM runs") == [["acme"]]
    assert (empty.path / "state" / "ledger.db").exists()


def test_bad_settings_are_one_line(empty: Folder) -> None:
    (empty.path / "servo.toml").write_text('tennant = "acme"\n')
    said = empty.fails(2, "query", "SELECT 1")
    assert f"{empty.path / 'servo.toml'}: there is no setting 'tennant' (did you mean tenant?)" in said
    done = empty.servo("doctor")
    assert done.returncode == 1
    assert "✗ settings: " in done.stdout


# ── the doctor ───────────────────────────────────────────────────────────────────────────────────────────────────


def levels(diagnosis: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return {check["name"]: check["level"] for check in diagnosis["checks"]}


def test_doctor_finds_all_well(compacted: Folder) -> None:
    compacted.ok("ledger", "archive", "--before", "2025-01-01T00:10:00Z")
    before = compacted.files()
    found = compacted.json("doctor")
    assert found["ok"] is True
    assert set(levels(found).values()) == {"ok"}
    assert {"python", "java", "pyspark", "ledger", "chain", "clock", "archive", "projections", "disk"} <= {
        *levels(found)
    }
    assert {"key": "tenant", "value": "default", "origin": "default"} in found["settings"]
    assert "✓ chain: " in compacted.ok("doctor")
    assert compacted.files() == before


def test_doctor_of_nothing(empty: Folder) -> None:
    found = empty.json("doctor")
    assert levels(found)["ledger"] == "warning"
    assert list(empty.path.iterdir()) == []


def test_doctor_says_where_settings_come_from(folder: Folder) -> None:
    folder.variables |= {"SERVO_TENANT": "default", "SERVO_LEGDER": "sqlite:x"}
    found = folder.json("doctor")
    assert {"key": "tenant", "value": "default", "origin": "SERVO_TENANT"} in found["settings"]
    [settings] = [check for check in found["checks"] if check["name"] == "settings"]
    assert settings["level"] == "warning"
    assert "SERVO_LEGDER (is SERVO_LEDGER meant?)" in settings["detail"]


def test_doctor_shows_no_password(empty: Folder) -> None:
    empty.variables["SERVO_LEDGER"] = "postgresql://me:hunter2@127.0.0.1:1/nowhere?connect_timeout=2"
    done = empty.servo("doctor")
    assert done.returncode == 1
    assert "✗ ledger: " in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def test_doctor_finds_a_broken_chain(folder: Folder) -> None:
    import sqlite3

    with sqlite3.connect(folder.path / ".servo" / "ledger.db") as database:
        database.execute("UPDATE events SET actor = 'nobody' WHERE position = 4")
    database.close()
    assert levels(folder.json_of_failing("doctor"))["chain"] == "problem"


def test_doctor_finds_events_of_a_newer_servo_and_of_the_future(folder: Folder) -> None:
    folder.now = folder.now.replace(year=2200)
    folder.record(FromTheFuture(name="x"))
    found = levels(folder.json("doctor"))
    assert (found["events"], found["clock"]) == ("warning", "warning")


def test_doctor_finds_what_the_archive_lost(folder: Folder) -> None:
    folder.ok("ledger", "archive", "--keep-days", "1")
    [segment] = (folder.path / ".servo" / "archive").rglob("*.parquet")
    segment.write_bytes(b"")
    assert levels(folder.json_of_failing("doctor"))["archive"] == "problem"


def test_doctor_judges_java(folder: Folder) -> None:
    java = folder.path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_452\"' >&2\n")
    java.chmod(0o755)
    folder.variables["JAVA_HOME"] = str(folder.path / "jdk")
    assert levels(folder.json_of_failing("doctor"))["java"] == "problem"
    folder.variables["JAVA_HOME"] = str(folder.path / "nowhere")
    assert levels(folder.json_of_failing("doctor"))["java"] == "problem"


def test_doctor_guards_the_secret(folder: Folder) -> None:
    secret = folder.path / ".servo" / "secrets" / "default.key"
    with folder.project() as project:
        assert len(project.secret.value) == 32
    assert levels(folder.json("doctor"))["secret"] == "ok"
    secret.chmod(0o644)
    done = folder.servo("doctor")
    assert done.returncode == 1
    assert f"chmod 600 {secret}" in done.stdout
    assert secret.read_text().strip() not in done.stdout


def test_two_processes_mint_one_secret(empty: Folder) -> None:
    script = (
        "from servo.runtime import load_settings\nfrom servo.runtime.secrets import tenant_secret\n"
        "print(tenant_secret(load_settings()).value.hex())"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script], cwd=empty.path, env=empty.environment(), stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    secrets = {child.communicate(timeout=600)[0].strip() for child in children}
    assert len(secrets) == 1
    assert len(secrets.pop()) == 64
    [file] = (empty.path / ".servo" / "secrets").iterdir()
    assert file.name == "default.key"
    assert file.stat().st_mode & 0o777 == 0o600


_BUSY = """
import pathlib, sys, threading, time
from servo.cli import interrupts

interrupts.listen()

def read():
    while True:
        pathlib.Path(sys.argv[1]).read_bytes()

for _ in range(3):
    threading.Thread(target=read, daemon=True).start()
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""


def test_asking_for_the_stacks_of_a_busy_process_never_ends_it(empty: Folder) -> None:
    (empty.path / "file").write_bytes(b"x")
    said = empty.path / "stacks"
    with said.open("wb") as stacks:
        command = [sys.executable, "-c", _BUSY, "file"]
        process = subprocess.Popen(command, cwd=empty.path, stdout=subprocess.PIPE, stderr=stacks)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for _ in range(400):  # by a handler in C, it ended within 200
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.01)  # signals of one kind that come together are one
            assert process.poll() is None, said.read_text()[-2000:]
        assert said.read_text().count("Current thread") > 20
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

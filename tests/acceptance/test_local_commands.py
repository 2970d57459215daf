"""With SERVO_URL set, a command asks that server, refuses, or says that it is about this folder: never silently."""

from __future__ import annotations

import socket
from pathlib import Path

import click
import pytest

from servo.cli.main import cli
from tests.acceptance.support import Folder

NOWHERE = "http://127.0.0.1:9"
ABOUT_HERE = "about this folder, not about http://127.0.0.1:9 (SERVO_URL)"
# What each group of commands does with SERVO_URL; a new command has to be put in one of them.
SAYS_SO = {
    "check": [],
    "doctor": [],
    "token": ["list"],
    "vacuum": [],
    "ledger": ["status"],
    "up": [],
    "worker": ["--until-idle"],
}
REFUSES = {"query": ["SELECT 1"], "deploy": [], "tick": [], "reproduce": ["orders", "2025-01-01"]}
ASKS = {
    "asset": ["list"],
    "audit": ["report", "orders", "2025-01-01"],
    "backfill": ["list"],
    "checkpoint": ["list"],
    "lineage": ["upstream", "orders", "2025-01-01"],
    "materialize": ["orders", "--no-wait"],
    "partition": ["list", "orders"],
    "plan": ["orders"],
    "read": ["orders"],
    "run": ["list"],
    "schedule": ["list"],
    "sensor": ["list"],
}
MAKES_ITS_OWN_FOLDER = {"init", "demo"}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "servo.toml").write_text('namespace = "shop"\n')
    (tmp_path / "definitions.py").write_text("import servo\n\n\n@servo.asset\ndef orders(context): ...\n")
    made = Folder(tmp_path)
    made.servo("deploy")
    made.variables["SERVO_URL"] = NOWHERE
    return made


def test_every_command_is_looked_at_here() -> None:
    assert set(cli.list_commands(click.Context(cli))) == {*SAYS_SO, *REFUSES, *ASKS, *MAKES_ITS_OWN_FOLDER}


def test_what_looks_at_the_folder_says_so(folder: Folder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        more = {"up": ["--port", str(taken.getsockname()[1]), "--workers", "0"]}  # it cannot listen, and ends
        for command, args in (SAYS_SO | more).items():
            done = folder.servo(command, *args)
            assert ABOUT_HERE in done.stderr, (command, done)


def test_what_needs_the_folder_refuses(folder: Folder) -> None:
    before = folder.files()
    for command, args in REFUSES.items():
        done = folder.servo(command, *args)
        assert (done.returncode, "SERVO_URL names a server" in done.stderr) == (2, True), (command, done)
    assert folder.files() == before


def test_what_asks_a_server_asks_that_one(folder: Folder) -> None:
    before = folder.files()
    for command, args in ASKS.items():
        done = folder.servo(command, *args)
        assert done.returncode != 0, (command, done)
        assert f"{NOWHERE} does not answer" in done.stderr, (command, done)
    assert folder.files() == before

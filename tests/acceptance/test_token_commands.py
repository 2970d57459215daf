"""`servo token …`, as people and scripts type it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support import commands

FIELDS = {
    "token_id",
    "name",
    "role",
    "status",
    "tenant",
    "workspace",
    "created_at",
    "created_by",
    "expires_at",
    "revoked_at",
    "revoked_by",
    "revocation_reason",
}


class Said:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self) -> dict[str, object]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "servo.toml").write_text('tenant = "acme"\n')
    return tmp_path


def servo(folder: Path, *words: str) -> Said:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}
    return Said(commands.servo(["token", *words], cwd=folder, env=environ))


def test_a_token_is_all_that_is_on_stdout_and_is_shown_once(folder: Path) -> None:
    made = servo(folder, "create", "ci", "--role", "operator", "--expires-in", "90d")
    assert made.code == 0, made.err
    token = made.out.strip()
    assert made.out == f"{token}\n"
    assert token.startswith("servo_")
    assert "ci, operator of acme/default, until 20" in made.err
    listed = servo(folder, "list", "--all")
    assert listed.code == 0
    assert "ci" in listed.out
    assert token not in listed.out + made.err
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert token.encode() not in kept


def test_json(folder: Path) -> None:
    made = servo(folder, "create", "ci", "--json").json
    assert set(made) == {
        "token",
        "token_id",
        "name",
        "role",
        "tenant",
        "workspace",
        "created_at",
        "event_id",
        "expires_at",
    }
    assert (made["role"], made["expires_at"]) == ("viewer", None)
    (listed,) = servo(folder, "list", "--json").json["tokens"]  # type: ignore[misc]
    assert set(listed) == FIELDS
    revoked = servo(folder, "revoke", "ci", "--reason", "lost", "--json").json
    assert set(revoked) == {"token_id", "name", "event_id", "revoked_at", "duplicate"}
    assert servo(folder, "list", "--json").json == {"tokens": []}
    (listed,) = servo(folder, "list", "--all", "--json").json["tokens"]  # type: ignore[misc]
    assert (listed["status"], listed["revocation_reason"]) == ("revoked", "lost")
    assert servo(folder, "revoke", "ci", "--json").json["duplicate"] is True


def test_exit_codes(folder: Path) -> None:
    assert servo(folder, "create", "ci").code == 0
    taken = servo(folder, "create", "ci")
    assert (taken.code, taken.out) == (4, "")
    assert "servo token revoke ci" in taken.err
    assert servo(folder, "revoke", "nobody").code == 3
    for words in (
        ("create", "a:b"),
        ("create", "x", "--role", "root"),
        ("create", "x", "--expires-in", "soon"),
        ("create",),
    ):
        refused = servo(folder, *words)
        assert (refused.code, refused.out) == (2, ""), words
        assert len(refused.err.splitlines()) == 1
    problem = json.loads(servo(folder, "revoke", "nobody", "--json").err)
    assert problem["error"]["code"] == "token-not-found"

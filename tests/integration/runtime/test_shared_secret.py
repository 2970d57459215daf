"""Machines with homes of their own on one PostgreSQL: only those with the ledger's secret may write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from servo.cli.main import run as servo
from servo.errors import ForeignSecret
from servo.ids import run_id
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.doctor import examine
from servo.runtime.secrets import fingerprint_of, secret_path, tenant_secret
from tests.support.operating import Runs

pytest_plugins = ("tests.contract.fixtures",)

ME = "person:alice"
NAME = "ledger's secret"


class Machines:
    """Folders with the same project on one ledger, each with a home of its own."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address

    def machine(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "servo.toml").write_text(f'ledger = "{self.address}"\n')
        (folder / "definitions.py").write_text("import servo\n\n\n@servo.asset\ndef orders(context): ...\n")
        return folder

    def open(self, name: str, **variables: str) -> Project:
        return open_workspace(load_settings(self.machine(name), variables), create=True)

    def forget_fingerprint(self) -> None:
        """As an earlier version has left the ledger."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS servo.tenant_secrets")


@pytest.fixture
def machines(tmp_path: Path, new_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> Machines:
    monkeypatch.delenv("SERVO_SECRET", raising=False)
    return Machines(tmp_path, new_database())


def asked(project: Project) -> str:
    return Runs(project).request(["orders"], request_id="nightly", actor=ME).run_id


def diagnosis(project: Project) -> dict[str, Any]:
    return {check.name: msgspec.to_builtins(check) for check in examine(project).checks}


def test_another_secret_does_not_write_and_says_what_to_do(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with machines.open("one") as one:
        first = asked(one)
        assert diagnosis(one)[NAME]["level"] == "ok"
        head = one.ledger.head()
    with machines.open("two") as two:
        tenant_secret(two.settings, environ={})  # as earlier versions have minted one in every home
        assert diagnosis(two)[NAME]["level"] == "problem"
        assert "begun with" in diagnosis(two)[NAME]["detail"]
        with pytest.raises(ForeignSecret, match="another run here") as problem:
            asked(two)
        assert str(secret_path(two.settings)) in str(problem.value.hint)
        assert two.ledger.head() == head
        assert Runs(two).list()[0].run_id == first  # to look is nothing to refuse
    monkeypatch.chdir(machines.machine("two"))
    for command in (
        ["up", "--port", "0", "--workers", "0"],
        ["worker", "--until-idle"],
        ["token", "create", "ci"],
        ["run", "cancel", first],
        ["materialize", "orders", "--no-wait"],
    ):
        assert servo(command) == 2, command
        assert "is not the one that the ledger" in capsys.readouterr().err, command
    assert servo(["doctor"]) == 1
    assert f"✗ {NAME}: " in capsys.readouterr().out
    assert servo(["run", "list"]) == 0
    with machines.open("one") as one:
        assert one.ledger.head() == head
        shutil.copy(secret_path(one.settings), machines.folder / "two" / ".servo" / "secrets")
    with machines.open("two") as two:
        assert asked(two) == first  # the same request is the same run, on whichever machine
        assert diagnosis(two)[NAME]["level"] == "ok"


def test_a_home_without_a_secret_gets_none_of_its_own(machines: Machines) -> None:
    with machines.open("one") as one:
        asked(one)
    with machines.open("two") as two:
        assert "does not have" in diagnosis(two)[NAME]["detail"]
        with pytest.raises(ForeignSecret, match="that this machine does not have"):
            asked(two)
        assert not secret_path(two.settings).exists()


def test_a_ledger_of_an_earlier_version_takes_the_secret_that_its_runs_have(machines: Machines) -> None:
    with machines.open("one") as one:
        first = asked(one)
    machines.forget_fingerprint()
    with machines.open("two") as two:  # it comes first, and is wrong all the same
        tenant_secret(two.settings, environ={})
        assert diagnosis(two)[NAME]["level"] == "problem"
        with pytest.raises(ForeignSecret):
            asked(two)
        assert two.fingerprints.find("default") is None
    with machines.open("one") as one:
        assert diagnosis(one)[NAME]["level"] == "ok"
        assert one.fingerprints.find("default") is None  # a doctor writes nothing
        assert asked(one) == first
        assert one.fingerprints.find("default") == fingerprint_of("default", one.secret)
    machines.forget_fingerprint()
    with machines.open("three") as three, pytest.raises(ForeignSecret):
        three.require_own_secret()


def test_each_tenant_has_its_own_and_the_fingerprint_gives_nothing_away(machines: Machines) -> None:
    with machines.open("one", SERVO_TENANT="acme") as acme, machines.open("two", SERVO_TENANT="umbrella") as umbrella:
        acme.require_own_secret()
        umbrella.require_own_secret()
        found = acme.fingerprints.find("acme")
        assert found is not None
        assert found != acme.fingerprints.find("umbrella")
        assert acme.secret.value.hex() not in found
        assert fingerprint_of("acme", acme.secret) != fingerprint_of("umbrella", acme.secret)
        assert found not in run_id("acme", "default", "manual:x", acme.secret.value)

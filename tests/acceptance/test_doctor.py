"""`servo doctor` looks at the whole installation, and says of each thing that is not well what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from servo.cli import doctor
from servo.cli.doctor import server_checks
from servo.clock import system_clock
from servo.local_server import announce, withdraw
from servo.runtime import load_settings
from servo.runtime.doctor import disks, spark
from servo.runtime.tokens import Tokens
from tests.acceptance.support import Folder
from tests.support.served import House, house

WHOLE = {"settings", "python", "java", "pyspark", "duckdb", "pyarrow", "spark", "ledger", "chain", "clock", "archive"}
WHOLE |= {"projections", "disk"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("shop")) as found:
        yield found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("guarded"), guarded=True) as found:
        yield found


def levels(found: Any) -> dict[str, str]:
    return {one["name"]: one["level"] for one in found["checks"]}


def named(checks: Any) -> dict[str, Any]:
    return {one.name: one for one in checks}


# ── the whole ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_looks_at_everything(shop: House) -> None:
    folder = Folder(shop.project.settings.root, variables={"SERVO_URL": shop.served.url})
    done = folder.servo("doctor", "--json")
    assert (done.returncode, "is about this folder" in done.stderr) == (0, True), done
    found = json.loads(done.stdout)
    assert found["ok"] is True
    assert WHOLE | {"server", "server clock", "token", "readiness"} <= set(levels(found))
    assert set(levels(found).values()) == {"ok"}
    ledger = next(one for one in found["checks"] if one["name"] == "ledger")
    assert re.search(r"\d+ events, .*; sqlite, schema version \d+$", ledger["detail"])
    disk = next(one for one in found["checks"] if one["name"] == "disk")
    assert disk["detail"].endswith("for home, projections, archive, ledger, storage")


def test_what_is_wrong_fails_it_and_says_what_to_do(tmp_path: Path) -> None:
    folder = Folder(tmp_path, variables={"SERVO_URL": "http://127.0.0.1:9", "SPARK_HOME": str(tmp_path / "nowhere")})
    done = folder.servo("doctor")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    for name, remedy in (("spark", "SPARK_HOME"), ("server", "servo up")):
        place = next(number for number, line in enumerate(lines) if line.startswith(f"✗ {name}: "))
        assert lines[place + 1].startswith("  → ")
        assert remedy in lines[place + 1]
    found = json.loads(folder.servo("doctor", "--json").stdout)
    assert found["ok"] is False
    assert levels(found)["ledger"] == "warning"
    assert all(one["remedy"] for one in found["checks"] if one["level"] != "ok")


# ── Spark and disks ──────────────────────────────────────────────────────────────────────────────────────────────


def test_spark_is_what_its_jars_say(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {})
    assert spark(settings, {}).level == "ok"
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    environ = {"SPARK_HOME": str(jars.parent)}
    assert spark(settings, environ).level == "problem"
    (jars / "spark-core_2.13-1.2.3.jar").touch()
    found = spark(settings, environ)
    assert found.level == "problem"
    assert "1.2.3" in found.detail
    assert "SPARK_HOME" in str(found.remedy)
    gone = load_settings(tmp_path, {"SERVO_SPARK_REMOTE": "sc://127.0.0.1:9", "SERVO_SPARK_TIMEOUT_SECONDS": "1"})
    assert spark(gone, {}).level == "problem"
    assert "spark.remote" in str(spark(gone, {}).remedy)


def test_each_disk_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = disks(load_settings(tmp_path, {}))
    assert one.level == "ok"
    elsewhere = {"SERVO_STORAGE": "/proc/servo", "SERVO_LEDGER": "postgresql://nobody@nowhere/x"}
    here, there = disks(load_settings(tmp_path, elsewhere))
    assert here.detail.endswith("for home, projections, archive")
    assert there.detail.endswith("for storage")
    monkeypatch.setattr("servo.runtime.doctor.shutil.disk_usage", lambda _: type("Usage", (), {"free": 1 << 20}))
    (full,) = disks(load_settings(tmp_path, {}))
    assert (full.level, full.remedy) == ("problem", "free some space: nothing can be recorded on a full disk")
    monkeypatch.setattr("servo.runtime.doctor.shutil.disk_usage", lambda _: type("Usage", (), {"free": 1 << 30}))
    (little,) = disks(load_settings(tmp_path, {}))
    assert little.level == "warning"


# ── the server ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_server_there_is_nothing_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERVO_URL", raising=False)
    (one,) = server_checks(tmp_path)
    assert (one.level, "servo up" in one.detail) == ("ok", True)


def test_the_server_of_this_folder_is_found(shop: House, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = shop.project.settings
    monkeypatch.delenv("SERVO_URL", raising=False)
    announce(settings.home, shop.served.url)
    assert named(server_checks(settings.home))["server"].detail.startswith(shop.served.url)
    (settings.home / "server.json").write_text(json.dumps({"url": shop.served.url, "pid": 2**22 + 1}))
    assert [one.name for one in server_checks(settings.home)] == ["server"]  # its process is gone
    announce(settings.home, shop.served.url)
    withdraw(settings.home)
    assert not (settings.home / "server.json").exists()


def test_another_version_and_another_time_are_told(shop: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVO_URL", shop.served.url)
    monkeypatch.setattr(doctor, "__version__", "0.0.1")
    monkeypatch.setattr(doctor, "system_clock", lambda: system_clock() + timedelta(minutes=5))
    found = named(server_checks(None))
    assert (found["server"].level, found["server clock"].level) == ("warning", "warning")
    assert "same version" in found["server"].remedy


def test_a_token_that_is_not_taken_is_told(guarded: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVO_URL", guarded.served.url.replace("0.0.0.0", "127.0.0.1"))
    for token in (None, "servo_" + "A" * 43):
        monkeypatch.delenv("SERVO_TOKEN", raising=False)
        if token is not None:
            monkeypatch.setenv("SERVO_TOKEN", token)
        found = named(server_checks(None))
        assert (found["server"].level, found["token"].level) == ("ok", "problem")
        assert "servo token create" in found["token"].remedy
    monkeypatch.setenv("SERVO_TOKEN", Tokens(guarded.project).create("doctor", "viewer", actor="person:me").token)
    assert named(server_checks(None))["token"].level == "ok"


def test_a_server_without_workers_is_degraded() -> None:
    wrong = {"name": "worker", "ok": False, "problem": "none", "detail": "nobody computes"}
    told = doctor._readiness({"status": "degraded", "checks": [wrong]})
    assert (told.level, "servo worker" in str(told.remedy)) == ("warning", True)
    nobody = {"name": "worker", "ok": True, "detail": "none"}
    told = doctor._readiness({"status": "ready", "checks": [nobody]})
    assert (told.level, "servo worker" in str(told.remedy)) == ("warning", True)
    away = {"name": "ledger", "ok": False, "problem": "ledger-unavailable"}
    told = doctor._readiness({"status": "unready", "checks": [away]})
    assert (told.level, told.detail) == ("problem", "unready: the ledger: ledger-unavailable")

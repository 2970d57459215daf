"""Settings: where they are found, what overrides what, and how mistakes are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from servo.errors import InvalidSettings
from servo.execution.settings import SparkSettings, at_launch
from servo.ledger.address import without_password
from servo.runtime.settings import (
    VARIABLES,
    LimitSettings,
    RetentionSettings,
    SensorSettings,
    Settings,
    TailSettings,
    WorkerSettings,
    load_settings,
    unknown_variables,
)


def load(folder: Path, toml: str | None = None, **environ: str) -> Settings:
    if toml is not None:
        (folder / "servo.toml").write_text(toml)
    return load_settings(folder, environ)


def mistake(folder: Path, toml: str | None = None, **environ: str) -> str:
    with pytest.raises(InvalidSettings) as caught:
        load(folder, toml, **environ)
    assert caught.value.hint
    return str(caught.value)


def test_defaults(tmp_path: Path) -> None:
    settings = load(tmp_path)
    home = tmp_path / ".servo"
    assert settings == Settings(
        root=tmp_path,
        home=home,
        ledger=f"sqlite:{home / 'ledger.db'}",
        storage=str(home / "storage"),
        projections=home / "projections",
        archive=home / "archive",
    )
    assert (settings.tenant, settings.workspace, settings.idempotency_days) == ("default", "default", 7)
    assert settings.tail == TailSettings(events=5000, age_seconds=60, fold_ms=200)
    assert (settings.namespace, settings.definitions, settings.storage_timeout_seconds) == ("default", None, 60)
    assert settings.spark == SparkSettings(master="local[*]", remote=None, conf={}, timeout_seconds=30)
    assert settings.limits == LimitSettings(tasks=4, runs=10, threads=4, pools={})
    assert settings.worker == WorkerSettings(lease_seconds=15.0, heartbeat_seconds=3.0)
    assert settings.retention == RetentionSettings(versions=None, days=None, grace_hours=24)
    assert settings.sensors == SensorSettings(processes=4, memory_mb=1024, timeout_seconds=60)
    assert {setting.origin for setting in settings.shown()} == {"default"}


def test_the_file_says_more(tmp_path: Path) -> None:
    toml = 'home = "state"\ntenant = "acme"\nledger = "sqlite:db/l.db"\n[tail]\nevents = 7\nage_seconds = 1\n'
    settings = load(tmp_path, toml)
    assert settings.home == tmp_path / "state"
    assert settings.ledger == f"sqlite:{tmp_path / 'db' / 'l.db'}"
    assert settings.archive == tmp_path / "state" / "archive"
    assert settings.tail == TailSettings(events=7, age_seconds=1.0)
    origins = {setting.key: setting.origin for setting in settings.shown()}
    assert origins["tenant"] == origins["tail.events"] == str(tmp_path / "servo.toml")
    assert origins["tail.fold_ms"] == origins["workspace"] == "default"


def test_it_is_found_from_below_and_paths_start_at_the_file(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'x'\n")  # no [tool.servo]: not one of ours
    load(tmp_path, 'home = "state"')
    assert load(below).home == tmp_path / "state"
    assert load(below).source == tmp_path / "servo.toml"
    assert load(below).root == tmp_path
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.servo]\ntenant = 'nearer'\n")
    assert load(below).tenant == "nearer"
    assert load(below).home == tmp_path / "a" / ".servo"


def test_the_environment_overrides_and_its_paths_start_here(tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    load(tmp_path, 'tenant = "acme"\nledger = "sqlite:l.db"\nidempotency_days = 3\n')
    settings = load(
        below,
        SERVO_TENANT="other",
        SERVO_LEDGER="sqlite:mine.db",
        SERVO_HOME="h",
        SERVO_STORAGE="s3://bucket/x",
        SERVO_TAIL_EVENTS="9",
        SERVO_TAIL_AGE_SECONDS="0.5",
    )
    assert settings.tenant == "other"
    assert settings.ledger == f"sqlite:{below / 'mine.db'}"
    assert settings.home == below / "h"
    assert settings.storage == "s3://bucket/x"
    assert (settings.tail.events, settings.tail.age_seconds, settings.idempotency_days) == (9, 0.5, 3)
    assert {setting.key: setting.origin for setting in settings.shown()}["tail.events"] == "SERVO_TAIL_EVENTS"


def test_tables(tmp_path: Path) -> None:
    toml = """
        namespace = "sales_eu"
        definitions = "assets.py,more"
        [spark]
        master = "spark://host:7077"
        [spark.conf]
        "spark.sql.shuffle.partitions" = 8
        spark.sql.ansi.enabled = true
        spark.memory.fraction = 0.5
        spark.app.name = "x"
        [limits]
        runs = 2
        pools = { api = 1, "big db" = 3 }
        [worker]
        lease_seconds = 7
        [retention]
        versions = 3
        grace_hours = 0
        [sensors]
        processes = 2
        timeout_seconds = 2.5
    """
    variables = {"SERVO_LIMITS_TASKS": "9", "SERVO_RETENTION_DAYS": "30", "SERVO_SENSORS_MEMORY_MB": "64"}
    settings = load(tmp_path, toml, SERVO_DEFINITIONS="other", **variables)
    assert (settings.namespace, settings.definitions) == ("sales_eu", "other")
    assert settings.spark.master == "spark://host:7077"
    assert settings.spark.conf == {
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.ansi.enabled": "true",
        "spark.memory.fraction": "0.5",
        "spark.app.name": "x",
    }
    assert settings.limits == LimitSettings(tasks=9, runs=2, pools={"api": 1, "big db": 3})
    assert settings.worker == WorkerSettings(lease_seconds=7.0)
    assert settings.retention == RetentionSettings(versions=3, days=30, grace_hours=0)
    assert settings.sensors == SensorSettings(processes=2, memory_mb=64, timeout_seconds=2.5)
    shown = {setting.key: (setting.value, setting.origin) for setting in settings.shown()}
    assert shown["limits.pools"] == ("api=1, big db=3", str(tmp_path / "servo.toml"))
    assert shown["limits.tasks"] == ("9", "SERVO_LIMITS_TASKS")
    assert shown["limits.threads"] == ("4", "default")
    assert shown["spark.remote"] == ("none", "default")
    assert set(VARIABLES.values()) == shown.keys() - {"spark.conf", "limits.pools", "approvals"}


def test_who_has_which_role(tmp_path: Path) -> None:
    settings = load(tmp_path, '[approvals]\nfinance = ["anna", "ben"]\n"the board" = []')
    assert settings.approvals == {"finance": ["anna", "ben"], "the board": []}
    shown = {setting.key: setting.value for setting in settings.shown()}
    assert shown["approvals"] == "finance: anna, ben; the board: nobody"
    assert load(tmp_path, "").approvals == {}
    assert "approvals" in mistake(tmp_path, '[approvals]\nfinance = "anna"')
    assert "approvals" in mistake(tmp_path, '[approvals]\nfinance = [""]')


def test_whose_spark_remote_holds(tmp_path: Path) -> None:
    def remote(settings: Settings) -> tuple[str | None, str | None]:
        return settings.spark.remote, settings.origins.get("spark.remote")

    assert remote(load(tmp_path, SPARK_REMOTE=" ")) == (None, None)
    assert remote(load(tmp_path, SPARK_REMOTE="sc://a")) == ("sc://a", "SPARK_REMOTE")
    toml = '[spark]\nremote = "sc://b"'
    assert remote(load(tmp_path, toml, SPARK_REMOTE="sc://a")) == ("sc://b", str(tmp_path / "servo.toml"))
    both = {"SPARK_REMOTE": "sc://a", "SERVO_SPARK_REMOTE": "sc://c"}
    assert remote(load(tmp_path, **both)) == ("sc://c", "SERVO_SPARK_REMOTE")


def test_spark_secrets_are_not_shown(tmp_path: Path) -> None:
    toml = """
        [spark]
        remote = "sc://host:15002/;use_ssl=true;token=hunter2"
        [spark.conf]
        spark.hadoop.fs.s3a.secret.key = "hunter2"
        spark.my.PassWord = "hunter2"
        spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net = "hunter2"
        spark.hadoop.fs.azure.sas.box.lake.blob.core.windows.net = "hunter2"
        spark.my.credential = "hunter2"
        spark.hadoop.fs.s3a.encryption.key = "hunter2"
        spark.driver.extraJavaOptions = "-Xss4m -Djavax.net.ssl.keyStorePassword=hunter2"
        spark.executor.extraJavaOptions = "-Dproxy=http://me:hunter2@proxy:3128"
        spark.jdbc.other = "jdbc:mysql://host/db?user=me&password=hunter2"
        spark.jdbc.url = "postgresql://me:hunter2@host/db"
        spark.plain = "seen"
        spark.sql.shuffle.partitions = 7
    """
    settings = load(tmp_path, toml)
    assert settings.spark.conf["spark.my.PassWord"] == "hunter2"
    for text in (repr(settings), repr(settings.spark), f"{settings.shown()}"):
        assert "hunter2" not in text
        assert "sc://host:15002/;***" in text
        assert "spark.plain=seen" in text
        assert "spark.sql.shuffle.partitions=7" in text
        assert "spark.jdbc.url=postgresql://me:***@host/db" in text


def test_only_what_a_jvm_must_know_at_its_start_is_on_its_command_line() -> None:
    needed = {
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": "-Xss4m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars.packages": "a:b:1",
        "spark.submit.deployMode": "client",
    }
    told_later = {
        "spark.hadoop.fs.azure.account.key.lake": "x",
        "spark.my.credential": "x",
        "spark.jdbc.url": "postgresql://me:hunter2@host/db",
        "spark.sql.shuffle.partitions": "7",
        "spark.anything": "x",
    }
    assert at_launch(told_later | needed) == needed


@pytest.mark.parametrize("ledger", ["sqlite:/x/l.db", "sqlite:///x/l.db", "sqlite:/x/y/../l.db"])
def test_sqlite_addresses(tmp_path: Path, ledger: str) -> None:
    assert load(tmp_path, SERVO_LEDGER=ledger).ledger == "sqlite:/x/l.db"


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("tennant = 'a'", ["servo.toml", "'tennant'", "did you mean tenant?"]),
        ("[tail]\nevent = 3", ["'tail.event'", "did you mean tail.events?"]),
        ("xyzzy = 1", ["'xyzzy'", "known are home, ledger"]),
        ("[retension]\ndays = 3", ["'retension'", "did you mean retention?"]),
        ("heartbeat_seconds = 1", ["'heartbeat_seconds'", "did you mean worker.heartbeat_seconds?"]),
        ("[spark]\nhome = 'x'", ["'spark.home'", "did you mean home?"]),
        ("[spark]\nxyzzy = 'x'", ["'spark.xyzzy'", "known are spark.master, spark.remote, spark.conf"]),
        ("[spark]\nremote = 'spark://me:hunter2@h'", ["spark.remote is not", "sc://"]),
        ("[spark]\nconf = 3", ["spark.conf", "expected object"]),
        ("[spark.conf]\nspark.x = [1]", ["spark.conf", "'spark.x'", "a number"]),
        ("[spark.conf]\nspark.x = 1\n'spark.x' = 2", ["spark.conf has 'spark.x' twice"]),
        ("[limits]\nthreads = 0", ["limits.threads", ">= 1"]),
        ("[limits]\npools = { api = 0 }", ["limits.pools", ">= 1"]),
        ("[limits.pools]\napi = 'one'", ["limits.pools", "expected int"]),
        ("[worker]\nheartbeat_seconds = 7.5", ["worker.lease_seconds is 15", "two heartbeats take 15", "twice"]),
        ("[worker]\nlease_seconds = nan", ["worker.lease_seconds", "> 0"]),
        ("[worker]\nlease_seconds = inf", ["worker.lease_seconds", "<= 86400"]),
        ("[retention]\nversions = 0", ["retention.versions", ">= 1"]),
        ("[retention]\ngrace_hours = -1", ["retention.grace_hours", ">= 0"]),
        ("[sensors]\nprocesses = 0", ["sensors.processes", ">= 1"]),
        ("[sensors]\nmemory_mb = 1", ["sensors.memory_mb", ">= 16"]),
        ("[sensors]\ntimeout_seconds = 0", ["sensors.timeout_seconds", "> 0"]),
        ("namespace = 'Acme'", ["namespace", "'Acme'", "lower-case"]),
        ("namespace = 'a/b'", ["namespace", "'a/b'"]),
        ("definitions = ' '", ["definitions names nothing"]),
        ("tenant = 3", ["tenant", "expected str"]),
        ("[tail]\nevents = 'many'", ["tail.events", "expected int"]),
        ("[tail]\nevents = 0", ["tail.events", ">= 1"]),
        ("[tail]\nevents = true", ["tail.events", "expected int"]),
        ("tail = 5", ["tail", "expected object"]),
        ("idempotency_days = -1", ["idempotency_days", ">= 1"]),
        ("tenant = 'Acme Inc'", ["tenant", "'Acme Inc'", "lower-case"]),
        ("workspace = '../x'", ["workspace", "'../x'"]),
        ("home = ''", ["home is not a path"]),
        ("ledger = 'mysql://me:hunter2@h/d'", ["cannot start with 'mysql:'", "sqlite:PATH"]),
        ("ledger = 'ledger.db'", ["cannot start with 'ledger.db'"]),
        ("ledger = 'sqlite:'", ["names no file"]),
        ("tenant = ", ["is not TOML"]),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, toml: str, said: list[str]) -> None:
    message = mistake(tmp_path, toml)
    assert str(tmp_path / "servo.toml") in message
    assert all(part in message for part in said), message
    assert "hunter2" not in message


def test_mistakes_in_the_environment(tmp_path: Path) -> None:
    assert "SERVO_TENANT is empty" in mistake(tmp_path, SERVO_TENANT=" ")
    assert "SERVO_TENANT: tenant: 'A'" in mistake(tmp_path, SERVO_TENANT="A")
    assert "SERVO_TAIL_EVENTS='many'" in mistake(tmp_path, SERVO_TAIL_EVENTS="many")
    assert ">= 1" in mistake(tmp_path, SERVO_TAIL_EVENTS="0")
    assert "SERVO_WORKER_LEASE_SECONDS='nan'" in mistake(tmp_path, SERVO_WORKER_LEASE_SECONDS="nan")
    assert "SERVO_WORKER_LEASE_SECONDS: worker.lease_seconds is 2" in mistake(tmp_path, SERVO_WORKER_LEASE_SECONDS="2")


def test_two_files_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.servo]\n")
    assert "keep one of the two" in mistake(tmp_path, "")
    (tmp_path / "servo.toml").unlink()
    assert load(tmp_path).source == tmp_path / "pyproject.toml"
    (tmp_path / "pyproject.toml").write_text("[tool]\nservo = 3\n")
    assert "not a table" in mistake(tmp_path)
    (tmp_path / "pyproject.toml").write_bytes(b"\xff\xfe")
    assert "is not TOML" in mistake(tmp_path)


def test_unknown_variables() -> None:
    environ = {"SERVO_LEGDER": "x", "SERVO_ZZZ": "x", "SERVO_HOME": "x", "SERVO_SECRET": "x", "PATH": "x"}
    assert unknown_variables(environ) == [("SERVO_LEGDER", "SERVO_LEDGER"), ("SERVO_ZZZ", None)]


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:hunter2@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql://host/db?user=me&password=hunter2", "postgresql://host/db"),
        ("postgresql://me:hunter2@host:port/db", "postgresql://me:***@host:port/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://me@host:5432,other:5433/db", "postgresql://me@host:5432,other:5433/db"),
        ("postgresql://[::1]:5432/db", "postgresql://[::1]:5432/db"),
        ("postgresql://me@/db?host=/run/pg", "postgresql://me@/db?host=/run/pg"),
        ("postgresql://me:x#hunter2@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:x?hunter2@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:x/hunter2@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:x@hunter2@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:x:hunter2@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:x?hunter2=1@host/db", "postgresql://***"),
        ("postgresql://:hunter2@host/db", "postgresql://:***@host/db"),
        ("postgresql://x/hunter2@host/db", "postgresql://***@host/db"),
        ("postgresql://x@y:hunter2@host/db", "postgresql://***@host/db"),
        ("postgresql:me:hunter2@host/db", "postgresql:me:***@host/db"),
        ("postgresql:/me:hunter2@host/db", "postgresql:/me:***@host/db"),
        ("postgresql://me:hunter2", "postgresql://***"),
        ("postgresql://me:hunter2/db", "postgresql://***"),
        ("postgresql:me:hunter2", "postgresql:***"),
        ("postgresql://host/db?password=x@hunter2", "postgresql://***"),
        ("postgresql://me@host/db?p%61ssword=hunter2", "postgresql://me@host/db"),
        ("postgresql://me@host/db?sslmode=require&sslpassword=hunter2", "postgresql://me@host/db"),
        ("postgresql://me:1\nhunter2@host/db", "postgresql://me:***@host/db"),
        ("sqlite:/x/l.db", "sqlite:/x/l.db"),
        ("sqlite:/x/a:b@c?d=e.db", "sqlite:/x/a:b@c?d=e.db"),
    ],
)
def test_passwords_are_not_shown(tmp_path: Path, address: str, shown: str) -> None:
    assert without_password(address) == shown
    settings = load(tmp_path, SERVO_LEDGER=address)
    assert settings.ledger == address
    assert "hunter2" not in repr(settings)

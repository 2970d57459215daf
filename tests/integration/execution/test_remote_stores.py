"""Remote stores that are not there, refuse, or take a connection and never answer: one sentence in the time that there
is, on real sockets, and no process that outlives its command."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from servo.errors import StorageFailed
from servo.execution.files import ArrowFiles, files_at, require_storage
from servo.execution.remote_stores import RemoteStore
from servo.runtime import load_settings
from servo.runtime.doctor import missing_connector, storage

SECONDS = 3.0
GENEROUS = 300.0
SETTINGS = """
namespace = "shop"
storage = "{address}"
storage_timeout_seconds = 3
"""
DEFINITIONS = "from servo import asset\n\n@asset\ndef orders(context): ...\n"


@pytest.fixture(autouse=True)
def no_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that are nobody's, so that no client looks for some on the network."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "HTTPS_PROXY", "https_proxy", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def refusing() -> str:
    """An address at which nobody listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


def failure(address: str, seconds: float = SECONDS) -> str:
    """The one sentence in which a store is refused."""
    with pytest.raises(StorageFailed) as problem:
        require_storage(address, seconds)
    text = str(problem.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("scheme", ["s3", "s3a", "gs"])
def test_a_server_that_never_answers_is_given_up(scheme: str, silent: str) -> None:
    who = "anonymous@" if scheme == "gs" else ""
    text = failure(f"{scheme}://{who}bucket/data?endpoint_override={silent}&scheme=http")
    assert text.startswith(f"the storage {scheme}://{who}bucket/data cannot be used: ")
    assert f"{silent} takes connections and does not answer" in text or "does not answer" in text
    assert f"{scheme}:// needs the network and " in text
    assert "credentials" in text
    assert "storage_timeout_seconds" in text


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_server_that_refuses(scheme: str, refusing: str) -> None:
    who = "anonymous@" if scheme == "gs" else ""
    text = failure(f"{scheme}://{who}bucket/data?endpoint_override={refusing}&scheme=http", 4.0 if who else 20.0)
    assert "takes no connections" in text or "nobody takes connections there" in text, text


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_name_that_nobody_knows(scheme: str) -> None:
    who = "anonymous@" if scheme == "gs" else ""
    text = failure(f"{scheme}://{who}bucket/data?endpoint_override=store.invalid&scheme=http", 4.0 if who else 20.0)
    assert "is not known here" in text, text


def test_hdfs_says_what_its_client_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_HOME", "CLASSPATH", "ARROW_LIBHDFS_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    text = failure("hdfs://namenode:8020/data")
    assert "Hadoop's client library is not to be found here" in text
    assert "JAVA_HOME, HADOOP_HOME and CLASSPATH" in text


@pytest.mark.parametrize("address", ["ftp://host/data", "https://host/data", "s4://bucket"])
def test_addresses_of_no_store(address: str) -> None:
    text = failure(address)
    assert f"nothing can be stored at {address}" in text
    assert "s3://, s3a://, gs://, abfss:// or hdfs://" in text


def test_options_that_are_not_known_and_passwords_that_are_not_shown() -> None:
    text = failure("s3://somebody:open-sesame@bucket/data?regoin=x")
    assert "option 'regoin'" in text
    assert "open-sesame" not in text


def test_spark_is_given_the_address_without_options() -> None:
    files = files_at("s3a://bucket/data/?endpoint_override=127.0.0.1:1&scheme=http")
    assert files.address("a/b") == "s3a://bucket/data/a/b"


class Stuck(pafs.FileSystemHandler):  # type: ignore[misc]
    """A store whose every call hangs for longer than anybody waits."""

    def _hang(self, *_: object) -> None:
        time.sleep(GENEROUS)

    delete_dir = delete_file = copy_file = move = create_dir = delete_dir_contents = delete_root_dir_contents = _hang
    get_file_info = get_file_info_selector = open_input_file = open_input_stream = open_output_stream = _hang
    open_append_stream = _hang

    def get_type_name(self) -> str:
        return "stuck"

    def normalize_path(self, path: str) -> str:
        return path


@pytest.mark.parametrize("call", ["entries", "open", "write", "create", "move", "copy", "remove"])
def test_every_call_has_the_limit(call: str) -> None:
    files = ArrowFiles(RemoteStore.of(pafs.PyFileSystem(Stuck()), "data", "stuck://data", 0.2))
    calls = {
        "write": lambda: files.write("a", b"x"),
        "move": lambda: files.move([("a", "b")]),
        "copy": lambda: files.move([("a", "b")], keep=True),
    }
    with pytest.raises(StorageFailed, match=r"the storage stuck://data/\w cannot be used: no answer in 0.2 s"):
        calls.get(call, lambda: getattr(files, call)("a"))()


def project(folder: Path, address: str) -> Path:
    (folder / "servo.toml").write_text(SETTINGS.format(address=address))
    (folder / "definitions.py").write_text(DEFINITIONS)
    return folder


def processes_of(folder: Path) -> list[str]:
    """The command lines of processes that run in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "cwd").resolve() == folder.resolve():
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}


def servo(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "servo", *args],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=2 * GENEROUS,
        check=False,
    )


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_a_command_says_so_before_anything_is_asked_for_and_leaves_nothing_behind(
    tmp_path: Path, silent: str, kind: str
) -> None:
    who = "anonymous@" if kind == "gs" else ""
    folder = project(tmp_path, f"{kind}://{who}bucket/data?endpoint_override={silent}&scheme=http")
    done = servo(folder, "materialize", "orders")
    assert done.returncode == 1, done
    [line] = done.stderr.splitlines()
    assert line.startswith(f"servo: the storage {kind}://{who}bucket/data cannot be used: "), line
    assert processes_of(folder) == []
    assert "run_" not in servo(folder, "run", "list", "--json").stdout, "no run was asked for"


def test_a_worker_stuck_in_a_call_to_its_store_ends_with_its_command(tmp_path: Path) -> None:
    """The one that started it is killed, so that nobody tells it to end; and the limit is as good as none."""
    with closing(socket.create_server(("127.0.0.1", 0))) as silent, ExitStack() as connections:
        silent.settimeout(2 * GENEROUS)
        address = f"gs://anonymous@bucket/data?endpoint_override=127.0.0.1:{silent.getsockname()[1]}&scheme=http"
        folder = project(tmp_path, address)
        (folder / "definitions.py").write_text(DEFINITIONS.replace("...", "return context.spark.range(3)"))
        said = folder / "said.log"
        with said.open("wb") as sink:
            up = subprocess.Popen(
                [sys.executable, "-m", "servo", "up", "--port", "0"],
                cwd=folder,
                env=environment() | {"SERVO_STORAGE_TIMEOUT_SECONDS": "3600"},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )
        try:
            until(lambda: "up at" in said.read_text())
            asked = servo(folder, "materialize", "orders", "--no-wait")
            assert asked.returncode == 0, asked
            connections.enter_context(closing(silent.accept()[0]))  # somebody asks the store, and is not answered
        finally:
            up.send_signal(signal.SIGKILL)
            up.wait(600)
        until(lambda: processes_of(folder) == [])


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 2 * GENEROUS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_doctor_knows_which_connector_spark_lacks(tmp_path: Path) -> None:
    folder = project(tmp_path, "s3a://bucket/data")
    assert missing_connector(load_settings(folder, {}), {}) == ("org.apache.hadoop:hadoop-aws", "hadoop-aws-*.jar")
    remote = load_settings(folder, {"SERVO_SPARK_REMOTE": "sc://somewhere:15002"})
    assert missing_connector(remote, {}) is None, "a Connect server has JARs of its own"
    (folder / "jars").mkdir()
    (folder / "jars" / "hadoop-aws-3.5.0.jar").touch()
    assert missing_connector(load_settings(folder, {}), {"SPARK_HOME": str(folder)}) is None
    (folder / "servo.toml").write_text('storage = "s3a://b/x"\n[spark.conf]\n"spark.jars.packages" = "a:b:1"\n')
    assert missing_connector(load_settings(folder, {}), {}) is None


def test_doctor_finds_a_store_that_does_not_answer(tmp_path: Path, silent: str) -> None:
    folder = project(tmp_path, f"s3a://bucket/data?endpoint_override={silent}&scheme=http")
    [check] = storage(load_settings(folder, {}), {})
    assert (check.name, check.level) == ("storage", "problem")
    assert check.detail.startswith("the storage s3a://bucket/data cannot be used")
    assert list(storage(load_settings(folder, {"SERVO_STORAGE": str(folder)}), {})) == []

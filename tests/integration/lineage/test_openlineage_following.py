"""The follower against a real HTTP server: everything is told at least once, and a server that is away stops nobody."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from servo.events import Proposal
from servo.events.model import TaskStarted
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.processes.workplace import controlling
from servo.runtime.telemetry import openlineage as sender_module
from servo.runtime.telemetry.openlineage import openlineage_sender


class Server:
    """Keeps what it is sent, and answers what it is told to."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str | None, dict[str, Any]]] = []
        self.answers: list[int] = []
        self._http: ThreadingHTTPServer | None = None
        self.port = 0

    @contextmanager
    def up(self) -> Iterator[str]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                code = outer.answers.pop(0) if outer.answers else 201
                if code < 300:
                    outer.got.append((self.path, self.headers.get("Authorization"), body))
                self.send_response(code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        http = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = http.server_address[1]
        thread = Thread(target=http.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            http.shutdown()
            http.server_close()
            thread.join()

    def attempts(self) -> list[int]:
        return [body["run"]["facets"]["servo"]["attempt"] for _, _, body in self.got]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    (tmp_path / "servo.toml").write_text("namespace = 'shop'\n")
    with open_workspace(load_settings(tmp_path, {}), create=True) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(sender_module, "_LONGEST_PAUSE", 0.2)


def starts(project: Project, *attempts: int) -> None:
    for attempt in attempts:
        fact = TaskStarted(
            run_id="run_1", task_key="shop/a", attempt=attempt, asset_id="id", asset_key="shop/a", partition_count=1
        )
        project.ledger.append([Proposal(fact=fact, occurred_at=project.clock(), actor="worker:w")])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_happens_is_told_from_the_first_day_on_and_never_forgotten(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    starts(project, 1)  # before it was ever switched on
    with server.up() as url:
        variables = {"OPENLINEAGE_URL": f"{url}/", "OPENLINEAGE_API_KEY": "s3cret", "OPENLINEAGE_NAMESPACE": "mine"}
        with openlineage_sender(project, variables):
            starts(project, 2, 3)
        # What had just happened was told before it ended; a second time, it goes on where it left off.
        assert server.attempts() == [2, 3]
        path, authorization, body = server.got[0]
        assert (path, authorization, body["job"]["namespace"]) == ("/api/v1/lineage", "Bearer s3cret", "mine")
        starts(project, 4)
        with openlineage_sender(project, variables):
            until(lambda: server.attempts() == [2, 3, 4])
            # One process at a time tells of a workspace.
            with openlineage_sender(project, variables):
                starts(project, 5)
                until(lambda: server.attempts() == [2, 3, 4, 5])
    # Away: nothing waits for it, and it is said once.
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="servo.runtime.telemetry.openlineage"):
        with openlineage_sender(project, variables):
            starts(project, 6, 7)
            time.sleep(0.5)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "is away" in caplog.text
        assert "s3cret" not in caplog.text
        with server.up(), openlineage_sender(project, variables):
            until(lambda: server.attempts() == [2, 3, 4, 5, 6, 7])


def test_a_server_in_trouble_is_tried_again_and_what_it_refuses_is_left_out(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    server.answers = [503, 429, 201, 422, 302, 201]
    with (
        server.up() as url,
        caplog.at_level(logging.INFO, logger="servo.runtime.telemetry.openlineage"),
        openlineage_sender(project, {"OPENLINEAGE_URL": url}),
    ):
        starts(project, 1, 2, 3, 4)
        until(lambda: server.attempts() == [1, 4])
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in told] == ["WARNING", "INFO", "WARNING"]
    assert "503" in told[0][1]
    assert "refuses an event with 422" in told[2][1]
    assert server.got[0][1] is None, "without a key, none is sent"


@pytest.mark.parametrize("variables", [{}, {"OPENLINEAGE_URL": ""}, {"OPENLINEAGE_URL": "file:///etc/passwd"}])
def test_nothing_is_told_where_no_server_is_set(project: Project, variables: dict[str, str]) -> None:
    with openlineage_sender(project, variables) as follower:
        starts(project, 1)
    assert follower is None
    assert not (project.settings.home / "openlineage").exists()


def test_the_embedded_control_plane_tells_where_a_server_is_set(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    with server.up() as url:
        with controlling(project):
            starts(project, 1)
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        with controlling(project):
            starts(project, 2)
    assert server.attempts() == [2]

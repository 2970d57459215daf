"""Two servers on one PostgreSQL, each with projections of its own: they know the same tokens and say the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from servo.api.serving import serving
from servo.ledger.leases import Holder
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.maintenance import Maintenance
from servo.runtime.tokens import Tokens

pytest_plugins = ("tests.contract.fixtures",)

ME = "person:alice"


class _Nothing:
    def __call__(self, *args: Any, **kwargs: Any) -> None: ...


class Pair:
    def __init__(self, address: str, projects: list[Project], urls: list[str]) -> None:
        self.address, self.projects, self.urls = address, projects, urls

    def get(self, server: int, path: str, token: str) -> httpx.Response:
        return httpx.get(f"{self.urls[server]}{path}", headers={"Authorization": f"Bearer {token}"}, timeout=60)


@pytest.fixture
def pair(tmp_path: Path, new_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    address = new_database()
    monkeypatch.setenv("SERVO_SECRET", "one for both machines")
    with ExitStack() as stack:
        projects, urls = [], []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            settings = load_settings(tmp_path / name, {"SERVO_LEDGER": address})
            project = stack.enter_context(open_workspace(settings, create=True))
            if not projects:
                Tokens(project).create("first", "admin", actor=ME)
            served = stack.enter_context(
                serving(project, user_code=_Nothing(), driver=_Nothing(), host="0.0.0.0", port=0)  # type: ignore[arg-type]
            )
            projects.append(project)
            urls.append(f"http://127.0.0.1:{served.port}")
        yield Pair(address, projects, urls)


def test_a_token_is_known_to_both_at_once_and_to_neither_soon_after_its_end(pair: Pair) -> None:
    token = Tokens(pair.projects[0]).create("ci", "viewer", actor=ME).token
    assert [pair.get(server, "/readyz", token).status_code for server in (1, 0, 1)] == [200, 200, 200]
    Tokens(pair.projects[1]).revoke("ci", actor=ME)
    ended = time.monotonic()
    while any(pair.get(server, "/readyz", token).status_code != 401 for server in (0, 1)):
        assert time.monotonic() - ended < 60


def test_a_stream_ends_with_its_token(pair: Pair) -> None:
    token = Tokens(pair.projects[0]).create("ci", "viewer", actor=ME).token
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{pair.urls[0]}/api/v1/orchestration/events"
    with httpx.stream("GET", url, headers=headers, timeout=60) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "retry: 1000"
        Tokens(pair.projects[1]).revoke("ci", actor=ME)
        while pair.get(0, "/readyz", token).status_code != 401:
            time.sleep(0.05)
        Tokens(pair.projects[1]).create("afterwards", "viewer", actor=ME)
        assert "afterwards" not in "".join(lines), "it was told what its token is no longer good for"


def test_they_say_the_same(pair: Pair) -> None:
    token = Tokens(pair.projects[0]).create("ci", "viewer", actor=ME).token
    pair.projects[0].leases.beat(Holder.here("control", pair.projects[0].mint()), 60.0)
    Maintenance(pair.projects[1]).compact()  # its own projections: the other's are behind
    own = ("servo_http", "servo_ledger_append", "servo_ledger_dup", "servo_proj", "servo_comp", "process_", "#")
    figures = [
        [line for line in pair.get(server, "/metrics", token).text.splitlines() if not line.startswith(own)]
        for server in (0, 1)
    ]
    assert figures[0] == figures[1]
    assert "servo_ledger_events_total 2.0" in figures[0]
    ready = [pair.get(server, "/readyz", token).json() for server in (0, 1)]
    assert [one["status"] for one in ready] == ["ready", "ready"]
    assert [one["checks"][1]["detail"].split(",")[0] for one in ready] == ["2 events", "0 events"]


def test_a_database_that_takes_no_writes_is_not_ready(pair: Pair) -> None:
    token = Tokens(pair.projects[0]).create("ci", "viewer", actor=ME).token
    assert pair.get(0, "/readyz", token).status_code == 200
    database = pair.address.split("/")[3].split("?")[0]
    with psycopg.connect(pair.address, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
            (database,),
        )
    deadline = time.monotonic() + 30
    while (answer := pair.get(0, "/readyz", token)).status_code != 503:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)
    assert httpx.get(f"{pair.urls[0]}/healthz").status_code == 200

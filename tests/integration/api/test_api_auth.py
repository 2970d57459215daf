"""Who may ask what: a running `servo up` that listens to everybody, and every route × every kind of caller."""

from __future__ import annotations

import inspect
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from litestar import Litestar
from litestar.handlers import BaseRouteHandler

from servo.api.app import PREFIX, create_app
from servo.api.auth import is_public, least_role
from servo.api.problems import PROBLEM_JSON
from servo.api.serving import serving
from servo.errors import InvalidSettings
from servo.events import Proposal
from servo.events.definitions import Source
from servo.events.model import RunRequested
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.tokens import Role, Tokens

PATIENCE = 60.0
ME = "person:alice"
FOREIGN = "umbrella"  # in every name of the other tenant: it must not be heard of here
ROLES = ("viewer", "operator", "approver", "admin")
STRANGERS = ("nobody", "wrong", "other tenant", "other workspace", "expired", "revoked", "other scheme", "two headers")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class Route(NamedTuple):
    method: str
    path: str
    least: Role
    public: bool

    @property
    def url(self) -> str:
        """With something in the place of every parameter, of its type."""
        return re.sub(r"\{[^}:]+(?::([a-z]+))?\}", lambda found: "1" if found[1] == "int" else "umbrage", self.path)


def app_of(project: Project) -> Litestar:
    """The application, for a look at its routes: whatever else it is made of is not asked for anything."""
    asked = [one for one in inspect.signature(create_app).parameters.values() if one.default is one.empty]
    return create_app(project, *(_Nothing() for _ in asked[1:]))


class _Nothing:
    def __call__(self, *args: Any, **kwargs: Any) -> None: ...


def routes_of(app: Litestar) -> list[Route]:
    found: dict[tuple[str, str], Route] = {}
    for route in app.routes:
        handlers: list[BaseRouteHandler] = getattr(route, "route_handlers", [])
        for handler in handlers:
            for method in sorted(getattr(handler, "http_methods", ())):
                if method in METHODS:
                    public = is_public(handler)
                    least = Role.viewer if public else least_role(handler, method)
                    one = Route(str(method), route.path_format, least, public)
                    found[one.method, one.path] = one
    return list(found.values())


def begin(folder: Path) -> None:
    """A project of one asset."""
    (folder / "servo.toml").write_text("")
    (folder / "definitions.py").write_text("import servo\n\n\n@servo.asset\ndef orders(context):\n    return None\n")


@contextmanager
def up(folder: Path, *options: str, **environ: str) -> Iterator[tuple[str, Path]]:
    """A server process: where it is, and where its log goes."""
    log = folder / "up.log"
    command = [sys.executable, "-m", "servo", "up", "--workers", "0", "--port", "0", "--json", *options]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=folder, env={**kept, **environ}, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said, log.read_text()
        yield json.loads(said)["url"].replace("0.0.0.0", "127.0.0.1"), log
    finally:
        process.terminate()
        code = process.wait(PATIENCE)
        process.stdout.close()
    assert code == 0, log.read_text()


class House:
    def __init__(self, folder: Path, url: str, log: Path, project: Project, tokens: dict[str, str]) -> None:
        self.folder, self.url, self.log, self.project, self.tokens = folder, url, log, project, tokens
        self.client = httpx.Client(base_url=url, timeout=PATIENCE)

    def headers(self, who: str) -> list[tuple[str, str]]:
        if who == "nobody":
            return []
        if who == "other scheme":
            return [("Authorization", f"Basic {self.tokens['admin']}")]
        if who == "two headers":
            return [("Authorization", f"Bearer {self.tokens['admin']}")] * 2
        return [("Authorization", f"Bearer {self.tokens[who]}")]

    def ask(self, method: str, path: str, who: str, **how: Any) -> httpx.Response:
        """The answer; of one that goes on for ever only its beginning."""
        if method != "GET" and "content" not in how and "json" not in how:
            how["json"] = {}
        headers = [*self.headers(who), ("Idempotency-Key", f"{who}-{method}-{path}"[:100])]
        with self.client.stream(method, path, headers=headers, **how) as answer:
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                answer.read()
        return answer


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    begin(folder)
    tokens = {"wrong": "servo_" + "A" * 43}
    for who, place in {
        "other tenant": {"SERVO_TENANT": FOREIGN},
        "other workspace": {"SERVO_WORKSPACE": FOREIGN},
    }.items():
        with open_workspace(load_settings(folder, place), create=True) as other:
            tokens[who] = Tokens(other).create(f"{FOREIGN}-bot", "admin", actor=ME).token
            fact = RunRequested(
                run_id=f"run_{FOREIGN}",
                run_key=f"manual:{FOREIGN}",
                request_fingerprint="f",
                asset_selection=[f"{FOREIGN}/orders"],
                source=Source(kind="manual", id=FOREIGN),
            )
            other.ledger.append([Proposal(fact=fact, occurred_at=other.clock(), actor=FOREIGN)])
    with open_workspace(load_settings(folder, {}), create=True) as project:
        made = Tokens(project)
        tokens |= {role: made.create(role, role, actor=ME).token for role in ROLES}
        tokens["revoked"] = made.create("revoked", "admin", actor=ME).token
        made.revoke("revoked", actor=ME)
        tokens["expired"] = made.create("expired", "admin", lives=timedelta(milliseconds=1), actor=ME).token
        with up(folder, "--host", "0.0.0.0") as (url, log):
            house = House(folder, url, log, project, tokens)
            with house.client:
                yield house


# ── every route ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("who", STRANGERS)
def test_strangers_are_refused_everywhere(house: House, who: str) -> None:
    routes = routes_of(app_of(house.project))
    assert len(routes) >= 5
    before = house.project.ledger.head().position
    for route in routes:
        answer = house.ask(route.method, route.url, who)
        if route.public:
            assert answer.status_code == 200, route
            continue
        assert answer.status_code == 401, (route, answer.text)
        assert answer.headers["www-authenticate"].startswith("Bearer"), route
        assert answer.headers["content-type"] == PROBLEM_JSON
        assert answer.json()["code"] == "unauthorized"
        assert FOREIGN not in answer.text
    assert house.project.ledger.head().position == before


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_it_may_and_nothing_else(house: House, role: str) -> None:
    before = house.project.ledger.head().position
    for route in routes_of(app_of(house.project)):
        answer = house.ask(route.method, route.url, role)
        if Role[role] >= route.least:
            assert answer.status_code not in (401, 403), (route, answer.text)
            assert answer.status_code < 500 or answer.status_code == 503, (route, answer.text)
        else:
            assert answer.status_code == 403, (route, answer.text)
            assert answer.json()["code"] == "not-allowed"
            assert route.least.name in answer.json()["detail"]
    if role == "viewer":
        assert house.project.ledger.head().position == before


def test_what_is_not_public_says_so_by_being_few() -> None:
    with open_workspace(load_settings(Path.cwd(), {"SERVO_LEDGER": "memory:"})) as project:
        routes = routes_of(app_of(project))
    assert {route.path for route in routes if route.public} == {"/healthz", "/docs", "/schema/openapi.json"}
    # Questions that do not fit into an address; they write nothing.
    asked = {
        route.path.removeprefix(PREFIX) for route in routes if route.method != "GET" and route.least < Role.operator
    }
    assert asked == {"/audit/verify", "/backfills/preview", "/plan"}


def test_whether_a_token_is_anothers_cannot_be_told(house: House) -> None:
    """Not by the answer, and not by its headers."""
    answers = [
        house.ask("GET", "/readyz", who) for who in ("wrong", "other tenant", "other workspace", "revoked", "expired")
    ]
    bodies = {answer.text for answer in answers}
    heads = {tuple(name for name in answer.headers if name != "date") for answer in answers}
    assert (len(bodies), len(heads)) == (1, 1)


def test_things_of_others_are_not_there(house: House) -> None:
    for path in (f"{PREFIX}/runs/run_{FOREIGN}", f"{PREFIX}/runs/run_{FOREIGN}/tasks"):
        answer = house.ask("GET", path, "admin")
        never = house.ask("GET", path.replace(FOREIGN, "nowhere1"), "admin")
        assert (answer.status_code, never.status_code) == (404, 404)
        assert answer.text.replace(FOREIGN, "nowhere1") == never.text


def test_nothing_of_others_is_in_metrics_or_logs(house: House) -> None:
    answer = house.ask("GET", "/metrics", "viewer")
    assert answer.status_code == 200
    assert FOREIGN not in answer.text
    said = house.log.read_text()
    assert FOREIGN not in said
    assert not [who for who, token in house.tokens.items() if token in said or token[6:] in said]


# ── tokens that come and go ──────────────────────────────────────────────────────────────────────────────────────


def test_a_token_works_at_once_and_not_for_long_after_its_end(house: House) -> None:
    tokens = Tokens(house.project)
    minted = tokens.create("passing", "viewer", actor=ME)
    house.tokens["passing"] = minted.token
    assert house.ask("GET", "/readyz", "passing").status_code == 200
    tokens.revoke("passing", actor=ME)
    ended = time.monotonic()
    while house.ask("GET", "/readyz", "passing").status_code == 200:
        assert time.monotonic() - ended < 60
    assert house.ask("GET", "/readyz", "viewer").status_code == 200


@pytest.mark.parametrize(
    "header",
    [b"", b"Bearer", b"Bearer ", b"bearer\tx", b"Bearer " + b"x" * 7000, b"Bearer \xff\xfe", b"Bearer a b", b"Token x"],
)
def test_hostile_headers_are_refused(house: House, header: bytes) -> None:
    where = httpx.URL(house.url)
    with socket.create_connection((where.host, where.port or 0), timeout=PATIENCE) as wire:
        wire.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\nAuthorization: " + header + b"\r\n\r\n")
        assert wire.recv(100).split()[1] in (b"400", b"401")
    assert house.client.get("/healthz").status_code == 200


# ── where it listens ─────────────────────────────────────────────────────────────────────────────────────────────


def test_who_listens_to_others_must_have_a_token(tmp_path: Path) -> None:
    with open_workspace(load_settings(tmp_path, {}), create=True) as project:
        tokens = Tokens(project)
        tokens.create("gone", "admin", actor=ME)
        tokens.revoke("gone", actor=ME)
        with (
            pytest.raises(InvalidSettings, match="demands tokens, and there are none") as problem,
            serving(project, user_code=_Nothing(), driver=_Nothing(), host="0.0.0.0", port=0),  # type: ignore[arg-type]
        ):
            pass
        assert "servo token create" in str(problem.value.hint)


def test_over_loopback_no_token_is_needed_and_a_bad_one_is_refused(tmp_path: Path) -> None:
    begin(tmp_path)
    with open_workspace(load_settings(tmp_path, {}), create=True) as project:
        viewer = Tokens(project).create("viewer", "viewer", actor=ME).token
    with up(tmp_path) as (url, _):
        tick = f"{url}{PREFIX}/internal/tick"
        assert httpx.post(tick, timeout=PATIENCE).status_code == 200  # also where there are tokens
        assert httpx.get(f"{url}/readyz", headers={"Authorization": "Bearer servo_x"}).status_code == 401
        mine = {"Authorization": f"Bearer {viewer}"}
        assert httpx.get(f"{url}/readyz", headers=mine).status_code == 200
        assert httpx.post(tick, headers=mine, timeout=PATIENCE).status_code == 403
        # A page that had its own name point here, or that sends from its own place, is no program of this machine.
        assert httpx.get(f"{url}/readyz", headers={"Host": "evil.example"}).status_code == 421
        assert httpx.get(f"{url}/readyz", headers={"Origin": "https://evil.example"}).status_code == 403
        # With a token it may come by way of a proxy.
        assert httpx.get(f"{url}/readyz", headers={**mine, "Host": "servo.example"}).status_code == 200

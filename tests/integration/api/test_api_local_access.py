"""Who may use a server on a loopback address: not pages of other origins, and not other users of the machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from servo.api import peers
from servo.api.peers import Peer, may_act_without_token
from servo.api.serving import serving
from servo.cli.main import run as servo
from servo.client import Client
from servo.errors import NotAllowed
from servo.events.automation import SchedulePaused, ScheduleResumed, SensorEvaluated
from servo.events.model import RunRequested
from servo.local_server import announce, owner_token_for, owner_token_path
from servo.runtime.loop.driver import PassReport
from tests.support.served import PREFIX, House
from tests.support.served import house as make_house

STRANGER = 12345  # the id of a user of the machine who does not run the server
AS_ROOT = os.geteuid() == 0


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with make_house(tmp_path_factory.mktemp("shop")) as found:
        yield found


def own(house: House) -> str:
    return f"127.0.0.1:{house.served.port}"


def changes(house: House) -> int:
    """How many events there are that requests have written, and not those who work on them."""
    kinds = {kind.event_type for kind in (RunRequested, SensorEvaluated, SchedulePaused, ScheduleResumed)}
    return sum(event.event_type in kinds for event in house.project.history.events())


# ── pages of other origins ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost:3000",
        "http://127.0.0.1:3000",
        "http://localhost:{port}",  # another origin than 127.0.0.1, to which this is sent
        "https://127.0.0.1:{port}",
        "http://127.0.0.1",
        "http://127.0.0.1:{port}/x",
        "http://127.0.0.1:{port}.evil.example",
        "https://evil.example",
        "null",
        "",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_page_of_another_origin_can_neither_act_nor_read(house: House, origin: str, method: str) -> None:
    before = changes(house)
    headers = {"Origin": origin.format(port=house.served.port), "Idempotency-Key": f"{origin}{method}"}
    for content_type in (None, "text/plain", "application/json"):
        headers |= {} if content_type is None else {"Content-Type": content_type}
        content = b'{"select": ["totals"]}' if method == "POST" else None
        answer = house.client.request(method, "/runs", content=content, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "foreign-origin")
        assert "own pages" in answer.json()["detail"]
    assert changes(house) == before


def test_the_servers_own_pages_and_programs_may_act(house: House) -> None:
    body = {"select": ["totals"]}
    for headers in (
        {"Origin": f"http://{own(house)}", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {},
    ):
        assert house.send("/runs", body, headers=headers).status_code == 202
    there = {"Origin": f"http://localhost:{house.served.port}", "Host": f"localhost:{house.served.port}"}
    assert house.send("/runs", body, headers=there).status_code == 202
    # By way of a forwarded port, the page and the place it asks are still one.
    forwarded = {"Origin": "http://localhost:9000", "Host": "localhost:9000"}
    assert house.send("/runs", body, headers=forwarded).status_code == 202


@pytest.mark.parametrize("site", ["cross-site", "same-site"])  # the latter: another port of localhost
def test_what_the_browser_says_of_the_page_counts_too(house: House, site: str) -> None:
    before = changes(house)
    assert house.send("/runs", {"select": ["totals"]}, headers={"Sec-Fetch-Site": site}).status_code == 403
    assert house.client.get("/runs", headers={"Sec-Fetch-Site": site}).status_code == 403
    framed = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    assert house.client.get("/runs", headers=framed).status_code == 403
    followed = framed | {"Sec-Fetch-Dest": "document"}
    assert house.client.get("/runs", headers=followed).status_code == 200  # a link that a person followed
    assert house.send("/runs", {"select": ["totals"]}, headers=followed).status_code == 403
    assert changes(house) == before


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:{port}", "localhost.", "@"])
def test_a_name_that_was_made_to_point_here_is_refused(house: House, host: str) -> None:
    answer = house.client.get("/runs", headers={"Host": host.format(port=house.served.port)})
    assert (answer.status_code, answer.json()["code"]) == (421, "misdirected-request")


def test_nothing_is_said_that_lets_other_origins_read(house: House) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answers = [house.client.options("/runs", headers=asked), house.client.get("/runs", headers=asked)]
    answers += [house.client.get("/runs"), house.client.get(f"http://{own(house)}/healthz", headers=asked)]
    assert not [name for answer in answers for name in answer.headers if name.startswith("access-control")]


def test_a_change_needs_a_declared_type_unless_nothing_is_sent(house: House) -> None:
    before = changes(house)
    for content_type in (None, "", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"):
        headers = {"Idempotency-Key": house.key()} | ({} if content_type is None else {"Content-Type": content_type})
        answer = house.client.post("/runs", content=b'{"select": ["totals"]}', headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported-media-type"), content_type
        assert "Content-Type: application/json" in answer.json()["hint"]
    assert changes(house) == before
    assert house.client.post("/schedules/nightly/pause").status_code == 202  # as `curl -X POST` sends it
    declared = {"Content-Type": "application/json; charset=utf-8"}
    assert house.client.post("/schedules/nightly/resume", content=b"{}", headers=declared).status_code == 202


def test_messages_come_from_servers_in_all_their_types(house: House) -> None:
    data = json.dumps({"day": "2025-01-04"})
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": json.loads(data)}
    sent: list[tuple[dict[str, str], bytes]] = [
        ({"Content-Type": "application/cloudevents+json"}, json.dumps(event).encode()),
        ({"Content-Type": "text/plain", "ce-specversion": "1.0", "ce-id": "2", "ce-source": "/s", "ce-type": "t"}, b""),
        (
            {"Content-Type": "application/json"},
            json.dumps({"message": {"messageId": "3", "data": "eyJkYXkiOiAiMjAyNS0wMS0wNSJ9"}}).encode(),
        ),
    ]
    for headers, content in sent:
        assert house.client.post("/sensors/uploads/messages", headers=headers, content=content).status_code == 202
        before = changes(house)
        foreign = headers | {"Origin": "https://evil.example"}
        assert house.client.post("/sensors/uploads/messages", headers=foreign, content=content).status_code == 403
        assert changes(house) == before


# ── other users of the machine ───────────────────────────────────────────────────────────────────────────────────


class Served:
    """A server as somebody of another user meets it, whether or not the tests may change to another user."""

    def __init__(self, url: str, home: Path, passes: list[None]) -> None:
        self.url, self.home, self.passes = url, home, passes
        self.port = httpx.URL(url).port or 0

    def ask_as_stranger(self, method: str, path: str, *headers: str, body: str = "", hang_up: bool = False) -> str:
        """What the server answers to a process of another user; nothing, where that hangs up at once."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Connection: close"]
        lines += [*headers, "Content-Type: application/json", f"Content-Length: {len(body)}", "", body]
        script = 'exec 3<>"/dev/tcp/127.0.0.1/$1"; printf %s "$2" >&3; ' + ("exec 3>&-" if hang_up else "cat <&3")
        command = ["/bin/bash", "-c", script, "ask", str(self.port), "\r\n".join(lines)]
        user: dict[str, Any] = {"user": STRANGER, "group": STRANGER, "extra_groups": []} if AS_ROOT else {}
        # A server that refuses a stranger may reset the connection before the shell has read its answer: ask again.
        for _ in range(20):
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd="/", **user)
            if done.returncode == 0 or done.stdout:
                break
        else:
            done.check_returncode()
        return done.stdout


@pytest.fixture
def served(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Root asks as another user. Whoever else runs the tests asks as themselves, and the server takes itself for
    another user's: the connection and the kernel's word about it are real either way."""
    assert peers._reliable_look() is peers._by_sock_diag
    if not AS_ROOT:
        monkeypatch.setattr("servo.api.serving.os.geteuid", lambda: STRANGER)
    project, passes = house.project, list[None]()

    def drive() -> PassReport:
        passes.append(None)
        return PassReport()

    with serving(project, user_code=None, driver=drive, port=0) as here:  # type: ignore[arg-type]
        yield Served(here.url, project.settings.home, passes)


def test_another_user_is_told_where_the_token_is_and_can_do_nothing(house: House, served: Served) -> None:
    before = changes(house)
    for method, path in (("GET", "/readyz"), ("GET", f"{PREFIX}/runs"), ("POST", f"{PREFIX}/runs")):
        body = '{"select": ["totals"]}' if method == "POST" else ""
        answer = served.ask_as_stranger(method, path, "Idempotency-Key: stranger", body=body)
        assert answer.startswith("HTTP/1.1 401 "), answer
        assert str(owner_token_path(served.home)) in answer
        assert "www-authenticate: Bearer" in answer
    assert served.ask_as_stranger("GET", "/healthz").startswith("HTTP/1.1 200 ")
    assert changes(house) == before


def test_a_socket_that_was_closed_at_once_is_not_taken_for_roots(served: Served) -> None:
    """The kernel lists a socket whose process has closed it under the user id 0."""
    for _ in range(20):
        served.ask_as_stranger("POST", f"{PREFIX}/internal/tick", hang_up=True)
    # Requests are answered in no order: only when these connections are over is nothing more to come.
    deadline = time.monotonic() + 60
    while any(f":{served.port:04X} " in line for line in half_closed()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert served.passes == []
    assert httpx.post(f"{served.url}{PREFIX}/internal/tick").status_code == (200 if AS_ROOT else 401)
    assert len(served.passes) == AS_ROOT


def half_closed() -> list[str]:
    """Connections whose other end has hung up and that the server has not closed yet."""
    return [line for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "08"]


def test_the_owners_token_opens_the_server_to_its_bearer(served: Served) -> None:
    path = owner_token_path(served.home)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    bearer = f"Authorization: Bearer {path.read_text().strip()}"
    assert served.ask_as_stranger("GET", f"{PREFIX}/runs", bearer).startswith("HTTP/1.1 200 ")
    answer = served.ask_as_stranger("POST", f"{PREFIX}/schedules/nightly/pause", bearer, body="{}")
    assert answer.startswith("HTTP/1.1 202 "), answer
    assert served.ask_as_stranger("GET", f"{PREFIX}/runs", bearer + "x").startswith("HTTP/1.1 401 ")


def test_the_command_line_and_the_client_find_the_owners_token(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the kernel does not tell whose a connection is, as on other systems than Linux."""
    monkeypatch.setattr(peers, "_reliable_look", lambda: None)
    for name in ("SERVO_TOKEN", "SERVO_HOME"):
        monkeypatch.delenv(name, raising=False)
    url, home = house.served.url, house.project.settings.home
    monkeypatch.setenv("SERVO_URL", url)
    announce(home, url)
    refused = httpx.get(f"{url}/readyz")
    assert refused.status_code == 401
    assert str(owner_token_path(home)) in refused.json()["detail"]
    folder = home.parent / "src"
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)  # anywhere in the project
    with Client() as client:
        assert client.ready()["status"]
        assert client.schedules.pause("nightly")
        assert client.schedules.resume("nightly")
    assert servo(["run", "list", "--json"]) == 0
    assert servo(["schedule", "pause", "nightly"]) == 0
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    with Client() as client, pytest.raises(NotAllowed) as problem:
        client.ready()
    assert str(owner_token_path(home)) in str(problem.value)
    assert servo(["run", "list"]) != 0
    assert str(owner_token_path(home)) in capsys.readouterr().err


def test_the_token_is_given_to_no_server_but_the_folders_own(tmp_path: Path) -> None:
    home = tmp_path / ".servo"
    owner_token_path(home).parent.mkdir(parents=True)
    owner_token_path(home).write_text("servo_x\n")
    announce(home, "http://127.0.0.1:8765")
    given = {
        url: owner_token_for(url, lambda: [home])
        for url in (
            "http://127.0.0.1:8765",
            "http://127.0.0.1:8765/",
            "127.0.0.1:8765",
            "http://localhost:8765",  # may be ::1, where anybody can listen
            "http://[::1]:8765",
            "http://127.0.0.1:8766",
            "http://127.0.0.2:8765",
            "https://127.0.0.1:8765",
            "http://evil.example:8765",
            "http://127.0.0.1@evil.example:8765",
            "http://[",
        )
    }
    assert [url for url, token in given.items() if token] == list(given)[:3]
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    (home / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:8765", "pid": ended.pid}))
    assert owner_token_for("http://127.0.0.1:8765", lambda: [home]) is None  # the port may be anybody's by now


@pytest.mark.parametrize(
    ("peer", "server", "may"),
    [(1000, 1000, True), (0, 1000, True), (0, 0, True), (1001, 1000, False), (1000, 0, False), (None, 0, False)],
)
def test_who_needs_no_token(peer: int | None, server: int, may: bool) -> None:
    assert may_act_without_token(peer, server) is may


@pytest.mark.parametrize("look", peers._LOOKS)
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_user_of_a_connection_is_known_while_it_is_open_and_not_after(
    family: socket.AddressFamily, look: peers._Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_reliable_look", lambda: look)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        asking = socket.socket(family, socket.SOCK_STREAM)
        asking.connect(("127.0.0.1" if family == socket.AF_INET else "::ffff:127.0.0.1", port))
        if AS_ROOT:
            os.fchown(asking.fileno(), STRANGER, -1)
        answering, client = listening.accept()
        with answering:
            server = answering.getsockname()
            owner = STRANGER if AS_ROOT else os.geteuid()
            assert Peer(client, server).uid() == owner
            asking.shutdown(socket.SHUT_WR)  # as clients do that have sent all and wait for the answer
            assert Peer(client, server).uid() == owner
            asking.close()
            assert Peer(client, server).uid() is None
            assert Peer(None, server).uid() is None
            assert Peer(("testclient", 50000), server).uid() is None


@pytest.mark.parametrize("look", peers._LOOKS)
def test_what_names_nobody_is_not_believed(look: peers._Look) -> None:
    """Some sandboxes list every socket as root's."""
    assert peers._names_users(look)
    assert not peers._names_users(lambda *_: (peers._Socket(10, 0, 1), peers._Socket(10, 0, 1)))
    assert not peers._names_users(lambda *_: (None, None))

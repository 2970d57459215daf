"""Messages over HTTP, to a real server on a real ledger."""

from __future__ import annotations

import json
import random
import socket
import sqlite3
import subprocess
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from threading import Event, Lock, Timer
from typing import Any

import httpx
import msgspec
import pytest

from servo.answers.automations import Accepted
from servo.api import inputs, slow_clients
from servo.api.problems import PROBLEM_JSON
from servo.api.serving import Served, serving
from servo.assets.evaluation import Message
from servo.errors import EnvironmentProblem, InvalidSettings, SensorNotFound
from servo.events import Proposal, decode
from servo.events.automation import SensorEvaluated
from servo.ledger import side_tables
from servo.ledger import sqlite as sqlite_ledger
from servo.runtime import Project, load_settings, open_workspace

NAME, SENSOR_ID = "orders", "01JHM3V8Q4N5R6S7T8V9W0X1Y2"
PREFIX = "/api/v1/orchestration"
PATIENCE = 300.0  # seconds; a wait ends as soon as what is waited for is so


class PassReport(msgspec.Struct, frozen=True, kw_only=True):
    ticks: int
    next_due: datetime | None = None


class Recorder:
    """The least that takes messages: one sensor, whose evaluations are recorded. `before` happens first."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.before: Callable[[str, Message], None] = lambda sensor, message: None

    def accept(self, sensor: str, message: Message, *, actor: str) -> Accepted:
        self.before(sensor, message)
        if sensor not in (NAME, SENSOR_ID):
            raise SensorNotFound(f"there is no sensor {sensor!r:.80}", hint="servo sensor list")
        now = self._project.clock()
        failed = message.attributes.get("fail")
        fact = SensorEvaluated(
            eval_id=f"{SENSOR_ID}:msg:{message.id}",
            sensor_id=SENSOR_ID,
            trigger="push",
            status="FAILED" if failed else "NO_DATA",
            message_id=message.id,
            reason=failed,
        )
        [receipt] = self._project.ledger.append([Proposal(fact=fact, occurred_at=now, actor=f"sensor:{NAME}")])
        return Accepted(
            eval_id=fact.eval_id,
            event_id=receipt.event_id,
            sensor_id=SENSOR_ID,
            status=fact.status,
            reason=fact.reason,
            run_keys=[],
            run_ids=[],
            duplicate=receipt.duplicate,
            accepted_at=now,
        )


class Passes:
    """Counts how many are at it at the same time."""

    def __init__(self) -> None:
        self.done = self.at_once = self.most = 0
        self._lock = Lock()

    def __call__(self) -> PassReport:
        with self._lock:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        time.sleep(0.05)
        with self._lock:
            self.at_once -= 1
            self.done += 1
        return PassReport(ticks=self.done)


class House:
    """The server, what is behind it, and a client."""

    def __init__(self, project: Project, recorder: Recorder, passes: Passes, served: Served) -> None:
        self.project, self.recorder, self.passes, self.served = project, recorder, passes, served
        self.client = httpx.Client(base_url=served.url, timeout=PATIENCE)

    def send(self, sent: Any = None, *, sensor: str = NAME, client: httpx.Client | None = None, **how: Any) -> Any:
        if sent is not None:
            how["json"] = sent
        return (client or self.client).post(f"{PREFIX}/sensors/{sensor}/messages", **how)

    def head(self) -> int:
        return self.project.ledger.head().position

    def evaluated(self) -> list[str]:
        """The ids of the messages in the ledger."""
        facts = [decode(event) for event in self.project.history.events()]
        return [str(fact.message_id) for fact in facts if isinstance(fact, SensorEvaluated)]

    def raw(self, *parts: bytes) -> socket.socket:
        wire = socket.create_connection((self.served.host, self.served.port), timeout=PATIENCE)
        for part in parts:
            wire.sendall(part)
        return wire

    def request_head(self, *lines: str) -> bytes:
        first = f"POST {PREFIX}/sensors/{NAME}/messages HTTP/1.1"
        return "\r\n".join([first, f"Host: 127.0.0.1:{self.served.port}", *lines, "", ""]).encode()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with open_workspace(load_settings(tmp_path, {}), create=True) as project:
        project.ledger.head()
        recorder, passes = Recorder(project), Passes()
        with serving(project, user_code=recorder, driver=passes, port=0) as served:
            house = House(project, recorder, passes, served)
            with house.client:
                yield house


def pushed(identity: str, data: bytes = b"{}", **attributes: str) -> dict[str, Any]:
    message = {"messageId": identity, "data": b64encode(data).decode(), "attributes": attributes}
    return {"message": message, "subscription": "projects/p/subscriptions/s"}


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM_JSON
    problem: dict[str, Any] = answer.json()
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"urn:servo:problem:{code}"
    assert problem["title"]
    assert problem["detail"]
    return problem


def heard(wire: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    parts = []
    try:
        while part := wire.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    finally:
        wire.close()
    return b"".join(parts)


# ── what is taken ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pubsub_message_is_acknowledged_when_it_is_in_the_ledger(house: House) -> None:
    answer = house.send(pushed("m1"))
    assert answer.status_code == 202
    body = answer.json()
    [event] = [event for event in house.project.history.events() if event.event_id == body["accepted_event_id"]]
    fact = decode(event)
    assert isinstance(fact, SensorEvaluated)
    assert body | {"accepted_at": ...} == {
        "accepted_event_id": event.event_id,
        "accepted_at": ...,
        "correlation_id": event.correlation_id,
        "duplicate": False,
        "eval_id": fact.eval_id,
        "sensor_id": SENSOR_ID,
        "status": "NO_DATA",
        "reason": None,
        "run_keys": [],
        "run_ids": [],
    }
    assert datetime.fromisoformat(body["accepted_at"]) == event.occurred_at


def test_the_same_message_again_is_the_same_event(house: House) -> None:
    first = house.send(pushed("m1")).json()
    for sensor in (NAME, SENSOR_ID):
        again = house.send(pushed("m1"), sensor=sensor)
        assert again.status_code == 200
        assert again.json()["accepted_event_id"] == first["accepted_event_id"]
        assert again.json()["duplicate"] is True
    assert house.evaluated() == ["m1"]


def test_a_cloud_event_is_the_same_in_both_modes(house: House) -> None:
    event = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "placed", "subject": "Köln", "data": {"n": 1}}
    structured = house.send(content=json.dumps(event), headers={"Content-Type": "application/cloudevents+json"})
    assert structured.status_code == 202
    seen: list[Message] = []
    house.recorder.before = lambda _, message: seen.append(message)
    ce = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/shop", "ce-type": "placed", "ce-subject": "K%C3%B6ln"}
    binary = house.send(content=b'{"n": 1}', headers=ce | {"Content-Type": "application/json"})
    assert (binary.status_code, binary.json()["duplicate"]) == (200, True)
    assert house.evaluated() == ["/shop#7"]
    [message] = seen
    assert (message.json(), message.attributes["subject"]) == ({"n": 1}, "Köln")


def test_a_failed_evaluation_is_acknowledged_too(house: House) -> None:
    # It is recorded: were it sent again, nothing else would come of it.
    answer = house.send(pushed("m1", fail="KeyError: 'date'"))
    assert answer.status_code == 202
    assert (answer.json()["status"], answer.json()["reason"]) == ("FAILED", "KeyError: 'date'")


def test_sixteen_clients_at_once_with_the_same_messages(house: House) -> None:
    identities = [f"m{number}" for number in range(100)]

    def client(number: int) -> Counter[tuple[str, int]]:
        chance = random.Random(number)
        mine = chance.sample(identities, 50)
        with httpx.Client(base_url=house.served.url, timeout=PATIENCE) as client:
            return Counter((one, house.send(pushed(one), client=client).status_code) for one in mine)

    with ThreadPoolExecutor(16) as pool:
        answers = sum(pool.map(client, range(16)), Counter[tuple[str, int]]())
    sent = {one for one, _ in answers}
    assert {status for _, status in answers} == {200, 202}
    assert [answers[one, 202] for one in sorted(sent)] == [1] * len(sent)
    assert answers.total() == 16 * 50
    assert sorted(house.evaluated()) == sorted(sent)


# ── what is refused: nothing is written ──────────────────────────────────────────────────────────────────────────

AS_JSON = {"Content-Type": "application/json"}
AS_EVENT = {"Content-Type": "application/cloudevents+json"}


@pytest.mark.parametrize(
    ("content", "headers", "field"),
    [
        (b"{", AS_JSON, "body"),
        (b"\xff\xfe", AS_JSON, "body"),
        (b'{"message": {"messageId": "1", "attributes": {"a": "\xff"}}}', AS_JSON, "body"),
        (b"[" * 200_000, AS_JSON, "body"),
        (b'{"message": {"data": ""}}', AS_JSON, "message.messageId"),
        (b'{"message": {"messageId": "1", "data": "?"}}', AS_JSON, "message.data"),
        (json.dumps(pushed("x" * 513)).encode(), AS_JSON, "message.messageId"),
        (json.dumps(pushed("1", bytes(256 * 1024 + 1))).encode(), AS_JSON, "message.data"),
        (b'{"specversion": "1.0", "source": "/", "type": "x"}', AS_EVENT, "id"),
        (b"[]", {"Content-Type": "application/cloudevents-batch+json"}, "content-type"),
        (b"x=1", {"Content-Type": "application/x-www-form-urlencoded"}, "content-type"),
        (b"{}", {}, "content-type"),
        (b"x", {"ce-id": "1"}, "specversion"),
        (b"x", {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/", "ce-type": "t", "ce-subject": "%FF"}, "ce-su"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_message_is_refused_by_the_name_of_the_field(
    house: House, content: bytes, headers: dict[str, str], field: str
) -> None:
    before = house.head()
    problem = refused(house.send(content=content, headers=headers), 400, "invalid-input")
    assert problem["detail"].startswith(field)
    assert "\n" not in problem["detail"]
    assert problem["hint"]
    assert house.head() == before


def test_headers_that_are_no_utf8_are_refused(house: House) -> None:
    head = house.request_head("ce-specversion: 1.0", "ce-id: 1", "Content-Length: 0", "Connection: close")
    answer = heard(house.raw(head.replace(b"ce-id: 1", b"ce-id: \xff\xfe")))
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"is not UTF-8" in answer


def test_an_unknown_sensor_is_not_found(house: House) -> None:
    before = house.head()
    refused(house.send(pushed("1"), sensor="nobody"), 404, "sensor-not-found")
    refused(house.send(pushed("1"), sensor="..%2F..%2Fetc%2Fpasswd"), 404, "not-found")
    refused(house.client.get(f"{PREFIX}/sensors/{NAME}/messages"), 405, "method-not-allowed")
    assert house.head() == before


def test_a_large_message_is_refused_by_what_it_announces(house: House) -> None:
    head = house.request_head("Content-Type: application/json", f"Content-Length: {100 << 20}")
    answer = heard(house.raw(head, b'{"message"'))  # the rest is never sent, and nobody waits for it
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"code":"content-too-large"' in answer
    assert house.head() == 0


def test_a_large_message_that_announces_nothing_is_refused_on_the_way(house: House) -> None:
    head = house.request_head("Content-Type: application/json", "Transfer-Encoding: chunked")
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    # One chunk more than is taken, and never an end.
    answer = heard(house.raw(head, chunk * (inputs.BODY_BYTES // 0x10000 + 1)))
    assert answer.startswith(b"HTTP/1.1 413")
    assert house.head() == 0
    assert house.send(pushed("after")).status_code == 202


def test_half_a_message_is_no_message(house: House) -> None:
    # Whatever is there of a binary event could be all of it, but for the length.
    ce = ["ce-specversion: 1.0", "ce-id: 1", "ce-source: /", "ce-type: t", "Content-Length: 10"]
    house.raw(house.request_head(*ce), b"half").close()
    assert house.send(pushed("after")).status_code == 202
    assert house.evaluated() == ["after"]


def test_endless_headers_are_refused(house: House) -> None:
    answer = heard(house.raw(house.request_head("X-Long: " + "x" * 200_000)))
    assert answer.startswith(b"HTTP/1.1 4")
    assert house.send(pushed("after")).status_code == 202


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Host": "evil.example"}, 421, "misdirected-request"),
        ({"Host": "localhost.evil.example:80"}, 421, "misdirected-request"),
        ({"Host": "["}, 421, "misdirected-request"),
        ({"Origin": "https://evil.example"}, 403, "foreign-origin"),
        ({"Origin": "null"}, 403, "foreign-origin"),
    ],
)
def test_pages_in_a_browser_cannot_send(house: House, headers: dict[str, str], status: int, code: str) -> None:
    refused(house.send(pushed("1"), headers=headers), status, code)
    refused(house.client.post(f"{PREFIX}/internal/tick", headers=headers), status, code)
    assert (house.head(), house.passes.done) == (0, 0)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8765", "LOCALHOST:80"])
def test_all_names_of_this_machine_are_taken(house: House, host: str) -> None:
    assert house.send(pushed("1"), headers={"Host": host, "Origin": f"http://{host}"}).status_code == 202


# ── trouble ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_while_the_ledger_is_locked_the_sender_is_told_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_ledger, "_BUSY_SECONDS", 0.2)
    monkeypatch.setattr(side_tables, "_LEDGER_BUSY_SECONDS", 0.2)
    with open_workspace(load_settings(tmp_path, {}), create=True) as project:
        project.ledger.head()
        with serving(project, user_code=Recorder(project), driver=Passes(), port=0) as served:
            house = House(project, Recorder(project), Passes(), served)
            blocker = sqlite3.connect(tmp_path / ".servo" / "ledger.db", isolation_level=None)
            blocker.execute("BEGIN IMMEDIATE")
            with house.client:
                answer = house.send(pushed("m1"))
                problem = refused(answer, 503, "ledger-unavailable")
                assert answer.headers["retry-after"] == "1"
                assert str(tmp_path) not in answer.text
                assert "locked" in problem["detail"]
                blocker.execute("ROLLBACK")
                blocker.close()
                assert house.send(pushed("m1")).status_code == 202
            assert house.evaluated() == ["m1"]


def test_what_nobody_foresaw_tells_nothing_of_the_inside(house: House, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("the password is 1234")

    house.recorder.before = broken
    answer = house.send(pushed("1"))
    refused(answer, 500, "internal-error")
    assert "1234" not in answer.text
    assert "Zero" not in answer.text
    assert "the password is 1234" in caplog.text


def test_a_slow_client_keeps_nobody_waiting_and_is_given_up(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "BODY_SECONDS", 3.0)
    head = house.request_head("Content-Type: application/json", "Content-Length: 100")
    slow = [house.raw(head, b'{"message"') for _ in range(50)]  # more than there are threads
    began = time.monotonic()
    assert house.send(pushed("meanwhile")).status_code == 202
    assert time.monotonic() - began < inputs.BODY_SECONDS
    for wire in slow:
        assert heard(wire).startswith(b"HTTP/1.1 408")
    assert house.evaluated() == ["meanwhile"]


def test_a_client_that_never_ends_its_headers_is_given_up(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_clients, "_HEAD_SECONDS", 0.3)
    begun, silent = house.raw(b"POST / HTTP/1.1\r\nHost: "), house.raw()
    assert heard(begun) == heard(silent) == b""
    # On a connection that has served a request already, too.
    used = house.raw(house.request_head("Content-Length: 0"))
    assert used.recv(65536).startswith(b"HTTP/1.1 400")
    used.sendall(b"POST / HTT")
    heard(used)


def test_a_sensor_that_hangs_leaves_the_others_their_turn(house: House) -> None:
    release = Event()
    house.recorder.before = lambda sensor, _: None if sensor == NAME else assert_released(release)

    def hang(number: int) -> int:
        with httpx.Client(base_url=house.served.url, timeout=PATIENCE) as client:
            return int(house.send(pushed(f"h{number}"), sensor=SENSOR_ID, client=client).status_code)

    with ThreadPoolExecutor(200) as pool:
        hanging = [pool.submit(hang, number) for number in range(200)]
        # As many as may wait for this sensor do; the others are told to come back.
        until(lambda: sum(one.done() for one in hanging) == 64)
        began = time.monotonic()
        assert [house.send(pushed(f"m{number}")).status_code for number in range(20)] == [202] * 20
        assert house.client.get("/readyz").status_code == 200
        assert time.monotonic() - began < PATIENCE / 2
        release.set()
        assert Counter(one.result() for one in hanging) == {202: 136, 429: 64}
    assert len(house.evaluated()) == 156


def assert_released(release: Event) -> None:
    assert release.wait(PATIENCE)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "never"
        time.sleep(0.02)


# ── passes, health ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tick_is_one_pass_and_one_at_a_time(house: House) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: house.client.post(f"{PREFIX}/internal/tick"), range(8)))
    assert {answer.status_code for answer in answers} == {200}
    assert sorted(answer.json()["ticks"] for answer in answers) == list(range(1, 9))
    assert answers[0].json().keys() == {"ticks", "next_due"}
    assert house.passes.most == 1


def test_health_and_readiness_tell_the_truth(tmp_path: Path) -> None:
    with (
        open_workspace(load_settings(tmp_path, {})) as project,  # there is no ledger, and nobody makes one
        serving(project, user_code=Recorder(project), driver=Passes(), port=0) as served,
        httpx.Client(base_url=served.url) as client,
    ):
        assert client.get("/healthz").json() == {"status": "alive"}
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json() == {
            "status": "unready",
            "checks": [{"name": "ledger", "ok": False, "problem": "ledger-not-found"}],
        }
        assert answer.headers["retry-after"]
        with open_workspace(project.settings, create=True) as other:
            other.ledger.head()
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (200, "degraded")  # nobody plans here


# ── serving ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_under_way_is_answered_when_the_server_ends(tmp_path: Path) -> None:
    with open_workspace(load_settings(tmp_path, {}), create=True) as project, ThreadPoolExecutor(4) as pool:
        project.ledger.head()
        recorder, at_it, release = Recorder(project), list[str](), Event()

        def slowly(_: str, message: Message) -> None:
            at_it.append(message.id)
            assert_released(release)

        recorder.before = slowly
        with serving(project, user_code=recorder, driver=Passes(), port=0) as served:
            url = f"{served.url}{PREFIX}/sensors/{NAME}/messages"
            answers = [pool.submit(httpx.post, url, json=pushed(f"m{n}"), timeout=PATIENCE) for n in range(4)]
            until(lambda: len(at_it) == 4)
            Timer(0.5, release.set).start()
        assert [answer.result().status_code for answer in answers] == [202] * 4
        assert served.problem is not None
        with pytest.raises(httpx.ConnectError):
            httpx.post(url, json=pushed("late"))
        assert project.ledger.head().position == 4


def test_an_idle_connection_does_not_hold_the_end_up(tmp_path: Path) -> None:
    with open_workspace(load_settings(tmp_path, {}), create=True) as project:
        with serving(project, user_code=Recorder(project), driver=Passes(), port=0) as served:
            kept = httpx.Client(base_url=served.url)
            assert kept.get("/healthz").status_code == 200
            silent = socket.create_connection((served.host, served.port))
            silent.sendall(b"POST / HTTP/1.1\r\n")
            began = time.monotonic()
        assert time.monotonic() - began < inputs.BODY_SECONDS
        kept.close()
        assert heard(silent) == b""


def test_a_body_that_does_not_come_is_given_up_when_the_server_ends(tmp_path: Path) -> None:
    with open_workspace(load_settings(tmp_path, {}), create=True) as project:
        with serving(project, user_code=Recorder(project), driver=Passes(), port=0, grace=1) as served:
            head = f"POST {PREFIX}/sensors/{NAME}/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
            silent = socket.create_connection((served.host, served.port))
            silent.sendall(head.encode())
            assert httpx.get(f"{served.url}/healthz").status_code == 200
            began = time.monotonic()
        assert time.monotonic() - began < inputs.BODY_SECONDS
        heard(silent)
        assert project.ledger.head().position == 0


def test_other_addresses_than_loopback_demand_tokens(tmp_path: Path) -> None:
    with open_workspace(load_settings(tmp_path, {}), create=True) as project:
        for host in ("0.0.0.0", "::", "192.0.2.1", "servo.example", ""):
            with (
                pytest.raises(InvalidSettings, match="demands tokens") as problem,
                serving(project, user_code=Recorder(project), driver=Passes(), host=host, port=0),
            ):
                pass
            assert problem.value.hint


def test_a_port_that_is_taken_is_another_ones_where_nobody_chose_it(house: House) -> None:
    taken = house.served.port
    with serving(house.project, user_code=house.recorder, driver=house.passes, port=taken, or_any_port=True) as other:
        assert other.port not in (0, taken)
        assert httpx.get(f"{other.url}/healthz").status_code == 200


def test_a_port_that_is_taken_is_said(house: House) -> None:
    with (
        pytest.raises(EnvironmentProblem, match=f"cannot listen at 127.0.0.1:{house.served.port}: Address already"),
        serving(house.project, user_code=house.recorder, driver=house.passes, port=house.served.port),
    ):
        pass


def test_the_settings_say_where(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "servo.toml").write_text(f'[server]\nhost = "localhost"\nport = {port}\n')
    with open_workspace(load_settings(tmp_path, {}), create=True) as project:
        for _ in range(2):  # the port is free again as soon as the server is gone
            with serving(project, user_code=Recorder(project), driver=Passes()) as served:
                assert served.url == f"http://localhost:{port}"
                assert served.problem is None
                assert httpx.get(f"{served.url}/healthz").status_code == 200
    with pytest.raises(InvalidSettings):
        load_settings(tmp_path, {"SERVO_SERVER_PORT": "65536"})


def test_only_who_serves_pays_for_the_server() -> None:
    program = "import servo, servo.cli.main, sys; print(*{'litestar', 'uvicorn', 'httpx', 'anyio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []

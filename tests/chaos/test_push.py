"""Messages from many senders while the server is killed: none is lost, and none counts twice."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from threading import Lock, Thread
from typing import Any

import pytest

from servo.events import decode
from servo.events.automation import SensorEvaluated
from servo.events.model import RunRequested
from tests.support.workshop import PATIENCE, Workshop, children, is_running, spark_workshop

MESSAGES = int(os.environ.get("SERVO_TEST_MESSAGES", "800"))  # more of them: when something here changes
DISTINCT = MESSAGES * 7 // 10
CLIENTS = 16
KILLS = 2
ENOUGH = 1200.0  # seconds, for all of it
DEFINITIONS = """
import servo


@servo.asset
def orders(context): ...


@servo.sensor(kind="push")
def placed(context):
    number = context.message.json()["number"]
    yield servo.RunRequest(select="orders", tags={"number": str(number)})
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with spark_workshop(tmp_path / "shop", DEFINITIONS) as shop:
        yield shop


class Server:
    """`servo up` without workers, killed and started again at the same port."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.family: set[int] = set()  # all processes that there ever were
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        process = self._shop.start("up", "--workers", "0", "--port", str(self.port))
        deadline = time.monotonic() + PATIENCE
        while not self._is_ready():
            assert process.poll() is None, self._shop.said()
            assert time.monotonic() < deadline, self._shop.said()
            time.sleep(0.05)
        return process

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5.0)
        with closing(connection), suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/readyz")
            with connection.getresponse() as answer:
                return answer.status == 200
        return False

    def kill_and_start(self) -> None:
        self.family |= {self._process.pid, *children(self._process.pid)}
        self._process.send_signal(signal.SIGKILL)
        assert self._process.wait() == -signal.SIGKILL
        self._process = self._started()

    def end(self) -> None:
        self.family |= {self._process.pid, *children(self._process.pid)}
        self._process.terminate()
        assert self._process.wait(PATIENCE) == 0, self._shop.said()


class Senders:
    """Clients that send each of their messages until it is acknowledged, and note what they were told."""

    def __init__(self, port: int, numbers: list[int]) -> None:
        self._port = port
        self._lock = Lock()
        self._deadline = time.monotonic() + ENOUGH
        self.told: dict[str, list[dict[str, Any]]] = defaultdict(list)  # by message, in the order of the answers
        self.acknowledged = 0
        self.turned_away = 0
        self.failures: list[BaseException] = []
        self._threads = [Thread(target=self._run, args=(numbers[first::CLIENTS],)) for first in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _run(self, numbers: list[int]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30.0)
        try:
            for number in numbers:
                told = self._until_acknowledged(connection, number)
                with self._lock:
                    self.told[f"m{number}"].append(told)
                    self.acknowledged += 1
        except BaseException as failure:  # noqa: BLE001 (it fails in the thread that waits)
            self.failures.append(failure)
        finally:
            connection.close()

    def _until_acknowledged(self, connection: http.client.HTTPConnection, number: int) -> dict[str, Any]:
        data = b64encode(json.dumps({"number": number}).encode()).decode()
        body = json.dumps({"message": {"messageId": f"m{number}", "data": data}, "subscription": "s"})
        while time.monotonic() < self._deadline:
            try:
                connection.request(
                    "POST",
                    "/api/v1/orchestration/sensors/placed/messages",
                    body,
                    {"Content-Type": "application/json"},
                )
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()  # and it opens again
                self._wait_a_little()
                continue
            if answer.status in (200, 202):
                told: dict[str, Any] = json.loads(text)
                assert (answer.status == 200) == told["duplicate"], told
                return told
            # Only what passes may be refused: a message that is sent again must be taken some time.
            assert answer.status in (429, 503), (answer.status, text)
            self._wait_a_little()
        raise AssertionError(f"m{number} was never acknowledged")

    def _wait_a_little(self) -> None:
        with self._lock:
            self.turned_away += 1
        time.sleep(0.05)

    def until(self, acknowledged: int) -> None:
        while self.acknowledged < acknowledged and not self.failures:
            assert time.monotonic() < self._deadline, f"{self.acknowledged} of {acknowledged}"
            time.sleep(0.01)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise self.failures[0]


def test_ten_thousand_messages_while_the_server_is_killed_twice(shop: Workshop) -> None:
    chance = Random(7)
    numbers = [*range(DISTINCT), *chance.choices(range(DISTINCT), k=MESSAGES - DISTINCT)]
    chance.shuffle(numbers)
    server = Server(shop)
    senders = Senders(server.port, numbers)
    try:
        for kill in range(KILLS):
            senders.until(MESSAGES * (kill + 1) // (KILLS + 1))
            server.kill_and_start()
    finally:
        senders.join()
    server.end()
    assert senders.acknowledged == MESSAGES
    assert senders.turned_away > 0, "nobody noticed that the server was killed"

    evaluations, requests = recorded(shop)
    wanted = {f"m{number}" for number in range(DISTINCT)}
    # Each message once, with one run.
    assert len(evaluations) == DISTINCT
    assert {fact.message_id for fact in evaluations.values()} == wanted
    assert {fact.status for fact in evaluations.values()} == {"TRIGGERED"}
    assert len(requests) == len({one.run_id for one in requests}) == len({one.run_key for one in requests}) == DISTINCT
    numbered = {one.run_key: one.tags["number"] for one in requests}
    for fact in evaluations.values():
        assert fact.run_keys == [f"sensor:{fact.sensor_id}:msg:{fact.message_id}"]
        assert fact.message_id == f"m{numbered[fact.run_keys[0]]}"

    # Whoever was told something was told what is so, every time the same.
    assert senders.told.keys() == wanted
    ids = {one.run_key: one.run_id for one in requests}
    for message, answers in senders.told.items():
        assert len({answer["accepted_event_id"] for answer in answers}) == 1
        assert evaluations[answers[0]["accepted_event_id"]].message_id == message
        for answer in answers:
            assert answer["run_ids"] == [ids[key] for key in answer["run_keys"]]
            assert answer["status"] == "TRIGGERED"
        # The answer to the first may have died with the server: then everybody was told of a duplicate.
        assert sum(not answer["duplicate"] for answer in answers) <= 1

    # Seen from outside, too.
    assert asked(shop, "SELECT count(*), count(DISTINCT message_id) FROM sensor_evals") == [DISTINCT, DISTINCT]
    assert asked(shop, "SELECT count(*), count(DISTINCT run_key) FROM runs") == [DISTINCT, DISTINCT]
    assert asked(shop, "SELECT count(*) FROM run_key_conflicts") == [0]
    verified = shop.servo("ledger", "verify")
    assert verified.returncode == 0, verified.stderr
    left = [pid for pid in server.family if is_running(pid)]
    assert not left, f"processes outlive the server: {left}"


def recorded(shop: Workshop) -> tuple[dict[str, SensorEvaluated], list[RunRequested]]:
    """The evaluations by event id, and the runs that were asked for."""
    evaluations, requests = {}, []
    for event in shop.project.history.events():
        fact = decode(event)
        if isinstance(fact, SensorEvaluated):
            evaluations[event.event_id] = fact
        elif isinstance(fact, RunRequested):
            requests.append(fact)
    return evaluations, requests


def asked(shop: Workshop, sql: str) -> list[Any]:
    [row] = shop.json("query", "--timeout", "120", sql)["rows"]
    return list(row)

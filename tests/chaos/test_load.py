"""A server under load that is told to end in the middle of it: what was acknowledged is there, and everything fits."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from servo.events import decode
from servo.events.model import RunRequested
from tests.support.traffic import DEFINITIONS, Ask, Heard, Traffic, answer_of, free_port, is_ready
from tests.support.workshop import PATIENCE, Workshop, spark_workshop

pytest_plugins = ("tests.contract.fixtures",)

ACCEPTED = int(os.environ.get("SERVO_TEST_ACCEPTED", "20"))  # requests; more of them: when something here changes
RATE = 25  # requests a second, on a machine that has other things to do; `make bench` finds the highest


class Server:
    """`servo up` without workers on a folder."""

    def __init__(self, place: Workshop) -> None:
        self.workshop, self.port = place, free_port()
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        process = self.workshop.start("up", "--workers", "0", "--port", str(self.port))
        self.workshop.until(lambda: is_ready(self.port) or process.poll() is not None, "the server is ready")
        assert process.poll() is None, self.workshop.said()
        return process

    def terminate(self) -> None:
        """Ask it to end, and wait until it has."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(PATIENCE) == 0, self.workshop.said()

    def start(self) -> None:
        self._process = self._started()

    def get(self, path: str) -> Any:
        status, said = answer_of(self.port, Ask(name=path, method="GET", path=path))
        assert status == 200, said
        return said


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workshop]:
    variables = {}
    if request.param == "postgresql":
        variables["SERVO_LEDGER"] = request.getfixturevalue("new_database")()
    with spark_workshop(tmp_path / "shop", DEFINITIONS, variables=variables) as found:
        yield found


def test_what_was_acknowledged_before_the_server_was_told_to_end_is_there_after_it_is_back(shop: Workshop) -> None:
    server = Server(shop)
    traffic = Traffic([server.port], rate=RATE, seconds=600).start()
    shop.until(lambda: len(traffic.heard.accepted) >= ACCEPTED, "they ask")
    server.terminate()  # with requests under way
    heard = traffic.join()
    assert heard.wrong == []

    server.start()
    all_there(shop, server, heard)
    # Who was left without an answer asks again, with the same key, and once more.
    for ask in heard.unanswered:
        (first, told), (again, told_again) = (answer_of(server.port, ask) for _ in range(2))
        assert first in (200, 202, 409), told
        assert again == (409 if first == 409 else 200), told_again
        assert {**told, "duplicate": True} == {**told_again, "duplicate": True}
    server.terminate()
    fits(shop)


def test_who_goes_from_one_server_to_another_finds_what_was_accepted(
    tmp_path: Path, new_database: Callable[[], str]
) -> None:
    shared = {"SERVO_LEDGER": new_database(), "SERVO_SECRET": "one for both machines"}
    with ExitStack() as stack:
        shops = [
            stack.enter_context(spark_workshop(tmp_path / name, DEFINITIONS, variables=shared))
            for name in ("one", "two")
        ]
        servers = [Server(place) for place in shops]
        # Each request goes to the other server than the one before; reads wait for what either has accepted last.
        traffic = Traffic([server.port for server in servers], rate=RATE, seconds=600).start()
        shops[0].until(
            lambda: len(traffic.heard.accepted) >= ACCEPTED and len(traffic.heard.seconds.get("GET run", ())) > 3,
            "they ask, and read what was accepted",
        )
        traffic.stop()
        heard = traffic.join()
        assert heard.wrong == []
        assert heard.unanswered == []
        for server in servers:
            all_there(shops[0], server, heard)
            server.terminate()
        for place in shops:
            fits(place)


def all_there(place: Workshop, server: Server, heard: Heard) -> None:
    """Every event that was acknowledged is in the ledger, and what it made is what the server shows."""
    events = {event.event_id: event for event in place.project.history.events()}
    for ask, said in heard.accepted:
        assert said["accepted_event_id"] is None or said["accepted_event_id"] in events, (ask, said)
    runs = {said["run_id"]: said for ask, said in heard.accepted if ask.name == "POST run"}
    for run_id, said in runs.items():
        event = events[said["accepted_event_id"]]
        fact = decode(event)
        assert isinstance(fact, RunRequested)
        assert (fact.run_id, fact.run_key) == (run_id, said["run_key"])
    # One run for each key, however often it was sent.
    assert len({said["run_key"] for said in runs.values()}) == len(runs)
    newest = max((said["accepted_event_id"] for _, said in heard.accepted if said["accepted_event_id"]), default=None)
    for run_id in sorted(runs)[:20]:
        shown = server.get(f"/runs/{run_id}?wait_for_event_id={newest}&timeout_ms=60000")
        assert shown["data"]["run_id"] == run_id


def fits(place: Workshop) -> None:
    """The chain of the ledger is whole, and its projections are what a replay makes of it."""
    verified = place.servo("ledger", "verify", "--json")
    assert verified.returncode == 0, verified.stderr
    compacted = place.servo("ledger", "compact")
    assert compacted.returncode == 0, compacted.stderr
    replayed = place.servo("ledger", "replay", "--check", "--json")
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr

"""What many clients ask of a server at once: mostly reads, and writes of every kind, each with a key of its own.

Requests leave by the clock and not when the one before was answered, so a server that stalls is seen to stall: what a
request waited for its turn counts as well. Every answer that says `accepted` is kept, to be looked for afterwards.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from random import Random
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

from servo import decoders

PREFIX = "/api/v1/orchestration"
DEFINITIONS = """
import servo
from servo import Daily, asset

days = Daily("date", start="2020-01-01", end="2025-01-01")


@asset(partitions=days)
def orders(context): ...


@asset(partitions=days)
def revenue(context, orders): ...


@asset
def lookup(context): ...


nightly = servo.Schedule("nightly", cron="0 6 1 1 *", select="lookup")
switched = servo.Schedule("switched", cron="0 6 1 1 *", select="lookup")


@servo.sensor(kind="push")
def placed(context):
    return servo.RunRequest(select="lookup")
"""
# What a client may be told without anything being wrong: too much is asked, the server is ending, or somebody else was
# first to cancel that run.
_NOT_NOW = (409, 429, 503)


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request, to be sent again and again until it is answered."""

    name: str
    method: str
    path: str
    body: dict[str, Any] | None = None
    key: str | None = None

    @property
    def writes(self) -> bool:
        return self.method != "GET"


@dataclass(kw_only=True)
class Heard:
    """What the clients were told, and how long it took."""

    seconds: dict[str, list[float]] = field(default_factory=dict)  # by the name of the request
    accepted: list[tuple[Ask, dict[str, Any]]] = field(default_factory=list)
    unanswered: list[Ask] = field(default_factory=list)  # writes of which nobody knows whether they were accepted
    refused: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def all_seconds(self) -> list[float]:
        return [one for some in self.seconds.values() for one in some]


class Traffic:
    """Clients that ask for so many seconds, or until they are stopped, or until the server is gone."""

    def __init__(
        self, ports: Sequence[int], *, rate: float, seconds: float, clients: int = 8, seed: int = 7, name: str = "t"
    ) -> None:
        self._ports, self._rate, self._count, self._clients = ports, rate, int(rate * seconds), clients
        self._chance, self._name = Random(seed), name
        self.heard = Heard()
        self._lock, self._stop = Lock(), Event()
        self._known: list[str] = []  # runs that were accepted
        self._open: deque[str] = deque()  # and nobody has cancelled: nobody works here, so none would ever end
        self._newest: str | None = None  # what was accepted last, by anybody
        self._backfill = ""
        self._begin = 0.0
        self._threads = [Thread(target=self._client, args=(number,)) for number in range(clients)]

    def start(self) -> Traffic:
        """Begin, with a backfill that there is something to ask about."""
        body = {"assets": ["orders"], "partitions": "2024-01-01..2024-01-10"}
        ask = Ask(name="POST backfill", method="POST", path="/backfills", body=body, key=f"{self._name}-backfill")
        status, said = answer_of(self._ports[0], ask)
        assert status in (200, 202), said
        self.heard.accepted.append((ask, said))
        self._newest, self._backfill = said["accepted_event_id"], said["backfill_id"]
        self._begin = time.perf_counter() + 0.2
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()

    def join(self) -> Heard:
        for thread in self._threads:
            thread.join()
        return self.heard

    # ── a client ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _client(self, first: int) -> None:
        connections = [_Connection(port) for port in self._ports]
        for turn, number in enumerate(range(first, self._count, self._clients)):
            wanted = self._begin + number / self._rate
            if self._stop.wait(max(wanted - time.perf_counter(), 0.0)):
                break
            ask = self._next(number)
            # Behind two servers, every request goes to the other one.
            status, said = connections[(first + turn) % len(connections)].send(ask)
            if not self._note(ask, status, said, time.perf_counter() - wanted):
                break
        for connection in connections:
            connection.close()

    def _note(self, ask: Ask, status: int, said: dict[str, Any], took: float) -> bool:
        """Whether there is still somebody who answers."""
        with self._lock:
            heard = self.heard
            if status == 0:
                if ask.writes:
                    heard.unanswered.append(ask)
                return False
            if status in _NOT_NOW:
                heard.refused[status] += 1
            elif status >= 400:
                heard.wrong.append(f"{ask.method} {ask.path}: {status} {said}")
            else:
                heard.seconds.setdefault(ask.name, []).append(took)
                if ask.writes:
                    heard.accepted.append((ask, said))
                    # Answers come in any order.
                    self._newest = max(said["accepted_event_id"] or "", self._newest or "") or None
                    runs = [] if ask.name == "POST cancel" else said.get("run_ids", [said.get("run_id")])
                    self._known += [run for run in runs if run is not None]
                    self._open += [run for run in runs if run is not None]
        return True

    # ── what it asks ─────────────────────────────────────────────────────────────────────────────────────────────

    def _next(self, number: int) -> Ask:
        with self._lock:
            chance = self._chance.random()
            known = Known(
                key=f"{self._name}-{number}",
                page=self._chance.randrange(1, 100),
                run=self._chance.choice(self._known[-100:]) if self._known else None,
                oldest=self._open[0] if self._open else None,
                newest=self._newest,
                backfill=self._backfill,
            )
        for share, make in _MIX:
            chance -= share
            if chance < 0:
                ask = make(known)
                break
        else:
            ask = _post_run(known)
        if ask.name == "POST cancel":
            with self._lock, suppress(ValueError):
                self._open.remove(str(known.oldest))
        return ask


class _Connection:
    """One that stays open, and opens again when it was closed between two requests.

    Over a bare socket: what clients take of the machine's cores is not to be taken for what the server does.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def send(self, ask: Ask) -> tuple[int, dict[str, Any]]:
        """The status and the body; 0 where there is no answer."""
        sent = _bytes_of(ask)
        for _ in range(2):  # a server may close what was idle
            try:
                if self._socket is None:
                    self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=60.0)
                    self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket.sendall(sent)
                return self._answer(self._socket)
            except OSError:
                self.close()
        return 0, {}

    def _answer(self, server: socket.socket) -> tuple[int, dict[str, Any]]:
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += _some(server)
        head = received[:end].lower()
        length = _LENGTH.search(head)
        assert length is not None, head
        body, missing = [received[end + 4 :]], int(length[1]) - (len(received) - end - 4)
        while missing > 0:
            body.append(_some(server))
            missing -= len(body[-1])
        if b"connection: close" in head:
            self.close()
        return int(head[9:12]), decoders.decode(b"".join(body))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)")


def _bytes_of(ask: Ask) -> bytes:
    head = f"{ask.method} {PREFIX}{ask.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    if ask.key is not None:
        head += f"Idempotency-Key: {ask.key}\r\n"
    if not ask.writes:
        return f"{head}\r\n".encode()
    body = b"" if ask.body is None else json.dumps(ask.body).encode()
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _some(server: socket.socket) -> bytes:
    received = server.recv(1 << 16)
    if not received:
        raise ConnectionResetError("the server closed the connection")
    return received


def answer_of(port: int, ask: Ask) -> tuple[int, dict[str, Any]]:
    """What one request is told, by itself."""
    connection = _Connection(port)
    try:
        return connection.send(ask)
    finally:
        connection.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/readyz")
        with connection.getresponse() as answer:
            return answer.status == 200
    return False


class Known(NamedTuple):
    """What a client may speak of."""

    key: str
    page: int
    run: str | None
    oldest: str | None  # that is open
    newest: str | None
    backfill: str


def _post_run(known: Known) -> Ask:
    body = {"select": ["orders"], "partitions": f"2024-{known.page % 12 + 1:02d}-{known.page % 28 + 1:02d}"}
    return Ask(name="POST run", method="POST", path="/runs", body=body, key=known.key)


def _cancel(known: Known) -> Ask:
    if known.oldest is None:
        return _post_run(known)
    return Ask(name="POST cancel", method="POST", path=f"/runs/{known.oldest}/cancel", body={}, key=known.key)


def _trigger(known: Known) -> Ask:
    return Ask(name="POST trigger", method="POST", path="/schedules/nightly/trigger", body={}, key=known.key)


def _switch(known: Known) -> Ask:
    path = f"/schedules/switched/{'pause' if known.page % 2 else 'resume'}"
    return Ask(name="POST switch", method="POST", path=path, body={}, key=known.key)


def _send(known: Known) -> Ask:
    body = {"message": {"messageId": known.key, "data": "e30="}, "subscription": "s"}
    return Ask(name="POST message", method="POST", path="/sensors/placed/messages", body=body)


def _one_run(known: Known) -> Ask:
    if known.run is None:
        return _get("GET runs", "/runs?limit=50")
    # It was accepted, so it is there for whoever waits for what was accepted.
    return _get("GET run", f"/runs/{known.run}?wait_for_event_id={known.newest}&timeout_ms=30000")


def _get(name: str, path: str) -> Ask:
    return Ask(name=name, method="GET", path=path)


_MIX: tuple[tuple[float, Callable[[Known], Ask]], ...] = (
    (0.20, _one_run),
    (0.10, lambda known: _get("GET backfill", f"/backfills/{known.backfill}")),
    (0.10, lambda _: _get("GET runs", "/runs?limit=50")),
    (0.10, lambda _: _get("GET partitions", "/assets/shop/orders/partitions?limit=100")),
    (0.10, lambda _: _get("GET summary", "/assets/shop/orders/partitions/summary")),
    (0.05, lambda _: _get("GET schedules", "/schedules")),
    (0.05, lambda _: _get("GET ticks", "/schedules/nightly/ticks")),
    (0.02, _trigger),
    (0.02, _switch),
    (0.05, _send),
    (0.13, _cancel),
    (0.08, _post_run),
)

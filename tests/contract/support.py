"""What tests of ledgers share: facts to record, places to record them, and checks of what was recorded."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from servo.clock import Clock, system_clock
from servo.events import GENESIS, Proposal, RecordedEvent, chain
from servo.events.fact import Fact
from servo.events.model import RunCancelRequested
from servo.ids import UlidFactory
from servo.ledger import Ledger, Workspace
from servo.ledger.append import Mint

NOW = datetime(2025, 1, 15, 12, 0, 0, 123456, tzinfo=UTC)
WORKSPACE = Workspace("acme", "main")


class Impostor(Fact):
    """Has the key and the payload of a RunCancelRequested, but another type."""

    event_type: ClassVar[str] = "Impostor"
    key: ClassVar[str] = "run_cancel:{self.run_id}"
    subject: ClassVar[str] = "run_id"

    run_id: str
    reason: str | None = None


def cancel(run: str, reason: str | None = None, *, subject: str | None = None) -> Proposal:
    """A small fact whose idempotency key is `run_cancel:{run}` and whose subject is the run, or the given one."""
    fact = RunCancelRequested(run_id=run, reason=reason)
    return Proposal(fact=fact, occurred_at=NOW, actor="tester", correlation_id=subject)


def cancels(count: int, prefix: str = "run") -> list[Proposal]:
    return [cancel(f"{prefix}_{number}") for number in range(count)]


def mint(clock: Clock = system_clock) -> Mint:
    return UlidFactory(clock, os.urandom).next


@dataclass(frozen=True, kw_only=True)
class Store:
    """Somewhere that ledgers can be opened, more than once if it is durable."""

    kind: str
    place: Callable[[Workspace, Mint, bool], Ledger]

    def open(self, workspace: Workspace = WORKSPACE, *, clock: Clock = system_clock, create: bool = True) -> Ledger:
        return self.place(workspace, mint(clock), create)


def everything(ledger: Ledger, page: int = 1000) -> list[RecordedEvent]:
    """All events that are not trimmed, read in pages."""
    events: list[RecordedEvent] = []
    after = ledger.head().trimmed_position
    while rows := ledger.read(after, page):
        events.extend(rows)
        after = rows[-1].position
    return events


def verify(events: Sequence[RecordedEvent], after: int = 0, previous: str = GENESIS) -> None:
    """Positions without gaps, ids that grow, hashes that link."""
    last_id = ""
    for position, event in enumerate(events, after + 1):
        assert event.position == position
        assert event.event_id > last_id
        previous = chain(previous, event)
        assert event.chain_hash == previous, f"the chain breaks at {position}"
        last_id = event.event_id


def verify_ledger(ledger: Ledger) -> list[RecordedEvent]:
    """All events, after proving that they agree with each other and with the head."""
    events, head = everything(ledger), ledger.head()
    verify(events, head.trimmed_position, head.trimmed_chain_hash)
    if events:
        last = events[-1]
        assert (head.position, head.event_id, head.chain_hash, head.occurred_at) == (
            last.position,
            last.event_id,
            last.chain_hash,
            last.occurred_at,
        )
    return events


class CuttingProxy:
    """Stands between a client and a PostgreSQL server's socket, and cuts the line at a COMMIT when told to.

    `cut` is None (let everything pass), "before" (the COMMIT never reaches the server) or "after" (the server
    commits, and its answer never reaches the client).
    """

    def __init__(self, server: Path, folder: Path) -> None:
        self.folder = folder
        self.cut: str | None = None
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / server.name))
        self._listener.listen()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed by `close`
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._server))
                answers_pass = threading.Event()
                answers_pass.set()
                self._start(self._requests, client, server, answers_pass)
                self._start(self._answers, client, server, answers_pass)

    def _requests(self, client: socket.socket, server: socket.socket, answers_pass: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self.cut and b"COMMIT\0" in data:  # the whole statement, not READ COMMITTED
                    answers_pass.clear()
                    if self.cut == "after":
                        server.sendall(data)  # `_answers` hangs up when the server has answered
                        return
                    break
                server.sendall(data)
        _hang_up(client, server)

    def _answers(self, client: socket.socket, server: socket.socket, answers_pass: threading.Event) -> None:
        with suppress(OSError):
            while (data := server.recv(65536)) and answers_pass.is_set():
                client.sendall(data)
        _hang_up(client, server)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)


def _hang_up(*sockets: socket.socket) -> None:
    for end in sockets:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextmanager
def cutting_proxy(server: Path, folder: Path) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(server, folder)
    try:
        yield proxy
    finally:
        proxy.close()

"""Leases: workers, control loops and drivers hold them, and renew them while they live.

Leases are no facts. They are kept beside the ledger, never in it, and to lose them all loses no truth: the living show
up again with their next beat, and what a process wrongly given up for lost still tries to record is refused by the
ledger, where its attempt is over.

**Given up is given up.** A lease that ran out is never renewed. A holder that was once missing from `live()` stays
missing, whatever clocks do, so that others may act on what they saw; and a holder that was paused for too long is told
so by its next beat, which raises `FencedOut`. It stops what it is doing, and comes back, if at all, under a new id.

Whose clock: on one machine (memory, SQLite) the one that is handed in, and in PostgreSQL the server's alone, so that
machines whose clocks differ agree.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from datetime import datetime, timedelta
from threading import Event, Lock, Thread
from typing import Literal, Protocol, Self

import msgspec

from servo.clock import Clock, system_clock
from servo.errors import FencedOut, InvalidInput, ServoError
from servo.events.fact import to_micros
from servo.ledger.protocol import Workspace
from servo.ledger.side_tables import SideTable, open_table

Kind = Literal["worker", "control", "driver"]
# How long a lease that ran out is remembered, so that its holder can be told: longer than a laptop sleeps.
REMEMBERED = timedelta(days=30)


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A process that is alive. Its id is its own: minted when it starts, and used by nobody else, ever."""

    id: str
    kind: Kind
    host: str
    pid: int
    detail: str = ""

    def __post_init__(self) -> None:
        for text in (self.id, self.host, self.detail):
            # What some backend could not hold, none takes.
            if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
                raise InvalidInput(f"a lease cannot hold the text {text!r:.80}", hint="leave out what is no character")

    @classmethod
    def here(cls, kind: Kind, id: str) -> Self:  # noqa: A002 – it is what the field is called
        """This process, under an id that was just minted."""
        return cls(id=id, kind=kind, host=socket.gethostname(), pid=os.getpid())


class Leases(Protocol):
    """The leases of one workspace. Safe to use from several threads."""

    def beat(self, holder: Holder, seconds: float) -> None:
        """Be alive for so many seconds from now on. The first beat takes the lease, each other one renews it.

        Raises FencedOut if the lease ran out before: the holder was given up for lost, and stays so.
        Raises LedgerUnavailable if nobody could be told; the lease goes on as it was.
        """

    def live(self) -> list[Holder]:
        """The holders that are alive, ordered by id. All others are given up for lost by this very look."""

    def release(self, id: str) -> None:  # noqa: A002 – it is the id of a holder, and nothing else is one here
        """Leave: not alive any more, by its own wish. Nothing happens where there is no such lease."""

    def close(self) -> None:
        """Give up connections. Leases are not released by this."""


class MemoryLeases:
    """The in-memory twin: gone with the process."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._held: dict[str, tuple[Holder, datetime]] = {}
        self._lost: set[str] = set()

    def beat(self, holder: Holder, seconds: float) -> None:
        with self._lock:
            self._give_up()
            if holder.id in self._lost:
                raise given_up(holder)
            self._held[holder.id] = holder, self._clock() + timedelta(seconds=seconds)

    def live(self) -> list[Holder]:
        with self._lock:
            self._give_up()
            return [self._held[key][0] for key in sorted(self._held)]

    def release(self, id: str) -> None:  # noqa: A002 – as in the protocol
        with self._lock:
            self._give_up()
            self._held.pop(id, None)

    def close(self) -> None:
        pass

    def _give_up(self) -> None:
        now = self._clock()
        lost = [key for key, (_, until) in self._held.items() if until <= now]
        self._lost.update(lost)
        for key in lost:
            del self._held[key]


class SqlLeases:
    """The leases in a table beside the ledger."""

    def __init__(self, table: SideTable, clock: Clock = system_clock) -> None:
        self._table = table
        self._clock = clock
        self._is_swept = False

    def beat(self, holder: Holder, seconds: float) -> None:
        with self._table.connection() as execute:
            now = to_micros(self._clock())  # read once the file is ours; PostgreSQL goes by its own clock
            life = {"seconds": float(seconds), "now": now, "until": now + round(seconds * 1_000_000)}
            ((is_lost,),) = execute("beat", **msgspec.structs.asdict(holder), **life)
            if not self._is_swept:
                long_ago = now - REMEMBERED // timedelta(microseconds=1)
                execute("forget", long_ago=long_ago, days=REMEMBERED.days)
        self._is_swept = True
        if is_lost:
            raise given_up(holder)

    def live(self) -> list[Holder]:
        if not self._table.exists():
            return []
        with self._table.connection() as execute:
            # In PostgreSQL not one transaction: who runs out between the two is still alive in this answer.
            execute("give_up", now=to_micros(self._clock()))
            rows = execute("live")
        return [Holder(id=id_, kind=kind, host=host, pid=pid, detail=detail) for id_, kind, host, pid, detail in rows]

    def release(self, id: str) -> None:  # noqa: A002 – as in the protocol
        if self._table.exists():
            with self._table.connection() as execute:
                execute("release", id=id, now=to_micros(self._clock()))

    def close(self) -> None:
        self._table.close()


def given_up(holder: Holder) -> FencedOut:
    return FencedOut(
        f"the {holder.kind} {holder.id} was silent for longer than its lease and was given up for lost",
        hint="nothing that it does counts any more: stop it and start a new one",
    )


class Pulse(Protocol):
    """How often to beat, and how long each beat lasts: the settings `worker`."""

    @property
    def heartbeat_seconds(self) -> float: ...
    @property
    def lease_seconds(self) -> float: ...


class Heartbeat:
    """Beats every so often until it is stopped, and knows when the lease was `lost`.

    A database that fails is tried again with every beat. Only when no beat has reached it within the lease, or when it
    answers that the holder was given up for lost, is `lost` set: for good, and the holder must stop what it is doing.
    A second thread watches for that, because the first may hang in a connection that never answers.
    """

    def __init__(self, leases: Leases, holder: Holder, pulse: Pulse) -> None:
        self.holder = holder
        self.lost = Event()
        self.problem: ServoError | None = None  # why the newest beat failed; None when it did not
        self._leases = leases
        self._pulse = pulse
        self._stopping = Event()
        self._deadline = 0.0
        self._lock = Lock()
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Be alive when this returns. Raises what the first beat raises: there is nothing to survive yet."""
        self._beat()
        for work in (self._keep_beating, self._watch):
            # Daemons: a process that ends without stopping its heart is not kept from it.
            thread = Thread(target=work, name=f"servo-heartbeat-{self.holder.id}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def tell(self, detail: str) -> None:
        """Let the lease say something about its holder, with the next beat: why it cannot work, or nothing."""
        if detail != self.holder.detail:
            self.holder = msgspec.structs.replace(self.holder, detail=detail)

    def stop(self) -> None:
        """Stop beating, and release the lease unless it is lost. Never raises for a database that is away."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(self._pulse.heartbeat_seconds)  # not for ever: it may hang in a connection
        self._threads.clear()
        if not self.lost.is_set():
            with suppress(ServoError):  # the lease runs out by itself
                self._leases.release(self.holder.id)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _beat(self) -> None:
        # From before the beat: here the lease is never longer than where it is kept.
        asked = time.monotonic()
        self._leases.beat(self.holder, self._pulse.lease_seconds)
        with self._lock:
            self._deadline = asked + self._pulse.lease_seconds
        self.problem = None

    def _keep_beating(self) -> None:
        while not self._stopping.wait(self._pulse.heartbeat_seconds) and not self.lost.is_set():
            try:
                self._beat()
            except FencedOut as problem:
                self.problem = problem
                self.lost.set()
            except ServoError as problem:
                self.problem = problem
            except Exception as problem:  # noqa: BLE001 – whatever went wrong in a beat, the next one may go well
                self.problem = ServoError(f"the heartbeat failed: {problem!r:.200}", hint="see what the database says")

    def _watch(self) -> None:
        while not self.lost.is_set():
            with self._lock:
                left = self._deadline - time.monotonic()
            if left <= 0:
                self.lost.set()
            elif self._stopping.wait(left):
                return


def open_leases(address: str, workspace: Workspace, clock: Clock = system_clock) -> Leases:
    """The leases that belong to the ledger of an address. Those of a SQLite ledger are in a file beside it."""
    table = open_table(address, "leases", workspace)
    return MemoryLeases(clock) if table is None else SqlLeases(table, clock)

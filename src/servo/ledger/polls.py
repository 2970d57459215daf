"""When sensors were last asked, and how often they found nothing: kept beside the ledger, as leases are.

A poll that changed nothing is no fact. It is counted here, and the next poll that is recorded says how many there
were. Several drivers agree here on who asks: the next poll of a sensor is taken by one of them.
"""

from __future__ import annotations

from datetime import datetime
from threading import Lock
from typing import Protocol

import msgspec

from servo.events.fact import from_micros, to_micros
from servo.ledger.protocol import Workspace
from servo.ledger.side_tables import SideTable, open_table


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """How it stands with the polls of a sensor.

    `quiet` of them found nothing after the one that was recorded at `recorded_at`.
    """

    asked_at: datetime
    recorded_at: datetime | None = None
    quiet: int = 0
    quiet_since: datetime | None = None
    reason: str | None = None  # why the last of these found nothing, where the sensor said so

    def quiet_after(self, recorded_at: datetime | None) -> bool:
        """Whether there were any since the poll that was recorded last."""
        return self.quiet > 0 and self.recorded_at == recorded_at


class Polls(Protocol):
    """The polls of one workspace. Safe to use from several threads and processes."""

    def all(self) -> dict[str, Poll]:
        """Every sensor that was asked, by its id."""

    def begin(self, sensor_id: str, at: datetime, seen: datetime | None) -> bool:
        """Take the next poll of a sensor; False if it was asked since `seen`: then another has taken it."""

    def count(self, sensor_id: str, at: datetime, *, recorded_at: datetime | None, reason: str | None) -> None:
        """Count a poll that found nothing, `recorded_at` being when the last one was recorded."""

    def close(self) -> None:
        """Give up connections."""


class MemoryPolls:
    """The in-memory twin: gone with the process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._polls: dict[str, Poll] = {}

    def all(self) -> dict[str, Poll]:
        with self._lock:
            return dict(self._polls)

    def begin(self, sensor_id: str, at: datetime, seen: datetime | None) -> bool:
        with self._lock:
            known = self._polls.get(sensor_id)
            if known is not None and known.asked_at != seen:
                return False
            self._polls[sensor_id] = Poll(asked_at=at) if known is None else msgspec.structs.replace(known, asked_at=at)
            return True

    def count(self, sensor_id: str, at: datetime, *, recorded_at: datetime | None, reason: str | None) -> None:
        with self._lock:
            known = self._polls.get(sensor_id)
            quiet, since = 0, None
            if known is not None and known.recorded_at == recorded_at:
                quiet, since = known.quiet, known.quiet_since
            self._polls[sensor_id] = Poll(
                asked_at=at, recorded_at=recorded_at, quiet=quiet + 1, quiet_since=since or at, reason=_storable(reason)
            )

    def close(self) -> None:
        pass


class SqlPolls:
    """Those in a table beside the ledger."""

    def __init__(self, table: SideTable) -> None:
        self._table = table

    def all(self) -> dict[str, Poll]:
        if not self._table.exists():
            return {}
        with self._table.connection() as execute:
            return {sensor_id: _poll(*row) for sensor_id, *row in execute("all")}

    def begin(self, sensor_id: str, at: datetime, seen: datetime | None) -> bool:
        with self._table.connection() as execute:
            return bool(execute("begin", sensor_id=sensor_id, at=to_micros(at), seen=seen and to_micros(seen)))

    def count(self, sensor_id: str, at: datetime, *, recorded_at: datetime | None, reason: str | None) -> None:
        recorded = recorded_at and to_micros(recorded_at)
        with self._table.connection() as execute:
            execute("count", sensor_id=sensor_id, at=to_micros(at), recorded_at=recorded, reason=_storable(reason))

    def close(self) -> None:
        self._table.close()


def _poll(asked_at: int, recorded_at: int | None, quiet: int, quiet_since: int | None, reason: str | None) -> Poll:
    """A row of the table."""
    return Poll(
        asked_at=from_micros(asked_at),
        recorded_at=None if recorded_at is None else from_micros(recorded_at),
        quiet=quiet,
        quiet_since=None if quiet_since is None else from_micros(quiet_since),
        reason=reason,
    )


def _storable(text: str | None) -> str | None:
    """A text as every backend can hold it: what comes after a NUL is left out, and no half a character is in it."""
    return None if text is None else text.partition("\0")[0].encode(errors="replace").decode()


def open_polls(address: str, workspace: Workspace) -> Polls:
    """Those that belong to the ledger of an address."""
    table = open_table(address, "polls", workspace)
    return MemoryPolls() if table is None else SqlPolls(table)

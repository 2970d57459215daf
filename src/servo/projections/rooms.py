"""Rooms of one database: the states of a version share a connection that is costly to open, and the tables that nothing
has happened to between them; each has names of its own."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable
from contextlib import suppress

import duckdb

from servo.projections import engine

__all__ = ["Room", "new_room"]


class Room:
    """A schema, gone with the last who holds it."""

    def __init__(self, database: engine.Connection, number: int) -> None:
        self._database = database
        self.number, self.name = number, f"state_{number}"
        self._numbers = itertools.count(number + 1)
        engine.run(database.cursor(), f"CREATE SCHEMA {self.name}")
        weakref.finalize(self, _drop, database, self.name).atexit = False

    def another(self) -> Room:
        """The next one, in the same database. Whoever asks for it takes the place of this one."""
        room = Room(self._database, next(self._numbers))
        room._numbers = self._numbers
        return room

    def connection(self, others: Iterable[Room] = ()) -> engine.Connection:
        """A connection of its own, which finds a name here, or else in the newest of the others that has it."""
        rooms = sorted({self, *others}, key=lambda room: -room.number)
        own = self._database.cursor()
        engine.run(own, f"SET search_path = '{','.join(room.name for room in rooms)}'")
        return own

    def close(self) -> None:
        """For all the rooms of the database."""
        self._database.close()


def new_room(database: engine.Connection) -> Room:
    """The first of a database."""
    return Room(database, 0)


def _drop(database: engine.Connection, name: str) -> None:
    with suppress(duckdb.Error):  # the database may be closed by now
        database.cursor().execute(f"DROP SCHEMA {name} CASCADE")

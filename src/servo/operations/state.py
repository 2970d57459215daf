"""One consistent state to answer and decide from: a snapshot of the projections, the definitions, and the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

from servo.assets.selection import Statuses
from servo.errors import InvalidInput
from servo.events import RecordedEvent
from servo.ledger.polls import Poll
from servo.planning.catalog import Catalog
from servo.planning.deployed_state import Definitions, DeployedState

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["Sources", "State"]

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # of a ULID
_LONGEST_KEY = 200


class Sources:
    """Where a state gets what it is asked for; each is asked at most once, and only if it is needed."""

    def __init__(
        self,
        *,
        snapshot: Callable[[], Answers | None],
        deployed: Callable[[Answers | None], DeployedState],
        definitions: Callable[[DeployedState], Definitions],
        folder: Callable[[DeployedState], Definitions],
        statuses: Callable[[Catalog], Statuses],
        polls: Callable[[], Mapping[str, Poll]],
        event: Callable[[str], RecordedEvent],
        new_id: Callable[[], str],
    ) -> None:
        self.snapshot = snapshot
        self.deployed = deployed
        self.definitions = definitions
        self.folder = folder
        self.statuses = statuses
        self.polls = polls
        self.event = event
        self.new_id = new_id


class State:
    """What a handler may look at. It sees neither the ledger nor the clock, and changes nothing."""

    def __init__(
        self, sources: Sources, *, now: datetime, as_of: datetime | str | None = None, key: str | None = None
    ) -> None:
        self._sources = sources
        self.now = now
        self.as_of = as_of
        self.key = key

    @cached_property
    def snapshot(self) -> Answers | None:
        """The projections; None where nothing was ever recorded."""
        return self._sources.snapshot()

    @cached_property
    def deployed(self) -> DeployedState:
        """The definitions that the ledger knows."""
        return self._sources.deployed(self.snapshot)

    @cached_property
    def definitions(self) -> Definitions:
        """The definitions to answer by: on a server those deployed, in a project's folder those of its files."""
        return self._sources.definitions(self.deployed)

    @cached_property
    def folder(self) -> Definitions:
        """The definitions of the project's files, as they would be deployed."""
        return self._sources.folder(self.deployed)

    @property
    def position(self) -> int:
        """All events up to this position are known here, and none after it."""
        return self.deployed.position

    def statuses(self, catalog: Catalog) -> Statuses:
        """What tells which partitions of an asset are missing, failed or stale."""
        return self._sources.statuses(catalog)

    @cached_property
    def polls(self) -> Mapping[str, Poll]:
        """When sensors were last asked, also where that found nothing and was not recorded; by sensor id."""
        return {} if self.snapshot is None else self._sources.polls()

    def event(self, event_id: str) -> RecordedEvent:
        """A recorded event by its id."""
        return self._sources.event(event_id)

    def id_for(self, what: str) -> str:
        """The id of something to be created: under a key always the same, so that it cannot be created twice."""
        return self._sources.new_id() if self.key is None else id_under(what, self.key)


def id_under(what: str, key: str) -> str:
    """The id of what is created under an idempotency key."""
    if not key or len(key) > _LONGEST_KEY or not key.isprintable():
        hint = f"give 1 to {_LONGEST_KEY} printable characters"
        raise InvalidInput(f"{key!r:.80} cannot be a request id", hint=hint)
    number = int.from_bytes(sha256(f"{what}:{key}".encode()).digest()[:16], "big")
    return "".join(_DIGITS[(number >> shift) & 31] for shift in range(125, -1, -5))

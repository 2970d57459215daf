"""The composition root: from settings to a ledger, its archive, its projections and their reader.

Nothing is opened before it is asked for, and what is slow to import is imported with it: DuckDB with the first read,
Arrow with the first write, PostgreSQL's driver with a PostgreSQL ledger.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

import msgspec

from servo.clock import Clock, system_clock
from servo.errors import LedgerCorrupt
from servo.ids import UlidFactory, run_id, uuid7
from servo.ledger.address import is_unmade, open_ledger
from servo.ledger.append_meter import AppendMeter, MeteredLedger
from servo.ledger.archive import Archive
from servo.ledger.follower import LedgerFollower
from servo.ledger.history import History
from servo.ledger.leases import Leases, open_leases
from servo.ledger.protocol import Ledger, Workspace
from servo.ledger.side_tables import Fingerprints, Polls, open_fingerprints, open_polls
from servo.runtime.secrets import Secret, require_own_secret, require_secret_may_be_minted, tenant_secret
from servo.runtime.settings import Settings

if TYPE_CHECKING:
    from servo.execution.storage import ParquetStorage
    from servo.projections import Answer, Reader, Store
    from servo.projections.compactor import Compactor
    from servo.projections.snapshot import Tables


_PATIENCE = 60.0  # seconds for the tail to be folded


class Project:
    """The parts of one workspace, made when they are first needed. Close it, or use it as a context.

    With `create`, its ledger is made where there is none yet.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        create: bool = False,
        clock: Clock = system_clock,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.workspace = Workspace(settings.tenant, settings.workspace)
        self._create = create
        self._random_bytes = random_bytes
        self._mint = UlidFactory(clock, random_bytes)
        self.appends = AppendMeter()
        self.deployment_cache = DeploymentCache()
        self._has_own_secret = False

    def run_id(self, run_key: str) -> str:
        """The id of the run with this key."""
        return run_id(self.workspace.tenant, self.workspace.name, run_key, self.secret.value)

    @property
    def unbegun(self) -> bool:
        """Whether nothing was ever recorded here: then nobody is at work, and what is refused must leave nothing."""
        return is_unmade(self.settings.ledger)

    def looking(self) -> Project:
        """The same project, for who only looks: nothing is made that is not there."""
        return Project(self.settings, clock=self.clock, random_bytes=self._random_bytes)

    @cached_property
    def ledger(self) -> Ledger:
        ledger = open_ledger(
            self.settings.ledger,
            self.workspace,
            clock=self.clock,
            random_bytes=self._random_bytes,
            create=self._create,
        )
        if self._create and (known := self.archive.last_position) > (head := ledger.head().position):
            ledger.close()
            raise LedgerCorrupt(
                f"the ledger ends at position {head}, but its archive knows {known} events: it was lost or replaced",
                hint="restore the ledger from a copy, or move the archive away to begin anew",
            )
        return MeteredLedger(ledger, self.appends, before_append=self.require_own_secret)

    @cached_property
    def fingerprints(self) -> Fingerprints:
        return open_fingerprints(self.settings.ledger)

    def require_own_secret(self) -> None:
        """Refuse to write with another secret than the ledger's. Checked once: neither changes in a process."""
        if not self._has_own_secret:
            require_own_secret(self)
            self._has_own_secret = True

    @cached_property
    def archive(self) -> Archive:
        # Also where its folder is empty: another process may begin to archive while this one is at work.
        return Archive(self.settings.archive, self.workspace)

    @cached_property
    def history(self) -> History:
        return History(self.ledger, self.archive)

    @cached_property
    def follower(self) -> LedgerFollower:
        return LedgerFollower(self.history)

    @cached_property
    def store(self) -> Store:
        # DuckDB comes with this import, and not every command reads projections.
        from servo.projections.store import Store  # noqa: PLC0415

        return Store(self.settings.projections / self.workspace.tenant / self.workspace.name)

    @cached_property
    def reader(self) -> Reader:
        # DuckDB, as above.
        from servo.projections.reader import Reader, TailLimits  # noqa: PLC0415

        tail = self.settings.tail
        limits = TailLimits(events=tail.events, fold_seconds=tail.fold_ms / 1000)
        return Reader(self.store, self.history, clock=self.clock, limits=limits)

    def query(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> Answer:
        """Run one SELECT of our own over the projections, up to the ledger's head as of now."""
        return self.reader.ask(sql, parameters, fresh=True, timeout=_PATIENCE)

    def tables(self, as_of: datetime | str | None = None) -> Tables:
        """The projections for several SELECTs of our own, up to the ledger's head or as of a moment or an event."""
        return self.reader.tables(fresh=as_of is None, as_of=as_of, timeout=_PATIENCE)

    @cached_property
    def leases(self) -> Leases:
        return open_leases(self.settings.ledger, self.workspace, self.clock)

    @cached_property
    def polls(self) -> Polls:
        return open_polls(self.settings.ledger, self.workspace)

    @cached_property
    def storage(self) -> ParquetStorage:
        # Arrow comes with this import.
        from servo.execution.storage import ParquetStorage  # noqa: PLC0415

        return ParquetStorage(
            self.settings.storage,
            self.workspace,
            mint=self.mint,
            seconds=self.settings.storage_timeout_seconds,
        )

    @cached_property
    def secret(self) -> Secret:
        require_secret_may_be_minted(self)
        return tenant_secret(self.settings, random_bytes=self._random_bytes)

    @contextmanager
    def compactor(self) -> Iterator[Compactor]:
        """A compactor that fences out every other, until the next one comes."""
        # Arrow comes with this import.
        from servo.projections.compactor import Compactor  # noqa: PLC0415
        from servo.projections.thinning import Thinning  # noqa: PLC0415

        thinning = Thinning(**msgspec.structs.asdict(self.settings.versions))
        memory = self.settings.compaction.memory_mb << 20
        compactor = Compactor(
            self.store, self.history, clock=self.clock, mint=self.mint, thinning=thinning, memory=memory
        )
        try:
            yield compactor
        finally:
            compactor.close()

    def mint(self, count: int = 1) -> str:
        """Mint a ULID, or `count` consecutive ones, of which this is the first."""
        return self._mint.next(count=count)

    def fraction(self) -> float:
        """A random number from 0 up to 1."""
        return int.from_bytes(self._random_bytes(6), "big") / (1 << 48)

    def new_asset_id(self) -> str:
        """A new UUID, version 7."""
        return uuid7(int(self.clock().timestamp() * 1000), self._random_bytes)

    def close(self) -> None:
        for name in ("ledger", "leases", "polls"):
            if name in self.__dict__:
                self.__dict__[name].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


open_workspace = Project


class DeploymentCache:
    """Cache of how far the newest deployment is known to be in force, shared by threads.

    Every request asks whether the definitions that it goes by are still in force. Only what was recorded since the last
    one asked need be read for that.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._seen: tuple[str | None, int] = (None, 0)

    def until(self, event_id: str) -> int | None:
        """The position up to which the deployment of this event is known to be in force; None if unknown."""
        with self._lock:
            known, position = self._seen
            return position if known == event_id else None

    def saw(self, event_id: str | None, position: int) -> None:
        with self._lock:
            known, before = self._seen
            self._seen = (event_id, max(position, before) if known == event_id else position)

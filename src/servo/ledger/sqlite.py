"""The embedded ledger: one SQLite file, write-ahead log, every commit on disk before `append` returns."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from servo.errors import (
    AppendOutcomeUnknown,
    InvalidInput,
    LedgerCorrupt,
    LedgerNotFound,
    LedgerUnavailable,
    ServoError,
    StorageFailed,
)
from servo.events import GENESIS, Proposal, RecordedEvent
from servo.events.fact import to_micros
from servo.faults import reach
from servo.ledger.append import GroupCommit, Known, Mint, PendingAppend, advanced, conflict, draft, record, require_live
from servo.ledger.protocol import Condition, Head, Receipt, Workspace
from servo.ledger.sql import (
    event_from,
    head_from,
    key_row,
    known_from,
    migrations,
    no_workspace,
    position_between,
    queries,
    require_known_version,
    row_from,
)

_BUSY_SECONDS = 30.0
_SQL = queries("sqlite")
_APPLICATION_ID = 0x5356524F  # "SVRO"; the third migration writes it
# Files that this process may have open. Closing such a file, however it was opened, gives up all locks that the process
# has on it, also those of SQLite: another process would take the write-ahead log away. So only SQLite looks into them.
_OPENED: set[str] = set()
_LOOKING = threading.Lock()
_HEADER = struct.Struct(">16s44xI4xI")  # what a database starts with: a magic text, user_version, application_id
_MAGIC = b"SQLite format 3\0"


class _Held:
    """A thread's connection, which nothing else holds: it is closed when the thread ends.

    Not a connection itself, because those refer to themselves and would wait for the garbage collector.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __del__(self) -> None:
        self.connection.close()


class SqliteLedger:
    """A workspace in a SQLite file. Safe to use from several threads and several processes."""

    def __init__(self, path: Path, workspace: Workspace, mint: Mint, *, create: bool = True) -> None:
        self._path = path
        self._workspace = workspace
        self._mint = mint
        self._local = threading.local()
        self._held: weakref.WeakSet[_Held] = weakref.WeakSet()
        self._appending = threading.Lock()
        self._group = GroupCommit(self._append_together)
        self._wakeup = Wakeup.of(path)
        try:
            with _explained(path):
                if create:
                    path.parent.mkdir(parents=True, exist_ok=True)
                if not _is_ledger(path) and not create:
                    raise self._not_found()
                self._migrate(create=create)
                self._workspace_no = self._find_workspace(create=create)
        except BaseException:
            self.close()
            raise

    # ── the protocol ─────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, proposals: Sequence[Proposal], condition: Condition | None = None) -> list[Receipt]:
        return self._group.append(PendingAppend(draft(proposals), condition))

    def _append_together(self, pending: Sequence[PendingAppend]) -> None:
        keys = json.dumps([item.idempotency_key for entry in pending for item in entry.drafts])
        with self._appending, _explained(self._path), self._transaction() as connection:
            reach("append.begin")
            head = self._head(connection)
            wanted = {"workspace_no": self._workspace_no, "keys": keys}
            known = dict(map(known_from, connection.execute(_SQL["known"], wanted)))
            events: list[RecordedEvent] = []
            for entry in pending:
                try:
                    recording = record(entry.drafts, head, known, self._workspace, self._mint)
                    if recording.events and entry.condition is not None:
                        self._require(connection, entry.condition, head, events)
                except ServoError as problem:
                    entry.problem = problem
                    continue
                entry.receipts = recording.receipts
                if recording.events:
                    events += recording.events
                    head = advanced(head, recording.events)
                    known |= {event.idempotency_key: Known.of(event) for event in recording.events}
            if events:
                self._insert(connection, events, head)
                reach("append.before_commit")
        if events:
            reach("append.after_commit")
            self._wakeup.announce()

    def read(self, after: int, limit: int = 1000) -> list[RecordedEvent]:
        with _explained(self._path):
            rows = self._connection().execute(_SQL["read"], (self._workspace_no, after, limit)).fetchall()
        return [event_from(row, self._workspace) for row in rows]

    def head(self, beyond: int | None = None, timeout: float = 0.0) -> Head:
        with _explained(self._path):
            if beyond is None:
                return self._head(self._connection())
            deadline = time.monotonic() + timeout
            while True:
                before = self._wakeup.signs()
                head = self._head(self._connection())
                if head.position > beyond or time.monotonic() >= deadline:
                    return head
                self._wakeup.wait(before, deadline - time.monotonic())

    def position_at(self, event_id: str) -> int:
        with _explained(self._path):
            wanted = {"workspace_no": self._workspace_no, "event_id": event_id}
            low, high = self._connection().execute(_SQL["position_at"], wanted).fetchone()
        return position_between(self._path, low, high)

    def trim(self, position: int, forget_keys: str = "") -> None:
        with self._appending, _explained(self._path), self._transaction() as connection:
            head = self._head(connection)
            if position > head.position:
                raise InvalidInput(f"cannot trim to {position}: the ledger ends at {head.position}")
            if position > head.trimmed_position:
                chain_hash = connection.execute(_SQL["chain_hash"], (self._workspace_no, position)).fetchone()[0]
                connection.execute(_SQL["mark_trimmed"], (position, chain_hash.hex(), self._workspace_no))
                kept = connection.execute(_SQL["keys_to_keep"], (self._workspace_no, position, forget_keys))
                connection.executemany(_SQL["keep_key"], (key_row(row, self._workspace_no) for row in kept))
                connection.execute(_SQL["trim"], (self._workspace_no, position))
            connection.execute(_SQL["forget_keys"], (self._workspace_no, forget_keys))

    def close(self) -> None:
        for held in list(self._held):
            held.connection.close()
        self._held.clear()

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _connection(self) -> sqlite3.Connection:
        """This thread's connection: SQLite has its transactions per connection."""
        held: _Held | None = getattr(self._local, "held", None)
        if held is None:
            # Closed from the thread that closes the ledger, hence without the same-thread check.
            connection = sqlite3.connect(
                self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            held = _Held(connection)
            self._held.add(held)
            _use_write_ahead_log(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            self._local.held = held
        return held.connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as problem:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            if _is(problem, sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY):
                raise  # SQLite rolls back on these: the outcome is known
            raise AppendOutcomeUnknown(
                f"{self._path}: the commit failed half-way: {problem}",
                hint="repeat the same append; what was recorded is not recorded twice",
            ) from problem

    def _migrate(self, *, create: bool) -> None:
        """Bring the tables up to date, also for who only reads: every query needs the newest ones."""
        steps = migrations("sqlite")
        connection = self._connection()
        version = self._version(connection)
        if version == 0 and not create:
            raise self._not_found()
        if version == len(steps):
            return
        require_known_version(self._path, version, len(steps))
        with self._transaction():
            version = self._version(connection)  # again: another process may have been first
            require_known_version(self._path, version, len(steps))
            for step in steps[version:]:
                for statement in filter(str.strip, step.split(";")):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(steps)}")

    def _not_found(self) -> LedgerNotFound:
        return LedgerNotFound(
            f"there is no ledger at {self._path}",
            hint="run the command in the project's folder, set SERVO_LEDGER, or record something first",
        )

    @staticmethod
    def _version(connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])

    def _find_workspace(self, *, create: bool) -> int:
        connection = self._connection()
        scope = (self._workspace.tenant, self._workspace.name)
        row = connection.execute(_SQL["find_workspace"], scope).fetchone()
        if row is None and create:
            with self._transaction():
                connection.execute(_SQL["add_workspace"], (*scope, GENESIS, GENESIS))
            row = connection.execute(_SQL["find_workspace"], scope).fetchone()
        if row is None:
            raise no_workspace(self._path, self._workspace)
        return int(row[0])

    def _head(self, connection: sqlite3.Connection) -> Head:
        return head_from(connection.execute(_SQL["head"], (self._workspace_no,)).fetchone())

    def _require(
        self, connection: sqlite3.Connection, condition: Condition, head: Head, before: Sequence[RecordedEvent]
    ) -> None:
        """Refuse a condition that an event breaks: one in the ledger, or one `before` it in the same transaction."""
        require_live(condition, head)
        if condition.subjects is None:
            newest = head.position
        else:
            subjects = json.dumps(sorted(condition.subjects))
            row = connection.execute(
                _SQL["newest_of_subjects"], (subjects, self._workspace_no, condition.position)
            ).fetchone()
            subjects_before = (event.position for event in before if event.correlation_id in condition.subjects)
            newest = max((row[0] or 0, *subjects_before))
        if newest > condition.position:
            raise conflict(condition, newest)

    def _insert(self, connection: sqlite3.Connection, events: list[RecordedEvent], head: Head) -> None:
        connection.executemany(
            _SQL["insert"],
            [row_from(event, self._workspace_no) for event in events],
        )
        reach("append.after_insert")
        occurred_at = None if head.occurred_at is None else to_micros(head.occurred_at)
        connection.execute(
            _SQL["advance"], (head.position, head.event_id, head.chain_hash, occurred_at, self._workspace_no)
        )


def _is_ledger(path: Path) -> bool:
    """Whether a ledger is there, or nothing yet. Raises if it is something else, and changes nothing in any case."""
    start = _start_of(path)
    if start == b"" or (start is None and not path.exists()):
        return False
    if start is not None and len(start) == _HEADER.size and _HEADER.unpack(start)[::2] == (_MAGIC, _APPLICATION_ID):
        return True
    # An older ledger, one whose first pages are still in the write-ahead log, or no ledger at all: look inside.
    try:
        application_id, tables = _looked_into(path, "ro")
    except sqlite3.OperationalError as problem:
        if not _is(problem, sqlite3.SQLITE_READONLY):
            raise
        # Its last user was killed at a commit, and SQLite must first put the file in order.
        application_id, tables = _looked_into(path, "rw")
    if application_id == 0 and not tables:
        return False
    if application_id == _APPLICATION_ID or (application_id == 0 and {"workspaces", "events"} <= tables):
        return True
    raise LedgerCorrupt(
        f"{path} is not a Servo ledger but the database of another program",
        hint="set SERVO_LEDGER to another file; nothing was changed",
    )


def _start_of(path: Path) -> bytes | None:
    """What a file begins with; None where this process may have it open, so that only SQLite may look into it."""
    name = os.path.realpath(path)
    with _LOOKING:
        if name in _OPENED:
            return None
        _OPENED.add(name)
        try:
            with path.open("rb") as file:
                return file.read(_HEADER.size)
        except FileNotFoundError:
            return b""


def _looked_into(path: Path, mode: str) -> tuple[int, set[str]]:
    """The application id and the tables, by a connection that sets nothing up."""
    with closing(
        sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=_BUSY_SECONDS, isolation_level=None
        )
    ) as connection:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        return application_id, {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch a new file to the write-ahead log; a file that has one already is left as it is.

    While others do the same SQLite answers "busy" at once, without its usual wait, so the wait is here.
    """
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as problem:
            if not _is(problem, sqlite3.SQLITE_BUSY) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _is(problem: sqlite3.Error, *primary: int) -> bool:
    code: int = getattr(problem, "sqlite_errorcode", 0)
    return code & 0xFF in primary  # the low byte is the primary code of an extended one


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn SQLite's and the disk's own errors into one clear line each."""
    try:
        yield
    except ServoError:
        raise
    except sqlite3.Error as problem:
        raise _explain(path, problem) from problem
    except OSError as problem:
        hint = "choose a folder that can be written: `home` in servo.toml, or SERVO_HOME; nothing was recorded"
        raise StorageFailed(f"{path}: {problem.strerror}", hint=hint) from problem


def _explain(path: Path, problem: sqlite3.Error) -> ServoError:
    if _is(problem, sqlite3.SQLITE_FULL):
        return StorageFailed(f"{path}: the disk is full", hint="free some space and repeat; nothing was recorded")
    if _is(problem, sqlite3.SQLITE_READONLY):
        return StorageFailed(f"{path} cannot be written", hint="make its folder writable; nothing was recorded")
    if _is(problem, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StorageFailed(f"{path} cannot be opened: {problem}", hint="check that its folder is there and writable")
    if _is(problem, sqlite3.SQLITE_IOERR):
        return StorageFailed(f"{path}: the disk failed: {problem}", hint="check the disk; nothing was recorded")
    if _is(problem, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LedgerUnavailable(
            f"{path} was locked for {_BUSY_SECONDS:.0f} seconds",
            hint="see which process holds it, and repeat",
        )
    if _is(problem, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "decode to UTF-8" in str(problem):
        return LedgerCorrupt(f"{path} is not a ledger or is damaged: {problem}", hint="restore it from a copy")
    return LedgerUnavailable(f"{path}: {problem}", hint="run `servo doctor`")


# ── waking those who wait ─────────────────────────────────────────────────────────────────────────────────────────────

# Inside a process an append wakes waiters at once. SQLite has no notification between processes, so while a reader
# waits, one thread looks every now and then whether something was written to the log. To ask the file system for that
# costs next to nothing, and only where it says so is the ledger itself asked; and from time to time anyway, for a clock
# may be too coarse to tell two writes apart.
_LOOK_AGAIN_SECONDS = 0.02
_LOOK_RARELY_SECONDS = 0.05  # where nobody has written anything for so many looks:
_QUIET = 500
_LOOKS_AFTER = 4
_ASK_ANYWAY_SECONDS = 0.5
_LINGER = 50  # looks after the last one who waited: the next is mostly there soon

Log = tuple[int, int, int] | None
Signs = tuple[int, Log]


class Wakeup:
    """Wakes readers of one file that wait for it to grow; shared by all its ledgers in this process."""

    _bells: dict[Path, Wakeup] = {}
    _lock = threading.Lock()

    def __init__(self, path: Path) -> None:
        self._rung = threading.Condition()
        self._rings = 0
        self._log = path.with_name(f"{path.name}-wal")
        self._seen: Log = None
        self._waiting = 0
        self._watched = False

    @classmethod
    def of(cls, path: Path) -> Wakeup:
        absolute = path.absolute()
        with cls._lock:
            return cls._bells.setdefault(absolute, cls(absolute))

    def announce(self) -> None:
        with self._rung:
            self._rings += 1
            self._rung.notify_all()

    def signs(self) -> Signs:
        """A value that changes with every append. To be read before the ledger is."""
        return self._rings, self._look()

    def wait(self, before: Signs, timeout: float) -> None:
        """Return when something has been appended since `before`, as far as one can tell, or after a while."""
        with self._rung:
            if before != self.signs():
                return
            self._waiting += 1
            if not self._watched:
                self._watched, self._seen = True, before[1]
                threading.Thread(target=self._watch, name="servo-wakeup", daemon=True).start()
            self._rung.wait(min(timeout, _ASK_ANYWAY_SECONDS))
            self._waiting -= 1

    def _watch(self) -> None:
        idle, quiet = 0, _LOOKS_AFTER
        while True:
            time.sleep(_LOOK_AGAIN_SECONDS if quiet < _QUIET else _LOOK_RARELY_SECONDS)
            quiet += 1
            if (found := self._look()) != self._seen:
                self._seen, quiet = found, 0
            # What is written is only seen once it is on the disk, which may take until after the next look.
            if quiet < _LOOKS_AFTER:
                self.announce()
            idle = 0 if self._waiting else idle + 1
            if idle > _LINGER:
                with self._rung:
                    if not self._waiting:
                        self._watched = False
                        return

    def _look(self) -> Log:
        try:
            found = self._log.stat()
        except OSError:  # there is none yet, or none any more
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

"""Maintenance of a workspace: queries, status, verification, archive and export of the ledger, and the projections.

Every answer is a plain struct; the caller renders it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, BinaryIO, Literal, TextIO

import msgspec

from servo.errors import FencedOut, InvalidInput, ProjectionError, SchemaTooNew, ServoError, StorageFailed
from servo.fold.display import ADDED
from servo.fold.partition_rows import PartitionStatusRow
from servo.fold.rows import columns
from servo.fold.tables import TABLES
from servo.ids import is_ulid, ulid_time
from servo.ledger import verify as verifying
from servo.ledger.archive import ArchiveReport, archive_events
from servo.ledger.chain import MOST_PROBLEMS, Problem
from servo.ledger.history import History, export
from servo.ledger.protocol import Head
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    from servo.projections import Answer, Manifest, Store, Watermark
    from servo.projections.compactor import TableComparison

log = logging.getLogger(__name__)


Progress = Callable[[int, int], None]  # how many events are done, of how many
Engine = Literal["local", "spark"]
TURN = 600.0  # seconds that a compaction or a replay waits for another one to finish
_LONG = 1_000  # events that take so long to fold that others would notice
_REST_SECONDS = 2.0  # without an event, after which nothing more is expected for now
TIMEOUT = 30.0  # seconds that a read may wait for an event or for the tail to be folded


class TableInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A table that queries can ask: its columns, by name, with what they hold; and what makes a row unique."""

    name: str
    key: tuple[str, ...]
    columns: dict[str, str]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Where the ledger ends, and how much of it is archived and projected."""

    head: Head
    live_events: int
    archived_events: int
    archive_segments: int
    archive_bytes: int
    projection_version: int
    projection_position: int
    projection_lag: int
    projection_problem: str | None = None


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction folded."""

    events: int
    version: int
    watermark: Watermark
    removed_files: int


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay published, and how it compares with what was there at the same watermark.

    `tables` is empty, and `not_compared` says why, where nothing was compared.
    """

    version: int
    watermark: Watermark
    tables: list[TableComparison] = []
    not_compared: str | None = None

    @property
    def is_equal(self) -> bool | None:
        """None where nothing was compared: that is no proof of anything."""
        return all(table.is_equal for table in self.tables) if self.not_compared is None else None


class Maintenance:
    """Answers and actions of one workspace, embedded: no server is needed."""

    def __init__(self, project: Project) -> None:
        self._project = project

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def query(
        self,
        sql: str,
        *,
        fresh: bool = True,
        as_of: datetime | str | None = None,
        wait_for_event_id: str | None = None,
        timeout: float = TIMEOUT,
    ) -> Answer:
        """Run one SELECT over the projections, by default as of the ledger's head."""
        # DuckDB comes with this import.
        from servo.runtime.states import columns_at  # noqa: PLC0415

        if wait_for_event_id is not None and not is_ulid(wait_for_event_id):
            raise InvalidInput(f"{wait_for_event_id!r:.80} is not an event id", hint="it has 26 characters")
        if as_of is None:
            self.bound_the_tail()
        return self._project.reader.query(
            sql,
            fresh=fresh,
            as_of=as_of,
            wait_for_event_id=wait_for_event_id,
            timeout=timeout,
            computed=lambda snapshot: columns_at(self._project, snapshot, as_of),
        )

    @staticmethod
    def tables() -> list[TableInfo]:
        """The tables that queries can ask."""
        return [
            TableInfo(
                name=table.table,
                key=table.key,
                columns={
                    name: kind.value
                    for name, kind in (columns(table) | (ADDED if table is PartitionStatusRow else {})).items()
                },
            )
            for table in TABLES
        ]

    def status(self) -> Status:
        project = self._project
        head, segments = project.ledger.head(), project.archive.segments
        manifest, problem = self._current_manifest()
        position = 0 if manifest is None else manifest.watermark.position
        return Status(
            head=head,
            live_events=head.position - head.trimmed_position,
            archived_events=project.archive.last_position,
            archive_segments=len(segments),
            archive_bytes=sum(segment.bytes for segment in segments),
            projection_version=0 if manifest is None else manifest.version,
            projection_position=position,
            projection_lag=head.position - position,
            projection_problem=problem,
        )

    # ── the ledger ───────────────────────────────────────────────────────────────────────────────────────────────

    def verify(self, progress: Progress | None = None) -> verifying.Verification:
        """Prove that nothing was changed, removed or inserted, also by what the projections remember."""
        history = self._project.history
        # First the versions: the ledger must not end before any of them.
        versions, damage = _versions_by_position(self._project.store)
        found = verifying.verify(history, progress)
        problems = [*found.problems, *_contradictions(found.head.position, versions, history)]
        problems.sort(key=lambda problem: problem.position)
        return msgspec.structs.replace(found, problems=problems[:MOST_PROBLEMS], not_compared=damage)

    def archive(
        self, *, before: datetime | None = None, keep_days: float | None = None, progress: Progress | None = None
    ) -> ArchiveReport:
        """Move events recorded before a time, or more than so many days ago, to the archive."""
        if (before is None) == (keep_days is None):
            raise InvalidInput("say either before when, or how many days to keep")
        if before is None:
            try:
                before = self._project.clock() - timedelta(days=keep_days or 0)
            except OverflowError:
                raise InvalidInput(
                    f"cannot go back {keep_days:g} days: before the year 1", hint="give fewer days"
                ) from None
        return archive_events(
            self._project.ledger,
            self._project.archive,
            before=before,
            keys_before=self._keys_before(),
            progress=progress,
        )

    def _keys_before(self) -> datetime | None:
        """The time since which idempotency keys are kept; None if that is before the year 1."""
        try:
            return self._project.clock() - timedelta(days=self._project.settings.idempotency_days)
        except OverflowError:
            return None

    def export(self, out: TextIO | BinaryIO, *, after: int = 0, until: int | None = None) -> int:
        """Write events as JSON lines; give how many."""
        return export(self._project.history, out, after, until)

    # ── the projections ──────────────────────────────────────────────────────────────────────────────────────────

    def compact(self, progress: Progress | None = None, *, timeout: float = TURN) -> Compaction:
        """Fold everything that is new into the projections, and remove files that nobody needs any more.

        Waits up to `timeout` seconds for another process that is doing the same, or a replay.
        """
        project = self._project
        project.ledger.head()  # a missing ledger is said before anything is written
        with project.store.working(timeout), project.compactor() as compactor:
            before = project.store.current().watermark.position
            manifest = compactor.compact(progress)
            removed = compactor.remove_unneeded_files()
        return Compaction(
            events=manifest.watermark.position - before,
            version=manifest.version,
            watermark=manifest.watermark,
            removed_files=removed,
        )

    def replay(self, *, check: bool = True, engine: Engine = "local", progress: Progress | None = None) -> Replay:
        """Rebuild the projections from the ledger, publish them, and compare them with what was there."""
        self._project.ledger.head()  # a missing ledger is said before anything is written
        with self._project.store.working(TURN):
            before, problem = self._compacted() if check else (None, "not asked for")
            after = self._rebuilt(engine, None if before is None else before.watermark.position, progress)
        tables: list[TableComparison] = []
        if before is not None and before.watermark != after.watermark:
            # Only Spark's replay cannot be told where to stop.
            problem = "events were recorded meanwhile; repeat the replay to compare"
        elif before is not None:
            # DuckDB comes with this import.
            from servo.projections.compactor import compare  # noqa: PLC0415

            try:
                tables = compare(self._project.store, before, after, self._project.settings.compaction.memory_mb << 20)
            except ProjectionError as damage:
                problem = f"what was there could not be read: {damage.message}"
        return Replay(version=after.version, watermark=after.watermark, tables=tables, not_compared=problem)

    def _rebuilt(self, engine: Engine, until: int | None, progress: Progress | None) -> Manifest:
        project = self._project
        if engine == "spark":
            # Spark takes a second to import and much longer to start: only who asks for it pays for it.
            from servo.execution.spark_projections import replay_on_spark  # noqa: PLC0415

            return replay_on_spark(project.store, project.history, clock=project.clock, mint=project.mint)
        with project.compactor() as compactor:
            manifest = compactor.replay(progress, until)
            compactor.remove_unneeded_files()
            return manifest

    def _compacted(self) -> tuple[Manifest | None, str | None]:
        """The current projections, compacted up to the head; or why a replay cannot be compared with them."""
        manifest, problem = self._current_manifest()
        if manifest is None:
            return None, f"what was there could not be read: {problem}"
        if manifest.version == 0:
            return None, "nothing was there"
        try:
            with self._project.compactor() as compactor:
                return compactor.compact(), None
        except ProjectionError as damage:
            return None, f"what was there could not be read: {damage.message}"

    def _current_manifest(self) -> tuple[Manifest | None, str | None]:
        try:
            return self._project.store.current(), None
        except (ProjectionError, SchemaTooNew) as problem:
            return None, problem.message

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────

    def bound_the_tail(
        self, *, at_rest: bool = False, rest: float = _REST_SECONDS, aside: Callable[[], None] | None = None
    ) -> None:
        """Compact where the tail has outgrown its limits: in embedded mode nobody else does.

        `at_rest`: also where nothing has happened for a while (`rest`, in seconds), so that whoever reads next need not
        fold anything. `aside`: what has a long tail compacted elsewhere.
        """
        length = self._long_tail(rest if at_rest else None)
        if not length:
            return
        if aside is not None and length > _LONG:
            aside()
            return
        try:
            # Without waiting, and so without taking the work away from whoever is at it.
            self.compact(timeout=0)
        except FencedOut:
            log.debug("another process compacts; its version is read", extra={"action": "query.fenced_out"})
        except StorageFailed as problem:
            # A disk that cannot be written to can be read from, with the tail folded in memory.
            log.debug("cannot compact: %s", problem, extra={"action": "query.read_only"})

    def _long_tail(self, rest: float | None = None) -> int:
        """The number of events to fold, where they are to be folded now; else 0."""
        project, limits = self._project, self._project.settings.tail
        head, folded = project.ledger.head(), project.store.current().watermark.position
        length = max(head.position - folded, 0)
        if not length or length > limits.events:
            return length
        if rest is not None and head.event_id is not None and self._age(head.event_id) > rest:
            return length
        oldest = project.history.read(folded, 1)
        return length if oldest and self._age(oldest[0].event_id) > limits.age_seconds else 0

    def _age(self, event_id: str) -> float:
        """Seconds since an event was recorded."""
        return (self._project.clock() - ulid_time(event_id)).total_seconds()


# ── witnesses of the ledger ──────────────────────────────────────────────────────────────────────────────────────────
#
# A ledger whose newest events are cut off, head included, is sound in itself, and so is one whose chain was forged anew
# from some event on. But each version of the projections keeps the position and the chain hash that it was made from.


def _versions_by_position(store: Store) -> tuple[dict[int, Manifest], str | None]:
    """The versions that are still kept; none, and the reason, where they cannot be read."""
    try:
        return {version.watermark.position: version for version in store.versions()}, None
    except ServoError as problem:
        return {}, str(problem)  # damaged projections say nothing about the ledger


def _contradictions(end: int, versions: dict[int, Manifest], history: History) -> Iterator[Problem]:
    """The places where a ledger that ends at a position contradicts versions that were made from it before."""
    if (newest := max(versions, default=0)) > end:
        detail = (
            f"the ledger ends at position {end}, but version {versions[newest].version} of the projections was made"
            f" from events up to {newest}"
        )
        yield Problem(position=end + 1, kind="removed", detail=detail)
    for position, version in sorted(versions.items()):
        mark = version.watermark
        try:
            events = history.read(position - 1, 1) if 0 < position <= end else []
        except (ServoError, ValueError, OverflowError):
            continue  # it cannot be read, and the walk along the chain said so
        if events and events[0].chain_hash != mark.chain_hash:
            detail = (
                f"event {events[0].event_id} is not what version {version.version} of the projections was made from,"
                f" which was {mark.event_id} with the chain hash {mark.chain_hash}"
            )
            yield Problem(position=position, kind="changed", detail=detail)

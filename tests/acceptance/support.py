"""A project in a folder of its own, filled through the library and used through the command line alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from servo.events import Proposal
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.definitions import Source
from servo.events.fact import Fact
from servo.events.model import MaterializationPublished, RunFinished, RunRequested, RunStarted
from servo.ids import ulid_offset
from servo.ledger import Ledger, Receipt
from servo.runtime import Project, load_settings, open_workspace
from tests.support.commands import Commands

START = datetime(2025, 1, 1, tzinfo=UTC)
FIRST_MATERIALIZATION = "01JGFJJZ000000000000000000"
MANUAL = Source(kind="manual", id="somebody")


class FromTheFuture(Fact, frozen=True, kw_only=True):
    """A fact that no Servo of today has a class for."""

    event_type: ClassVar[str] = "PartitionsTeleported"
    event_version: ClassVar[int] = 3
    key: ClassVar[str] = "teleport:{self.name}"
    subject: ClassVar[str] = "name"

    name: str


@dataclass
class Folder(Commands):
    """A project's folder, and a clock that goes on by a minute whenever it is looked at."""

    path: Path
    runs: int = 0
    now: datetime = START
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.here = self.path

    def clock(self) -> datetime:
        self.now += timedelta(minutes=1)
        return self.now

    @contextmanager
    def project(self) -> Iterator[Project]:
        settings = load_settings(self.path, self.variables)
        with open_workspace(settings, create=True, clock=self.clock) as project:
            yield project

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        with self.project() as project:
            yield project.ledger

    def record(self, *facts: Fact) -> list[Receipt]:
        """Each fact an append of its own, a minute after the one before."""
        with self.ledger() as ledger:
            return [
                receipt
                for fact in facts
                for receipt in ledger.append([Proposal(fact=fact, occurred_at=self.clock(), actor="tester")])
            ]

    def record_runs(self, count: int) -> list[Receipt]:
        """So many runs, four facts each."""
        return self.record(*(fact for _ in range(count) for fact in self._run()))

    def _run(self) -> Iterator[Fact]:
        self.runs += 1
        number, run_id = self.runs, f"run_{self.runs:026d}"
        yield RunRequested(
            run_id=run_id,
            run_key=f"manual:{number}",
            request_fingerprint=f"{number:064x}",
            asset_selection=["shop/orders"],
            source=MANUAL,
        )
        yield RunStarted(run_id=run_id, source=MANUAL)
        yield MaterializationPublished(
            publication_id=f"publication_{number}",
            asset_id="0190a000-0000-7000-8000-000000000001",
            asset_key="shop/orders",
            partitions=PartitionOutcomes(
                keys=[f"date=d:2025-01-{day:02d}" for day in range(1, 11)],
                outcome=Outcome.SUCCEEDED,
                first_materialization_id=ulid_offset(FIRST_MATERIALIZATION, 10 * number),
                rows=number,
            ),
            run_id=run_id,
        )
        yield RunFinished(run_id=run_id, outcome=Outcome.SUCCEEDED, source=MANUAL)

    # ── from outside ─────────────────────────────────────────────────────────────────────────────────────────────

    def rows(self, sql: str, *options: str) -> list[list[Any]]:
        return list(self.json("query", sql, *options)["rows"])

    def files(self) -> dict[Path, bytes]:
        """Everything in the folder, to see whether a command changed anything."""
        return {path: path.read_bytes() for path in sorted(self.path.rglob("*")) if path.is_file()}

    @property
    def projections(self) -> Path:
        return self.path / ".servo" / "projections" / "default" / "default"

"""Runs, their progress and logs."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

Stream = Literal["log", "stdout", "stderr"]


class RunConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A request under a run key that stands for something else. It was recorded, and started nothing."""

    run_key: str
    run_id: str | None  # of the run that has the key
    run_status: str | None
    source_kind: str | None
    source_id: str | None
    source_detail: str | None
    requested_by: str | None  # who asked for the other thing
    detected_at: datetime
    existing_fingerprint: str
    conflicting_fingerprint: str
    conflicting_event_id: str


class Requested(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was asked for: it is in the ledger, and will be done."""

    run_id: str
    run_key: str
    event_id: str
    position: int | None = None
    accepted_at: datetime | None = None
    duplicate: bool = False
    assets: dict[str, int] = {}  # how many partitions of each

    @property
    def total(self) -> int:
        return sum(self.assets.values())


class DueRequested(msgspec.Struct, frozen=True, kw_only=True):
    """A run of what should run now that was asked for; all null where that is nothing."""

    run_id: str | None = None
    run_key: str | None = None
    event_id: str | None = None
    position: int | None = None
    accepted_at: datetime | None = None
    duplicate: bool = False
    assets: dict[str, int] = {}

    @property
    def run(self) -> Requested | None:
        """The run; None where nothing was to do."""
        return None if self.run_id is None else Requested(**msgspec.structs.asdict(self))


class CancelRequested(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was asked to stop."""

    run_id: str
    event_id: str | None
    status: str
    duplicate: bool = False


class TaskProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a run."""

    task_key: str
    asset_key: str
    state: str
    attempt: int
    total: int
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    unchanged: int = 0  # of the skipped, those that are current: their inputs came out as they were
    retry_at: datetime | None = None
    reason: str | None = None
    worker: str | None = None


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its tasks, in the order of its plan. The counts are of partitions."""

    run_id: str
    status: str
    tasks: list[TaskProgress] = []
    total: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    unchanged: int = 0
    reason: str | None = None
    requested_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    ended: bool = False
    parked: bool = False  # nothing but a person can bring it further: what is left waits for an approval


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a task said. `partition` is None where it concerns the task as a whole."""

    time: datetime
    level: str
    message: str
    run: str
    task: str
    attempt: int
    asset: str
    partition: str | None = None
    stream: Stream = "log"

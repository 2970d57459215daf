"""Removing the files that nobody needs: what no event points to, what retention lets go, and no report cites."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from threading import get_ident
from typing import Any

import msgspec

from servo import decoders
from servo.errors import StorageFailed
from servo.events.lifecycles import TaskStatus
from servo.execution.places import Removed
from servo.execution.places import vacuum as remove
from servo.ids import ulid_time
from servo.lineage.report import Report
from servo.runtime.settings import RetentionSettings, Settings
from servo.runtime.wiring import Project

__all__ = ["Citation", "Citations", "vacuum"]


class Citation(msgspec.Struct, frozen=True, kw_only=True):
    """The materializations that a report rests on."""

    asset: str
    partition: str
    generated_at: str
    report_hash: str
    materializations: list[str]


class Citations:
    """The reports of one workspace that were made here: what they cite is kept, by a small file for each report.

        {home}/audits/{tenant}/{workspace}/{report hash}.json

    No event says that a report was made, since making one changes nothing that is true. Whoever no longer needs the
    data behind a report removes its file; the events, and with them the report, can be proved all the same.
    """

    def __init__(self, settings: Settings) -> None:
        self._folder: Path = settings.home / "audits" / settings.tenant / settings.workspace

    def keep(self, report: Report) -> Path:
        """Keep what the report cites from vacuum, from here on."""
        citation = Citation(
            asset=report.asset,
            partition=report.partition,
            generated_at=report.generated_at,
            report_hash=report.report_hash,
            materializations=[
                report.materialization,
                *(node.materialization for node in report.lineage),
                *(one.materialization for one in report.inputs if not one.mapped),
            ],
        )
        path = self._folder / f"{report.report_hash}.json"
        unfinished = path.with_suffix(f".{os.getpid()}-{get_ident()}.tmp")  # others may be at the same report
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(citation), indent=1))
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except OSError as problem:
            raise StorageFailed(
                f"{path}: {problem.strerror}: what the report cites would not be kept",
                hint="make the folder writable, or give --no-keep",
            ) from problem
        return path

    def all(self) -> list[Citation]:
        """Every report whose data is kept. One that cannot be read is an error: it may cite anything."""
        found = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                found.append(decoders.decode(path.read_bytes(), Citation))
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as problem:
                raise StorageFailed(
                    f"{path} cannot be read, so nobody knows what it protects: {problem}",
                    hint="make the report again and remove this file",
                ) from problem
        return found

    def materializations(self) -> set[str]:
        """The materializations that vacuum must keep."""
        return {name for citation in self.all() for name in citation.materializations}


# Whatever waits for an approval may become current at any moment.
_EVERYTHING = """
    SELECT m.asset_id, m.partition_key, m.materialization_id,
           coalesce(m.materialization_id = s.materialization_id, false) OR m.published_at IS NULL AS stays,
           m.published_at IS NULL AND r.finished_version IS NOT NULL AS refused
    FROM materializations m
    LEFT JOIN partition_status s ON s.asset_id = m.asset_id AND s.partition_key = m.partition_key
    LEFT JOIN runs r ON r.run_id = m.run_id
    ORDER BY m.asset_id, m.partition_key, m.materialization_id DESC
"""
_OLDEST_ATTEMPT = f"""
    SELECT min(t.started_at) AS started_at FROM tasks t JOIN runs r USING (run_id)
    WHERE t.state = '{TaskStatus.RUNNING}' AND r.finished_version IS NULL
"""
_PATIENCE = 60.0  # seconds for the tail to be folded


def vacuum(project: Project, *, dry_run: bool) -> list[Removed]:
    """Remove what no event points to, and what retention lets go. What is current always stays."""
    cited = Citations(project.settings).materializations()
    # Before the look at the ledger: what is made after it is not known to it, and must not look abandoned.
    now = project.clock()
    snapshot = project.reader.snapshot(fresh=True, timeout=_PATIENCE)
    everything = snapshot.query(_EVERYTHING).rows
    made = [row for row in everything if not row[4]]
    # Staged for an approval that was refused or never came: its run is over, and nobody can publish it any more.
    refused = {row[2] for row in everything if row[4]}
    unfinished = snapshot.query("SELECT run_id FROM runs WHERE finished_version IS NULL").rows
    [(begun,)] = snapshot.query(_OLDEST_ATTEMPT).rows
    grace = timedelta(hours=project.settings.retention.grace_hours)
    # What an attempt makes or reads while it runs is in use, however short the grace.
    settled = now if begun is None else min(now, begun)
    return remove(
        project.storage,
        referenced={row[2] for row in everything},
        # What an audit report cites is kept, whatever retention says.
        released=(
            _released(made, project.settings.retention, now, before=settled - grace)
            | {one for one in refused if ulid_time(one) <= settled - grace}
        )
        - cited,
        working={run_id for (run_id,) in unfinished},
        now=settled,
        grace=grace,
        dry_run=dry_run,
    )


def _released(
    made: Sequence[tuple[Any, ...]], retention: RetentionSettings, now: datetime, *, before: datetime
) -> set[str]:
    """The materializations that retention lets go: too many versions ago, or too many days.

    Only those which a newer one had replaced by then: whoever began to read earlier may still be at it.
    """
    released: set[str] = set()
    for _, versions in groupby(made, key=lambda row: row[:2]):
        newer: str | None = None
        for number, (_, _, materialization_id, stays, _) in enumerate(versions):
            replaced = newer is not None and ulid_time(newer) <= before
            newer = materialization_id
            many = retention.versions is not None and number >= retention.versions
            age = now - ulid_time(materialization_id)
            old = retention.days is not None and age > timedelta(days=retention.days)
            # What both rules speak of must be let go by both.
            allowed = [rule for rule, given in ((many, retention.versions), (old, retention.days)) if given is not None]
            if allowed and all(allowed) and replaced and not stays:
                released.add(materialization_id)
    return released

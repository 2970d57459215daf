"""What audit reports cite is kept: a small file for each report, which vacuum looks at before it lets anything go.

    {home}/audits/{tenant}/{workspace}/{report hash}.json

No event says that a report was made, since making one changes nothing that is true. Whoever no longer needs the data
behind a report removes its file; the events, and with them the report, can be proved all the same.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import get_ident

import msgspec

from servo import decoders
from servo.errors import StorageFailed
from servo.lineage.report import Report
from servo.runtime.settings import Settings

__all__ = ["Citation", "Citations"]


class Citation(msgspec.Struct, frozen=True, kw_only=True):
    """Which materializations a report rests on."""

    asset: str
    partition: str
    generated_at: str
    report_hash: str
    materializations: list[str]


class Citations:
    """The reports of one workspace that were made here."""

    def __init__(self, settings: Settings) -> None:
        self._folder: Path = settings.home / "audits" / settings.tenant / settings.workspace

    def keep(self, report: Report) -> Path:
        """Have vacuum spare what the report cites, from here on."""
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
        """Every report whose data is kept. One that cannot be read is an error: it may speak for anything."""
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
        """What vacuum must not let go."""
        return {name for citation in self.all() for name in citation.materializations}

"""What a question is answered from: a snapshot of the projections, the definitions, and the time."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from servo.planning.catalog import Catalog

if TYPE_CHECKING:
    from servo.projections import Snapshot
    from servo.projections.snapshot import Answers
    from servo.projections.workbench import Workbench

__all__ = ["UNFINISHED", "State"]

UNFINISHED = "requested_version IS NOT NULL AND finished_version IS NULL"
"""Of a row of `runs`: whether the run goes on."""


class State(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One state of a workspace, now or as of then. An answer in several steps takes all of them from one state, so that
    they cannot disagree. Belongs to one thread."""

    snapshot: Snapshot
    catalog: Catalog
    now: datetime
    as_of: datetime | str | None = None  # what it was asked for by, if it is of the past

    @cached_property
    def tables(self) -> Answers:
        """The tables of the snapshot, for many small queries of our own."""
        # DuckDB comes with this import.
        from servo.projections.asking import Asking  # noqa: PLC0415

        return Asking(self.snapshot)

    def workbench(self) -> Workbench:
        """A connection for work in several steps. Close it, or use it as a context."""
        # DuckDB, as above.
        from servo.projections.workbench import Workbench  # noqa: PLC0415

        return Workbench(self.snapshot)

    @cached_property
    def busy(self) -> bool:
        """Whether any run goes on."""
        return bool(self.tables.query(f"SELECT 1 FROM runs WHERE {UNFINISHED} LIMIT 1").rows)

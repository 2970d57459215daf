"""A state to answer from: one snapshot of the projections, with the definitions and the time that go with it."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from servo.errors import NotFound
from servo.planning.catalog import Catalog
from servo.runtime.asset_names import with_other_names
from servo.runtime.deployed_state import catalog_of
from servo.runtime.overlays import is_busy
from servo.runtime.wiring import Project

if TYPE_CHECKING:
    from servo.projections import Snapshot
    from servo.projections.snapshot import Answers

__all__ = ["Moment", "look_at", "moment_of"]

_PATIENCE = 60.0  # seconds for the tail to be folded


class Moment(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Whoever answers in several steps takes all of them from one moment, so that they cannot disagree."""

    source: Snapshot
    snapshot: Answers  # the same, for small questions
    known: Catalog
    now: datetime
    as_of: datetime | str | None = None

    @cached_property
    def busy(self) -> bool:
        """Whether any run goes on."""
        return is_busy(self.snapshot)


def look_at(project: Project, as_of: datetime | str | None = None, *, known: Catalog | None = None) -> Moment:
    """Now, or as of then: with the definitions of then, and then for the time it is.

    `known`: the definitions to answer by, for whoever has them or means others than those that are deployed.
    """
    source = project.reader.snapshot(fresh=as_of is None, as_of=as_of, timeout=_PATIENCE)
    return moment_of(project, source, as_of, known=known)


def moment_of(
    project: Project, source: Snapshot, as_of: datetime | str | None = None, *, known: Catalog | None = None
) -> Moment:
    """The same for a snapshot that is there already; `as_of` is what it was asked for by."""
    # DuckDB comes with this import.
    from servo.projections.asking import Asking  # noqa: PLC0415

    snapshot = Asking(source)
    known = known or with_other_names(project, catalog_of(snapshot, project.settings))
    now = project.clock() if as_of is None else _then(project, source, as_of)
    return Moment(source=source, snapshot=snapshot, known=known, now=now, as_of=as_of)


def _then(project: Project, source: Snapshot, as_of: datetime | str) -> datetime:
    """The time that was asked for; as of an event, the moment of that event."""
    occurred_at = source.watermark.occurred_at
    if occurred_at is None:
        first = next(iter(project.history.read(0, 1)), None)
        begins = "it is empty" if first is None else f"it begins at {first.occurred_at.isoformat()}"
        raise NotFound(f"nothing was recorded by {as_of}", hint=f"ask for a later time: {begins}")
    return as_of if isinstance(as_of, datetime) else occurred_at

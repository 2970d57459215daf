"""What is deployed in a project, and every name that its assets ever had."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from servo.errors import LedgerNotFound
from servo.planning.catalog import Catalog, DeployedState
from servo.runtime.wiring import Project
from servo.status.deployed import deployed_in

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["asset_names", "asset_names_in", "look", "with_other_names"]

_PATIENCE = 60.0  # seconds for the tail to be folded
_NAMES = """
    SELECT asset_key, asset_id FROM asset_versions WHERE asset_key IS NOT NULL ORDER BY number, asset_id
"""


def look(project: Project, as_of: datetime | str | None = None) -> DeployedState:
    """The definitions that the ledger knows, now or as of then."""
    if as_of is None and project.ledger.head().position == 0:
        return DeployedState(position=0)  # a project's first command need not load DuckDB for this
    return deployed_in(project.reader.tables(fresh=as_of is None, as_of=as_of, timeout=_PATIENCE))


def asset_names(project: Project) -> dict[str, str]:
    """The ids of assets by every name that they ever had, by the ledger as it is now."""
    with suppress(LedgerNotFound):
        return asset_names_in(project.reader.tables(fresh=True, timeout=_PATIENCE))
    return {}


def asset_names_in(snapshot: Answers) -> dict[str, str]:
    """The same by a snapshot."""
    return dict(snapshot.query(_NAMES).rows)


def with_other_names(project: Project, known: Catalog) -> Catalog:
    """The same catalog, in which an asset is found by every name that it ever had, as long as no other has it."""
    return known.with_other_names(lambda: asset_names(project))

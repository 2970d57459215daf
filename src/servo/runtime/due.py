"""Plans and runs of what should run now: `servo plan --stale`, and the run of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from servo.answers.runs import Requested
from servo.assets.selection import Selection
from servo.planning.catalog import Catalog
from servo.planning.due import Due
from servo.planning.stages import Plan
from servo.runtime.cataloguing import deployed_catalog, local_catalog
from servo.runtime.deployed_state import catalog_of
from servo.runtime.planned import plan_for, united
from servo.runtime.runs import Runs
from servo.runtime.states import state_of, statuses_in
from servo.runtime.wiring import Project
from servo.status.due import due_now

__all__ = ["plan_what_is_due", "request_what_is_due", "what_is_due"]


def plan_what_is_due(project: Project, selection: Sequence[str], partitions: str | None = None) -> tuple[Due, Plan]:
    """What should run now, by the definitions of the folder, and the plan of it; nothing is written."""
    known, now = local_catalog(project), project.clock()
    found = what_is_due(project, known, selection, partitions, now)
    plan = plan_for(project, known, Selection(wanted=found.wanted), now)
    return found, msgspec.structs.replace(plan, history=tuple(change.sentence() for change in known.changes()))


def request_what_is_due(
    project: Project, selection: Sequence[str], partitions: str | None = None, *, actor: str, **wishes: Any
) -> Requested | None:
    """Ask for a run of what should run now; None where that is nothing.

    Definitions of the folder that are not deployed yet are judged by and deployed in either case, so that a nightly run
    of what is stale takes them up. `wishes` are those of `Runs.request_chosen`.
    """
    if not what_is_due(project, local_catalog(project), selection, partitions).wanted:
        if not project.unbegun:  # to deploy would begin it
            deployed_catalog(project, actor=actor)
        return None

    def choose(known: Catalog) -> Selection:
        found = what_is_due(project, known, selection, partitions)
        # With what is frozen, which the plan of the run holds back, so that the run can tell of it.
        frozen = {one.asset_key: one.partitions for one in found.held if one.frozen}
        return Selection(wanted=united(found.wanted, frozen), only_stale=True)

    return Runs(project).request_chosen(choose, actor=actor, **wishes)


def what_is_due(
    project: Project,
    known: Catalog,
    selection: Sequence[str],
    partitions: str | None = None,
    now: datetime | None = None,
) -> Due:
    """Of selections, by these definitions, which may be about to be deployed; where no partitions are named, of all."""
    state = state_of(project, catalog=known, now=now)
    deployed = catalog_of(state.tables, project.settings)
    return due_now(state, deployed, selection, partitions, statuses=statuses_in(project, known))

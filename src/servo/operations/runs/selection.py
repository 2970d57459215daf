"""What a request for a run means: which partitions, by the definitions of the project's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from servo.assets.selection import Selection, selection_of
from servo.controllers.states import RunState
from servo.errors import InvalidInput
from servo.partitions import PartitionSet
from servo.planning import Plan
from servo.planning.catalog import Catalog
from servo.planning.due import Due
from servo.status.plans import frozen_among, let_readers_wait, plan_for, require_none_named, united
from servo.status.selections import due_now, statuses_of
from servo.status.state import State

__all__ = ["Chosen", "chosen", "due_chosen", "plan_of_chosen", "plan_of_due", "retry_subset", "what_is_due"]


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is to compute, and what of it is frozen. `state` is judged by the definitions of the files."""

    state: State
    selection: Selection
    frozen: Mapping[str, PartitionSet]


def chosen(state: State, select: Sequence[str], partitions: str | None, *, thawing: bool = False) -> Chosen:
    """What selections mean; one that names a frozen partition is refused, unless it is about to be thawed."""
    known = state.judged_by(state.local.catalog)
    graph = known.catalog.graph
    text = " or ".join(f"({one})" for one in select) if len(select) > 1 else "".join(select)
    statuses = statuses_of(state, known.catalog)
    selection = selection_of(graph, text, now=state.now, partitions=partitions, statuses=statuses)
    if selection.by_status:
        selection = let_readers_wait(known, selection)
    frozen = frozen_among(known, selection.wanted)
    if not thawing:
        require_none_named(graph, select, partitions, frozen, state.now)
    return Chosen(state=known, selection=selection, frozen=frozen)


def plan_of_chosen(state: State, select: Sequence[str], partitions: str | None = None) -> Plan:
    """What a run would do, as it would do it; and what deploying the definitions of the files does to history."""
    found = chosen(state, select, partitions)
    return _with_history(found.state.catalog, plan_for(found.state, found.selection, frozen=found.frozen))


# ── what is due ──────────────────────────────────────────────────────────────────────────────────────────────────


def what_is_due(state: State, select: Sequence[str], partitions: str | None = None) -> Due:
    """Of selections, what should run now, by definitions that may be about to be deployed; where no partitions are
    named, of all."""
    known = state.judged_by(state.local.catalog)
    deployed = Catalog.of((), {}) if state.recorded is None else state.catalog
    return due_now(known, deployed, select, partitions, statuses=statuses_of(state, known.catalog))


def due_chosen(state: State, select: Sequence[str], partitions: str | None) -> Chosen | None:
    """The run of what should run now; None where that is nothing."""
    found = what_is_due(state, select, partitions)
    if not found.wanted:
        return None
    known = state.judged_by(state.local.catalog)
    # With what is frozen, which the plan of the run holds back, so that the run can tell of it.
    held = {one.asset_key: one.partitions for one in found.held if one.frozen}
    selection = Selection(wanted=united(found.wanted, held), only_stale=True)
    return Chosen(state=known, selection=selection, frozen=frozen_among(known, selection.wanted))


def plan_of_due(state: State, select: Sequence[str], partitions: str | None = None) -> tuple[Due, Plan]:
    """What should run now, and the plan of it."""
    due = what_is_due(state, select, partitions)
    known = state.judged_by(state.local.catalog)
    return due, _with_history(known.catalog, plan_for(known, Selection(wanted=due.wanted)))


def _with_history(known: Catalog, plan: Plan) -> Plan:
    return msgspec.structs.replace(plan, history=tuple(change.sentence() for change in known.changes()))


# ── retries ──────────────────────────────────────────────────────────────────────────────────────────────────────


def retry_subset(state: State, run: RunState, partitions: str) -> dict[str, PartitionSet]:
    """These partitions, of every asset of the run that can have them: days say nothing about its months."""
    found, refused = {}, []
    for key in run.request.asset_selection:
        try:
            found[key] = state.local.catalog.spec(key).partitions.parse_set(partitions, state.now)
        except InvalidInput as problem:
            refused.append(problem)
    if not found and refused:
        raise refused[0]
    return found

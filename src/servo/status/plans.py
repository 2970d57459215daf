"""A plan for what is wanted, given what is there, and whether it could make anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from servo.assets.selection import Selection
from servo.errors import InputsMissing
from servo.partitions import PartitionSet
from servo.planning import Plan, boundary, make_plan, require_inputs
from servo.planning.catalog import Catalog
from servo.planning.planner import plan_holding_back, with_inputs
from servo.planning.stages import HeldBack, LeftOut
from servo.status.exclusions import frozen_among, left_out_readers, without_frozen, without_readers_of_marked
from servo.status.keysets import present
from servo.status.overlays import overlays_of
from servo.status.state import State

__all__ = ["plan_for", "plan_of_what_can_be_made", "refusals", "united"]


def plan_for(state: State, selection: Selection, *, frozen: Mapping[str, PartitionSet] | None = None) -> Plan:
    """The very plan that would run now: without what is frozen, and what only a `+` added and has not all inputs.

    `frozen`: what of the selection counts as frozen, where that is known already.
    """
    known = state.catalog
    among = frozen_among(state, selection.wanted) if frozen is None else frozen
    selection, left_out = without_frozen(known, selection, among)
    selection, marked = without_readers_of_marked(state, selection)
    have = _there(state, selection.wanted)
    plan = plan_holding_back(known, selection.wanted, selection.added, have, state.now, limits=state.policy.plan_limits)
    return holding_back(plan, (*left_out, *marked))


def holding_back(plan: Plan, held: tuple[HeldBack, ...]) -> Plan:
    """The plan with more partitions that it holds back, named first."""
    return msgspec.structs.replace(plan, held_back=(*held, *plan.held_back)) if held else plan


def refusals(
    state: State, selections: Sequence[Selection], coming: dict[str, PartitionSet] | None = None
) -> list[InputsMissing | None]:
    """Of each request that could do nothing why, so that it is not recorded and its run key can be used later.

    Where `coming` is given, it is what requests make that are recorded together with these, and grows by them. That
    counts as there then, and so does what unfinished runs make: a run is planned when its turn comes.
    """
    known, now = state.catalog, state.now
    frozen = frozen_among(state, united(*(one.wanted for one in selections)))
    asked = [
        without_frozen(known, one, {key: frozen[key] & some for key, some in one.wanted.items() if key in frozen})
        for one in selections
    ]
    selections = [one for one, _ in asked]
    needed = [boundary(known, one.wanted, now) for one in selections]
    have = present(state, united(*needed))
    waited: dict[str, PartitionSet] | None = None
    answers: list[InputsMissing | None] = []
    for (selection, held), outside in zip(asked, needed, strict=True):
        there = {key: have[key] & some for key, some in outside.items()}
        try:
            selection, marked = without_readers_of_marked(state, selection)  # noqa: PLW2901 (less of it)
        except InputsMissing as reads_marked:
            answers.append(reads_marked)
            continue
        held = (*held, *marked)  # noqa: PLW2901 (more of it)
        problem = _refusal(known, selection, there, now, held)
        if problem is not None and coming is not None:
            if waited is None:
                waited = _on_the_way(state, {key for some in needed for key in some})
            later = united(there, coming, waited)
            there = {key: later[key] & some for key, some in outside.items() if key in later}
            problem = _refusal(known, selection, there, now, held)
        if problem is None and coming is not None:
            coming.update(united(coming, selection.wanted))
        answers.append(problem)
    return answers


def _refusal(
    known: Catalog,
    selection: Selection,
    have: dict[str, PartitionSet],
    now: datetime,
    frozen: tuple[HeldBack, ...],
) -> InputsMissing | None:
    try:
        require_inputs(holding_back(plan_holding_back(known, selection.wanted, selection.added, have, now), frozen))
    except InputsMissing as problem:
        return problem
    return None


def united(*several: Mapping[str, PartitionSet]) -> dict[str, PartitionSet]:
    """The partitions of all of them, by asset."""
    found: dict[str, PartitionSet] = {}
    for one in several:
        for key, some in one.items():
            found[key] = found[key] | some if key in found else some
    return found


def _on_the_way(state: State, asset_keys: set[str]) -> dict[str, PartitionSet]:
    """What unfinished runs are to make of some assets."""
    return united(*({key: some} for key, sets in overlays_of(state, asset_keys).items() for some in sets.values()))


def plan_of_what_can_be_made(state: State, wanted: dict[str, PartitionSet]) -> tuple[Plan, tuple[LeftOut, ...]]:
    """The plan of all that has its inputs, and what has not or was frozen meanwhile; refused where nothing is left."""
    known, now, limits = state.catalog, state.now, state.policy.plan_limits
    frozen = frozen_among(state, wanted)
    left_out = tuple(
        LeftOut(asset_key=key, partitions=some, label="frozen", summary=f"{key} {some.describe()} is frozen".strip())
        for key, some in frozen.items()
    )
    if frozen:
        selection, held = without_frozen(known, Selection(wanted=wanted), frozen)
        wanted = selection.wanted
        if not wanted:
            return require_inputs(Plan(stages=(), held_back=held)), left_out
    have = _there(state, wanted)
    plan = make_plan(known, wanted, have, now, limits)
    marked = left_out_readers(state, wanted)
    if not plan.missing and not marked:
        return plan, left_out
    left_out += marked
    for one in marked:
        wanted = {**wanted, one.asset_key: wanted[one.asset_key] - one.partitions}
    wanted = {key: some for key, some in wanted.items() if some}
    if not wanted:
        raise InputsMissing(marked[0].summary, hint="materialize what it reads for real, which replaces the mark")
    left, without = with_inputs(known, wanted, have, now)
    return make_plan(known, left, have, now, limits) if left else require_inputs(plan), left_out + without


def _there(state: State, wanted: dict[str, PartitionSet]) -> dict[str, PartitionSet]:
    return present(state, boundary(state.catalog, wanted, state.now))

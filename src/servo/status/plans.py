"""The plan for what is wanted, and what it leaves out: frozen partitions, and partitions that read marked ones.

A partition that was marked as materialized by hand counts as done, satisfies what only waits for it, and holds no data:
a partition that reads it is not run, and its plan says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from servo.assets.graph import Graph
from servo.assets.selection import Selection, select
from servo.assets.syntax import parse, terms
from servo.errors import Conflict, InputsMissing, ServoError
from servo.fold.display import MARKED
from servo.partitions import PartitionSet
from servo.planning import Plan, boundary, make_plan, require_inputs
from servo.planning.catalog import Catalog
from servo.planning.planner import plan_holding_back, with_inputs
from servo.planning.stages import HeldBack, LeftOut, no_data
from servo.status.asset_status import overlays_of
from servo.status.keysets import partitions_where, present
from servo.status.state import State


def plan_for(state: State, selection: Selection, *, frozen: Mapping[str, PartitionSet] | None = None) -> Plan:
    """The plan that would run now: without frozen partitions, and without those that only a `+` added and that lack
    inputs.

    `frozen`: what of the selection counts as frozen, where that is known already.
    """
    known = state.catalog
    frozen = frozen_among(state, selection.wanted) if frozen is None else frozen
    selection, left_out = without_frozen(known, selection, frozen)
    selection, marked = without_readers_of_marked(state, selection)
    have = _inputs_present(state, selection.wanted)
    plan = plan_holding_back(known, selection.wanted, selection.added, have, state.now, limits=state.policy.plan_limits)
    return holding_back(plan, (*left_out, *marked))


def holding_back(plan: Plan, held: tuple[HeldBack, ...]) -> Plan:
    """The plan with more partitions that it holds back, named first."""
    return msgspec.structs.replace(plan, held_back=(*held, *plan.held_back)) if held else plan


def refusals(
    state: State, selections: Sequence[Selection], coming: dict[str, PartitionSet] | None = None
) -> list[InputsMissing | None]:
    """Why each request could do nothing, None where it can. Such a request is not recorded, and its run key stays free.

    `coming`: what the requests recorded together with these make; it grows by them. Where it is given, it counts as
    present, and so does what unfinished runs make: a run is planned when its turn comes.
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
    """The union of sets of partitions by asset."""
    union: dict[str, PartitionSet] = {}
    for one in several:
        for key, some in one.items():
            union[key] = union[key] | some if key in union else some
    return union


def _nonempty(sets: Mapping[str, PartitionSet]) -> dict[str, PartitionSet]:
    return {key: some for key, some in sets.items() if some}


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
    have = _inputs_present(state, wanted)
    plan = make_plan(known, wanted, have, now, limits)
    marked = left_out_readers(state, wanted)
    if not plan.missing and not marked:
        return plan, left_out
    left_out += marked
    for one in marked:
        wanted = {**wanted, one.asset_key: wanted[one.asset_key] - one.partitions}
    wanted = _nonempty(wanted)
    if not wanted:
        raise InputsMissing(marked[0].summary, hint="materialize what it reads for real, which replaces the mark")
    left, without = with_inputs(known, wanted, have, now)
    return make_plan(known, left, have, now, limits) if left else require_inputs(plan), left_out + without


def _inputs_present(state: State, wanted: dict[str, PartitionSet]) -> dict[str, PartitionSet]:
    return present(state, boundary(state.catalog, wanted, state.now))


FROZEN = "frozen since the run was planned, and left as it is"
THAW = "thaw it first: servo partition mark {} --as thawed --reason …"
_HINT = "materialize {0} for real, which replaces the mark, or declare it with deps= where only its order matters"


def _among(state: State, wanted: Mapping[str, PartitionSet], condition: str) -> dict[str, PartitionSet]:
    """Of some partitions by asset, those whose rows meet a condition; assets without any are left out."""
    matching = partitions_where(state, _nonempty(wanted), condition)
    return _nonempty({key: some & wanted[key] for key, some in matching.items()})


# ── frozen ───────────────────────────────────────────────────────────────────────────────────────────────────────


def frozen_among(state: State, wanted: Mapping[str, PartitionSet]) -> dict[str, PartitionSet]:
    """Of some partitions by asset, those that are frozen; assets without any are left out."""
    return _among(state, wanted, "frozen")


def without_frozen(
    known: Catalog, selection: Selection, frozen: Mapping[str, PartitionSet]
) -> tuple[Selection, tuple[HeldBack, ...]]:
    """The selection without frozen partitions, and those partitions, for the plan to name."""
    if not frozen:
        return selection, ()
    left = {key: some - frozen[key] if key in frozen else some for key, some in selection.wanted.items()}
    held = tuple(
        HeldBack(asset_id=known.asset_id(key), asset_key=key, partitions=frozen[key], frozen=True)
        for key in known.graph.specs
        if key in frozen
    )
    return msgspec.structs.replace(selection, wanted=_nonempty(left)), held


def require_none_named(
    graph: Graph,
    selection: Sequence[str],
    partitions: str | None,
    frozen: Mapping[str, PartitionSet],
    now: datetime,
) -> None:
    """Refuse a selection of which a part names an asset and exactly one partition of it, and that is frozen.

    Of ranges, of what a `+` adds, and of assets that are selected by `*`, `tag:` or `group:`, frozen partitions are
    left out instead.
    """
    for term in (term for text in selection for term in terms(parse(text))) if frozen else ():
        if term.what == "*" or ":" in term.what:
            continue
        try:
            named = select(graph, term, now=now, partitions=partitions)
        except ServoError:
            continue  # what the selection as a whole says better
        for key, some in named.items():
            if some.count == 1 and key in frozen and not some - frozen[key]:
                refuse(key, some)


def refuse(asset_key: str, some: PartitionSet) -> None:
    """Say that partitions are frozen, and what to do."""
    which = f"{asset_key} {some.describe()}".rstrip()
    raise Conflict(
        f"{which} {'is' if some.count == 1 else 'are'} frozen",
        hint="give --unfreeze REASON to thaw and compute it, or " + THAW.format(which),
    )


# ── marked ───────────────────────────────────────────────────────────────────────────────────────────────────────


class _Readers(msgspec.Struct, frozen=True):
    """Partitions of an asset that read marked ones of an upstream asset, which the same run does not make."""

    asset_key: str
    upstream: str
    marked: PartitionSet
    readers: PartitionSet

    @property
    def sentence(self) -> str:
        return f"reads {no_data(self.upstream, self.marked)}"


def let_readers_wait(state: State, selection: Selection) -> Selection:
    """The selection with what reads marked partitions, and was selected by a `status:` alone, among what a run may hold
    back: nobody named it, so it is no reason to refuse all that was selected with it."""
    readers = _readers_of_marked(state, selection.wanted) if selection.by_status else ()
    by_status = selection.by_status
    waiting = [{one.asset_key: one.readers & by_status[one.asset_key]} for one in readers if one.asset_key in by_status]
    return msgspec.structs.replace(selection, added=_nonempty(united(selection.added, *waiting)))


def without_readers_of_marked(state: State, selection: Selection) -> tuple[Selection, tuple[HeldBack, ...]]:
    """The selection without added partitions that read marked ones; what was named and reads one is refused."""
    wanted, held = dict(selection.wanted), []
    for one in _readers_of_marked(state, selection.wanted):
        key, readers = one.asset_key, one.readers
        may_wait = readers & selection.added[key] if key in selection.added else None
        named = readers - may_wait if may_wait else readers
        if named:
            what = f"{key} {named.describe()}".rstrip()
            raise InputsMissing(f"{what} {one.sentence}", hint=_HINT.format(one.upstream))
        wanted[key] = wanted[key] - readers
        held.append(HeldBack(asset_id=state.catalog.asset_id(key), asset_key=key, partitions=readers, why=one.sentence))
    return msgspec.structs.replace(selection, wanted=_nonempty(wanted)), tuple(held)


def left_out_readers(state: State, wanted: Mapping[str, PartitionSet]) -> tuple[LeftOut, ...]:
    """The partitions that read marked ones, for runs of backfills: each fails by name, and the others are made."""
    by_asset: dict[str, list[_Readers]] = {}
    for one in _readers_of_marked(state, wanted):
        by_asset.setdefault(one.asset_key, []).append(one)
    found = []
    for key, several in by_asset.items():
        readers, reasons = several[0].readers, dict[str, str]()
        for one in several:
            readers = readers | one.readers
            if len(several) > 1:
                reasons = {**{str(some): f"{key} {one.sentence}" for some in one.readers}, **reasons}
        summary = f"{key} reads {'; and '.join(no_data(one.upstream, one.marked) for one in several)}"
        found.append(LeftOut(asset_key=key, partitions=readers, label="marked", summary=summary, reasons=reasons))
    return tuple(found)


def _readers_of_marked(state: State, wanted: Mapping[str, PartitionSet]) -> Iterator[_Readers]:
    """Of some partitions those that read data of marked ones, by asset and upstream asset."""
    reads = list(_data_read(state, wanted))
    marked = _among(state, united(*({upstream: some} for _, upstream, some in reads)), MARKED)
    for key, upstream, some in reads:
        without = some & marked[upstream] if upstream in marked else None
        if without:
            definition = state.catalog.spec(key).partitions
            mapping = state.catalog.graph.mapping(upstream, key)
            readers = mapping.downstream(without, definition, state.now) & wanted[key]
            # Where a custom mapping does not tell who reads it, anybody may.
            yield _Readers(key, upstream, without, readers or wanted[key])


def _data_read(state: State, wanted: Mapping[str, PartitionSet]) -> Iterator[tuple[str, str, PartitionSet]]:
    """The data read that the same run does not make: by which asset, of which upstream, and which partitions. A
    dependency that only orders runs reads none."""
    catalog = state.catalog
    for key, some in wanted.items():
        for one in catalog.spec(key).dependencies if some else ():
            if one.parameter is not None:
                definition = catalog.spec(one.upstream).partitions
                read = catalog.graph.mapping(one.upstream, key).upstream(some, definition, state.now)
                left = read - wanted[one.upstream] if one.upstream in wanted else read
                if left:
                    yield key, one.upstream, left

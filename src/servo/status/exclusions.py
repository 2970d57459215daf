"""Partitions that a run leaves out: frozen ones, and those that read data of partitions that are only marked.

A partition that somebody marked as materialized counts as done, satisfies what only waits for it, and holds no data: a
partition that reads it is not run, and its plan says so.
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
from servo.planning.catalog import Catalog
from servo.planning.stages import HeldBack, LeftOut, no_data
from servo.status.keysets import partitions_where
from servo.status.state import State

__all__ = [
    "FROZEN",
    "THAW",
    "frozen_among",
    "left_out_readers",
    "let_readers_wait",
    "refuse",
    "require_none_named",
    "without_frozen",
    "without_readers_of_marked",
]

FROZEN = "frozen since the run was planned, and left as it is"
THAW = "thaw it first: servo partition mark {} --as thawed --reason …"
_HINT = "materialize {0} for real, which replaces the mark, or declare it with deps= where only its order matters"


def _among(state: State, wanted: Mapping[str, PartitionSet], condition: str) -> dict[str, PartitionSet]:
    """Of some partitions by asset, those whose rows are so; assets without any are left out."""
    asked = [key for key, some in wanted.items() if some]
    found = {key: some & wanted[key] for key, some in partitions_where(state, asked, condition).items()}
    return {key: some for key, some in found.items() if some}


# ── frozen ───────────────────────────────────────────────────────────────────────────────────────────────────────


def frozen_among(state: State, wanted: Mapping[str, PartitionSet]) -> dict[str, PartitionSet]:
    """Of some partitions by asset, those that are frozen; assets without any are left out."""
    return _among(state, wanted, "frozen")


def without_frozen(
    known: Catalog, selection: Selection, frozen: Mapping[str, PartitionSet]
) -> tuple[Selection, tuple[HeldBack, ...]]:
    """The selection without what is frozen, and what that is, for the plan to tell."""
    if not frozen:
        return selection, ()
    left = {key: some - frozen[key] if key in frozen else some for key, some in selection.wanted.items()}
    held = tuple(
        HeldBack(asset_id=known.asset_id(key), asset_key=key, partitions=frozen[key], frozen=True)
        for key in known.graph.specs
        if key in frozen
    )
    return msgspec.structs.replace(selection, wanted={key: some for key, some in left.items() if some}), held


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
    added = dict(selection.added)
    for one in _readers_of_marked(state, selection.wanted) if selection.by_status else ():
        key = one.asset_key
        if key in selection.by_status:
            some = one.readers & selection.by_status[key]
            added[key] = added[key] | some if key in added else some
    return msgspec.structs.replace(selection, added={key: some for key, some in added.items() if some})


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
    return msgspec.structs.replace(selection, wanted={key: some for key, some in wanted.items() if some}), tuple(held)


def left_out_readers(state: State, wanted: Mapping[str, PartitionSet]) -> tuple[LeftOut, ...]:
    """The same for runs of backfills, where each such partition fails by name and the others are made."""
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
    reads, needed = list(_data_read(state, wanted)), dict[str, PartitionSet]()
    for _, upstream, some in reads:
        needed[upstream] = needed[upstream] | some if upstream in needed else some
    marked = _among(state, needed, MARKED)
    for key, upstream, some in reads:
        without = some & marked[upstream] if upstream in marked else None
        if without:
            definition = state.catalog.spec(key).partitions
            mapping = state.catalog.graph.mapping(upstream, key)
            readers = mapping.downstream(without, definition, state.now) & wanted[key]
            # Where a custom mapping does not tell who reads it, anybody may.
            yield _Readers(key, upstream, without, readers or wanted[key])


def _data_read(state: State, wanted: Mapping[str, PartitionSet]) -> Iterator[tuple[str, str, PartitionSet]]:
    """Whose data is read that the same run does not make: by which asset, of which one, and which partitions. What only
    waits reads none."""
    catalog = state.catalog
    for key, some in wanted.items():
        for one in catalog.spec(key).dependencies if some else ():
            if one.parameter is not None:
                definition = catalog.spec(one.upstream).partitions
                read = catalog.graph.mapping(one.upstream, key).upstream(some, definition, state.now)
                left = read - wanted[one.upstream] if one.upstream in wanted else read
                if left:
                    yield key, one.upstream, left

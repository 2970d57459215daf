"""Partitions that somebody marked as materialized: they count as done, satisfy what only waits for them, and hold no
data. A partition that reads their data is not run, and its plan says so."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from servo.assets.selection import Selection
from servo.errors import InputsMissing, LedgerNotFound
from servo.fold.display import MARKED
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.planning.left_out import LeftOut, no_data
from servo.planning.stages import HeldBack
from servo.runtime.keysets import stored
from servo.runtime.wiring import Project

__all__ = ["left_out_readers", "let_readers_wait", "readers_of_marked", "without_readers_of_marked"]

_PATIENCE = 60.0  # seconds for the tail to be folded
_HINT = "materialize {0} for real, which replaces the mark, or declare it with deps= where only its order matters"


def readers_of_marked(
    project: Project, known: Catalog, wanted: Mapping[str, PartitionSet], now: datetime
) -> dict[str, list[tuple[str, PartitionSet, PartitionSet]]]:
    """Of some partitions those that read data of marked ones, which the same run does not make: by asset, for each
    upstream asset with marked partitions, that asset, what is marked of it, and who reads that."""
    needed: dict[str, PartitionSet] = {}
    reads = _data_read(known, wanted, now)
    for _, upstream, some in reads:
        left = some - wanted[upstream] if upstream in wanted else some
        if left:
            needed[upstream] = needed[upstream] | left if upstream in needed else left
    marked = _marked(project, known, needed)
    found: dict[str, list[tuple[str, PartitionSet, PartitionSet]]] = {}
    for key, upstream, some in reads if marked else ():
        without = some & marked[upstream] if upstream in marked else None
        if not without or (upstream in wanted and not (without := without - wanted[upstream])):
            continue
        definition = known.spec(key).partitions
        readers = known.graph.mapping(upstream, key).downstream(without, definition, now) & wanted[key]
        # Where a custom mapping does not tell who reads it, anybody may.
        found.setdefault(key, []).append((upstream, without, readers or wanted[key]))
    return found


def let_readers_wait(project: Project, known: Catalog, selection: Selection, now: datetime) -> Selection:
    """The selection with what reads marked partitions, and was selected by a `status:` alone, among what a run may hold
    back: nobody named it, so it is no reason to refuse all that was selected with it."""
    if not selection.by_status:
        return selection
    added = dict(selection.added)
    for key, several in readers_of_marked(project, known, selection.wanted, now).items():
        for _, _, readers in several if key in selection.by_status else ():
            some = readers & selection.by_status[key]
            added[key] = added[key] | some if key in added else some
    return msgspec.structs.replace(selection, added={key: some for key, some in added.items() if some})


def without_readers_of_marked(
    project: Project, known: Catalog, selection: Selection, now: datetime
) -> tuple[Selection, tuple[HeldBack, ...]]:
    """The selection without added partitions that read marked ones; what was named and reads one is refused."""
    found = readers_of_marked(project, known, selection.wanted, now)
    if not found:
        return selection, ()
    wanted, held = dict(selection.wanted), []
    for key, upstream, marked, readers in ((key, *one) for key, several in found.items() for one in several):
        sentence = no_data(upstream, marked)
        may_wait = readers & selection.added[key] if key in selection.added else None
        named = readers - may_wait if may_wait else readers
        if named:
            reads = f"{key} {named.describe()}".rstrip()
            raise InputsMissing(f"{reads} reads {sentence}", hint=_HINT.format(upstream))
        wanted[key] = wanted[key] - readers
        held.append(HeldBack(asset_id=known.asset_id(key), asset_key=key, partitions=readers, why=f"reads {sentence}"))
    return msgspec.structs.replace(selection, wanted={key: some for key, some in wanted.items() if some}), tuple(held)


def left_out_readers(
    project: Project, known: Catalog, wanted: Mapping[str, PartitionSet], now: datetime
) -> tuple[LeftOut, ...]:
    """The same for runs of backfills, where each such partition fails by name and the others are made."""
    found = []
    for key, several in readers_of_marked(project, known, wanted, now).items():
        readers = several[0][2]
        reasons: dict[str, str] = {}
        for upstream, marked, some in several:
            readers = readers | some
            why = f"{key} reads {no_data(upstream, marked)}"
            reasons = {**{str(one): why for one in some}, **reasons} if len(several) > 1 else {}
        summary = f"{key} reads {'; and '.join(no_data(upstream, marked) for upstream, marked, _ in several)}"
        found.append(LeftOut(asset_key=key, partitions=readers, label="marked", summary=summary, reasons=reasons))
    return tuple(found)


def _data_read(
    known: Catalog, wanted: Mapping[str, PartitionSet], now: datetime
) -> list[tuple[str, str, PartitionSet]]:
    """Who reads data of whom: the asset, its upstream, and which partitions; what only waits reads none."""
    found = []
    for key, some in wanted.items():
        for one in known.spec(key).dependencies if some else ():
            if one.parameter is not None:
                definition = known.spec(one.upstream).partitions
                found.append(
                    (key, one.upstream, known.graph.mapping(one.upstream, key).upstream(some, definition, now))
                )
    return found


def _marked(project: Project, known: Catalog, needed: Mapping[str, PartitionSet]) -> dict[str, PartitionSet]:
    definitions = {known.asset_id(key): known.spec(key).partitions for key in needed}
    if not definitions:
        return {}
    try:
        project.ledger.head()
    except LedgerNotFound:  # a plan can be looked at before there is any ledger
        return {}
    rows = stored(project.reader.snapshot(fresh=True, timeout=_PATIENCE), definitions, [], where=MARKED)
    found = {key: rows[known.asset_id(key)].of(known.spec(key).partitions) & some for key, some in needed.items()}
    return {key: some for key, some in found.items() if some}

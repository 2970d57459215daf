"""Frozen partitions: left out of what runs, refused where one is named, and thawed by an event with a reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from servo.assets.graph import Graph
from servo.assets.selection import Selection, select
from servo.assets.syntax import parse, terms
from servo.errors import Conflict, LedgerNotFound, ServoError
from servo.events import Proposal
from servo.events.columns import PartitionOutcomes
from servo.events.model import PartitionsMarked
from servo.partitions import PartitionSet
from servo.planning.catalog import Catalog
from servo.planning.stages import HeldBack
from servo.runtime.keysets import stored
from servo.runtime.wiring import Project

__all__ = ["frozen_among", "require_none_named", "thaw", "without_frozen"]

FROZEN = "frozen since the run was planned, and left as it is"
THAW = "thaw it first: servo partition mark {} --as thawed --reason …"
_PATIENCE = 60.0  # seconds for the tail to be folded


def frozen_among(project: Project, known: Catalog, wanted: Mapping[str, PartitionSet]) -> dict[str, PartitionSet]:
    """Of some partitions by asset, those that are frozen; assets without any are left out."""
    definitions = {known.asset_id(key): known.spec(key).partitions for key, some in wanted.items() if some}
    if not definitions:
        return {}
    try:
        project.ledger.head()
    except LedgerNotFound:  # a plan can be looked at before there is any ledger
        return {}
    snapshot = project.reader.snapshot(fresh=True, timeout=_PATIENCE)
    rows = stored(snapshot, definitions, [], where="frozen")
    found = {
        key: rows[known.asset_id(key)].of(known.spec(key).partitions) & some for key, some in wanted.items() if some
    }
    return {key: some for key, some in found.items() if some}


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


def thaw(project: Project, known: Catalog, frozen: Mapping[str, PartitionSet], *, reason: str, actor: str) -> None:
    """Record that partitions are not frozen any more, by whom and why: one event for each asset."""
    project.ledger.append([_thawed(project, known, key, some, reason, actor) for key, some in frozen.items()])


def _thawed(  # noqa: PLR0917 (an event, and who says it)
    project: Project, known: Catalog, asset_key: str, some: Iterable[object], reason: str, actor: str
) -> Proposal:
    fact = PartitionsMarked(
        mark_id=project.mint(),
        asset_id=known.asset_id(asset_key),
        asset_key=asset_key,
        mark="THAWED",
        partitions=PartitionOutcomes(keys=[str(key) for key in some]),
        reason=reason,
    )
    return Proposal(fact=fact, occurred_at=project.clock(), actor=actor)

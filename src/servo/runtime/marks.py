"""Marks that people put on partitions: made elsewhere, frozen, thawed. An event with their name and reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from servo.answers.partitions import Marked
from servo.errors import Conflict, InvalidInput
from servo.events import Proposal
from servo.events.columns import PartitionOutcomes
from servo.events.model import PartitionsMarked
from servo.ledger.protocol import Condition
from servo.partitions import PartitionKey, PartitionSet
from servo.planning.catalog import Catalog
from servo.runtime.cataloguing import recorded_catalog
from servo.runtime.inputs import current
from servo.runtime.requesting import append_answered
from servo.runtime.wiring import Project

__all__ = ["MARKS", "mark", "thaw"]

MARKS = ("materialized", "frozen", "thawed")
_MOST = 100_000  # partitions of one event


def mark(
    project: Project,
    asset: str,
    partitions: Sequence[str],
    *,
    as_what: str,
    reason: str,
    actor: str,
) -> Marked:
    """Record it of all these partitions at once; nothing of them is computed or touched.

    Only what has no data can be marked as materialized: a mark must not hide what was computed.
    """
    if as_what not in MARKS:
        raise InvalidInput(f"partitions cannot be marked as {as_what!r:.40}", hint=f"use {', '.join(MARKS)}")
    if not reason.strip():
        raise InvalidInput("no reason is given", hint="say why: whoever looks at it later will ask")
    position = project.ledger.head().position
    known = recorded_catalog(project)
    key = known.graph.resolve(asset)
    wanted = _wanted(project, known, key, partitions)
    keys = [str(one) for one in wanted]
    condition = None
    if as_what == "materialized":
        _require_none(project, known, key, wanted, keys)
        # Whatever is published meanwhile is not hidden either.
        condition = Condition(position=position)
    fact = PartitionsMarked(
        mark_id=project.mint(),
        asset_id=known.asset_id(key),
        asset_key=key,
        mark=as_what.upper(),
        partitions=PartitionOutcomes(
            keys=keys, first_materialization_id=project.mint(len(keys)) if as_what == "materialized" else None
        ),
        reason=reason,
    )
    proposal = Proposal(fact=fact, occurred_at=project.clock(), actor=actor)
    answer = Marked(mark_id=fact.mark_id, asset_key=key, mark=fact.mark, described=wanted.describe())
    (receipt,) = append_answered(project, [proposal], condition, answer=answer)  # its event has the keys
    return msgspec.structs.replace(answer, event_id=receipt.event_id, partitions=keys)


def _wanted(project: Project, known: Catalog, key: str, partitions: Sequence[str]) -> PartitionSet:
    definition = known.spec(key).partitions
    if not partitions and definition.dimensions:
        raise InvalidInput(f"{key} is partitioned, and no partition is named", hint="name them, or a range A..B")
    wanted = definition.empty() if partitions else definition.set_of([PartitionKey()])
    for text in partitions:
        wanted = wanted | definition.parse_set(text, project.clock())
    if not wanted:
        raise InvalidInput(f"{key}: none of its partitions is named", hint="see `servo partition list`")
    if wanted.count > _MOST:
        raise InvalidInput(f"{wanted.count:,} partitions at once", hint=f"mark up to {_MOST:,} at a time")
    return wanted


def _require_none(project: Project, known: Catalog, key: str, wanted: PartitionSet, keys: list[str]) -> None:
    there = current(project, known.asset_id(key), keys)
    first = next((one for one in wanted if str(one) in there), None)
    if first is not None:
        label = wanted.partitions.label(first)
        raise Conflict(
            f"{key} {label} has data, which a mark would hide".replace("  ", " "),
            hint="to keep it as it is, whatever happens upstream, mark it as frozen",
        )


def thaw(project: Project, known: Catalog, frozen: Mapping[str, PartitionSet], *, reason: str, actor: str) -> None:
    """Record that partitions are not frozen any more, by whom and why: one event for each asset."""
    facts = [
        PartitionsMarked(
            mark_id=project.mint(),
            asset_id=known.asset_id(key),
            asset_key=key,
            mark="THAWED",
            partitions=PartitionOutcomes(keys=[str(one) for one in some]),
            reason=reason,
        )
        for key, some in frozen.items()
    ]
    project.ledger.append([Proposal(fact=fact, occurred_at=project.clock(), actor=actor) for fact in facts])

"""Values of dynamic dimensions: added and taken away by events."""

from __future__ import annotations

from collections.abc import Sequence

from servo.errors import InvalidPartition
from servo.events import Proposal
from servo.events.model import DynamicPartitionsChanged
from servo.partitions import PartitionKey
from servo.planning.catalog import Catalog
from servo.runtime.cataloguing import deployed_catalog
from servo.runtime.requesting import append_answered
from servo.runtime.wiring import Project


def change_partitions(
    project: Project,
    dimension: str,
    *,
    added: Sequence[str] = (),
    removed: Sequence[str] = (),
    actor: str,
) -> str:
    """Add values to a dynamic dimension of the project, or take them away; the id of the event.

    What was computed for a value that is taken away stays; it is only no longer asked for.
    """
    known = deployed_catalog(project, actor=actor)
    there = _values(known, dimension)
    for value in (*added, *removed):
        PartitionKey.of({dimension: value})  # raises where no key can hold it
    unknown = next((value for value in removed if value not in there), None)
    if unknown is not None:
        raise InvalidPartition(
            f"{dimension} has no value {unknown!r:.80}", hint=f"it has {', '.join(sorted(there)) or 'none yet'}"
        )
    fact = DynamicPartitionsChanged(
        change_id=project.mint(), dimension=dimension, added=list(added), removed=list(removed)
    )
    answer = {"dimension": dimension, "added": list(added), "removed": list(removed)}
    proposal = Proposal(fact=fact, occurred_at=project.clock(), actor=actor)
    (receipt,) = append_answered(project, [proposal], answer=answer)
    return receipt.event_id


def _values(known: Catalog, dimension: str) -> set[str]:
    names = {
        one.name for spec in known.graph.specs.values() for one in spec.partitions.dimensions if one.kind == "dynamic"
    }
    if dimension not in names:
        hint = f"there are {', '.join(sorted(names))}" if names else 'declare one: Dynamic("customer")'
        raise InvalidPartition(f"no asset has a dynamic dimension {dimension!r:.80}", hint=hint)
    return set(known.dynamic.get(dimension, ()))

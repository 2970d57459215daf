"""Every input of one partition: what was read of it, what is current, and how the two compare."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from servo.answers.partitions import InputState, Reason
from servo.fold.display import is_marked, marked_sql
from servo.fold.rows import Kind
from servo.fold.staleness import NEAR, input_state_sql
from servo.partitions import PartitionKey
from servo.status.staleness import reasons_on
from servo.status.staleness_query import StalenessQuery
from servo.status.state import State

if TYPE_CHECKING:
    from servo.projections.workbench import Workbench


_Place = tuple[str, str]  # asset id and partition key

_READ = """
    SELECT upstream_asset_id, upstream_partition_key, upstream_asset_key, upstream_materialization_id FROM near_lineage
"""
_NAMED = {"asset_id": Kind.TEXT, "partition_key": Kind.TEXT, "read_id": Kind.TEXT}
_INPUTS = f"""
    SELECT asset_id, partition_key, {input_state_sql()} AS state, read_id AS read_materialization_id,
           read_hash AS read_content_hash, read_run_id, read_made_at, current_id AS current_materialization_id,
           current_hash AS current_content_hash, current_run_id, current_made_at
    FROM (
      SELECT named.asset_id, named.partition_key, named.read_id,
             coalesce(made.content_hash, same.content_hash) AS read_hash,
             coalesce(made.run_id, same.last_materialization_run_id) AS read_run_id,
             coalesce(made.made_at, same.last_materialization_at) AS read_made_at,
             now.materialization_version AS current_version,
             now.materialization_id AS current_id, now.content_hash AS current_hash,
             now.last_materialization_run_id AS current_run_id, now.last_materialization_at AS current_made_at,
             {marked_sql("now")} AS input_marked
      FROM named_inputs AS named LEFT JOIN near_materializations AS made ON made.materialization_id = named.read_id
      LEFT JOIN near_partition_status AS now ON now.asset_id = named.asset_id
        AND now.partition_key = named.partition_key AND now.materialization_version IS NOT NULL
      LEFT JOIN near_partition_status AS same ON same.materialization_id = named.read_id
    )
"""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One partition: the reasons for which it is stale, and its inputs by their keys, read or given."""

    reasons: list[Reason] = []
    inputs: list[InputState] = []


def judged_partition(state: State, asset_key: str, key: PartitionKey, row: Mapping[str, Any]) -> Judged:
    """What is to be said of a partition with this row of `partition_status`, if the definition has it.

    The inputs of a frozen one are compared too; it is stale by none of them.
    """
    if key not in state.catalog.spec(asset_key).partitions:
        return Judged()
    reasons: list[Reason] = []
    changed: dict[_Place, datetime] = {}
    read: dict[_Place, str] = {}
    given = _given(state, asset_key, key)
    names = {asset_id: name for name, asset_id in state.catalog.asset_ids.items()}
    with state.workbench() as bench:
        at_hand: set[str] = set()  # tables whose rows of what is given are on the bench
        if row.get("materialization_version") is not None and not is_marked(row):
            only = {asset_key: [str(key)]}
            query = StalenessQuery(bench, state.catalog, [asset_key], state.now, only, frozen=True)
            query.answer(transitive=False)
            reasons, changed = reasons_on(bench, asset_key), query.changed_inputs()
            at_hand = query.gathered
            for asset_id, upstream_key, name, read_id in bench.rows(_READ) if "lineage" in at_hand else ():
                read[asset_id, upstream_key] = read_id
                names.setdefault(asset_id, name)
        inputs = [
            InputState(
                asset_key=names[one["asset_id"]],
                given=place in given,
                changed_at=changed.get(place),
                **(one | {"state": "removed"} if place in changed and place not in given else one),
            )
            for one in _compared(bench, given, read, at_hand)
            for place in [(one["asset_id"], one["partition_key"])]
        ]
    inputs.sort(key=lambda one: (one.asset_key, one.partition_key))
    return Judged(reasons=[] if row.get("frozen") else reasons, inputs=inputs)


def _given(state: State, asset_key: str, key: PartitionKey) -> set[_Place]:
    """The inputs that the mappings give to a partition, by asset id and key."""
    catalog, asked = state.catalog, state.catalog.spec(asset_key).partitions.set_of([key])
    return {
        (catalog.asset_id(upstream), str(one))
        for upstream in catalog.graph.upstream(asset_key)
        for one in catalog.graph.mapping(upstream, asset_key).upstream(
            asked, catalog.spec(upstream).partitions, state.now
        )
    }


def _compared(
    bench: Workbench, given: set[_Place], read: Mapping[_Place, str], at_hand: set[str]
) -> list[dict[str, Any]]:
    """What was read and what is current of inputs. `at_hand`: tables whose rows of what is given are gathered already;
    of `materializations` those of inputs that are not what was read, and no others are needed."""
    places = [*given, *(place for place in read if place not in given)]
    if not places:
        return []
    for table in NEAR if len(places) > len(given) else NEAR.keys() - at_hand:
        if table != "lineage":
            bench.near(table, NEAR[table], places, None if table == "partition_status" else list(read.values()))
    named = [(*place, read.get(place)) for place in places]
    bench.lay("named_inputs", _NAMED, [list(column) for column in zip(*named, strict=True)])
    return bench.query(_INPUTS).dicts()

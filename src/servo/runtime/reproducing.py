"""Reproduction of a partition: the same function over exactly the recorded inputs, of which nothing is kept."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict

from servo.assets import Asset
from servo.assets.loading import load
from servo.errors import AssetNotFound, DataNotFound, InvalidInput, InvalidPartition
from servo.execution.protocol import Input, Order, Place, Recomputation
from servo.execution.spark_target import require_spark
from servo.partitions import Dynamic, PartitionKey
from servo.planning.catalog import Catalog
from servo.runtime.deploying import recorded_catalog
from servo.runtime.states import state_of
from servo.runtime.wiring import Project
from servo.runtime.worker.code import settle
from servo.status.partitions import typed_key
from servo.status.sentences import classes_in

__all__ = ["Reproduction", "reproduce"]

log = logging.getLogger(__name__)

_MADE = """
    SELECT m.materialization_id, m.run_id, m.task_key, m.attempt, m.code_version, m.rows, m.content_hash, m.made_version
    FROM materializations m
    LEFT JOIN partition_status s ON s.asset_id = m.asset_id AND s.partition_key = m.partition_key
    WHERE m.asset_id = $asset_id AND m.partition_key = $key
      AND m.materialization_id = coalesce($materialization_id, s.materialization_id)
"""
_READ = """
    SELECT upstream_asset_id, upstream_asset_key, upstream_partition_key, upstream_materialization_id FROM lineage
    WHERE materialization_id = $materialization_id ORDER BY ALL
"""
# Where nothing was read of an upstream, its columns were those of what was its newest then.
_NEWEST = """
    SELECT partition_key, materialization_id FROM materializations
    WHERE asset_id = $asset_id AND published_version < $before ORDER BY materialization_id DESC LIMIT 1
"""
_PATIENCE = 60.0
_MOST_NAMED = 3


class Reproduction(Recomputation, frozen=True, kw_only=True):
    """A materialization, what the same function makes of the same inputs now, and where the two differ."""

    asset: str
    partition: str
    materialization: str
    run: str
    inputs: int
    code_version: str | None
    local_code_version: str
    content_hash: str | None
    rows: int | None
    reproducible: bool


def reproduce(
    project: Project,
    asset: str,
    partition: str = "",
    *,
    materialization_id: str | None = None,
    any_code: bool = False,
) -> Reproduction:
    """Compute the current materialization of a partition again, or a given one, and compare.

    Writes to staging alone, which is gone afterwards. Refused where the code here is not the code that made it, unless
    `any_code`; where the definition here does not have the partition; and where the files of an input are gone.
    """
    known = recorded_catalog(project)
    key = known.graph.resolve(asset)
    partition_key = PartitionKey.parse(typed_key(state_of(project, catalog=known), key, partition))
    what = f"{key} {known.spec(key).partitions.label(partition_key)}".strip()
    made = _materialization(project, known.asset_id(key), str(partition_key), materialization_id, what)
    here = _asset_here(project, key, what)
    _require_defined(here, partition_key, what)
    if not any_code:
        require_same_code(project, known.asset_id(key), here, made["code_version"], what)
    inputs = _inputs(project, known, here, made)
    _require_files(project, known, inputs)
    order = Order(
        run_id=made["run_id"],
        task_key=made["task_key"] or key,
        attempt=made["attempt"] or 1,
        # What its checks say was recorded when it was made.
        asset=here.bound(msgspec.structs.replace(here.spec, checks=())),
        asset_id=known.asset_id(key),
        keys=(str(partition_key),),
        inputs=inputs,
        edges={source.asset_key: [list(range(len(source.keys)))] for source in inputs},
        accept_schema=True,
        threads=1,
    )
    again = _compute(project, order, made)
    return Reproduction(
        asset=key,
        partition=str(partition_key),
        materialization=made["materialization_id"],
        run=made["run_id"],
        inputs=sum(len(source.keys) for source in inputs),
        code_version=made["code_version"],
        local_code_version=here.spec.code_version,
        content_hash=made["content_hash"],
        rows=made["rows"],
        reproducible=again.failure is None and again.reproduced_content_hash == made["content_hash"],
        **asdict(again),
    )


def _materialization(
    project: Project, asset_id: str, key: str, materialization_id: str | None, what: str
) -> dict[str, Any]:
    parameters = {"asset_id": asset_id, "key": key, "materialization_id": materialization_id}
    rows = project.reader.query(_MADE, parameters, fresh=True, timeout=_PATIENCE).dicts()
    if not rows:
        which = "has no data" if materialization_id is None else f"has no materialization {materialization_id!r:.60}"
        raise DataNotFound(f"{what} {which}", hint="see `servo partition history`")
    if rows[0]["run_id"] is None:
        raise InvalidInput(f"{what} was stated by hand: no function made it", hint="materialize it")
    return rows[0]


def _asset_here(project: Project, key: str, what: str) -> Asset:
    """The function as it is in the project's folder."""
    asset = load(project.settings).assets.get(key)
    if asset is None:
        raise AssetNotFound(
            f"{what} cannot be computed: {key} is not defined in {project.settings.root}",
            hint="check out the code that made it",
        )
    return asset


def _require_defined(asset: Asset, key: PartitionKey, what: str) -> None:
    """A function can be asked for the partitions of its definition alone; a dynamic value need not be there still."""
    definition, values = asset.spec.partitions, key.values
    dynamic = [one.name for one in definition.dimensions if isinstance(one, Dynamic) and one.name in values]
    given = {name: [str(values[name])] for name in dynamic}
    if key not in (definition.resolved(given) if given else definition):
        raise InvalidPartition(
            f"{what} cannot be computed: it is not among the partitions that the definition has",
            hint="check out the definitions that made it; `servo audit report` tells how it came about",
        )


def require_same_code(project: Project, asset_id: str, asset: Asset, recorded: str | None, what: str) -> None:
    """Refuse code that is neither what made it nor declared equal to that."""
    spec = asset.spec
    if recorded is None or recorded in (spec.code_version, spec.first_version):
        same = recorded is not None
    else:
        classes = classes_in(project.tables())
        same = classes.are_equal(asset_id, recorded, spec.code_version)
    if not same:
        raise InvalidInput(
            f"{what} was made by code version {recorded}, and here is {asset.spec.code_version}",
            hint="check out the code that made it, or give --any-code to see what this code makes of the same inputs",
        )


def _inputs(project: Project, known: Catalog, asset: Asset, made: dict[str, Any]) -> tuple[Input, ...]:
    """The inputs exactly as they were read, whether or not they are still current."""
    parameters = {"materialization_id": made["materialization_id"]}
    read: dict[str, list[tuple[str, str]]] = {}
    for asset_id, _, key, name in project.reader.query(_READ, parameters, fresh=True, timeout=_PATIENCE).rows:
        read.setdefault(asset_id, []).append((key, name))
    inputs = []
    for dependency in asset.spec.dependencies:
        asset_id = known.asset_id(dependency.upstream)
        pairs = read.get(asset_id, [])
        inputs.append(
            Input(
                parameter=dependency.parameter,
                asset_id=asset_id,
                asset_key=dependency.upstream,
                partitions=known.spec(dependency.upstream).partitions,
                keys=tuple(key for key, _ in pairs),
                materialization_ids=tuple(name for _, name in pairs),
                newest=None if pairs else _newest(project, asset_id, made["made_version"]),
            )
        )
    return tuple(inputs)


def _newest(project: Project, asset_id: str, before: str) -> Place | None:
    parameters = {"asset_id": asset_id, "before": before}
    rows = project.reader.query(_NEWEST, parameters, fresh=True, timeout=_PATIENCE).rows
    return Place(asset_id=asset_id, key=rows[0][0], materialization_id=rows[0][1]) if rows else None


def _require_files(project: Project, known: Catalog, inputs: Sequence[Input]) -> None:
    """Refuse where retention has removed files of an input, before Spark is started for nothing."""
    gone = []
    for source in inputs:
        for place in source.places():
            try:
                project.storage.addresses([place])
            except DataNotFound:
                label = known.spec(source.asset_key).partitions.label(PartitionKey.parse(place.key))
                gone.append(f"{source.asset_key} {label}".strip() + f" ({place.materialization_id})")
    if gone:
        more = f" and {len(gone) - _MOST_NAMED} more" if len(gone) > _MOST_NAMED else ""
        raise DataNotFound(
            f"the files of what it was made from are gone: {', '.join(gone[:_MOST_NAMED])}{more}",
            hint="retention let them go; what an audit report cites is kept",
        )


def _compute(project: Project, order: Order, made: dict[str, Any]) -> Recomputation:
    # Spark takes a second to import, and what is refused above needs none.
    from servo.execution.reproduction import ScratchStorage, compute_again  # noqa: PLC0415

    require_spark(project.settings.spark)
    settle(project.settings)
    storage = ScratchStorage(project.settings.storage, project.workspace, mint=project.mint)
    then = Place(asset_id=order.asset_id, key=order.keys[0], materialization_id=made["materialization_id"])
    return compute_again(project.settings.spark, storage, order, then=then, content_hash=made["content_hash"], log=log)

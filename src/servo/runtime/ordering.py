"""What an executor is told to compute: the asset, its partitions, and exactly which materializations they read."""

from __future__ import annotations

from servo.assets import Asset
from servo.assets.spec import Dependency
from servo.controllers.dispatch import Claim
from servo.errors import TaskError
from servo.execution.protocol import Input, Order
from servo.partitions import PartitionKey
from servo.partitions.mappings import edges
from servo.planning.catalog import Catalog
from servo.runtime.inputs import NewestVersions, current
from servo.runtime.samples import samples_of
from servo.runtime.wiring import Project


def order_for(project: Project, claim: Claim, asset: Asset, known: Catalog, newest: NewestVersions) -> Order:
    """The order for a claim. What it reads is decided here, once, and recorded with what it makes."""
    outputs = [PartitionKey.parse(key) for key in claim.keys]
    inputs: list[Input] = []
    reads: dict[str, list[list[int]] | None] = {}
    for dependency in known.spec(claim.asset_key).dependencies:
        source = _input(project, known, claim, dependency, outputs, newest=newest)
        inputs.append(source)
        reads[source.asset_key] = edges(
            known.graph.mapping(source.asset_key, claim.asset_key),
            outputs,
            [PartitionKey.parse(key) for key in source.keys],
            known.spec(claim.asset_key).partitions,
            source.partitions,
            claim.planned_at,
        )
    return Order(
        run_id=claim.run_id,
        task_key=claim.task_key,
        attempt=claim.attempt,
        asset=asset,
        asset_id=claim.asset_id,
        keys=tuple(claim.keys),
        inputs=tuple(inputs),
        edges=reads,
        previous=newest.of(claim.asset_id),
        accept_schema=claim.accept_schema,
        threads=project.settings.limits.threads,
        partitions=known.spec(claim.asset_key).partitions,
        samples=samples_of(project, claim) if asset.spec.batch and len(claim.keys) > 1 else 0,
        check_rows=project.settings.limits.check_rows,
    )


def _input(
    project: Project,
    known: Catalog,
    claim: Claim,
    dependency: Dependency,
    outputs: list[PartitionKey],
    *,
    newest: NewestVersions,
) -> Input:
    asset_key = dependency.upstream
    upstream, asset_id = known.spec(asset_key).partitions, known.asset_id(asset_key)
    asked = known.spec(claim.asset_key).partitions.set_of(outputs)
    mapping = known.graph.mapping(asset_key, claim.asset_key)
    keys = [str(key) for key in mapping.upstream(asked, upstream, claim.planned_at)]
    found = current(project, asset_id, keys)
    absent = next((key for key in keys if key not in found), None)
    if absent is not None:
        label = upstream.label(PartitionKey.parse(absent))
        raise TaskError(
            f"{claim.asset_key} reads {asset_key} {label}, which is not there", hint=f"compute {asset_key} first"
        )
    marked = tuple(index for index, key in enumerate(keys) if found[key].marked)
    source = Input(
        parameter=dependency.parameter,
        asset_id=asset_id,
        asset_key=asset_key,
        partitions=upstream,
        keys=tuple(keys),
        materialization_ids=tuple(found[key].materialization_id for key in keys),
        newest=None if len(keys) > len(marked) else newest.of(asset_id),
        marked=marked,
    )
    if dependency.parameter is not None:
        source.require_data(claim.asset_key)
    return source

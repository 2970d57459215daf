"""The order for an executor: the asset, its partitions, and exactly which materializations they read.

Before it is made, partitions that are unchanged or frozen are taken out of the claim."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from servo.assets import Asset
from servo.assets.spec import Dependency
from servo.controllers.dispatch import Claim, without_unchanged
from servo.errors import TaskError
from servo.execution.protocol import Input, Order, Place
from servo.fold.display import MARKED
from servo.partitions import PartitionKey
from servo.partitions.mappings import edges
from servo.planning.catalog import Catalog
from servo.projections.snapshot import Answers
from servo.runtime.states import state_of
from servo.runtime.wiring import Project
from servo.status.keysets import current
from servo.status.plans import frozen_among
from servo.status.staleness import stale_partitions

__all__ = ["NewestVersions", "left_to_compute", "order_for", "without_frozen_partitions"]


_NEWEST = f"""
    SELECT partition_key, materialization_id FROM partition_status
    WHERE asset_id = $asset_id AND materialization_id IS NOT NULL AND NOT ({MARKED})
    ORDER BY materialization_id DESC LIMIT 1
"""
_PATIENCE = 60.0  # seconds for the tail to be folded


class NewestVersions:
    """The newest current version of each asset, which tells its columns. Threads may share it.

    Looked up once and then remembered: a worker that is alone knows what it has published itself. `forget` is called
    when another worker has published.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._known: dict[str, Place | None] = {}

    def of(self, asset_id: str) -> Place | None:
        known = self._known
        if asset_id not in known:
            known[asset_id] = self._look_up(asset_id)
        return known[asset_id]

    def published(self, place: Place) -> None:
        """Take a version that is current now."""
        before = self._known.get(place.asset_id)
        if before is None or before.materialization_id < place.materialization_id:
            self._known[place.asset_id] = place

    def forget(self) -> None:
        """Forget all versions: other workers have published."""
        self._known = {}

    def _look_up(self, asset_id: str) -> Place | None:
        rows = self._project.reader.query(_NEWEST, {"asset_id": asset_id}, fresh=True, timeout=_PATIENCE).rows
        return Place(asset_id=asset_id, key=rows[0][0], materialization_id=rows[0][1]) if rows else None


_SAMPLED = """
    SELECT count(DISTINCT run_id) FILTER (WHERE sample_verdict IN ('EQUAL', 'CLOSE') AND run_id <> $run_id),
           count(*) FILTER (WHERE sample_verdict = 'DIFFERENT')
    FROM tasks WHERE asset_id = $asset_id AND code_version = $code_version AND partitions_sampled > 0
"""
_THERE = """
    SELECT partition_key FROM partition_status
    WHERE asset_id = $asset_id AND materialization_version IS NOT NULL AND partition_key IN (SELECT unnest($keys))
"""


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
    found = current(state_of(project).tables, asset_id, keys)
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


# ── samples of batches ───────────────────────────────────────────────────────────────────────────────────────────────
#
# Some partitions of a batch are also computed alone: in the first runs of a code version, then now and then.


def samples_of(project: Project, claim: Claim) -> int:
    """How many partitions of this task's batches to sample, by the project's settings.

    Where a sample of the same code has ever differed, all are: another sample might miss what that one found. Runs
    whose samples show nothing, as where the function fails alone, do not count as first runs.
    """
    settings = project.settings.batch
    if not settings.sample_partitions:
        return 0
    parameters = {"asset_id": claim.asset_id, "code_version": claim.code_version, "run_id": claim.run_id}
    answer = project.query(_SAMPLED, parameters)
    runs, differed = answer.rows[0]
    if differed:
        return len(claim.keys)
    now_and_then = settings.sample_every and _number(claim) % settings.sample_every == 0
    return settings.sample_partitions if now_and_then or runs < settings.sample_runs else 0


def _number(claim: Claim) -> int:
    """A number that follows from the task, so that every worker samples the same tasks."""
    return int.from_bytes(sha256(f"{claim.run_id}:{claim.task_key}".encode()).digest()[:8])


# ── unchanged and frozen partitions ────────────────────────────────────────────────────────────────────────


def left_to_compute(project: Project, claim: Claim, known: Catalog) -> tuple[Claim, list[str]]:
    """What is left of a claim, as of the ledger's head now, and which of its partitions are unchanged."""
    if not claim.only_stale:
        return claim, []
    state = state_of(project, catalog=known)
    keys = list(claim.keys)
    there = _materialized(state.tables, claim, keys)
    asked = {claim.asset_key: [key for key in keys if key in there]}
    stale = stale_partitions(state, [claim.asset_key], only=asked) if there else []
    return without_unchanged(claim, there, {one.partition_key for one in stale})


def without_frozen_partitions(project: Project, claim: Claim, known: Catalog) -> tuple[Claim, list[str], list[str]]:
    """What is left of a claim without partitions that were frozen since it was planned, all of these, and those of them
    that hold data, which whoever reads them finds. The others leave nothing to read."""
    state = state_of(project, catalog=known)
    frozen = frozen_among(state, {claim.asset_key: claim.partitions}).get(claim.asset_key)
    if not frozen:
        return claim, [], []
    keys = [str(key) for key in frozen]
    there = _materialized(state.tables, claim, keys)
    absent = frozen.partitions.set_of([key for key in keys if key not in there])
    left = msgspec.structs.replace(claim, partitions=claim.partitions - frozen, blocked=claim.blocked | absent)
    return left, keys, [key for key in keys if key in there]


def _materialized(snapshot: Answers, claim: Claim, keys: list[str]) -> set[str]:
    return {key for (key,) in snapshot.query(_THERE, {"asset_id": claim.asset_id, "keys": keys}).rows}

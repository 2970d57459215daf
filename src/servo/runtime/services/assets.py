"""Assets as they are declared, why they are as they are, and declarations about their code.

On a server the definitions are those deployed. A command in the project's folder is told what the folder's files
declare, deployed or not, and needs no ledger for it.
"""

from __future__ import annotations

from datetime import datetime
from weakref import WeakKeyDictionary

from servo.answers.assets import (
    ApprovalView,
    AssetDetails,
    AssetView,
    CheckView,
    CodeAccepted,
    Neighbour,
    RetryView,
    Upstream,
)
from servo.answers.why import AssetWhy, PartitionWhy
from servo.assets.graph import Graph
from servo.assets.loading import load
from servo.assets.spec import AssetSpec
from servo.operations.assets.requests import AcceptCode, Explain, GetAsset, ListAssets
from servo.operations.handling import Found
from servo.runtime.accepting_code import accept_code
from servo.runtime.cataloguing import local_catalog, recorded_catalog
from servo.runtime.definitions_cache import quick_catalog
from servo.runtime.serving import Call, serves_change, serves_list, serves_question
from servo.runtime.why import Why
from servo.runtime.wiring import Project


def _list_declared(project: Project, _: ListAssets, __: None, as_of: datetime | str | None) -> Found[AssetView]:
    """All of them, upstreams first."""
    graph, now = _declared(project, as_of), project.clock()
    return Found(items=[_view(graph, spec, now) for spec in graph.specs.values()])


@serves_list(ListAssets, place=lambda asset: asset.asset_key, place_type=str, in_folder=_list_declared)
def list_assets(
    project: Project, request: ListAssets, after: str | None, as_of: datetime | str | None
) -> Found[AssetView]:
    graph, now = recorded_catalog(project, as_of).graph, project.clock()
    keys = sorted(key for key in graph.specs if after is None or key > after)[: request.limit + 1]
    return Found(items=[_view(graph, graph[key], now) for key in keys])


def _get_declared(project: Project, request: GetAsset, as_of: datetime | str | None) -> AssetDetails:
    return _details(_declared(project, as_of), request.asset, project.clock())


@serves_question(GetAsset, in_folder=_get_declared)
def get_asset(project: Project, request: GetAsset, as_of: datetime | str | None) -> AssetDetails:
    return _details(recorded_catalog(project, as_of).graph, request.asset, project.clock())


def _explain_in_folder(project: Project, request: Explain, as_of: datetime | str | None) -> PartitionWhy | AssetWhy:
    return _explained(Why(project, folder=True), request, as_of)


@serves_question(Explain, in_folder=_explain_in_folder)
def explain(project: Project, request: Explain, as_of: datetime | str | None) -> PartitionWhy | AssetWhy:
    return _explained(Why(project), request, as_of)


@serves_change(AcceptCode)
def accept(call: Call, request: AcceptCode) -> CodeAccepted:
    known = recorded_catalog(call.project)
    return accept_code(call.project, known, request.asset, request.versions, reason=request.reason, actor=call.actor)


def _explained(why: Why, request: Explain, as_of: datetime | str | None) -> PartitionWhy | AssetWhy:
    if request.partition is None:
        return why.asset(request.asset, as_of=as_of)
    return why.partition(request.asset, request.partition, as_of=as_of)


def _declared(project: Project, as_of: datetime | str | None) -> Graph:
    """The folder's assets. A command may ask for several, and its code is loaded once."""
    if as_of is not None:
        return recorded_catalog(project, as_of).graph
    if project not in _GRAPHS:
        _GRAPHS[project] = _folder_graph(project)
    return _GRAPHS[project]


_GRAPHS: WeakKeyDictionary[Project, Graph] = WeakKeyDictionary()


def _folder_graph(project: Project) -> Graph:
    """As last deployed, where the code has not changed since; else from the code."""
    known = quick_catalog(project.settings)
    graph = load(project.settings).graph if known is None else known.graph
    kinds = {dimension.kind for spec in graph.specs.values() for dimension in spec.partitions.dimensions}
    # Only the ledger knows the values of dynamic dimensions.
    return graph if "dynamic" not in kinds or project.unbegun else local_catalog(project).graph


def _view(graph: Graph, spec: AssetSpec, now: datetime) -> AssetView:
    return AssetView(
        asset_key=spec.key,
        partitions=spec.partitions.to_json()["dimensions"],
        partition_count=spec.partitions.everything(now).count,
        upstream=list(graph.upstream(spec.key)),
        downstream=list(graph.downstream(spec.key)),
        batch=spec.batch,
        group=spec.group,
        owners=list(spec.owners),
        tags=spec.tags,
        code_version=spec.code_version,
        file=spec.source.file,
        line=spec.source.line,
    )


def _details(graph: Graph, asset: str, now: datetime) -> AssetDetails:
    spec = graph[graph.resolve(asset)]
    retry, approval = spec.retry, spec.approval
    return AssetDetails(
        asset_key=spec.key,
        partitions=spec.partitions.to_json()["dimensions"],
        partition_count=spec.partitions.everything(now).count,
        upstream=[
            Upstream(
                asset_key=one.upstream,
                mapping=graph.mapping(one.upstream, spec.key).to_json(),
                parameter=one.parameter,
            )
            for one in spec.dependencies
        ],
        downstream=[
            Neighbour(asset_key=key, mapping=graph.mapping(spec.key, key).to_json())
            for key in graph.downstream(spec.key)
        ],
        batch=spec.batch,
        group=spec.group,
        owners=list(spec.owners),
        tags=spec.tags,
        code_version=spec.code_version,
        file=spec.source.file,
        line=spec.source.line,
        description=spec.description,
        checks=[CheckView(**check.to_json()) for check in spec.checks],
        retry=RetryView(
            attempts=retry.attempts,
            delay_seconds=retry.delay.total_seconds(),
            factor=retry.factor,
            cap_seconds=retry.cap.total_seconds(),
            jitter_percent=retry.jitter,
            on=[str(name) for name in retry.on],
        ),
        approval=None
        if approval is None
        else ApprovalView(
            approvers=approval.approvers,
            four_eyes=approval.four_eyes,
            deadline_seconds=None if approval.deadline is None else approval.deadline.total_seconds(),
            on_deadline=approval.on_deadline,
        ),
        freshness_seconds=None if spec.freshness is None else spec.freshness.total_seconds(),
        renamed_from=spec.renamed_from,
    )

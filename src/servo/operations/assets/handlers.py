"""Assets as they are declared, why they are as they are, and declarations about their code.

On a server the definitions are those deployed. A command in the project's folder is told what the folder's files
declare, deployed or not, and needs no ledger for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from servo.answers import build
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
from servo.answers.partitions import AssetWhy, PartitionWhy
from servo.assets.graph import Graph
from servo.assets.spec import AssetSpec
from servo.errors import InvalidInput
from servo.events.model import CodeDeclaredEqual
from servo.operations.assets import materializations
from servo.operations.assets.requests import AcceptCode, Explain, GetAsset, ListAssets
from servo.operations.handling import Decision, Found, answers, decides, lists
from servo.operations.partitions.why import Why
from servo.status.sentences import AssetCode, asset_code, classes_in, made_with
from servo.status.state import State

__all__ = ["materializations"]  # which declares its own handlers


@lists(ListAssets, place=lambda asset: asset.asset_key, place_type=str)
def list_assets(state: State, request: ListAssets, after: str | None) -> Found[AssetView]:
    graph = state.declared
    # In a folder all of them, upstreams first; a page goes by name, which stays as it is while others come and go.
    keys = (
        list(graph.specs)
        if state.policy.in_folder
        else sorted(key for key in graph.specs if after is None or key > after)
    )
    return Found(items=[_view(graph, graph[key], state.now) for key in keys[: request.limit + 1]])


@answers(GetAsset)
def get_asset(state: State, request: GetAsset) -> AssetDetails:
    graph = state.declared
    return _details(graph, graph[graph.resolve(request.asset)], state.now)


@answers(Explain)
def explain(state: State, request: Explain) -> PartitionWhy | AssetWhy:
    why = Why(state, in_folder=state.policy.in_folder)
    if request.partition is None:
        return why.asset(request.asset)
    return why.partition(request.asset, request.partition)


@decides(AcceptCode)
def accept_code(state: State, request: AcceptCode) -> Decision[CodeAccepted]:
    """Record that the code of an asset, by deployed definitions, makes what other versions of it made.

    Where none are named, that is the newest of those that partitions were made with: what a person means who has just
    rewritten the code, however often it was deployed meanwhile. Nothing is computed.
    """
    if not request.reason.strip():
        raise InvalidInput("no reason is given", hint="say why: whoever looks at it later will ask")
    asset_key = state.catalog.graph.resolve(request.asset)
    code = asset_code(state.tables, state.catalog, asset_key)
    others = made_with(state.tables, code.asset_id)
    equal = classes_in(state.tables).equal_to(code.asset_id, code.current)
    versions = list(request.versions)
    chosen = _named(asset_key, code, versions, others) if versions else _newest(asset_key, code, others, equal)
    fact = CodeDeclaredEqual(
        declaration_id=state.new_id(),
        asset_id=code.asset_id,
        asset_key=asset_key,
        code_version=code.current,
        equal_to=chosen,
        reason=request.reason,
    )
    return Decision(
        facts=(fact,),
        answer=build(
            CodeAccepted,
            fact,
            partitions=sum(others.get(one, 0) for one in chosen),
            changes=code.changes(chosen),
            event_id=None,
            duplicate=False,
        ),
    )


def _named(asset_key: str, code: AssetCode, versions: Sequence[str], others: dict[str, int]) -> list[str]:
    had = [*code.versions, *others]
    for version in versions:
        if version not in had:
            raise InvalidInput(
                f"{asset_key} never had the code version {version!r:.40}",
                hint=f"it had {', '.join(list(dict.fromkeys(reversed(had)))[:5])}",
            )
        if version == code.current:
            raise InvalidInput(
                f"{version} is the code version that {asset_key} has now", hint="name one that it had before"
            )
    return list(dict.fromkeys(versions))


def _newest(asset_key: str, code: AssetCode, others: dict[str, int], equal: set[str]) -> list[str]:
    """Of the versions that partitions were made with, the one that was deployed last."""
    deployed = code.versions
    candidates = sorted(
        (version for version in others if version not in equal),
        key=lambda version: (deployed.index(version) if version in deployed else -1, version),
    )
    if not candidates:
        raise InvalidInput(
            f"no partition of {asset_key} was made by other code than that of now, {code.current}",
            hint="there is nothing to declare equal; see `servo partition stale`",
        )
    return candidates[-1:]


def _declared(spec: AssetSpec, now: datetime) -> dict[str, Any]:
    """The fields that an asset has in a list as well as alone, but for its neighbours."""
    return {
        "asset_key": spec.key,
        "partitions": spec.partitions.to_json()["dimensions"],
        "partition_count": spec.partitions.everything(now).count,
        "owners": list(spec.owners),
        "file": spec.source.file,
        "line": spec.source.line,
    }


def _view(graph: Graph, spec: AssetSpec, now: datetime) -> AssetView:
    upstream, downstream = list(graph.upstream(spec.key)), list(graph.downstream(spec.key))
    return build(AssetView, _declared(spec, now), spec, upstream=upstream, downstream=downstream)


def _details(graph: Graph, spec: AssetSpec, now: datetime) -> AssetDetails:
    retry, approval = spec.retry, spec.approval
    return build(
        AssetDetails,
        _declared(spec, now),
        spec,
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
        checks=[CheckView(**check.to_json()) for check in spec.checks],
        retry=build(
            RetryView,
            retry,
            delay_seconds=retry.delay.total_seconds(),
            cap_seconds=retry.cap.total_seconds(),
            jitter_percent=retry.jitter,
            on=[str(name) for name in retry.on],
        ),
        approval=None
        if approval is None
        else build(ApprovalView, approval, deadline_seconds=_seconds(approval.deadline)),
        freshness_seconds=_seconds(spec.freshness),
    )


def _seconds(time: timedelta | None) -> float | None:
    return None if time is None else time.total_seconds()

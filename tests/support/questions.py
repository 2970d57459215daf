"""Short ways to ask a project about its partitions and their data, now or as of then, and to change them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from servo.answers.assets import CodeAccepted
from servo.answers.lineage import Verified
from servo.answers.partitions import (
    AssetGrid,
    AssetStrip,
    AssetSummary,
    AssetWhy,
    Marked,
    PartitionView,
    PartitionWhy,
)
from servo.execution.places import Removed
from servo.execution.protocol import Place
from servo.lineage.report import Report
from servo.operations.assets.materializations import Table, places, rows_of
from servo.operations.assets.requests import AcceptCode, ListMaterializations, RollBack
from servo.operations.fields import parse_moment
from servo.operations.lineage.audit import Audits as StateAudits
from servo.operations.lineage.lineages import Lineage, lineage_of
from servo.operations.lineage.requests import Direction
from servo.operations.partitions.requests import ChangeValues, GetGrid, MarkPartitions, Summarize
from servo.operations.partitions.why import Why as StateWhy
from servo.partitions import Partitions
from servo.runtime import Project
from servo.runtime.states import state_of
from servo.runtime.vacuum import Citations, vacuum
from servo.status.asset_status import AssetStatus, asset_statuses
from servo.status.keysets import Current
from servo.status.partitions import Page, one_partition, partition_page, typed_key
from servo.status.selections import StaleRows, stale_rows
from servo.status.state import State
from tests.support.operating import Operating

When = datetime | str | None


def _state(project: Project, as_of: When) -> State:
    return state_of(project, parse_moment(as_of) if isinstance(as_of, str) else as_of)


class Data:
    """The data of a project."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def places(
        self, asset: str, partitions: Sequence[str] = (), *, as_of: When = None
    ) -> tuple[list[Place], list[Current]]:
        return places(_state(self._project, as_of), asset, partitions)

    def read(
        self, asset: str, partitions: Sequence[str] = (), *, as_of: When = None, limit: int | None = None
    ) -> Table:
        return rows_of(self._project.storage, *self.places(asset, partitions, as_of=as_of), limit)

    def materializations(self, asset: str, partition: str = "") -> list[dict[str, Any]]:
        request = ListMaterializations(asset=asset, partition=partition)
        return [msgspec.structs.asdict(one) for one in Operating(self._project).items(request)]

    def rollback(
        self,
        asset: str,
        partitions: Sequence[str] = (),
        *,
        to: str | None = None,
        reason: str,
        rollback_id: str | None = None,
        actor: str,
    ) -> dict[str, Any]:
        request = RollBack(asset=asset, partitions=tuple(partitions), to=to, reason=reason)
        done = Operating(self._project).do(request, actor=actor, request_id=rollback_id)
        answer: dict[str, Any] = msgspec.to_builtins(done)
        return answer

    def vacuum(self, *, dry_run: bool) -> list[Removed]:
        return vacuum(self._project, dry_run=dry_run)


class PartitionBook:
    """The partitions of a project."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def statuses(self, assets: Sequence[str] | None = None, *, as_of: When = None) -> dict[str, AssetStatus]:
        state = _state(self._project, as_of)
        return asset_statuses(state, None if assets is None else [state.catalog.graph.resolve(one) for one in assets])

    def summary(self, assets: Sequence[str] | None = None, *, as_of: When = None) -> list[AssetSummary]:
        return [one.summary() for one in self.statuses(assets, as_of=as_of).values()]

    def strips(self, *, cells: int) -> list[AssetStrip]:
        return Operating(self._project).ask(Summarize(cells=cells)).assets

    def grid(self, asset: str) -> AssetGrid:
        return Operating(self._project).ask(GetGrid(asset=asset))

    def definition(self, asset: str, *, as_of: When = None) -> Partitions:
        catalog = _state(self._project, as_of).catalog
        return catalog.spec(catalog.graph.resolve(asset)).partitions

    def page(self, asset: str | None = None, *, as_of: When = None, **wanted: Any) -> Page:
        return partition_page(_state(self._project, as_of), asset, **wanted)

    def one(self, asset: str, partition: str = "", *, as_of: When = None) -> PartitionView:
        state = _state(self._project, as_of)
        key = state.catalog.graph.resolve(asset)
        return one_partition(state, key, typed_key(state, key, partition)).view

    def stale(self, selection: Sequence[str] = (), *, transitive: bool = False, as_of: When = None) -> StaleRows:
        return stale_rows(_state(self._project, as_of), selection, transitive=transitive)


class Why:
    """Explains the partitions and assets of a project."""

    def __init__(self, project: Project, *, folder: bool = False) -> None:
        self._project = project
        self._folder = folder

    def partition(self, asset: str, partition: str = "", *, as_of: When = None) -> PartitionWhy:
        return StateWhy(_state(self._project, as_of), in_folder=self._folder).partition(asset, partition)

    def asset(self, asset: str, *, as_of: When = None) -> AssetWhy:
        return StateWhy(_state(self._project, as_of)).asset(asset)


_LINEAGES: dict[str, tuple[Direction, bool]] = {
    "upstream": ("upstream", False),
    "downstream": ("downstream", False),
    "impact": ("downstream", True),
    "graph": ("both", False),
}


class Lineages:
    """The lineage of a project."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def __getattr__(self, verb: str) -> Any:
        def look(*arguments: Any, as_of: When = None, **options: Any) -> Lineage:
            direction, statuses = _LINEAGES[verb]
            state = _state(self._project, as_of)
            asset = () if "asset" in options else arguments or (None,)
            return lineage_of(state, direction, *asset, **{"statuses": statuses, **options})

        return look


class Audits:
    """The audit reports of a project."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def report(self, asset: str, partition: str = "", *, as_of: When = None, keep: bool = True) -> Report:
        report = StateAudits(_state(self._project, as_of), self._project.clock()).report(asset, partition)
        if keep:
            Citations(self._project.settings).keep(report)
        return report

    def verify(self, report: Report) -> Verified:
        return StateAudits(state_of(self._project), self._project.clock()).verify(report)


def mark(project: Project, asset: str, partitions: Sequence[str], *, as_what: Any, reason: str, actor: str) -> Marked:
    request = MarkPartitions(asset=asset, partitions=tuple(partitions), mark=as_what, reason=reason)
    return Operating(project).do(request, actor=actor)


def change_partitions(
    project: Project, dimension: str, *, added: Sequence[str] = (), removed: Sequence[str] = (), actor: str
) -> str:
    request = ChangeValues(dimension=dimension, added=tuple(added), removed=tuple(removed))
    return Operating(project).do(request, actor=actor).event_id


def accept_code(project: Project, asset: str, versions: Sequence[str] = (), *, reason: str, actor: str) -> CodeAccepted:
    request = AcceptCode(asset=asset, versions=tuple(versions), reason=reason)
    return Operating(project).do(request, actor=actor)

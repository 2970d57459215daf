"""What commands call: the services of the project in this folder, or with SERVO_URL those of a server.

This is the one place where the two differ. A command asks for a service by its noun and calls it; what it is given has
the same methods and the same answers either way (`servo.cli.remote`). What a server cannot do for it, it refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from servo.cli.doing import Doing

if TYPE_CHECKING:
    from servo.answers.backfills import BackfillTree, ChunkView
    from servo.answers.grids import AssetGrid, AssetStrip
    from servo.answers.runs import RunConflict
    from servo.answers.schedules import Forecast, ScheduleView, TickView
    from servo.answers.sensors import EvalView, SensorView
    from servo.assets.graph import Graph
    from servo.events.definitions import ScheduleDefinition
    from servo.lineage.report import Report
    from servo.partitions import Partitions
    from servo.runtime.audits import Verified
    from servo.runtime.backfills import Backfills
    from servo.runtime.checkpoints import Checkpoints
    from servo.runtime.evaluation.questions import Evaluation
    from servo.runtime.labels import Labels
    from servo.runtime.lineages import Lineages
    from servo.runtime.partition_book import PartitionBook
    from servo.runtime.runs import Runs
    from servo.runtime.why import Why
    from servo.runtime.wiring import Project

__all__ = ["Services"]


class Services(Doing):
    """Those of the project in this folder."""

    remote = False

    def __init__(self, opened: Project) -> None:
        self._opened = opened

    @property
    def folder(self) -> Project:
        """The project itself, for what only its own folder can do."""
        return self._opened

    def clock(self) -> datetime:
        return self._opened.clock()

    def at_work(self) -> set[str]:
        """What kinds of processes are there: `control`, `worker`, `driver`."""
        return {holder.kind for holder in self._opened.leases.live()}

    @property
    def label(self) -> Labels:
        from servo.runtime.labels import Labels

        return Labels(self._opened)

    # ── by noun ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def runs(self) -> Runs:
        from servo.runtime.runs import Runs

        return Runs(self._opened)

    def conflicts(self, *, run_key: str | None, limit: int) -> list[RunConflict]:
        from servo.runtime.automation.run_conflicts import run_conflicts

        return run_conflicts(self._opened, run_key=run_key, limit=limit)

    @property
    def partitions(self) -> PartitionBook:
        from servo.runtime.partition_book import PartitionBook

        return PartitionBook(self._opened)

    def strips(self, *, cells: int, as_of: datetime | str | None) -> list[AssetStrip]:
        """The partitions of each asset, counted, and in so many cells."""
        return self.partitions.strips(cells=cells, as_of=as_of)

    def picture(self, asset: str, *, as_of: datetime | str | None) -> AssetGrid:
        return self.partitions.grid(asset, as_of=as_of)

    @property
    def why(self) -> Why:
        from servo.runtime.why import Why

        return Why(self._opened, folder=True)

    @property
    def lineages(self) -> Lineages:
        from servo.runtime.lineages import Lineages

        return Lineages(self._opened)

    @property
    def checkpoints(self) -> Checkpoints:
        from servo.runtime.checkpoints import Checkpoints

        return Checkpoints(self._opened)

    def materializations(self, asset: str, partition: str) -> list[dict[str, Any]]:
        from servo.runtime.data import Data

        return Data(self._opened).materializations(asset, partition)

    def assets(self) -> list[dict[str, Any]]:
        """What is declared, upstreams first; here by the code, at a server as it is deployed."""
        from servo.runtime.documents import asset_listed

        graph, now = self._declared, self._opened.clock()
        return [asset_listed(graph, spec, now) for spec in graph.specs.values()]

    def asset(self, name: str) -> dict[str, Any]:
        """All that is declared about one."""
        from servo.runtime.documents import asset_shown

        graph = self._declared
        return asset_shown(graph, graph[graph.resolve(name)], self._opened.clock())

    def declared(self, asset: str) -> Partitions:
        """Which partitions it has, by the same."""
        graph = self._declared
        return graph[graph.resolve(asset)].partitions

    @cached_property
    def _declared(self) -> Graph:
        """As last deployed, where the code has not changed since; else from the code."""
        from servo.runtime.definitions_cache import quick_catalog

        known = quick_catalog(self._opened.settings)
        if known is not None:
            graph = known.graph
        else:
            from servo.assets.loading import load

            graph = load(self._opened.settings).graph
        kinds = {one.kind for spec in graph.specs.values() for one in spec.partitions.dimensions}
        if "dynamic" not in kinds or self._opened.unbegun:
            return graph
        from servo.runtime.cataloguing import local_catalog

        return local_catalog(self._opened).graph  # whose values the ledger knows

    # ── looking ahead ────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, selection: Sequence[str], partitions: str | None, *, stale: bool) -> dict[str, Any]:
        """What a run would do; with `stale`, what should run now, and why."""
        from servo.planning.stages import require_inputs
        from servo.runtime.documents import due_shown, run_plan_shown

        if not stale:
            return run_plan_shown(require_inputs(self.runs.plan(list(selection), partitions=partitions)))
        from servo.runtime.due import plan_what_is_due

        due, found = plan_what_is_due(self._opened, selection, partitions)
        return run_plan_shown(require_inputs(found)) | due_shown(due)

    def forecast(self, named: str | None, *, days: float, since: datetime | None, limit: int) -> Forecast:
        """What schedules will do. The process that asks their functions is started with the first of them."""
        from servo.runtime.automation.schedules import Schedules
        from servo.runtime.automation.ticking import Ticking
        from servo.runtime.evaluation.evaluating import Evaluators

        evaluators: list[Evaluators] = []

        def ask(one: ScheduleDefinition, at: datetime) -> Evaluation:
            if not evaluators:
                evaluators.append(Evaluators(self._opened.settings))
            return Ticking(self._opened, evaluators[0]).ask(one, at)

        try:
            return Schedules(self._opened, local=True).next(days=days, name=named, since=since, limit=limit, ask=ask)
        finally:
            for each in evaluators:
                each.close()

    # ── data and reports ─────────────────────────────────────────────────────────────────────────────────────────

    def read(
        self, asset: str, partitions: Sequence[str], *, as_of: datetime | str | None, limit: int | None
    ) -> dict[str, Any]:
        from servo.runtime.data import Data
        from servo.runtime.documents import table_shown

        return table_shown(Data(self._opened).read(asset, partitions, as_of=as_of, limit=limit))

    def staged(self, checkpoint: str, *, limit: int | None) -> tuple[str, dict[str, Any]]:
        """Whose data waits there, and the data."""
        from servo.runtime.documents import table_shown

        asset, got = self.checkpoints.read(checkpoint, limit=limit)
        return asset, table_shown(got)

    def report(self, asset: str, partition: str, *, as_of: datetime | str | None, keep: bool) -> Report:
        from servo.runtime.audits import Audits

        return Audits(self._opened).report(asset, partition, as_of=as_of, keep=keep)

    def verify(self, report: Report) -> Verified:
        """By the ledger too."""
        from servo.runtime.audits import Audits

        self._opened.ledger.head()  # where there is none, that is said first
        return Audits(self._opened).verify(report)

    # ── backfills ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def backfills(self) -> Backfills:
        from servo.runtime.backfills import Backfills

        return Backfills(self._opened)

    def newest_backfills(self, *, state: str | None, asset: str | None, limit: int) -> list[BackfillTree]:
        from servo.runtime.backfill_book import BackfillBook

        return BackfillBook(self._opened).newest(state=state, asset=asset, limit=limit)

    def backfill_tree(self, named: str) -> BackfillTree:
        from servo.runtime.backfill_book import BackfillBook

        return BackfillBook(self._opened).tree(*self.backfills.find(named))

    def backfill_chunks(self, named: str, *, after: int, limit: int) -> tuple[str, str, list[ChunkView]]:
        """Its id, its name, and its chunks."""
        from servo.runtime.backfill_book import BackfillBook
        from servo.runtime.backfill_loading import backfills_of

        backfill_id, root = self.backfills.find(named)
        job = backfills_of(self._opened, [root]).jobs[backfill_id]
        return backfill_id, job.fact.name, BackfillBook(self._opened).chunks(job, after=after, limit=limit)

    # ── schedules and sensors ────────────────────────────────────────────────────────────────────────────────────

    def schedules(self) -> list[ScheduleView]:
        from servo.runtime.automation.schedules import Schedules

        return Schedules(self._opened, local=True).list()

    def schedule(self, named: str) -> ScheduleView:
        from servo.runtime.automation.schedules import Schedules

        return Schedules(self._opened, local=True).show(named)

    def ticks(self, named: str, **asked: Any) -> tuple[str, str, list[TickView]]:
        """Its id, its name, and its ticks."""
        from servo.runtime.automation.schedules import Schedules

        schedules = Schedules(self._opened, local=True)
        one = schedules.find(named)
        return one.id, one.definition.name, schedules.ticks(one.id, **asked)

    def sensors(self) -> list[SensorView]:
        from servo.runtime.automation.sensors import Sensors

        return Sensors(self._opened, local=True).list()

    def sensor(self, named: str) -> SensorView:
        from servo.runtime.automation.sensors import Sensors

        return Sensors(self._opened, local=True).show(named)

    def evals(self, named: str, **asked: Any) -> tuple[str, str, list[EvalView]]:
        """Its id, its name, and its evaluations."""
        from servo.runtime.automation.sensors import Sensors

        sensors = Sensors(self._opened, local=True)
        one = sensors.find(named)
        return one.id, one.definition.name, sensors.evals(one.id, **asked)

    def definition(self, asset: str, *, as_of: datetime | str | None) -> Partitions:
        return self.partitions.definition(asset, as_of=as_of)

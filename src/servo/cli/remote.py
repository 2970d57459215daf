"""The services of a server, as commands call them (`servo.cli.services` has those of a folder)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import msgspec

from servo import decoders
from servo.cli.opening import needs_folder, token_for
from servo.cli.remote_doing import RemoteDoing
from servo.cli.remote_nouns import (
    RemoteBackfills,
    RemoteCheckpoints,
    RemoteLabels,
    RemotePartitions,
    RemoteRuns,
    RemoteWhy,
    definition_of,
    upstreams_first,
)
from servo.cli.services import Services
from servo.client import Client
from servo.clock import system_clock
from servo.errors import NotAllowed

if TYPE_CHECKING:
    from servo.answers.backfills import BackfillTree, ChunkView
    from servo.answers.data import Rows
    from servo.answers.grids import AssetGrid, AssetStrip
    from servo.answers.runs import RunConflict
    from servo.answers.schedules import Forecast, ScheduleView, TickView
    from servo.answers.sensors import EvalView, SensorView
    from servo.lineage.report import Report
    from servo.partitions import Partitions
    from servo.runtime.audits import Verified
    from servo.runtime.backfills import Backfills
    from servo.runtime.checkpoints import Checkpoints
    from servo.runtime.labels import Labels
    from servo.runtime.lineages import Lineages
    from servo.runtime.partition_book import PartitionBook
    from servo.runtime.runs import Runs
    from servo.runtime.why import Why
    from servo.runtime.wiring import Project

__all__ = ["Remote"]

_RETRY_SECONDS = 4.0  # a person waits


class Remote(RemoteDoing, Services):
    """Those of a server. Its answers have the fields of the services' own, under the same names."""

    remote = True

    def __init__(self, url: str) -> None:
        # As in the folder, every answer has all that the ledger holds.
        self._client = Client(url, token_for(url), retry_seconds=_RETRY_SECONDS, fresh=True)

    def close(self) -> None:
        self._client.close()

    @property
    def folder(self) -> Project:
        needs_folder("this")

    def clock(self) -> datetime:
        return system_clock()

    def at_work(self) -> set[str]:
        """As the server says it; whoever serves drives too. Workers come and go, so none of them is no fault of it."""
        well = [one for one in self._client.ready()["checks"] if one["ok"] and one.get("detail") != "none"]
        return {"driver", *(one["name"] for one in well)}

    @property
    def label(self) -> Labels:
        return cast("Labels", RemoteLabels(self._client))

    # ── by noun: what follows has the methods that commands call, and no more ────────────────────────────────────

    @property
    def runs(self) -> Runs:
        return cast("Runs", RemoteRuns(self._client))

    def conflicts(self, *, run_key: str | None, limit: int) -> list[RunConflict]:
        return list(self._client.conflicts.list(run_key=run_key, limit=limit))

    @property
    def partitions(self) -> PartitionBook:
        return cast("PartitionBook", RemotePartitions(self._client))

    def strips(self, *, cells: int, as_of: datetime | str | None) -> list[AssetStrip]:
        return self._client.partitions.summary(cells=cells, as_of=as_of)

    def picture(self, asset: str, *, as_of: datetime | str | None) -> AssetGrid:
        return self._client.assets.grid(asset, as_of=as_of)

    @property
    def why(self) -> Why:
        return cast("Why", RemoteWhy(self._client))

    @property
    def lineages(self) -> Lineages:
        from servo.cli.remote_lineages import RemoteLineages

        return cast("Lineages", RemoteLineages(self._client))

    @property
    def checkpoints(self) -> Checkpoints:
        return cast("Checkpoints", RemoteCheckpoints(self._client))

    def materializations(self, asset: str, partition: str) -> list[dict[str, Any]]:
        return list(self._client.materializations.list(asset, partition))

    def assets(self) -> list[dict[str, Any]]:
        """What is declared, upstreams first, else in the order of the files."""
        return upstreams_first(sorted(self._client.assets.list(), key=lambda one: (one["file"], one["line"])))

    def asset(self, name: str) -> dict[str, Any]:
        return self._client.assets.get(name)

    def declared(self, asset: str) -> Partitions:
        return self.definition(asset, as_of=None)

    # ── looking ahead ────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, selection: Sequence[str], partitions: str | None, *, stale: bool) -> dict[str, Any]:
        return self._client.runs.plan(selection, partitions, stale=stale)

    def forecast(self, named: str | None, *, days: float, since: datetime | None, limit: int) -> Forecast:
        return self._client.schedules.forecast(named, days=days, since=since, limit=limit)

    # ── data and reports ─────────────────────────────────────────────────────────────────────────────────────────

    def read(
        self, asset: str, partitions: Sequence[str], *, as_of: datetime | str | None, limit: int | None
    ) -> dict[str, Any]:
        return rows_shown(self._client.data.read(asset, partitions, as_of=as_of, limit=limit))

    def staged(self, checkpoint: str, *, limit: int | None) -> tuple[str, dict[str, Any]]:
        found = self._client.data.staged(checkpoint, limit=limit)
        return found.asset_key, rows_shown(found)

    def report(self, asset: str, partition: str, *, as_of: datetime | str | None, keep: bool) -> Report:
        from servo.lineage.report import parse

        audit = self._client.audit
        try:
            found = audit.keep(asset, partition, as_of=as_of) if keep else audit.report(asset, partition, as_of=as_of)
        except NotAllowed as problem:
            if keep and problem.hint is None:
                problem.hint = "or --no-keep: then vacuum may remove what the report cites"
            raise
        return parse(msgspec.json.encode(found))

    def verify(self, report: Report) -> Verified:
        from servo.lineage.report import to_json

        found = self._client.audit.verify(decoders.decode(to_json(report)))
        return cast("Verified", decoders.convert(found, _Verified))

    # ── backfills ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def backfills(self) -> Backfills:
        return cast("Backfills", RemoteBackfills(self._client))

    def newest_backfills(self, *, state: str | None, asset: str | None, limit: int) -> list[BackfillTree]:
        return list(self._client.backfills.list(status=state and state.upper(), asset=asset, limit=limit))

    def backfill_tree(self, named: str) -> BackfillTree:
        return self._client.backfills.tree(named)

    def backfill_chunks(self, named: str, *, after: int, limit: int) -> tuple[str, str, list[ChunkView]]:
        one = self._client.backfills.get(named)
        chunks = (chunk for chunk in self._client.backfills.chunks(named) if chunk.chunk_index > after)
        return one.backfill_id, one.name, list(islice(chunks, limit))

    # ── schedules and sensors ────────────────────────────────────────────────────────────────────────────────────

    def schedules(self) -> list[ScheduleView]:
        return list(self._client.schedules.list())

    def schedule(self, named: str) -> ScheduleView:
        return self._client.schedules.get(named)

    def ticks(self, named: str, **asked: Any) -> tuple[str, str, list[TickView]]:
        one = self._client.schedules.get(named)
        found = _before(self._client.schedules.ticks(named, status=asked["status"]), asked)
        return one.schedule_id, one.name, found

    def sensors(self) -> list[SensorView]:
        return list(self._client.sensors.list())

    def sensor(self, named: str) -> SensorView:
        return self._client.sensors.get(named)

    def evals(self, named: str, **asked: Any) -> tuple[str, str, list[EvalView]]:
        one = self._client.sensors.get(named)
        found = self._client.sensors.evals(named, status=asked["status"], trigger=asked["trigger"])
        return one.sensor_id, one.name, _before(found, asked)

    def definition(self, asset: str, *, as_of: datetime | str | None) -> Partitions:
        return definition_of(self._client.assets.get(asset, as_of=as_of))


class _Fault(msgspec.Struct, frozen=True):
    path: str
    reason: str


class _Verified(msgspec.Struct, frozen=True):
    """As `servo.runtime.audits.Verified`."""

    events: int
    with_ledger: bool
    faults: list[_Fault]


def rows_shown(found: Rows) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(found).items() if name != "asset_key"}


def _before(found: Iterable[Any], asked: dict[str, Any]) -> list[Any]:
    """Those before an event, newest first, and no more than were asked for."""
    before: str | None = asked["before"]
    return list(islice((one for one in found if before is None or one.event_id < before), asked["limit"]))

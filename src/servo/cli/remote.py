"""The services of a server, as commands call them (`servo.cli.services` has those of a folder)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from servo.cli.opening import needs_folder
from servo.cli.remote_nouns import (
    RemoteBackfills,
    RemoteCheckpoints,
    RemoteLabels,
    RemoteOutdated,
    RemotePartitions,
    RemoteRuns,
    RemoteWhy,
    definition_of,
    upstreams_first,
)
from servo.cli.services import Services
from servo.client import Client
from servo.clock import system_clock

if TYPE_CHECKING:
    from servo.partitions import Partitions
    from servo.runtime.automation.changing import Changed
    from servo.runtime.automation.run_conflicts import RunConflict
    from servo.runtime.automation.schedule_views import ScheduleView, TickView
    from servo.runtime.automation.sensing import Accepted
    from servo.runtime.automation.sensor_views import EvalView, SensorView
    from servo.runtime.automation.sensors import CursorReset
    from servo.runtime.automation.ticking import Ticked
    from servo.runtime.backfill_views import BackfillTree, ChunkView
    from servo.runtime.backfills import Backfills
    from servo.runtime.checkpoints import Checkpoints
    from servo.runtime.labels import Labels
    from servo.runtime.lineages import Lineages
    from servo.runtime.outdated import Outdated
    from servo.runtime.partitions import PartitionBook
    from servo.runtime.runs import Runs
    from servo.runtime.why import Why
    from servo.runtime.wiring import Project

__all__ = ["Remote"]

_RETRY_SECONDS = 10.0  # a person waits


class Remote(Services):
    """Those of a server. Its answers have the fields of the services' own, under the same names."""

    def __init__(self, url: str) -> None:
        # As in the folder, every answer has all that the ledger holds.
        self._client = Client(url, retry_seconds=_RETRY_SECONDS, fresh=True)

    def close(self) -> None:
        self._client.close()

    @property
    def folder(self) -> Project:
        needs_folder("this")

    def clock(self) -> datetime:
        return system_clock()

    def at_work(self) -> set[str]:
        """Who asks a server leaves it to others to see to it that somebody works there."""
        return {"control", "worker", "driver"}

    @property
    def label(self) -> Labels:
        return cast("Labels", RemoteLabels(self._client))

    # ── by noun: what follows has the methods that commands call, and no more ────────────────────────────────────

    @property
    def runs(self) -> Runs:
        return cast("Runs", RemoteRuns(self._client))

    def conflicts(self, *, run_key: str | None, limit: int) -> list[RunConflict]:
        return cast("list[RunConflict]", list(self._client.conflicts.list(run_key=run_key, limit=limit)))

    @property
    def partitions(self) -> PartitionBook:
        return cast("PartitionBook", RemotePartitions(self._client))

    @property
    def outdated(self) -> Outdated:
        return cast("Outdated", RemoteOutdated(self._client))

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

    # ── backfills ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def backfills(self) -> Backfills:
        return cast("Backfills", RemoteBackfills(self._client))

    def newest_backfills(self, *, state: str | None, asset: str | None, limit: int) -> list[BackfillTree]:
        return cast(
            "list[BackfillTree]",
            list(self._client.backfills.list(status=state and state.upper(), asset=asset, limit=limit)),
        )

    def backfill_tree(self, named: str) -> BackfillTree:
        return cast("BackfillTree", self._client.backfills.tree(named))

    def backfill_chunks(self, named: str, *, after: int, limit: int) -> tuple[str, str, list[ChunkView]]:
        one = self._client.backfills.get(named)
        chunks = (chunk for chunk in self._client.backfills.chunks(named) if chunk.chunk_index > after)
        return one.backfill_id, one.name, cast("list[ChunkView]", list(islice(chunks, limit)))

    # ── schedules and sensors ────────────────────────────────────────────────────────────────────────────────────

    def schedules(self) -> list[ScheduleView]:
        return cast("list[ScheduleView]", list(self._client.schedules.list()))

    def schedule(self, named: str) -> ScheduleView:
        return cast("ScheduleView", self._client.schedules.get(named))

    def ticks(self, named: str, **asked: Any) -> tuple[str, str, list[TickView]]:
        one = self._client.schedules.get(named)
        found = _before(self._client.schedules.ticks(named, status=asked["status"]), asked)
        return one.schedule_id, one.name, cast("list[TickView]", found)

    def sensors(self) -> list[SensorView]:
        return cast("list[SensorView]", list(self._client.sensors.list()))

    def sensor(self, named: str) -> SensorView:
        return cast("SensorView", self._client.sensors.get(named))

    def evals(self, named: str, **asked: Any) -> tuple[str, str, list[EvalView]]:
        one = self._client.sensors.get(named)
        found = self._client.sensors.evals(named, status=asked["status"], trigger=asked["trigger"])
        return one.sensor_id, one.name, cast("list[EvalView]", _before(found, asked))

    def switch(
        self, named: str, *, on: bool, sensor: bool, expected_version: int | None, reason: str | None, actor: str
    ) -> Changed:
        found = self._client.sensors if sensor else self._client.schedules
        switch = found.resume if on else found.pause
        return cast("Changed", switch(named, reason=reason, expected_state_version=expected_version))

    def reset_cursor(
        self, named: str, cursor: str | None, *, expected_state_version: int | None, reason: str | None, actor: str
    ) -> CursorReset:
        found = self._client.sensors.reset_cursor(
            named, cursor, reason=reason, expected_state_version=expected_state_version
        )
        return cast("CursorReset", found)

    def trigger(self, named: str, *, request_id: str | None, at: datetime | None, actor: str) -> Ticked:
        return cast("Ticked", self._client.schedules.trigger(named, at=at, idempotency_key=request_id))

    def send(
        self, named: str, data: bytes, *, message_id: str | None, attributes: dict[str, str], actor: str
    ) -> Accepted:
        found = self._client.sensors.send(
            named, data, message_id=message_id, attributes=attributes, published_at=self.clock()
        )
        return cast("Accepted", found)

    def evaluate(
        self,
        named: str,
        *,
        data: bytes | None,
        attributes: dict[str, str],
        message_id: str | None,
        request_id: str | None,
        dry_run: bool,
        actor: str,
    ) -> Accepted:
        found = self._client.sensors.evaluate(
            named,
            data=None if data is None else data.decode(errors="surrogateescape"),
            attributes=attributes,
            message_id=message_id,
            dry_run=dry_run,
            idempotency_key=request_id,
        )
        return cast("Accepted", found)

    def definition(self, asset: str, *, as_of: datetime | str | None) -> Partitions:
        return definition_of(self._client.assets.get(asset, as_of=as_of))


def _before(found: Iterable[Any], asked: dict[str, Any]) -> list[Any]:
    """Those before an event, newest first, and no more than were asked for."""
    before: str | None = asked["before"]
    return list(islice((one for one in found if before is None or one.event_id < before), asked["limit"]))

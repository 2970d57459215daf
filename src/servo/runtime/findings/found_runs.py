"""Runs that have ended since a position of the ledger."""

from __future__ import annotations

from collections.abc import Iterable

from servo.assets.found import EndedRun
from servo.assets.selected import assets_of
from servo.assets.watch_cursors import position_of
from servo.assets.watches import RunEnded
from servo.events import RecordedEvent, decode
from servo.events.model import RunFinished, RunRequested
from servo.runtime.deploying import catalog
from servo.runtime.findings.found import LIMIT, MOST_EVENTS, Found, events_after
from servo.runtime.wiring import Project

__all__ = ["ended_runs"]

_PATIENCE = 60.0  # seconds for the tail to be folded
_ASSETS = "SELECT run_id, asset_selection FROM runs WHERE run_id IN (SELECT unnest($run_ids))"


def ended_runs(
    watch: RunEnded, cursor: str | None, project: Project, *, sensor_id: str | None = None, limit: int = LIMIT
) -> Found:
    """Runs that ended in a way that is watched, after the cursor; without one, from now on."""
    if cursor is None:
        return Found(cursor=str(project.ledger.head().position))
    before = after = position_of(cursor)
    ended: list[tuple[RecordedEvent, RunFinished]] = []
    assets: dict[str, list[str]] = {}  # of runs that were asked for in what is read anyway
    more = False
    for event in events_after(project, after):
        if len(ended) == limit:
            more = True
            break
        if event.event_type == RunRequested.event_type and isinstance(asked := decode(event), RunRequested):
            assets.setdefault(asked.run_id, asked.asset_selection)
        if event.event_type == RunFinished.event_type and isinstance(fact := decode(event), RunFinished):
            own = sensor_id is not None and (fact.source.kind, fact.source.id) == ("sensor", sensor_id)
            if fact.outcome.value in watch.status and not own:
                ended.append((event, fact))
        after = event.position
    items = _items(watch, project, ended, assets)
    moved = bool(ended) or after - before > LIMIT
    more = more or after - before >= MOST_EVENTS
    return Found(items=items, cursor=str(after) if moved else cursor, more=more)


def _items(
    watch: RunEnded,
    project: Project,
    ended: list[tuple[RecordedEvent, RunFinished]],
    assets: dict[str, list[str]],
) -> list[EndedRun]:
    assets = {**assets, **_assets(project, {fact.run_id for _, fact in ended} - assets.keys())}
    wanted = None
    if watch.select is not None and ended:
        wanted = assets_of(catalog(project).graph, watch.select)
    found = []
    for event, fact in ended:
        mine = assets.get(fact.run_id, [])
        if wanted is None or not wanted.isdisjoint(mine):
            found.append(_item(event, fact, mine))
    return found


def _assets(project: Project, run_ids: Iterable[str]) -> dict[str, list[str]]:
    asked = sorted(run_ids)
    if not asked:
        return {}
    answer = project.reader.query(_ASSETS, {"run_ids": asked}, fresh=True, timeout=_PATIENCE)
    return {run_id: list(selection or ()) for run_id, selection in answer.rows}


def _item(event: RecordedEvent, fact: RunFinished, assets: list[str]) -> EndedRun:
    return EndedRun(
        key=fact.run_id,
        values={"run_id": fact.run_id, "status": fact.outcome.value},
        run_id=fact.run_id,
        status=fact.outcome.value,
        assets=tuple(assets),
        source_kind=fact.source.kind,
        source_id=fact.source.id,
        reason=fact.reason,
        position=event.position,
        at=event.occurred_at,
    )

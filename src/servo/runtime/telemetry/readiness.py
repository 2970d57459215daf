"""Readiness: checks whether the ledger, the projections, a control loop and workers are fit for work now."""

from __future__ import annotations

import logging

import msgspec

from servo.answers.server import ReadinessCheck
from servo.errors import ServoError
from servo.ids import ulid_time
from servo.ledger.leases import Holder
from servo.runtime.wiring import Project

__all__ = ["Lag", "checks_of", "projection_lag"]

log = logging.getLogger(__name__)

_FAR_BEHIND = 10  # times the tail that a read folds by itself; beyond it, reads that want to be fresh wait in vain


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """How far the projections' files are behind the ledger; what is newer is folded by whoever reads."""

    events: int
    seconds: float
    version: int


def projection_lag(project: Project) -> Lag:
    """Raises where the ledger or the newest version cannot be read."""
    head, manifest = project.ledger.head(), project.store.current()
    folded = manifest.watermark.position
    seconds = 0.0
    if head.position > folded and (oldest := project.history.read(folded, 1)):
        seconds = max((project.clock() - ulid_time(oldest[0].event_id)).total_seconds(), 0.0)
    return Lag(events=max(head.position - folded, 0), seconds=seconds, version=manifest.version)


def checks_of(project: Project) -> list[ReadinessCheck]:
    """Ledger, projections, who plans and who computes. Of the rest nothing can be told where the ledger is away."""
    try:
        project.ledger.head()
        project.ledger.append([])  # begins to write, and has nothing to: refused where nothing could be written
        # Looking who is alive clears away who is not, in PostgreSQL in the very same database: that writes for certain.
        holders = project.leases.live()
    except ServoError as problem:
        log.warning("the ledger is not well: %s", problem, extra={"action": "api.unready"})
        return [ReadinessCheck(name="ledger", ok=False, problem=problem.code)]
    control = any(holder.kind == "control" for holder in holders)
    return [
        ReadinessCheck(name="ledger", ok=True),
        _projections(project),
        ReadinessCheck(name="control", ok=control, problem=None if control else "nobody-plans"),
        _workers([holder for holder in holders if holder.kind == "worker"]),
    ]


def _workers(holders: list[Holder]) -> ReadinessCheck:
    """Workers come and go, and may be on other machines, so none is fine: what waits for one is not lost.

    But those that are there and cannot work hold up what waits.
    """
    stuck = [holder.detail for holder in holders if holder.detail]
    if not stuck:
        return ReadinessCheck(name="worker", ok=True, detail=str(len(holders)) if holders else "none")
    detail = f"{len(stuck)} of {len(holders)} cannot work: {'; '.join(sorted(set(stuck)))}"
    works = len(stuck) < len(holders)
    return ReadinessCheck(name="worker", ok=works, problem=None if works else "no-worker-works", detail=detail)


def _projections(project: Project) -> ReadinessCheck:
    try:
        lag = projection_lag(project)
    except ServoError as problem:
        log.warning("the projections are not well: %s", problem, extra={"action": "api.unready"})
        return ReadinessCheck(name="projections", ok=False, problem=problem.code)
    detail = f"{lag.events} events, {lag.seconds:.1f} s behind"
    if lag.events > _FAR_BEHIND * project.settings.tail.events:
        return ReadinessCheck(name="projections", ok=False, problem="projection-lagging", detail=detail)
    return ReadinessCheck(name="projections", ok=True, detail=detail)

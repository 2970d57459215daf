"""Figures for Prometheus, and readiness. No label names an asset, a partition, a run or anybody: there are millions.

What happened is counted from the projections up to the ledger's head, so that every server of a workspace says the
same, also after a restart. What a process does itself is its own: how long its appends take, what it answers over HTTP.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from servo.answers.server import ReadinessCheck
from servo.controllers.backfill_board import OVER, BackfillState
from servo.errors import ServoError
from servo.events.lifecycles import EvaluationStatus, RunStatus, TaskStatus, TickStatus
from servo.ids import ulid_time
from servo.ledger.append_meter import BUCKETS as APPEND_BUCKETS
from servo.ledger.leases import Holder
from servo.runtime.loop.service_loop import take_polls
from servo.runtime.wiring import Project
from servo.status.deployed import schedules_of, sensors_of

if TYPE_CHECKING:
    from servo.projections.snapshot import Answers

__all__ = ["CONTENT_TYPE", "Lag", "Metrics", "checks_of", "projection_lag"]

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_KEEP_SECONDS = 1.0  # several who scrape at the same moment are given the same
_LAG_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
_WAIT_BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 604_800.0)
_HTTP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ACTIVE_BACKFILLS = tuple(state.value for state in BackfillState if state not in OVER)
_ACTIVE_RUNS = tuple(status.value for status in RunStatus if not status.ended)
_RUN_OUTCOMES = tuple(status.value for status in RunStatus if status.ended)
_ACTIVE_TASKS = tuple(state.value for state in TaskStatus if not state.ended and state is not TaskStatus.READY)
_TASK_OUTCOMES = tuple(state.value for state in TaskStatus if state.ended)
_TICKS = tuple(status.value for status in TickStatus)
_EVALUATIONS = tuple(status.value for status in EvaluationStatus)
_PROCESSES = ("control", "driver", "worker")

_COUNTS = f"""
    SELECT 'runs' AS what, status AS label, count(*) AS number FROM runs
        WHERE requested_version IS NOT NULL GROUP BY status
    UNION ALL SELECT 'tasks', state, count(*) FROM tasks GROUP BY state
    UNION ALL SELECT 'ticks', status, count(*) FROM schedule_ticks GROUP BY status
    UNION ALL SELECT 'evaluations', status, count(*) + CASE status WHEN '{EvaluationStatus.NO_DATA}' THEN (
        SELECT coalesce(sum(quiet_polls), 0) FROM sensor_evals
    ) ELSE 0 END FROM sensor_evals GROUP BY status
    UNION ALL SELECT 'backfills', state, count(*) FROM backfills WHERE created_version IS NOT NULL GROUP BY state
    UNION ALL SELECT 'conflicts', '', count(*) FROM run_key_conflicts
    UNION ALL SELECT 'upstream_created', '', count(*) FROM backfills WHERE role = 'upstream'
    UNION ALL SELECT 'depths', CASE WHEN distance >= 4 THEN '4+' ELSE CAST(greatest(distance, 1) AS VARCHAR) END,
        count(*) FROM backfills
        WHERE role = 'upstream' AND state IN (SELECT unnest($active)) GROUP BY ALL
"""
# The first chunk is planned when nothing is waited for any more.
_WAITS = """
    SELECT epoch(min(chunk.planned_at) - min(job.created_at)) AS seconds
    FROM backfills job JOIN backfill_chunks chunk USING (backfill_id)
    WHERE job.upstreams IS NOT NULL AND job.upstreams <> '[]' AND chunk.planned_at IS NOT NULL
    GROUP BY backfill_id
"""
_LAGS = """
    SELECT epoch(ticked_at - scheduled_for) AS seconds FROM schedule_ticks
    WHERE NOT manual AND tick_version IS NOT NULL
"""
_BUCKETED = "SELECT bucket, count(*), sum(seconds) FROM (SELECT seconds, {case} AS bucket FROM ({of})) GROUP BY bucket"

_Counts = Mapping[tuple[str, str], int]


class _Family(NamedTuple):
    """A metric with one value for each label, also for labels that nothing has."""

    kind: type[GaugeMetricFamily] | type[CounterMetricFamily]
    name: str
    what: str
    label: str
    counted: str
    values: Sequence[str]

    def of(self, counts: _Counts) -> Metric:
        family = self.kind(self.name, self.what, labels=[self.label])
        for value in self.values:
            family.add_metric([value], counts.get((self.counted, value), 0))
        return family


_G, _C = GaugeMetricFamily, CounterMetricFamily
_FAMILIES = (
    _Family(
        _G,
        "servo_backfill_jobs_active",
        "Backfill jobs that have not ended.",
        "state",
        "backfills",
        _ACTIVE_BACKFILLS,
    ),
    _Family(
        _G,
        "servo_backfill_upstream_depth",
        "Upstream backfill jobs that have not ended, by how many steps they are from what was asked for.",
        "depth",
        "depths",
        ("1", "2", "3", "4+"),
    ),
    _Family(_G, "servo_runs_active", "Runs that have not ended.", "status", "runs", _ACTIVE_RUNS),
    _Family(_C, "servo_runs", "Runs that have ended.", "outcome", "runs", _RUN_OUTCOMES),
    _Family(_G, "servo_tasks_active", "Tasks that have not ended.", "state", "tasks", _ACTIVE_TASKS),
    _Family(_C, "servo_tasks", "Tasks that have ended.", "outcome", "tasks", _TASK_OUTCOMES),
    _Family(_C, "servo_schedule_ticks", "Ticks of schedules.", "status", "ticks", _TICKS),
    _Family(_C, "servo_sensor_evaluations", "Evaluations of sensors.", "status", "evaluations", _EVALUATIONS),
)


class Metrics:
    """The figures of one server."""

    def __init__(self, project: Project) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_WorkspaceCollector(project))
        ProcessCollector(registry=self._registry)
        self._requests = Histogram(
            "servo_http_request_seconds",
            "How long requests to this server took, by method and status.",
            ("method", "status"),
            buckets=_HTTP_BUCKETS,
            registry=self._registry,
        )
        self._lock = Lock()
        self._text, self._at = b"", float("-inf")

    def answered(self, method: str, status: int, seconds: float) -> None:
        # What is no method is anybody's text, and would be a label.
        known = method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"
        self._requests.labels(known, str(status)).observe(seconds)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        with self._lock:
            if time.monotonic() - self._at > _KEEP_SECONDS:
                self._text, self._at = generate_latest(self._registry), time.monotonic()
            return self._text


class _WorkspaceCollector(Collector):
    def __init__(self, project: Project) -> None:
        self._project = project

    def collect(self) -> Iterator[Metric]:
        yield from self._appends()
        complete = 1
        for part in (self._recorded, self._ledger, self._processes):
            try:
                yield from list(part())
            except ServoError as problem:
                complete = 0
                log.warning("some figures cannot be told: %s", problem, extra={"action": "metrics.incomplete"})
        yield _gauge("servo_metrics_complete", "1 if all figures could be told, 0 if some are left out.", complete)

    def _recorded(self) -> Iterable[Metric]:
        """Metrics of what events record."""
        snapshot = self._project.reader.snapshot(fresh=True, timeout=60.0)
        active = {"active": list(_ACTIVE_BACKFILLS)}
        counts = {(what, label or ""): number for what, label, number in snapshot.query(_COUNTS, active).rows}
        yield from (family.of(counts) for family in _FAMILIES)
        what = "Backfill jobs that were made because another needs what they compute."
        yield _counter("servo_backfill_upstream_jobs_created", what, counts.get(("upstream_created", ""), 0))
        what = "Requests whose run key belongs to another."
        yield _counter("servo_run_key_conflicts", what, counts.get(("conflicts", ""), 0))
        what = "From when a backfill job was made to its first chunk, of jobs that wait for others."
        yield _histogram("servo_backfill_upstream_wait_duration_seconds", what, _WAIT_BUCKETS, _WAITS, snapshot)
        what = "From when a tick was due to when it was recorded."
        yield _histogram("servo_schedule_tick_lag_seconds", what, _LAG_BUCKETS, _LAGS, snapshot)
        yield from self._overdue(snapshot)

    def _overdue(self, snapshot: Answers) -> Iterable[Metric]:
        now = self._project.clock()
        sensors = take_polls(sensors_of(snapshot), self._project.polls.all())
        ticks, polls = schedules_of(snapshot).next_due(), sensors.next_due()
        what = "How long the schedule that waits longest for its tick has been due; 0 if none is."
        yield _gauge("servo_schedule_overdue_seconds", what, _since(ticks, now))
        what = "How long the sensor that waits longest to be polled has been due; 0 if none is."
        yield _gauge("servo_sensor_lag_seconds", what, _since(polls, now))

    def _ledger(self) -> Iterable[Metric]:
        lag = projection_lag(self._project)
        yield _counter("servo_ledger_events", "Events of this workspace.", self._project.ledger.head().position)
        yield _gauge("servo_projection_lag_events", "Events that the projections' files do not hold yet.", lag.events)
        yield _gauge("servo_projection_lag_seconds", "Age of the oldest event that they do not hold yet.", lag.seconds)
        yield _counter("servo_compactions", "Versions of the projections that were published.", lag.version)

    def _processes(self) -> Iterable[Metric]:
        kinds = [holder.kind for holder in self._project.leases.live()]
        family = GaugeMetricFamily("servo_processes", "Who is alive, by kind.", labels=["kind"])
        for kind in _PROCESSES:
            family.add_metric([kind], sum(one == kind for one in kinds))
        yield family

    def _appends(self) -> Iterable[Metric]:
        so_far = self._project.appends.so_far
        family = HistogramMetricFamily("servo_ledger_append_seconds", "How long this process's appends took.")
        family.add_metric([], _cumulative(APPEND_BUCKETS, so_far.counts), so_far.seconds)
        yield family
        what = "Facts that this process wanted to record and that were there already."
        yield _counter("servo_ledger_duplicates_rejected", what, so_far.duplicates)
        what = "Appends of this process that were refused or failed; a controller that was second looks again."
        yield _counter("servo_ledger_appends_failed", what, so_far.failed)


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=value)


def _counter(name: str, what: str, value: float) -> Metric:
    return CounterMetricFamily(name, what, value=value)


def _histogram(name: str, what: str, bounds: Sequence[float], of: str, snapshot: Answers) -> Metric:
    cases = " ".join(f"WHEN seconds <= {bound} THEN {number}" for number, bound in enumerate(bounds))
    found = snapshot.query(_BUCKETED.format(case=f"CASE {cases} ELSE {len(bounds)} END", of=of)).rows
    counts = [0] * (len(bounds) + 1)
    for bucket, count, _ in found:
        counts[bucket] = count
    family = HistogramMetricFamily(name, what)
    # A clock that was set back must not make a sum that falls.
    family.add_metric([], _cumulative(bounds, counts), sum(max(total, 0.0) for _, _, total in found))
    return family


def _cumulative(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    names = [*(f"{bound:g}" for bound in bounds), "+Inf"]
    return list(zip(names, accumulate(counts), strict=True))


def _since(moment: datetime | None, now: datetime) -> float:
    return 0.0 if moment is None else max((now - moment).total_seconds(), 0.0)


# ── readiness: whether ledger, projections, control loop and workers are fit for work now ────────────────────────────


_FAR_BEHIND = 10  # times the tail that a read folds by itself; beyond it, reads that want to be fresh wait in vain


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """How far the projections' files are behind the ledger; what is newer is folded by whoever reads."""

    events: int
    seconds: float
    version: int


def projection_lag(project: Project) -> Lag:
    """The lag of the projections; raises where the ledger or the newest version cannot be read."""
    head, manifest = project.ledger.head(), project.store.current()
    folded = manifest.watermark.position
    seconds = 0.0
    if head.position > folded and (oldest := project.history.read(folded, 1)):
        seconds = max((project.clock() - ulid_time(oldest[0].event_id)).total_seconds(), 0.0)
    return Lag(events=max(head.position - folded, 0), seconds=seconds, version=manifest.version)


def checks_of(project: Project) -> list[ReadinessCheck]:
    """Check the ledger, the projections, the control loop and workers; the ledger alone where it is away."""
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

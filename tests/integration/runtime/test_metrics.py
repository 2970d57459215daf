"""Figures, scraped from a running server: by their promised names, of what happened, the same on every server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from servo.api.serving import serving
from servo.events import Proposal
from servo.events.automation import ScheduleTicked
from servo.events.definitions import Source
from servo.events.model import RunRequested
from servo.execution.protocol import Order
from servo.ledger.leases import Holder
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.loop.control import Control
from servo.runtime.maintenance import Maintenance
from tests.support.idle import IdleExecutor, at_work
from tests.support.workshop import ME, Workshop, deployed_workshop

SHOP = """
from servo import Daily, asset

days = Daily("date", start="2025-01-01", end="2025-04-01")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days)
def orders(raw): ...

@asset(partitions=days)
def revenue(orders): ...
"""
PROMISED = {
    "servo_backfill_jobs_active": {"PENDING", "WAITING_UPSTREAM", "RUNNING", "PAUSED"},
    "servo_backfill_upstream_depth": {"1", "2", "3", "4+"},
    "servo_backfill_upstream_jobs_created_total": set(),
    "servo_backfill_upstream_wait_duration_seconds_count": set(),
    "servo_runs_active": {"REQUESTED", "PLANNED", "RUNNING", "CANCELLING"},
    "servo_runs_total": {"SUCCEEDED", "FAILED", "CANCELLED"},
    "servo_tasks_active": {"PLANNED", "RUNNING", "RETRY_WAIT", "WAITING_APPROVAL"},
    "servo_tasks_total": {"SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED"},
    "servo_schedule_ticks_total": {"TRIGGERED", "SKIPPED", "FAILED"},
    "servo_schedule_tick_lag_seconds_count": set(),
    "servo_schedule_overdue_seconds": set(),
    "servo_sensor_evaluations_total": {"TRIGGERED", "NO_DATA", "SKIPPED", "SKIPPED_STALE_CURSOR", "FAILED"},
    "servo_sensor_lag_seconds": set(),
    "servo_ledger_append_seconds_count": set(),
    "servo_ledger_duplicates_rejected_total": set(),
    "servo_ledger_events_total": set(),
    "servo_projection_lag_events": set(),
    "servo_projection_lag_seconds": set(),
    "servo_compactions_total": set(),
    "servo_run_key_conflicts_total": set(),
    "servo_processes": {"control", "driver", "worker"},
    "servo_metrics_complete": set(),
}
LABELS = {"state", "depth", "status", "outcome", "kind", "le", "method"}


class Scraped(dict[str, float]):
    """Samples by name and the values of their labels: `servo_runs_total SUCCEEDED`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.labels: set[str] = set()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.labels |= set(sample.labels)
                self[" ".join([sample.name, *sample.labels.values()])] = sample.value

    def told(self) -> dict[str, float]:
        """What events say, and nothing that is a process's own or a matter of the moment."""
        own = re.compile(r"servo_(ledger_(append|dupl)|http|projection|compactions|processes)|process_|python_")
        return {name: value for name, value in self.items() if not own.match(name)}


class _Nothing:
    def __call__(self, *args: Any, **kwargs: Any) -> None: ...


@contextmanager
def scraping(project: Project) -> Iterator[str]:
    with serving(project, user_code=_Nothing(), driver=_Nothing(), port=0) as served:  # type: ignore[arg-type]
        yield served.url


def scrape(url: str) -> Scraped:
    answer = httpx.get(f"{url}/metrics", timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scraped(answer.text)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with deployed_workshop(tmp_path, SHOP) as found:
        yield found


@pytest.fixture
def url(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("servo.runtime.telemetry.monitoring._KEEP_SECONDS", 0.0)
    with scraping(shop.project) as found:
        yield found


def test_every_promised_name_is_there_before_anything_happened(url: str) -> None:
    found = scrape(url)
    for name, values in PROMISED.items():
        assert {f"{name} {value}" for value in values} <= set(found) or name in found, name
        assert values or name in found, name
    assert found["servo_metrics_complete"] == 1
    assert found.labels <= LABELS


def test_backfills_by_state_depth_and_how_long_they_waited(shop: Workshop, url: str) -> None:
    made = shop.create("revenue", start="2025-01-01", end="2025-01-04", include_upstream=True, max_upstream_depth=2)
    found = scrape(url)
    assert found["servo_backfill_upstream_jobs_created_total"] == 2
    assert (found["servo_backfill_upstream_depth 1"], found["servo_backfill_upstream_depth 2"]) == (1, 1)
    assert found["servo_backfill_jobs_active WAITING_UPSTREAM"] == 2
    assert found["servo_backfill_jobs_active PENDING"] == 1
    assert found["servo_backfill_upstream_wait_duration_seconds_count"] == 0
    began = shop.project.clock()
    with at_work(shop):
        shop.ended(made.name)
    took = (shop.project.clock() - began).total_seconds()
    found = scrape(url)
    assert not any(found[f"servo_backfill_jobs_active {state}"] for state in PROMISED["servo_backfill_jobs_active"])
    assert not any(found[f"servo_backfill_upstream_depth {depth}"] for depth in ("1", "2", "3", "4+"))
    assert found["servo_backfill_upstream_jobs_created_total"] == 2
    assert found["servo_backfill_upstream_wait_duration_seconds_count"] == 2
    assert 0 < found["servo_backfill_upstream_wait_duration_seconds_sum"] < 2 * took + 60
    assert found["servo_backfill_upstream_wait_duration_seconds_bucket +Inf"] == 2
    assert found["servo_runs_total SUCCEEDED"] >= 3
    assert found["servo_tasks_total SUCCEEDED"] >= 3


def test_runs_and_tasks_that_fail(shop: Workshop, url: str) -> None:
    def poisoned(order: Order, key: str) -> bool:
        return order.asset_key == "shop/raw"

    run = shop.runs.request(["raw+"], partitions="2025-01-01", actor=ME)
    assert scrape(url)["servo_runs_active REQUESTED"] == 1
    with at_work(shop, IdleExecutor(fails=poisoned)):
        shop.until(lambda: shop.runs.progress(run.run_id).ended, "it has ended")
    found = scrape(url)
    assert (found["servo_runs_total FAILED"], found["servo_runs_active REQUESTED"]) == (1, 0)
    assert (found["servo_tasks_total FAILED"], found["servo_tasks_total SKIPPED"]) == (1, 2)


def test_two_servers_say_the_same_and_so_does_one_that_was_started_later(shop: Workshop, url: str) -> None:
    shop.create("revenue", start="2025-01-01", end="2025-01-09", include_upstream=True, max_upstream_depth=2)
    Control(shop.project).step()
    Maintenance(shop.project).compact()
    shop.create("raw", start="2025-02-01", end="2025-02-05")
    first = scrape(url).told()
    with open_workspace(load_settings(shop.project.settings.root, {})) as again, scraping(again) as other:
        second = scrape(other).told()
    moving = {name for name in first if name.endswith("_seconds")}
    assert {name: value for name, value in first.items() if name not in moving} == {
        name: value for name, value in second.items() if name not in moving
    }
    assert first["servo_ledger_events_total"] == shop.project.ledger.head().position


def test_what_was_refused_as_a_repetition_or_a_conflict(shop: Workshop, url: str) -> None:
    project = shop.project
    before = scrape(url)
    first, other = (
        RunRequested(
            run_id="run_1",
            run_key="manual:1",
            request_fingerprint=fingerprint,
            asset_selection=["shop/raw"],
            source=Source(kind="manual", id=ME),
        )
        for fingerprint in ("a", "b")
    )
    for fact in (first, first, first, other):
        project.ledger.append([Proposal(fact=fact, occurred_at=project.clock(), actor=ME)])
    after = scrape(url)
    assert after["servo_ledger_duplicates_rejected_total"] - before["servo_ledger_duplicates_rejected_total"] == 2
    assert after["servo_run_key_conflicts_total"] - before["servo_run_key_conflicts_total"] == 1
    assert after["servo_ledger_append_seconds_count"] - before["servo_ledger_append_seconds_count"] == 4
    assert after["servo_ledger_append_seconds_sum"] > before["servo_ledger_append_seconds_sum"]
    assert after["servo_ledger_append_seconds_bucket +Inf"] == after["servo_ledger_append_seconds_count"]


def test_how_late_ticks_are(shop: Workshop, url: str) -> None:
    project, now = shop.project, shop.project.clock()
    for number, (late, manual) in enumerate([(0.2, False), (20, False), (9_000, False), (500, True)]):
        fact = ScheduleTicked(
            tick_id=f"s:{number}",
            schedule_id="s",
            scheduled_for=now - timedelta(seconds=late),
            definition_version=1,
            status="TRIGGERED",
            manual=manual,
        )
        project.ledger.append([Proposal(fact=fact, occurred_at=now, actor=ME)])
    found = scrape(url)
    lag = "servo_schedule_tick_lag_seconds"
    assert found["servo_schedule_ticks_total TRIGGERED"] == 4
    assert found[f"{lag}_count"] == 3, "what a person triggers is not late"
    assert [found[f"{lag}_bucket {bound}"] for bound in ("0.1", "0.25", "10", "30", "7200", "+Inf")] == [
        0,
        1,
        1,
        2,
        2,
        3,
    ]
    assert found[f"{lag}_sum"] == pytest.approx(9_020.2)


def test_how_far_the_projections_are_behind(shop: Workshop, url: str) -> None:
    before = scrape(url)
    assert before["servo_projection_lag_events"] == shop.project.ledger.head().position
    assert before["servo_projection_lag_seconds"] > 0
    Maintenance(shop.project).compact()
    after = scrape(url)
    assert (after["servo_projection_lag_events"], after["servo_projection_lag_seconds"]) == (0, 0)
    assert after["servo_compactions_total"] == before["servo_compactions_total"] + 1


def test_who_is_alive(shop: Workshop, url: str) -> None:
    assert scrape(url)["servo_processes worker"] == 0
    for kind in ("worker", "worker", "control"):
        shop.project.leases.beat(Holder.here(kind, shop.project.mint()), 60.0)  # type: ignore[arg-type]
    found = scrape(url)
    assert (found["servo_processes worker"], found["servo_processes control"]) == (2, 1)


def test_requests_are_counted_by_method_and_status_and_by_nothing_that_is_in_them(url: str) -> None:
    for path in ("/healthz", "/api/v1/orchestration/runs/run_secret", "/healthz"):
        httpx.get(f"{url}{path}", timeout=60)
    answer = httpx.get(f"{url}/metrics", timeout=60)
    found = Scraped(answer.text)
    assert found["servo_http_request_seconds_count GET 200"] == 2
    assert found["servo_http_request_seconds_count GET 404"] == 1
    assert "secret" not in answer.text


def test_figures_that_cannot_be_told_are_left_out_and_it_says_so(shop: Workshop, url: str) -> None:
    for path in sorted(shop.project.settings.projections.rglob("*"), reverse=True):
        if path.is_file():
            path.unlink()
    Maintenance(shop.project).compact()
    manifest = next(shop.project.settings.projections.rglob("*.json"))
    manifest.write_bytes(b"{")
    with open_workspace(shop.project.settings) as broken, scraping(broken) as other:
        found = scrape(other)
    assert found["servo_metrics_complete"] == 0
    assert "servo_ledger_append_seconds_count" in found
    assert os.fspath(manifest) not in str(found)

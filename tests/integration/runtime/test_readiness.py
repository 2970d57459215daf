"""Readiness that tells the truth, and logs that a machine can read."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from servo.api.serving import serving
from servo.errors import LedgerUnavailable
from servo.events import Proposal
from servo.events.model import RunCancelRequested
from servo.ledger.leases import Holder
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.maintenance import Maintenance
from servo.runtime.telemetry.json_logs import VARIABLE, about, log_as_json, wants_json

ME = "person:alice"


class _Nothing:
    def __call__(self, *args: Any, **kwargs: Any) -> None: ...


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with open_workspace(load_settings(tmp_path, {"SERVO_TAIL_EVENTS": "3"}), create=True) as opened:
        opened.ledger.head()
        yield opened


@pytest.fixture
def url(project: Project) -> Iterator[str]:
    with serving(project, user_code=_Nothing(), driver=_Nothing(), port=0) as served:  # type: ignore[arg-type]
        yield served.url


def ready(url: str) -> tuple[int, str, dict[str, dict[str, Any]]]:
    answer = httpx.get(f"{url}/readyz", timeout=60)
    said = answer.json()
    return answer.status_code, said["status"], {check.pop("name"): check for check in said["checks"]}


def test_it_is_ready_once_somebody_plans_and_says_whether_anybody_computes(project: Project, url: str) -> None:
    code, status, checks = ready(url)
    assert (code, status) == (200, "degraded")
    assert checks["control"] == {"ok": False, "problem": "nobody-plans"}
    assert checks["worker"] == {"ok": True, "detail": "none"}
    project.leases.beat(Holder.here("control", project.mint()), 60.0)
    project.leases.beat(Holder.here("worker", project.mint()), 60.0)
    code, status, checks = ready(url)
    assert (code, status) == (200, "ready")
    assert checks["ledger"] == {"ok": True}
    assert checks["worker"] == {"ok": True, "detail": "1"}


def test_a_ledger_that_is_away_or_cannot_be_written_is_said_by_its_code(
    project: Project, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("append", "head"):
        with monkeypatch.context() as patch:
            patch.setattr(project.ledger, name, _away)
            code, status, checks = ready(url)
            assert (code, status) == (503, "unready")
            assert checks == {"ledger": {"ok": False, "problem": "ledger-unavailable"}}
            assert httpx.get(f"{url}/healthz").status_code == 200
    assert ready(url)[0] == 200


def _away(*_: object, **__: object) -> None:
    raise LedgerUnavailable("postgresql://anna:s3cret@host is away", hint="wait")


def test_looking_writes_nothing(project: Project, url: str) -> None:
    before = project.ledger.head()
    for _ in range(3):
        ready(url)
    assert project.ledger.head() == before


def test_projections_far_behind_or_damaged(project: Project, url: str) -> None:
    for number in range(31):
        fact = RunCancelRequested(run_id=f"run_{number}")
        project.ledger.append([Proposal(fact=fact, occurred_at=project.clock(), actor=ME)])
    code, status, checks = ready(url)
    assert (code, status) == (503, "unready")
    assert checks["projections"]["problem"] == "projection-lagging"
    assert checks["projections"]["detail"].startswith("31 events")
    Maintenance(project).compact()
    code, _, checks = ready(url)
    assert code == 200
    assert checks["projections"] == {"ok": True, "detail": "0 events, 0.0 s behind"}


# ── logs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def lines(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    logger, sink = logging.getLogger("servo"), io.StringIO()
    monkeypatch.setenv(VARIABLE, "")
    before = (list(logger.handlers), logger.level, logger.propagate)
    log_as_json(project.settings, stream=sink)
    yield lambda: [json.loads(line) for line in sink.getvalue().splitlines()]
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def test_a_record_is_one_line_that_says_what_it_is_about(lines: Any) -> None:
    log = logging.getLogger("servo.runtime.anything")
    with about(run="run_1", asset="shop/orders"):
        log.info('a line\n{"level": "forged"}', extra={"action": "task.begin", "partition": "date=d:2025-01-01"})
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("it broke", extra={"action": "task.end"})
    log.debug("nobody wants to know")
    log.warning("later", extra={"action": "x"})
    first, second, third = lines()
    assert first["time"].endswith("Z")
    assert {name: first[name] for name in first if name not in ("time", "process")} == {
        "level": "info",
        "action": "task.begin",
        "message": 'a line\n{"level": "forged"}',
        "run": "run_1",
        "asset": "shop/orders",
        "partition": "date=d:2025-01-01",
        "tenant": "default",
        "workspace": "default",
        "logger": "servo.runtime.anything",
    }
    assert (second["level"], second["run"]) == ("error", "run_1")
    assert "ValueError: broken" in second["exception"]
    assert "run" not in third


def test_who_wants_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert (wants_json(as_json=True), wants_json(as_json=False)) == (True, False)
    monkeypatch.setenv(VARIABLE, "JSON")
    assert wants_json(as_json=False)


def test_workers_that_are_started_from_here_log_alike(lines: Any) -> None:
    assert os.environ[VARIABLE] == "json"

"""Traces, exported over OTLP/HTTP to a collector that runs here: from a request over HTTP to the job on Spark."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PREFIX = "/api/v1/orchestration"
PATIENCE = 180.0
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
DEFINITIONS = """
from servo import Daily, asset

days = Daily("date", start="2025-01-01", end="2025-02-01")

@asset(partitions=days)
def raw(context):
    return context.spark.range(3)

@asset(partitions=days)
def orders(raw):
    return raw.selectExpr("id + 1 AS id")
"""


class Exported(NamedTuple):
    name: str
    trace: str
    id: str
    parent: str
    began: int
    ended: int
    attributes: dict[str, Any]
    resource: dict[str, Any]


class Collector(ThreadingHTTPServer):
    """Takes what OTLP/HTTP sends, decodes it, and keeps it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.lock, self.received = Lock(), list[Exported]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def spans(self, name: str | None = None) -> list[Exported]:
        with self.lock:
            return [one for one in self.received if name in (None, one.name)]

    def until(self, *names: str, seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while missing := [name for name in names if not self.spans(name)]:
            assert time.monotonic() < deadline, (
                f"{missing} did not come; {sorted({one.name for one in self.spans()})} did"
            )
            time.sleep(0.1)


class _Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        assert self.path == "/v1/traces"
        asked = ExportTraceServiceRequest.FromString(body)
        with self.server.lock:
            self.server.received += [
                Exported(
                    one.name,
                    one.trace_id.hex(),
                    one.span_id.hex(),
                    one.parent_span_id.hex(),
                    one.start_time_unix_nano,
                    one.end_time_unix_nano,
                    _plain(one.attributes),
                    _plain(group.resource.attributes),
                )
                for group in asked.resource_spans
                for scope in group.scope_spans
                for one in scope.spans
            ]
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def up(folder: Path, collector: Collector) -> Iterator[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SERVO_", "OTEL_"))}
    environ = kept | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
    }
    log = folder / "up.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "servo", "up", "--workers", "1", "--port", "0", "--json"],
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said, log.read_text()
        yield json.loads(said)["url"]
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE)
        process.stdout.close()
    assert code == 0, log.read_text()


def finished(url: str, path: str) -> str:
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = httpx.get(f"{url}{PREFIX}/{path}", params={"fresh": "true"}, timeout=60).json()
        found = answer.get("data", answer)
        status = found.get("status") or found.get("state") or found.get("root", {}).get("state")
        if status in ("SUCCEEDED", "FAILED", "CANCELLED"):
            return str(status)
        assert time.monotonic() < deadline, answer
        time.sleep(0.2)


def test_a_trace_goes_from_the_request_over_http_to_the_job_on_spark(tmp_path: Path, collector: Collector) -> None:
    (tmp_path / "servo.toml").write_text('namespace = "shop"\n\n[spark]\nmaster = "local[1]"\n')
    (tmp_path / "definitions.py").write_text(DEFINITIONS)
    with up(tmp_path, collector) as url:
        asked = httpx.post(
            f"{url}{PREFIX}/runs",
            json={"select": ["raw"], "partitions": "2025-01-01"},
            headers={"Idempotency-Key": "one", "traceparent": PARENT},
            timeout=60,
        )
        assert asked.status_code == 202, asked.text
        run_id = asked.json()["run_id"]
        assert finished(url, f"runs/{run_id}") == "SUCCEEDED"
        made = httpx.post(
            f"{url}{PREFIX}/backfills",
            json={"assets": ["orders"], "start": "2025-01-02", "end": "2025-01-03", "include_upstream": True},
            headers={"Idempotency-Key": "two"},
            timeout=60,
        )
        assert made.status_code == 202, made.text
        assert finished(url, f"backfills/{made.json()['backfill_id']}") == "SUCCEEDED"
        collector.until("backfill.check_upstream_completion")
    # What ends says the rest: nothing is lost when it stops.
    (request,) = collector.spans(f"POST {PREFIX}/runs")
    (run,) = collector.spans("run")
    (task,) = [one for one in collector.spans("task") if one.attributes["servo.run_id"] == run_id]
    (job,) = [one for one in collector.spans("spark.job") if one.attributes["servo.run_id"] == run_id]
    assert {one.trace for one in (request, run, task, job)} == {PARENT.split("-")[1]}
    assert request.parent == PARENT.split("-")[2]
    assert (run.parent, task.parent, job.parent) == (request.id, run.id, task.id)
    assert request.attributes["http.response.status_code"] == 202
    assert run.attributes["servo.run_id"] == run_id
    assert task.attributes["servo.asset_key"] == "shop/raw"
    assert job.attributes["spark.application_id"]
    assert run.began < task.began < job.began < job.ended < task.ended
    assert {one.resource["service.name"] for one in collector.spans()} == {"servo"}
    assert {one.resource["deployment.environment"] for one in collector.spans()} == {"test"}

    (discovered,) = collector.spans("backfill.discover_upstream")
    (created,) = collector.spans("backfill.create_upstream_jobs")
    (waited,) = collector.spans("backfill.wait_for_upstream")
    checked = collector.spans("backfill.check_upstream_completion")
    (backfill,) = collector.spans(f"POST {PREFIX}/backfills")
    assert discovered.parent == created.parent == backfill.id
    assert (discovered.attributes["servo.jobs"], created.attributes["servo.upstream_jobs"]) == (2, 1)
    assert waited.attributes["servo.backfill_id"] == made.json()["backfill_id"]
    assert waited.attributes["servo.state"] == "RUNNING"
    assert checked
    assert created.began <= waited.ended
    assert waited.ended > waited.began


# ── without a collector ──────────────────────────────────────────────────────────────────────────────────────────

QUIET = """
import sys
from servo.tracing import past_span, span, traceparent
from servo.clock import system_clock
with span("x", a=1) as current:
    current.set("b", 2)
    past_span("y", system_clock(), system_clock())
    print(traceparent())
print(sorted(name for name in sys.modules if name.startswith("opentelemetry"))[:3])
"""


# How soon the exporter tries is its own affair. What is left after its complaint fails when the process ends.
UNTIL_COMPLAINED = """
import logging, time
while not any(getattr(one, "said", False) for one in logging.getLogger("opentelemetry").handlers):
    time.sleep(0.02)
with span("z"):
    pass
"""


def said_by(script: str, **environ: str) -> tuple[list[str], str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SERVO_", "OTEL_"))}
    done = subprocess.run(
        [sys.executable, "-c", script], env=kept | environ, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    return done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SERVICE_NAME": "x"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_unless_otel_variables_ask_for_it_nothing_is_loaded(environ: dict[str, str]) -> None:
    assert said_by(QUIET, **environ)[0] == ["None", "[]"]


def test_importing_servo_loads_neither_traces_nor_metrics() -> None:
    loaded = "[name for name in sys.modules if name.startswith(('opentelemetry', 'prometheus_client', 'litestar'))]"
    script = f"import sys, servo, servo.runtime.runs, servo.runtime.loop.control\nprint({loaded})"
    assert said_by(script, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")[0] == ["[]"]


def test_without_the_extra_it_says_so_and_goes_on() -> None:
    script = "import sys\nsys.modules['opentelemetry.sdk'] = None\n" + QUIET
    said, errors = said_by(script, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert said[0] == "None"
    assert "servo[otel]" in errors


def test_a_collector_that_is_away_keeps_nobody_waiting_and_is_complained_of_once() -> None:
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_SCHEDULE_DELAY": "50"}
    said, errors = said_by(QUIET + UNTIL_COMPLAINED, **away)
    assert said[0].startswith("00-")
    assert len(errors.splitlines()) == 1, errors
    assert errors.startswith("traces may be lost")

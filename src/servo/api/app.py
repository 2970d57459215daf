"""The routes, put together."""

from __future__ import annotations

from typing import Any

from litestar import Litestar, Router
from litestar.di import Provide

from servo.api.health import healthz, readyz
from servo.api.internal import InternalRoutes
from servo.api.limits import BODY_BYTES, Shares
from servo.api.loopback import require_local
from servo.api.problems import HANDLERS
from servo.api.protocols import Accepting, Driver
from servo.api.sensors import SensorRoutes
from servo.api.threads import Threads
from servo.runtime.wiring import Project

__all__ = ["PREFIX", "create_app"]

PREFIX = "/api/v1/orchestration"

_REQUEST_THREADS = 32
_PER_SENSOR = 8  # of these; a sensor that hangs leaves the others theirs
_WAITING_PER_SENSOR = 128


def create_app(project: Project, sensing: Accepting, driver: Driver) -> Litestar:
    """The application of one workspace. It owns its threads; project, sensing and driver are the caller's to close."""
    threads = Threads(requests=_REQUEST_THREADS)
    shares = Shares(at_once=_PER_SENSOR, waiting=_WAITING_PER_SENSOR)
    parts = {"project": project, "sensing": sensing, "driver": driver, "threads": threads, "shares": shares}
    return Litestar(
        route_handlers=[healthz, readyz, Router(PREFIX, route_handlers=[SensorRoutes, InternalRoutes])],
        dependencies={name: _provided(part) for name, part in parts.items()},
        exception_handlers=HANDLERS,
        guards=[require_local],
        lifespan=[threads.serving],
        request_max_body_size=BODY_BYTES,
        openapi_config=None,
        logging_config=None,  # logs are set up by who runs the server
    )


def _provided(part: Any) -> Provide:
    return Provide(lambda: part, sync_to_thread=False, use_cache=True)

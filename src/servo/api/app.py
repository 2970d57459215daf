"""The routes, put together."""

from __future__ import annotations

from typing import Any

from litestar import Litestar, Router
from litestar.datastructures import State
from litestar.di import Provide

from servo import decoders
from servo.api.auth import Gate, LocalAccess
from servo.api.direct_routes import DirectAnswers
from servo.api.docs import docs, openapi_json
from servo.api.events import Streams, follow_events
from servo.api.health import healthz, metrics_route, readyz
from servo.api.inputs import BODY_BYTES
from servo.api.middleware import AllowHeader, RequestMetrics
from servo.api.operation_routes import operation_routes
from servo.api.problems import HANDLERS
from servo.api.raw_routes import RAW_ROUTES
from servo.api.server import Driver, Server
from servo.api.threads import NameResolver, Shares, Threads
from servo.operations.operation import PREFIX
from servo.runtime.outside import ServerUserCode
from servo.runtime.telemetry.monitoring import Metrics
from servo.runtime.tokens import TokenBook
from servo.runtime.wiring import Project

__all__ = ["PREFIX", "create_app"]

# Beside the prefix.
PLAIN_ROUTES: list[Any] = [healthz, readyz, metrics_route, openapi_json, docs]

_REQUEST_THREADS = 32
_PER_SENSOR = 8  # of these; a sensor that hangs leaves the others theirs
_WAITING_PER_SENSOR = 128


def create_app(
    project: Project,
    user_code: ServerUserCode,
    driver: Driver,
    streams: Streams | None = None,
    *,
    local: LocalAccess | None = None,
) -> Litestar:
    """The application of one workspace. It owns its threads; what it is given is the caller's to close.

    `local`: the server listens on a loopback address, and its owner needs no token; without, everybody does.
    """
    threads = Threads(requests=_REQUEST_THREADS)
    shares = Shares(at_once=_PER_SENSOR, waiting=_WAITING_PER_SENSOR, id_of=NameResolver(project, threads).id_of)
    metrics, gate = Metrics(project), Gate(TokenBook(project), threads, local=local)
    server = Server(project, threads, shares, user_code, driver, metrics)
    parts = {"server": server, "streams": streams or Streams(project), "gate": gate}
    app = Litestar(
        route_handlers=[
            *PLAIN_ROUTES,
            Router(PREFIX, route_handlers=[follow_events, *RAW_ROUTES, *operation_routes()]),
        ],
        dependencies={name: _provided(part) for name, part in parts.items()},
        exception_handlers=HANDLERS,
        guards=[gate.admit],
        middleware=[RequestMetrics(metrics), AllowHeader(), DirectAnswers(server, gate)],
        lifespan=[threads.serving],
        request_max_body_size=BODY_BYTES,
        state=State({"demands_tokens": local is None}),  # the document says it
        openapi_config=None,  # it is written by `servo.api.openapi`, from what the routes say of themselves
        logging_config=None,  # logs are set up by who runs the server
    )
    # Litestar converts the arguments of each route to a Struct of its own; other threads may share types with it.
    for route in app.routes:
        for handler in getattr(route, "route_handlers", ()):
            decoders.prepare(handler.signature_model)
    return app


def _provided(part: Any) -> Provide:
    return Provide(lambda: part, sync_to_thread=False, use_cache=True)

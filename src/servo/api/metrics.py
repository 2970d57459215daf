"""Figures for Prometheus, and what is measured of every request."""

from __future__ import annotations

import time
from functools import partial

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware
from litestar.params import SkipValidation
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from servo.api.operations import operation
from servo.api.threads import Threads
from servo.runtime.metrics import CONTENT_TYPE, Metrics
from servo.runtime.tracing import span

__all__ = ["Observing", "metrics_route"]


@get("/metrics", opt=operation("viewer", shape="html", media_type="text/plain"), media_type=CONTENT_TYPE)
async def metrics_route(
    metrics: NamedDependency[SkipValidation[Metrics]],
    threads: NamedDependency[SkipValidation[Threads]],
) -> Response[bytes]:
    """The figures of this workspace, and of this server, in Prometheus's text format."""
    return Response(await threads.answer(partial(metrics.text)), media_type=CONTENT_TYPE)


class Observing(ASGIMiddleware):
    """Counts and times every request, and begins its trace or goes on with its caller's."""

    scopes = (ScopeType.HTTP,)

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        began, status = time.perf_counter(), 500
        method = str(scope.get("method", ""))
        route = str(scope.get("path_template") or "")
        parent = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"traceparent"), None)

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        # By the route and never by the path: what is in there is anybody's.
        with span(f"{method} {route}".rstrip(), parent=parent, kind="server", method=method, route=route) as current:
            try:
                await next_app(scope, receive, sent)
            finally:
                current.set("http.response.status_code", status)
                self._metrics.answered(method, status, time.perf_counter() - began)

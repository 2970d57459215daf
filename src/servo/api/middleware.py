"""What is done around every request: it is counted, timed and traced, and OPTIONS is answered."""

from __future__ import annotations

import time
from collections import defaultdict
from functools import lru_cache

from litestar import Litestar
from litestar.datastructures import MutableScopeHeaders
from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware
from litestar.routes import HTTPRoute
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from servo.runtime.telemetry.monitoring import Metrics
from servo.tracing import span

__all__ = ["AllowHeader", "RequestMetrics"]


class RequestMetrics(ASGIMiddleware):
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


class AllowHeader(ASGIMiddleware):
    """Names all methods of a path in the answer to OPTIONS: Litestar names those of the route registered first."""

    scopes = (ScopeType.HTTP,)

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        if scope.get("method") != "OPTIONS":
            await next_app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                headers = MutableScopeHeaders.from_message(message)
                headers["Allow"] = _methods(scope["litestar_app"]).get(str(scope.get("path_template")), "OPTIONS")
            await send(message)

        await next_app(scope, receive, sent)


@lru_cache(maxsize=8)
def _methods(app: Litestar) -> dict[str, str]:
    found: dict[str, set[str]] = defaultdict(set)
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            found[route.path_format] |= {str(method) for method in route.methods}
    return {path: ", ".join(sorted(methods)) for path, methods in found.items()}

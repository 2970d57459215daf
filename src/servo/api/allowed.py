"""OPTIONS: which methods a path has, all of them, whoever made the route of which."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

from litestar import Litestar
from litestar.datastructures import MutableScopeHeaders
from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware
from litestar.routes import HTTPRoute
from litestar.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Allowed"]


class Allowed(ASGIMiddleware):
    """Litestar answers with the methods of the route that was registered first for the path, and there are more."""

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

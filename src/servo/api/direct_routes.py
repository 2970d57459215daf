"""Routes that are answered as soon as Litestar has found them.

What Litestar does for a handler of its own (arguments made by injection and checked against a model, guards, conversion
of what is returned) costs more than most answers. Here it finds the route, and no more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from litestar import Request
from litestar.enums import ScopeType
from litestar.handlers import HTTPRouteHandler
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from servo.api.auth import Gate
from servo.api.problems import problem_of
from servo.api.request_context import Answer, RequestContext
from servo.api.server import Server

__all__ = ["Answering", "DirectAnswers", "direct_route"]

Answering = Callable[[RequestContext], Awaitable[Answer]]
_ANSWER = "answer"


def direct_route(method: str, path: str, answer: Answering, *, tag: str, opt: dict[str, Any]) -> HTTPRouteHandler:
    """A route that `answer` answers. `opt` says of it what the guard and the OpenAPI document read."""

    async def handle() -> None:
        raise AssertionError("it is answered by DirectAnswers")

    handle.__doc__, handle.__name__ = answer.__doc__, answer.__name__
    return HTTPRouteHandler(
        path=path,
        http_method=[method],  # type: ignore[list-item]  # it is one of Litestar's names
        opt={**opt, _ANSWER: answer},
        tags=[tag],
    )(handle)


class DirectAnswers(ASGIMiddleware):
    """Answers the requests of direct routes, or refuses them. All others go on to Litestar's handlers."""

    scopes = (ScopeType.HTTP,)

    def __init__(self, server: Server, gate: Gate) -> None:
        self._server = server
        self._gate = gate

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        route = scope["route_handler"]
        answer: Answering | None = route.opt.get(_ANSWER)
        if answer is None:
            await next_app(scope, receive, send)
            return
        request: Request[Any, Any, Any] = Request(scope, receive, send)
        try:
            await self._gate.admit(request, route)
            answered = await answer(RequestContext(request, self._server))
        except Exception as error:  # noqa: BLE001 (each is answered with a problem, and logged where it is ours)
            problem = problem_of(request, error).to_asgi_response(app=None, request=request)
            await problem(scope, receive, send)
        else:
            await answered.sent_by(send)

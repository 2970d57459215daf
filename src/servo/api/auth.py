"""Who asks, and whether they may: a guard before every route.

A server that listens on a loopback address takes requests without a token, from this machine's own programs: as an
admin, which is what whoever can write the ledger is. Who sends a token is taken at their token's word, there too. A
server that listens anywhere else takes nothing without one.

A route names the least role it takes by `opt={"role": "…"}`; without, reading takes a viewer and anything else an
operator. What has `opt={"public": True}` is for everybody, and says nothing of anybody.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from http import HTTPStatus
from typing import Any

from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException
from litestar.handlers import BaseRouteHandler

from servo.api.loopback import require_local
from servo.api.problems import Refused
from servo.api.threads import Threads
from servo.errors import NotAllowed
from servo.runtime.token_book import Bearer, TokenBook
from servo.runtime.tokens import Role

__all__ = ["Gate", "is_public", "least_role"]

log = logging.getLogger(__name__)

_Connection = ASGIConnection[Any, Any, Any, Any]
_LOOK_SECONDS = 10.0
_SCHEME = "bearer"
_REALM = 'Bearer realm="servo"'
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


class Gate:
    """The guard of one server. `demands_tokens`: also of who asks without one."""

    def __init__(self, book: TokenBook, threads: Threads, *, demands_tokens: bool) -> None:
        self._book = book
        self._threads = threads
        self._demands_tokens = demands_tokens

    async def admit(self, connection: _Connection, handler: BaseRouteHandler) -> None:
        """Refuse who may not ask this: 401 who shows no token that is worth anything, 403 whose role is too low."""
        given = connection.headers.getall("authorization", [])
        if not given and not self._demands_tokens:
            require_local(connection, handler)
            return
        if is_public(handler):
            return
        bearer = await self._bearer(given)
        least = least_role(handler, str(connection.scope.get("method", "")))
        if bearer.role < least:
            raise NotAllowed(
                f"this takes the role {least.name}, and the token has {bearer.role.name}",
                hint=f"ask for a token of role {least.name}",
            )
        connection.scope["user"] = bearer  # `actors.actor_of` tells the name from it

    async def still_admits(self, connection: _Connection) -> bool:
        """Whether the token of who was let in is still worth something; for answers that go on."""
        if connection.scope.get("user") is None:
            return True
        try:
            await self._bearer(connection.headers.getall("authorization", []))
        except NotAuthorizedException:
            return False
        return True

    async def _bearer(self, given: list[str]) -> Bearer:
        if not given:
            raise _unauthorized("This server takes requests with a token only.", _REALM)
        scheme, _, token = given[0].partition(" ")
        token = token.strip()
        if len(given) != 1 or scheme.lower() != _SCHEME or not token:
            raise _unauthorized(
                "Send the header `Authorization: Bearer TOKEN`, once.", f'{_REALM}, error="invalid_request"'
            )
        bearer = self._book.at_hand(token)
        if bearer is None:
            bearer = await self._looked_up(token)
        if bearer is None:
            # Whether it is wrong, expired, revoked or another workspace's is nobody's business who shows it.
            raise _unauthorized("This token is worth nothing here.", f'{_REALM}, error="invalid_token"')
        return bearer

    async def _looked_up(self, token: str) -> Bearer | None:
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                return await self._threads.guard(partial(self._book.bearer, token, self._book.moment()))
        except TimeoutError:
            log.warning("tokens cannot be looked up in time", extra={"action": "api.tokens"})
            detail = "Whose token this is cannot be told at the moment."
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "ledger-unavailable", detail) from None


def is_public(handler: BaseRouteHandler) -> bool:
    return bool(handler.opt.get("public")) or handler.opt.get("role") == "public"


def least_role(handler: BaseRouteHandler, method: str) -> Role:
    """The least role that a route takes, of those that are not public."""
    named = handler.opt.get("role")
    if named is not None:
        return named if isinstance(named, Role) else Role[named]
    return Role.viewer if method in _READING else Role.operator


def _unauthorized(detail: str, challenge: str) -> NotAuthorizedException:
    # What is left of the request is not read.
    return NotAuthorizedException(detail=detail, headers={"WWW-Authenticate": challenge, "Connection": "close"})

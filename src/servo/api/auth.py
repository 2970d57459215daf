"""Who asks, and whether they may: a guard before every route.

A server that listens on a loopback address takes requests without a token from the user who runs it, and from root: as
an admin, which is what a user who can write the ledger is. Every other user of the machine, and whoever cannot be told
apart from one, has to show a token: one that `servo token create` made, or the owner's, which is in a file that only
the owner can read (`servo.local_server`). A server that listens anywhere else takes nothing without a token.

A route names the least role it takes by `opt={"role": "…"}`; without, reading takes a viewer and anything else an
operator. What has `opt={"public": True}` is for everybody, and says nothing of anybody.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from hmac import compare_digest
from http import HTTPStatus
from pathlib import Path
from typing import Any

from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException
from litestar.handlers import BaseRouteHandler

from servo.api.actors import local_actor
from servo.api.loopback import require_local
from servo.api.peers import PEER, Peer, is_quick, may_act_without_token
from servo.api.problems import Refused
from servo.api.threads import Threads
from servo.errors import NotAllowed
from servo.runtime.token_book import Bearer, TokenBook
from servo.runtime.tokens import Role, hash_of

__all__ = ["Gate", "LocalAccess", "is_public", "least_role"]

log = logging.getLogger(__name__)

_Connection = ASGIConnection[Any, Any, Any, Any]
_LOOK_SECONDS = 10.0
_SCHEME = "bearer"
_REALM = 'Bearer realm="servo"'
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


class LocalAccess:
    """What a loopback server knows of its owner: the user, and the token that they alone can read."""

    def __init__(self, uid: int, token: str | None, token_path: Path | None) -> None:
        self.uid = uid
        self.token_path = token_path
        self._digest = None if token is None else hash_of(token)

    def is_owner_token(self, token: str) -> bool:
        digest = hash_of(token)
        if self._digest is None or self.token_path is None:
            return False
        if not compare_digest(self._digest, digest):
            with suppress(OSError, ValueError):  # another server of this folder may have made a new one
                self._digest = hash_of(self.token_path.read_text(encoding="ascii").strip())
        return compare_digest(self._digest, digest)


class Gate:
    """The guard of one server."""

    def __init__(self, book: TokenBook, threads: Threads, *, local: LocalAccess | None = None) -> None:
        """`local`: how users of this machine are admitted without a token of the ledger; None: they are not."""
        self._book = book
        self._threads = threads
        self._local = local

    async def admit(self, connection: _Connection, handler: BaseRouteHandler) -> None:
        """Refuse who may not ask this: 401 who shows no token that is worth anything, 403 whose role is too low."""
        given = connection.headers.getall("authorization", [])
        if not given and self._local is not None:
            require_local(connection)
            if not is_public(handler):
                await self._require_own_user(connection, self._local)
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

    async def _require_own_user(self, connection: _Connection, local: LocalAccess) -> None:
        peer = connection.scope["state"].get(PEER)
        uid: int | None = None
        if isinstance(peer, Peer):
            uid = peer.uid() if is_quick() else await self._threads.guard(peer.uid)
        if may_act_without_token(uid, local.uid):
            return
        who = "a user that cannot be told" if uid is None else f"the user with the id {uid}"
        where = "" if local.token_path is None else f": the one in {local.token_path}, or one of `servo token create`"
        raise _unauthorized(
            f"This server belongs to the user with the id {local.uid}, and the request comes from {who}: "
            f"send the header `Authorization: Bearer TOKEN` with a token{where}.",
            _REALM,
        )

    async def _bearer(self, given: list[str]) -> Bearer:
        if not given:
            raise _unauthorized("This server takes requests with a token only.", _REALM)
        scheme, _, token = given[0].partition(" ")
        token = token.strip()
        if len(given) != 1 or scheme.lower() != _SCHEME or not token:
            raise _unauthorized(
                "Send the header `Authorization: Bearer TOKEN`, once.", f'{_REALM}, error="invalid_request"'
            )
        if self._local is not None and self._local.is_owner_token(token):
            return Bearer(actor=local_actor(), role=Role.admin)
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

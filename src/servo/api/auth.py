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
import getpass
import logging
import os
from contextlib import suppress
from functools import partial
from hmac import compare_digest
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException
from litestar.handlers import BaseRouteHandler

from servo.api.peers import PEER, Peer, is_quick, may_act_without_token
from servo.api.problems import Refused
from servo.api.threads import Threads
from servo.errors import NotAllowed
from servo.local_server import is_loopback
from servo.runtime.tokens import Bearer, Role, TokenBook, hash_of

__all__ = ["Gate", "LocalAccess", "actor_of", "is_public", "least_role", "local_actor", "require_local"]

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
        """Refuse a request that is not allowed: 401 without a valid token, 403 where its role is too low."""
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
        """Whether the token of a request is still valid; for answers that go on."""
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


# ── in whose name a request acts ─────────────────────────────────────────────────────────────────────────────────


def actor_of(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """The bearer of a request's token; without a token, over loopback, the user who runs the server."""
    found = connection.scope.get("user")
    return getattr(found, "actor", None) or local_actor()


def local_actor() -> str:
    """`person:` and SERVO_ACTOR, or the name by which this machine knows who runs the server."""
    named = os.environ.get("SERVO_ACTOR", "").strip()
    if named:
        return f"person:{named}"
    try:
        return f"person:{getpass.getuser()}"
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return f"person:{os.getuid()}"


# ── what a loopback server checks of a request without a token ───────────────────────────────────────────────────


_HTTP_PORT = 80
_OWN_PAGES = ("same-origin", "none")  # none: a person typed the address


def require_local(connection: ASGIConnection[Any, Any, Any, Any]) -> None:
    """Refuse what a page of another origin sends here, also one whose own name was made to point here.

    A browser sends requests for any page, from this machine and in its user's name. Two things tell them from the
    requests of programs: the name that the page has made point here (Host), and its own origin (Origin,
    Sec-Fetch-Site).
    """
    headers = connection.headers
    host = _split(f"http://{headers.get('host', '')}")
    if host is None or not is_loopback(host.hostname or ""):
        raise Refused(
            HTTPStatus.MISDIRECTED_REQUEST,
            "misdirected-request",
            "Without a token, this server answers only to a loopback name or address in the header Host.",
            hint="send it to 127.0.0.1 or localhost, or send a token",
        )
    origin = headers.get("origin")
    if origin is not None and not _is_same_origin(origin, host):
        raise _foreign(f"Without a token, pages of {origin!r:.80} may not use this server, only its own pages may.")
    site = headers.get("sec-fetch-site")
    if site is not None and site not in _OWN_PAGES and not _is_visit(connection):
        raise _foreign("Without a token, pages of other origins may not use this server, only its own pages may.")


def _is_same_origin(origin: str, host: SplitResult) -> bool:
    """Whether an origin is the place that was asked, in scheme, host and port: the server has no TLS of its own."""
    found = _split(origin)
    return (
        found is not None
        and found.scheme == "http"
        and found.hostname == host.hostname
        and (found.port or _HTTP_PORT) == (host.port or _HTTP_PORT)
    )


def _is_visit(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Whether a person followed a link to here: the page that has the link sees nothing of the answer."""
    headers = connection.headers
    return (
        connection.scope.get("method") == "GET"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def _split(address: str) -> SplitResult | None:
    try:
        parts = urlsplit(address)
        _ = parts.port  # raises where it is no number
    except ValueError:
        return None
    return parts if parts.hostname and not parts.path and not parts.query else None


def _foreign(detail: str) -> Refused:
    return Refused(HTTPStatus.FORBIDDEN, "foreign-origin", detail, hint="send a token: servo token create NAME")

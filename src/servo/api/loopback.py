"""Without tokens, the server is for this machine: which addresses that is, and which requests come from it."""

from __future__ import annotations

from http import HTTPStatus
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from servo.api.problems import Refused

__all__ = ["is_loopback", "require_local"]


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine and nothing else."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def require_local(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Refuse what a page in somebody's browser sends here: its own name made to point here, or its own origin."""
    if not _is_local(f"//{connection.headers.get('host', '')}"):
        raise Refused(
            HTTPStatus.MISDIRECTED_REQUEST,
            "misdirected-request",
            "Without tokens, this server is known by a loopback address only.",
            hint="send it to 127.0.0.1 or localhost",
        )
    origin = connection.headers.get("origin")
    if origin is not None and not _is_local(origin):
        raise Refused(HTTPStatus.FORBIDDEN, "foreign-origin", "Pages of other places may not ask this server.")


def _is_local(address: str) -> bool:
    try:
        return is_loopback(urlsplit(address).hostname or "")
    except ValueError:
        return False

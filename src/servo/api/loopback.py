"""What a loopback server checks of a request without a token: that no page of another place sent it.

A browser sends requests for any page, from this machine and in its user's name. Two things tell them from the requests
of programs: the name that the page has made point here (Host), and the page's own origin (Origin, Sec-Fetch-Site).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import SplitResult, urlsplit

from litestar.connection import ASGIConnection

from servo.api.problems import Refused
from servo.local_server import is_loopback

__all__ = ["require_local"]

_HTTP_PORT = 80
_OWN_PAGES = ("same-origin", "none")  # none: a person typed the address


def require_local(connection: ASGIConnection[Any, Any, Any, Any]) -> None:
    """Refuse what a page of another origin sends here, also one whose own name was made to point here."""
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

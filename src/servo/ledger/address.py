"""Addresses of ledgers and storages as they may be shown."""

from __future__ import annotations

import re

# Parameters that hold no secret. A query with any other is not shown: `p%61ssword` is a password too.
_SHOWN = {"host", "hostaddr", "port", "user", "dbname", "sslmode", "connect_timeout", "application_name", "region"}
_FILES = ("sqlite", "memory")  # what follows is a path, where every character may be
_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<slashes>/{0,2})(?P<rest>.*)", re.DOTALL)
_USER = re.compile(r"[\w.%+-]*")
_PORT = re.compile(r":(?!\d*(?:[,/?#]|$))")  # a colon after which no port comes
_HIDDEN = "***"


def without_password(address: str) -> str:
    """An address without its password. Where it cannot be told what the password is, more is hidden, never less."""
    found = _ADDRESS.fullmatch(address)
    if found is None or found["scheme"].lower() in _FILES:
        return address
    start = f"{found['scheme']}:{found['slashes']}"
    # The last @ is the one before the host: a password may hold @, /, ? and # that somebody forgot to escape.
    before, at, after = found["rest"].rpartition("@")
    if re.search(r"\?.*=", before, re.DOTALL):
        return start + _HIDDEN  # the @ may be in a parameter's value
    user, colon, _ = before.partition(":")
    if not _USER.fullmatch(user):
        user, colon = _HIDDEN, ""
    shown_user = f"{user}{colon and ':' + _HIDDEN}{at}"
    if not at and _PORT.search(re.sub(r"^\[[\d:a-fA-F.%]*\]", "", after)):
        return start + _HIDDEN  # user:password, and the host was forgotten
    place, _, query = after.partition("?")
    shown_query = f"?{query}" if query and _is_harmless(query) else ""
    return f"{start}{shown_user}{place}{shown_query}"


def _is_harmless(query: str) -> bool:
    return all(parameter.partition("=")[0] in _SHOWN for parameter in query.split("&"))

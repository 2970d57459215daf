"""Addresses of ledgers: what each opens, and how it may be shown."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from servo.clock import Clock, system_clock
from servo.errors import InvalidSettings
from servo.ids import UlidFactory
from servo.ledger.memory import MemoryLedger
from servo.ledger.protocol import Ledger, Workspace
from servo.ledger.sqlite import SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Callable

# Parameters that hold no secret. A query with any other is not shown: `p%61ssword` is a password too.
_SHOWN = {"host", "hostaddr", "port", "user", "dbname", "sslmode", "connect_timeout", "application_name", "region"}
_FILES = ("sqlite", "memory")  # what follows is a path, where every character may be
_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<slashes>/{0,2})(?P<rest>.*)", re.DOTALL)
_USER = re.compile(r"[\w.%+-]*")
_PORT = re.compile(r":(?!\d*(?:[,/?#]|$))")  # a colon after which no port comes
_HIDDEN = "***"


def open_ledger(
    url: str,
    workspace: Workspace,
    *,
    clock: Clock = system_clock,
    random_bytes: Callable[[int], bytes] = os.urandom,
    create: bool = True,
) -> Ledger:
    """Open `sqlite:PATH`, `postgresql://…` or `memory:`; with `create`, make what is not there yet."""
    mint = UlidFactory(clock, random_bytes).next
    match backend_of(url):
        case "sqlite":
            return SqliteLedger(file_of(url), workspace, mint, create=create)
        case "postgresql":
            # The one lazy import: most projects never talk to PostgreSQL, and its driver takes a while to load.
            from servo.ledger.postgres import PostgresLedger  # noqa: PLC0415

            return PostgresLedger(url, workspace, mint, create=create)
        case "memory":
            return MemoryLedger(workspace, mint)


def backend_of(url: str) -> Literal["sqlite", "postgresql", "memory"]:
    """Which kind of ledger an address names. Raises InvalidSettings if it is none."""
    match scheme := url.partition(":")[0]:
        case "sqlite" | "postgresql" | "memory":
            return scheme
        case "postgres":
            return "postgresql"
    # Only how it starts: the rest may hold a password.
    raise InvalidSettings(
        f"the address of a ledger cannot start with {scheme + ':'!r:.40}",
        hint="use sqlite:PATH or postgresql://user@host/database",
    )


def file_of(url: str) -> Path:
    """The file of a SQLite ledger."""
    return Path(url.partition(":")[2].removeprefix("//"))


def is_unmade(url: str) -> bool:
    """Whether opening it would make a file that is not there. A server is made by others."""
    return url.startswith("sqlite:") and not file_of(url).exists()


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

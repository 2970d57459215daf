"""A ledger from its address."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from servo.clock import Clock, system_clock
from servo.errors import InvalidSettings
from servo.ids import UlidFactory
from servo.ledger.memory import MemoryLedger
from servo.ledger.protocol import Ledger, Workspace
from servo.ledger.sqlite import SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Callable


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
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite":
        return SqliteLedger(Path(rest.removeprefix("//")), workspace, mint, create=create)
    if scheme in ("postgresql", "postgres"):
        # The one lazy import: most projects never talk to PostgreSQL, and its driver takes a while to load.
        from servo.ledger.postgres import PostgresLedger  # noqa: PLC0415

        return PostgresLedger(url, workspace, mint, create=create)
    if scheme == "memory":
        return MemoryLedger(workspace, mint)
    # Only how it starts: the rest may hold a password.
    raise InvalidSettings(
        f"the address of a ledger cannot start with {scheme + ':'!r:.40}",
        hint="use sqlite:PATH or postgresql://user@host/database",
    )


def is_unmade(url: str) -> bool:
    """Whether opening it would make a file that is not there. A server is made by others."""
    scheme, _, rest = url.partition(":")
    return scheme == "sqlite" and not Path(rest.removeprefix("//")).exists()

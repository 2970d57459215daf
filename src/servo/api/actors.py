"""In whose name a request acts."""

from __future__ import annotations

import getpass
import os
from typing import Any

from litestar.connection import ASGIConnection

__all__ = ["actor_of", "local_actor"]


def actor_of(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """Whoever the guards found to be asking; over loopback without a token, the person whose machine this is."""
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

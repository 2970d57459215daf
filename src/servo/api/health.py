"""Whether the server lives, and whether it can do its work."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from http import HTTPStatus

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from servo.api.problems import RETRY_AFTER_SECONDS
from servo.api.threads import Threads
from servo.errors import ServoError
from servo.runtime.wiring import Project

__all__ = ["Check", "Health", "Readiness", "healthz", "readyz"]

log = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0


class Health(msgspec.Struct, frozen=True, kw_only=True):
    status: str = "alive"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that must be well: its name, whether it is, and the stable code of what is wrong."""

    name: str
    ok: bool
    problem: str | None = None


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    status: str  # ready, unready
    checks: list[Check]


@get("/healthz")
async def healthz() -> Health:
    """The process answers. It asks nothing else: a ledger that is away is no reason to start the server again."""
    return Health()


@get("/readyz")
async def readyz(
    project: NamedDependency[SkipValidation[Project]],
    threads: NamedDependency[SkipValidation[Threads]],
) -> Response[Readiness]:
    """200 when messages can be accepted; else 503."""
    check = await _ledger(project, threads)
    if check.ok:
        return Response(Readiness(status="ready", checks=[check]))
    return Response(
        Readiness(status="unready", checks=[check]),
        status_code=HTTPStatus.SERVICE_UNAVAILABLE,
        headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
    )


async def _ledger(project: Project, threads: Threads) -> Check:
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            await threads.look(partial(_ask, project))
    except TimeoutError:
        return Check(name="ledger", ok=False, problem="timeout")
    except ServoError as problem:
        log.warning("the ledger is not well: %s", problem, extra={"action": "api.unready"})
        return Check(name="ledger", ok=False, problem=problem.code)
    return Check(name="ledger", ok=True)


def _ask(project: Project) -> None:
    # In the thread: the first to ask for the ledger opens it, and that may block too.
    project.ledger.head()

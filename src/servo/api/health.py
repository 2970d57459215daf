"""Whether the server lives, and whether it can do its work."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from servo.api.operations import operation
from servo.api.problems import RETRY_AFTER_SECONDS
from servo.api.threads import Threads
from servo.runtime.readiness import Check, checks_of
from servo.runtime.wiring import Project

__all__ = ["Health", "Readiness", "healthz", "readyz"]

_LOOK_SECONDS = 5.0
# Without these, requests are refused; without anything else, they are answered and their work waits.
_NEEDED = frozenset({"ledger", "projections"})


class Health(msgspec.Struct, frozen=True, kw_only=True):
    status: str = "alive"


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """`ready`, `degraded` (requests are taken, and what they ask for waits) or `unready`."""

    status: str
    checks: list[Check]


@get("/healthz", opt=operation("public", shape="plain", answers=Health))
async def healthz() -> Health:
    """The process answers. It asks nothing else: a ledger that is away is no reason to start the server again."""
    return Health()


@get("/readyz", opt=operation("viewer", shape="plain", answers=Readiness))
async def readyz(
    project: NamedDependency[SkipValidation[Project]],
    threads: NamedDependency[SkipValidation[Threads]],
) -> Response[Readiness]:
    """200 where requests can be answered, 503 where not.

    `ledger`: it can be read and written. `projections`: they can be read and are not far behind. `control`: somebody
    plans. `worker`: how many compute, or none.
    """
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            checks = await threads.look(partial(checks_of, project))
    except TimeoutError:
        checks = [Check(name="ledger", ok=False, problem="timeout")]
    if any(not check.ok and check.name in _NEEDED for check in checks):
        return Response(
            Readiness(status="unready", checks=checks),
            status_code=HTTPStatus.SERVICE_UNAVAILABLE,
            headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
        )
    return Response(Readiness(status="ready" if all(check.ok for check in checks) else "degraded", checks=checks))

"""Whether the server lives, whether it can do its work, and its figures for Prometheus."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus

import msgspec
from litestar import Response, get

from servo.answers.server import Readiness, ReadinessCheck
from servo.api.openapi import operation
from servo.api.problems import RETRY_AFTER_SECONDS
from servo.api.server import WithServer
from servo.runtime.telemetry.monitoring import CONTENT_TYPE, checks_of

__all__ = ["Health", "healthz", "metrics_route", "readyz"]

_LOOK_SECONDS = 5.0
# Without these, requests are refused; without anything else, they are answered and their work waits.
_NEEDED = frozenset({"ledger", "projections"})


class Health(msgspec.Struct, frozen=True, kw_only=True):
    status: str = "alive"


@get("/healthz", opt=operation("public", shape="plain", answers=Health))
async def healthz() -> Health:
    """The process answers. It asks nothing else: a ledger that is away is no reason to start the server again."""
    return Health()


@get("/readyz", opt=operation("viewer", shape="plain", answers=Readiness))
async def readyz(
    server: WithServer,
) -> Response[Readiness]:
    """200 where requests can be answered, 503 where not.

    `ledger`: it can be read and written. `projections`: they can be read and are not far behind. `control`: somebody
    plans. `worker`: how many compute, or none.
    """
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            checks = await server.threads.look(partial(checks_of, server.project))
    except TimeoutError:
        checks = [ReadinessCheck(name="ledger", ok=False, problem="timeout")]
    if any(not check.ok and check.name in _NEEDED for check in checks):
        return Response(
            Readiness(status="unready", checks=checks),
            status_code=HTTPStatus.SERVICE_UNAVAILABLE,
            headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
        )
    return Response(Readiness(status="ready" if all(check.ok for check in checks) else "degraded", checks=checks))


@get("/metrics", opt=operation("viewer", shape="html", media_type="text/plain"), media_type=CONTENT_TYPE)
async def metrics_route(
    server: WithServer,
) -> Response[bytes]:
    """The figures of this workspace, and of this server, in Prometheus's text format."""
    return Response(await server.threads.answer(server.metrics.text), media_type=CONTENT_TYPE)

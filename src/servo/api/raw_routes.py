"""Routes that are no operations: what they are sent is taken as it is (a message, a report), or they drive the server.

A message may be of several formats, some of which are in its headers. A report is proven by its own bytes. A pass over
schedules and sensors is recorded by what it starts, and not as a request.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from servo.answers.automations import MessageAccepted
from servo.answers.lineage import Verdict
from servo.api.auth import actor_of
from servo.api.inputs import read_body
from servo.api.openapi import operation
from servo.api.request_context import plain
from servo.api.server import WithServer
from servo.lineage.report import Report, parse
from servo.operations.lineage.audit import Audits
from servo.operations.sensors.envelopes import read_message
from servo.runtime.states import state_of

__all__ = ["RAW_ROUTES"]

# Who sends over loopback is not asked for a name: what is recorded was done by the sensor.
_ANONYMOUS = ""
_REPORT_BYTES = 16 * 1024 * 1024


@post(
    "/sensors/{sensor:str}/messages",
    tags=["sensors"],
    status_code=HTTPStatus.ACCEPTED,
    opt=operation(
        "operator",
        shape="plain",
        answers=MessageAccepted,
        refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS),
        example={"message": {"messageId": "4711", "data": "eyJkYXkiOiAiMjAyNS0wMS0xNSJ9"}},
    ),
)
async def take_message(
    sensor: FromPath[str],
    request: Request[Any, Any, Any],
    server: WithServer,
) -> Response[MessageAccepted]:
    """Take a message: a Pub/Sub push envelope or a CloudEvent.

    202 when it is durable, whatever the sensor made of it (a failure is recorded, and sending it again would not
    mend it); 200 when it was there before. Any other answer: nothing was recorded, or nobody knows; send it again.
    """
    message = read_message(request.scope["headers"], await read_body(request))
    actor = actor_of(request) if request.scope.get("user") is not None else _ANONYMOUS
    async with server.shares.place("sensor", sensor):
        accepted = await server.threads.answer(partial(server.user_code.accept, sensor, message, actor=actor))
    # Only a trial has none.
    assert accepted.event_id is not None
    assert accepted.accepted_at is not None
    answer = MessageAccepted(
        accepted_event_id=accepted.event_id,
        accepted_at=accepted.accepted_at,
        correlation_id=accepted.sensor_id,
        duplicate=accepted.duplicate,
        eval_id=accepted.eval_id,
        sensor_id=accepted.sensor_id,
        status=accepted.status,
        reason=accepted.reason,
        run_keys=accepted.run_keys,
        run_ids=accepted.run_ids,
    )
    return Response(answer, status_code=HTTPStatus.OK if accepted.duplicate else HTTPStatus.ACCEPTED)


@post(
    "/audit/verify",
    tags=["audit"],
    status_code=HTTPStatus.OK,
    request_max_body_size=_REPORT_BYTES,
    opt=operation("viewer", shape="plain", answers=Verdict, body=Report),
)
async def verify_report(request: Request[Any, Any, Any], server: WithServer) -> Response[bytes]:
    """Say what the report in the body does not prove itself, and what this ledger does not confirm."""
    sent = await read_body(request, most=_REPORT_BYTES)

    def work() -> Verdict:
        report = parse(sent)
        found = Audits(state_of(server.project), server.project.clock()).verify(report)
        return Verdict.of(report, found)

    return plain(await server.threads.answer(work))


@post("/internal/tick", tags=["internal"], status_code=HTTPStatus.OK, opt=operation("operator", shape="plain"))
async def tick(server: WithServer) -> Response[msgspec.Struct]:
    """Do one pass over schedules and sensors, as `servo tick` does; a pass waits for the one before it."""
    return Response(await server.threads.one_pass(server.driver))


RAW_ROUTES: list[HTTPRouteHandler] = [take_message, verify_report, tick]

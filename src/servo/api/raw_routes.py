"""Routes that are no operations: what they are sent is taken as it is (a message, a report), or they drive the server.

A message may be of several formats, some of which are in its headers. A report is proven by its own bytes. A pass over
schedules and sensors is recorded by what it starts, and not as a request.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

from litestar.handlers import HTTPRouteHandler

from servo.answers.automations import MessageAccepted
from servo.answers.lineage import Verdict
from servo.api.auth import actor_of
from servo.api.direct_routes import direct_route
from servo.api.inputs import read_body
from servo.api.openapi import operation
from servo.api.request_context import Answer, RequestContext, plain
from servo.lineage.report import Report, parse
from servo.operations.automations.envelopes import read_message
from servo.operations.lineage.audit import Audits
from servo.runtime.states import state_of

__all__ = ["RAW_ROUTES"]

# Who sends over loopback is not asked for a name: what is recorded was done by the sensor.
_ANONYMOUS = ""
_REPORT_BYTES = 16 * 1024 * 1024


async def take_message(context: RequestContext) -> Answer:
    """Take a message: a Pub/Sub push envelope or a CloudEvent.

    202 when it is durable, whatever the sensor made of it (a failure is recorded, and sending it again would not
    mend it); 200 when it was there before. Any other answer: nothing was recorded, or nobody knows; send it again.
    """
    request, server, sensor = context.request, context.server, context.request.path_params["sensor"]
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
    return plain(answer, status=HTTPStatus.OK if accepted.duplicate else HTTPStatus.ACCEPTED)


async def verify_report(context: RequestContext) -> Answer:
    """Say what the report in the body does not prove itself, and what this ledger does not confirm."""
    sent = await read_body(context.request, most=_REPORT_BYTES)

    def work() -> Verdict:
        report = parse(sent)
        found = Audits(state_of(context.project), context.project.clock()).verify(report)
        return Verdict.of(report, found)

    return plain(await context.threads.answer(work))


async def tick(context: RequestContext) -> Answer:
    """Do one pass over schedules and sensors, as `servo tick` does; a pass waits for the one before it."""
    return plain(await context.threads.one_pass(context.server.driver))


RAW_ROUTES: list[HTTPRouteHandler] = [
    direct_route(
        "POST",
        "/sensors/{sensor:str}/messages",
        take_message,
        tag="sensors",
        opt=operation(
            "operator",
            shape="plain",
            answers=MessageAccepted,
            refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS),
            example={"message": {"messageId": "4711", "data": "eyJkYXkiOiAiMjAyNS0wMS0xNSJ9"}},
        ),
    ),
    direct_route(
        "POST",
        "/audit/verify",
        verify_report,
        tag="audit",
        opt=operation("viewer", shape="plain", answers=Verdict, body=Report),
    ),
    direct_route("POST", "/internal/tick", tick, tag="internal", opt=operation("operator", shape="plain")),
]

"""The route by which push sensors are sent their messages."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Controller, Request, Response, post
from litestar.di import NamedDependency
from litestar.params import FromPath, SkipValidation

from servo.api.actors import actor_of
from servo.api.limits import Shares, read_body
from servo.api.operations import operation
from servo.api.threads import Threads
from servo.runtime.automation.envelopes import read_message
from servo.runtime.user_code import Accepting

__all__ = ["MessageAccepted", "MessageRoutes"]

# Who sends over loopback is not asked for a name: what is recorded was done by the sensor.
_ANONYMOUS = ""


class MessageAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is in the ledger: by which event, since when, and what became of it."""

    accepted_event_id: str
    accepted_at: datetime
    correlation_id: str
    duplicate: bool
    eval_id: str
    sensor_id: str
    status: str
    reason: str | None
    run_keys: list[str]
    run_ids: list[str]


class MessageRoutes(Controller):
    path = "/sensors"
    tags = ["sensors"]

    @post(
        "/{sensor:str}/messages",
        status_code=HTTPStatus.ACCEPTED,
        opt=operation(
            "operator",
            shape="plain",
            answers=MessageAccepted,
            refusals=(HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS),
            example={"message": {"messageId": "4711", "data": "eyJkYXkiOiAiMjAyNS0wMS0xNSJ9"}},
        ),
    )
    async def message(
        self,
        sensor: FromPath[str],
        request: Request[Any, Any, Any],
        sensing: NamedDependency[SkipValidation[Accepting]],
        threads: NamedDependency[SkipValidation[Threads]],
        shares: NamedDependency[SkipValidation[Shares]],
    ) -> Response[MessageAccepted]:
        """Take a message: a Pub/Sub push envelope or a CloudEvent.

        202 when it is durable, whatever the sensor made of it (a failure is recorded, and sending it again would not
        mend it); 200 when it was there before. Any other answer: nothing was recorded, or nobody knows; send it again.
        """
        message = read_message(request.scope["headers"], await read_body(request))
        actor = actor_of(request) if request.scope.get("user") is not None else _ANONYMOUS
        async with shares.place("sensor", sensor):
            accepted = await threads.answer(partial(sensing.accept, sensor, message, actor=actor))
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

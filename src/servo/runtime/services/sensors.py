"""Evaluations of sensors that people ask for."""

from __future__ import annotations

from servo.answers.sensors import Accepted
from servo.assets.messages import Message
from servo.errors import InvalidInput
from servo.operations.sensors.requests import EvaluateSensor
from servo.runtime.automation.evaluations import evaluation_of
from servo.runtime.serving import Call, serves_change


@serves_change(EvaluateSensor, finish=evaluation_of)
def evaluate(call: Call, request: EvaluateSensor) -> Accepted:
    if request.data is not None and request.message_id is not None:
        raise InvalidInput(
            "message_id: a message is a sample or one that came before", hint="give data, or an id", field="message_id"
        )
    sample = None
    if request.data is not None:
        sample = Message(
            id=call.project.mint(),
            data=_bytes(request.data),
            attributes=request.attributes,
            published_at=call.project.clock(),
        )
    return call.user_code.sensing.evaluate(
        request.sensor,
        message=sample,
        message_id=request.message_id,
        request_id=call.key,
        dry_run=request.dry_run,
        actor=call.actor,
    )


def _bytes(text: str) -> bytes:
    """The bytes of a message: those that a terminal could not decode are in the text as lone surrogates."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")

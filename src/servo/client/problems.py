"""What a server refuses, as the error that the service raised: `code` says which."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from servo import decoders, errors
from servo.errors import ServerUnreachable, ServoError

__all__ = ["error_of"]

_FACTS = ("expected", "actual", "behind_events", "behind_seconds", "field")
# For codes that no error of Servo's has: what HTTP itself has a word for.
_BY_STATUS: dict[int, type[ServoError]] = {
    400: errors.InvalidInput,
    401: errors.NotAllowed,
    403: errors.NotAllowed,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.InvalidInput,
    415: errors.InvalidInput,
    421: errors.NotAllowed,
    422: errors.InvalidInput,
}
_MOST_SHOWN = 200  # characters of an answer that is no problem of Servo's


def error_of(status: int, body: bytes) -> ServoError:
    """The error that an answer says. What was said beside its words (`expected`, `actual`, …) is an attribute of it."""
    said = _said(body)
    code = str(said.get("code") or "")
    kind = _kinds().get(code) or _BY_STATUS.get(status) or (ServerUnreachable if status >= 500 else ServoError)
    message = str(said.get("detail") or f"the server answered {status}: {body[:_MOST_SHOWN].decode(errors='replace')}")
    hint = said.get("hint")
    if hint is None and status == 401:
        hint = "SERVO_TOKEN is to have one that `servo token create` gave, and that is neither revoked nor expired"
    # Some errors take more than a message; what they take is what the problem says.
    error = kind.__new__(kind, message)
    ServoError.__init__(error, message, hint=None if hint is None else str(hint))
    vars(error).update({name: said.get(name) for name in _FACTS if name in said or hasattr(kind, name)})
    vars(error)["status"] = status
    if code and code != kind.code:
        vars(error)["code"] = code
    return error


def _said(body: bytes) -> dict[str, Any]:
    try:
        said = decoders.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return said if isinstance(said, dict) else {}


@cache
def _kinds() -> dict[str, type[ServoError]]:
    return {kind.code: kind for kind in _all(ServoError)}


def _all(kind: type[ServoError]) -> Iterator[type[ServoError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _all(below)

"""Errors as RFC 9457 problems, each with the stable code of its class.

What a client did is said in the words of the error. What went wrong in here is said in the words of the error's class:
the message may name files, addresses and tables, and goes to the log.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from servo import errors
from servo.errors import ServoError

__all__ = ["HANDLERS", "PROBLEM_JSON", "RETRY_AFTER_SECONDS", "Refused", "problem_bytes", "problem_of", "status_of"]

log = logging.getLogger(__name__)

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_SECONDS = 1

# The nearest class counts. Whoever sent a message sends it again after a 503.
_STATUSES: dict[type[ServoError], HTTPStatus] = {
    ServoError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.InvalidInput: HTTPStatus.BAD_REQUEST,
    errors.InvalidPartition: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.InvalidSelection: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.InputsMissing: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.InvalidSettings: HTTPStatus.INTERNAL_SERVER_ERROR,  # the server's, not the client's
    errors.InvalidDefinition: HTTPStatus.INTERNAL_SERVER_ERROR,  # likewise
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.LedgerNotFound: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.FencedOut: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.NotAllowed: HTTPStatus.FORBIDDEN,
    errors.AppendOutcomeUnknown: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.LedgerUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.EvaluationUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StorageFailed: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ProjectionLagging: HTTPStatus.SERVICE_UNAVAILABLE,
}
_FACTS = ("expected", "actual", "behind_events", "behind_seconds", "field")  # what some errors say beside their words
_RETRIED = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)


class Refused(Exception):  # noqa: N818 (like Servo's own errors; it belongs to HTTP and never leaves this room)
    """A request that HTTP itself has a word for, before any service was asked."""

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        detail: str,
        *,
        hint: str | None = None,
        field: str | None = None,
        close: bool = True,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.hint = hint
        self.field = field
        self.close = close  # what is left of the request was not read: the connection ends with the answer


def status_of(kind: type[ServoError]) -> HTTPStatus:
    return next(_STATUSES[base] for base in kind.__mro__ if base in _STATUSES)


def _from_servo(request: Request[Any, Any, Any], error: ServoError) -> Response[dict[str, Any]]:
    status = status_of(type(error))
    summary = (type(error).__doc__ or "It failed.").partition("\n")[0]
    facts = {name: getattr(error, name, None) for name in _FACTS}
    # What this says is about what was asked for, and gives nothing away.
    if isinstance(error, errors.ProjectionLagging):
        return _problem(status, error.code, summary.rstrip("."), error.message, hint=error.hint, **facts)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error(
            "%s %s could not be answered: %s", request.method, request.url.path, error, extra={"action": "api.failed"}
        )
        return _problem(status, error.code, summary.rstrip("."), summary, **facts)
    return _problem(status, error.code, summary.rstrip("."), error.message, hint=error.hint, **facts)


def _from_refused(_: Request[Any, Any, Any], error: Refused) -> Response[dict[str, Any]]:
    headers = {"Connection": "close"} if error.close else {}
    return _problem(
        error.status,
        error.code,
        error.status.phrase,
        error.detail,
        hint=error.hint,
        field=error.field,
        headers=headers,
    )


def _from_http(_: Request[Any, Any, Any], error: HTTPException) -> Response[dict[str, Any]]:
    """What Litestar refuses: an unknown path, another method, a parameter that does not fit."""
    status = HTTPStatus(error.status_code)
    code = status.phrase.lower().replace(" ", "-")
    detail = error.detail if status < HTTPStatus.INTERNAL_SERVER_ERROR else status.description
    headers = dict(error.headers or {})
    if status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        headers["Connection"] = "close"
    return _problem(status, code, status.phrase, detail, headers=headers)


def _from_unknown(request: Request[Any, Any, Any], error: Exception) -> Response[dict[str, Any]]:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error, extra={"action": "api.broken"})
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return _problem(status, "internal-error", status.phrase, "Something is wrong in here; the server's log says what.")


def problem_bytes(status: HTTPStatus, code: str, detail: str) -> bytes:
    """A problem, for what is refused before there is a request."""
    return msgspec.json.encode(_body(status, code, status.phrase, detail))


def _body(status: HTTPStatus, code: str, title: str, detail: str) -> dict[str, Any]:
    return {"type": f"urn:servo:problem:{code}", "title": title, "status": int(status), "detail": detail, "code": code}


def _problem(
    status: HTTPStatus, code: str, title: str, detail: str, *, headers: dict[str, str] | None = None, **more: Any
) -> Response[dict[str, Any]]:
    body = _body(status, code, title, detail)
    body |= {name: value for name, value in more.items() if value is not None}
    headers = headers or {}
    if status in _RETRIED:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return Response(body, status_code=int(status), media_type=PROBLEM_JSON, headers=headers)


HANDLERS: dict[int | type[Exception], Any] = {
    ServoError: _from_servo,
    Refused: _from_refused,
    HTTPException: _from_http,
    Exception: _from_unknown,
}


def problem_of(request: Request[Any, Any, Any], error: Exception) -> Response[dict[str, Any]]:
    """The problem that a request is answered with, by the nearest class of the error."""
    handle = next(HANDLERS[base] for base in type(error).__mro__ if base in HANDLERS)
    answer: Response[dict[str, Any]] = handle(request, error)
    return answer

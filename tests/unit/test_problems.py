"""Every error of Servo as a problem over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest
from litestar import Request
from litestar.exceptions import NotFoundException
from litestar.testing import RequestFactory

from servo import errors
from servo.api.problems import HANDLERS, PROBLEM_JSON, Refused, status_of
from servo.errors import ServoError

EXPECTED = {
    errors.InvalidInput: 400,
    errors.InvalidName: 400,
    errors.InvalidSelection: 422,
    errors.InvalidPartition: 422,
    errors.InputsMissing: 422,
    errors.InvalidSettings: 500,
    errors.InvalidDefinition: 500,
    errors.SensorNotFound: 404,
    errors.RunNotFound: 404,
    errors.LedgerNotFound: 503,
    errors.AppendConflict: 409,
    errors.IdempotencyMismatch: 409,
    errors.FencedOut: 503,
    errors.NotAllowed: 403,
    errors.LedgerUnavailable: 503,
    errors.AppendOutcomeUnknown: 503,
    errors.StorageFailed: 503,
    errors.LedgerCorrupt: 500,
    errors.ProjectionLagging: 503,
    errors.ProjectionDamaged: 500,
    errors.SparkUnavailable: 500,
}
SECRET = "the password of /var/lib/servo is 1234"


def all_errors(kind: type[ServoError] = ServoError) -> Iterator[type[ServoError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from all_errors(below)


def problem_of(error: Exception) -> tuple[int, dict[str, Any], dict[str, str]]:
    handler = next(HANDLERS[kind] for kind in type(error).__mro__ if kind in HANDLERS)
    request: Request[Any, Any, Any] = RequestFactory().post("/somewhere")
    response = handler(request, error)
    assert response.media_type == PROBLEM_JSON
    assert response.content["status"] == response.status_code
    return response.status_code, response.content, response.headers


@pytest.mark.parametrize(("kind", "status"), EXPECTED.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_the_status_is_that_of_the_nearest_class(kind: type[ServoError], status: int) -> None:
    assert status_of(kind) == status


@pytest.mark.parametrize("kind", list(all_errors()), ids=lambda kind: kind.__name__)
def test_what_goes_wrong_inside_is_said_without_its_details(kind: type[ServoError]) -> None:
    error = kind.__new__(kind)
    ServoError.__init__(error, SECRET, hint="mend it")
    status, body, headers = problem_of(error)
    assert status == status_of(kind)
    assert (body["code"], body["type"]) == (kind.code, f"urn:servo:problem:{kind.code}")
    assert body["title"]
    # How far behind it is, or which event did not come, is about what was asked for.
    told = status < 500 or kind is errors.ProjectionLagging
    assert (SECRET in body["detail"]) == told
    assert ("hint" in body) == told
    assert ("Retry-After" in headers) == (status == 503)


def test_a_conflict_says_what_was_expected_and_what_is() -> None:
    status, body, _ = problem_of(errors.AppendConflict("somebody was first", expected=3, actual=5))
    assert (status, body["expected"], body["actual"]) == (409, 3, 5)
    assert "hint" not in body


def test_what_nobody_foresaw_is_an_internal_error() -> None:
    status, body, _ = problem_of(ZeroDivisionError(SECRET))
    assert (status, body["code"]) == (500, "internal-error")
    assert SECRET not in str(body)


def test_what_the_framework_refuses_is_a_problem_too() -> None:
    status, body, _ = problem_of(NotFoundException())
    assert (status, body["code"], body["title"]) == (404, "not-found", "Not Found")


def test_who_is_refused_early_is_not_listened_to_any_more() -> None:
    status, body, headers = problem_of(Refused(HTTPStatus.TOO_MANY_REQUESTS, "too-many-messages", "Too many."))
    assert (status, body["code"]) == (429, "too-many-messages")
    assert headers == {"Connection": "close", "Retry-After": "1"}

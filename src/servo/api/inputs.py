"""What a request says, as structs: unknown names, wrong types and what is out of bounds are refused by name."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from http import HTTPStatus
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from litestar import Request
from msgspec import Meta

from servo import decoders
from servo.api.limits import read_body
from servo.api.problems import Refused
from servo.api.project_as_of import When, when_of
from servo.operations.moments import moment
from servo.operations.validation import misfit_of

__all__ = ["Listing", "Reading", "Text", "Within", "body_of", "query_of"]

S = TypeVar("S", bound=msgspec.Struct)

MOST_ITEMS = 100
_LONGEST = 4_000  # of one parameter
_JSON = "application/json"
_EXACT = 2**53  # whole numbers beyond are not what was written

Text = Annotated[str, Meta(min_length=1, max_length=_LONGEST)]


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which state is read."""

    fresh: Annotated[
        bool, Meta(description="Answer with all that the ledger holds when this is asked, or 503; never less.")
    ] = False
    wait_for_event_id: (
        Annotated[
            str, Meta(description="Answer with a state that includes this event: one's own write.", max_length=64)
        ]
        | None
    ) = None
    timeout_ms: Annotated[
        int, Meta(ge=0, le=60_000, description="How long to wait for that; then 503 says how far behind.")
    ] = 5_000
    as_of: (
        Annotated[
            str,
            Meta(
                description="A time or an event id: the state and the definitions of then.",
                examples=["2025-01-15T10:30:00Z"],
                max_length=64,
            ),
        ]
        | None
    ) = None

    @property
    def when(self) -> When:
        return when_of(
            fresh=self.fresh,
            wait_for_event_id=self.wait_for_event_id,
            timeout_ms=self.timeout_ms,
            as_of=self.as_of,
        )


class Listing(Reading, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of a list, and where it begins."""

    limit: Annotated[int, Meta(ge=1, le=MOST_ITEMS, description="At most so many items.")] = 50
    cursor: (
        Annotated[
            str,
            Meta(description="`next_cursor` of the page before, with the same filters.", max_length=_LONGEST),
        ]
        | None
    ) = None


class Within(Listing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A list in time."""

    since: Annotated[str, Meta(description="Only from this time on.", max_length=64)] | None = None
    until: Annotated[str, Meta(description="Only before this time.", max_length=64)] | None = None

    @property
    def begin(self) -> datetime | None:
        return moment(self.since, "since")

    @property
    def end(self) -> datetime | None:
        return moment(self.until, "until")


def query_of(request: Request[Any, Any, Any], kind: type[S]) -> S:
    """The parameters behind the question mark; those that the route does not know are refused."""
    several = _lists_of(kind)
    said: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in several:
            said.setdefault(name, []).append(value)
        elif name in said:
            raise _refused(HTTPStatus.BAD_REQUEST, name, "is given twice")
        else:
            said[name] = value
    try:
        found = decoders.convert(said, kind, strict=False)
    except msgspec.ValidationError as problem:
        raise _unfit(HTTPStatus.BAD_REQUEST, problem, "the query", kind) from None
    for name in said:
        if getattr(found, name) is None:  # `null` was written, which is a word like any other in a URL
            raise _refused(HTTPStatus.BAD_REQUEST, name, "is left out, where it is not to be said")
    return found


async def body_of(request: Request[Any, Any, Any], kind: type[S], *, required: bool = True) -> S:
    """The body, as JSON of exactly this shape; where it need not be there, nothing is as good as `{}`."""
    sent = await read_body(request)
    declared = request.headers.get("content-type")
    media_type = (declared or "").partition(";")[0].strip().lower()
    # Nothing at all needs no type: many clients send an empty body without one. Whatever is sent needs it, as a page
    # of another origin can make a browser send anything but JSON without asking this server first.
    if media_type != _JSON and (sent or declared is not None):
        hint = f"send the header `Content-Type: {_JSON}`"
        detail = f"A body of type {media_type!r:.60} is not taken." if media_type else "The body has no type."
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail, hint=hint, close=False)
    if not sent.strip() and not required:
        sent = b"{}"
    try:
        return _decoded(sent, kind)
    except msgspec.ValidationError as problem:
        raise _unfit(HTTPStatus.UNPROCESSABLE_ENTITY, problem, "the body", kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        detail = "It is nested too deep." if isinstance(problem, RecursionError) else f"It is no JSON: {problem}."
        raise _refused(HTTPStatus.BAD_REQUEST, "", detail) from None


def _decoded(sent: bytes, kind: type[S]) -> S:
    try:
        return decoders.decode(sent, kind)
    except msgspec.ValidationError as problem:
        if "got `float`" not in str(problem):
            raise
        # JSON has numbers, and 3.0 is the number 3: some clients write all of theirs so.
        return decoders.convert(_whole(decoders.decode(sent)), kind)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    if isinstance(value, list):
        return [_whole(one) for one in value]
    if isinstance(value, dict):
        return {name: _whole(one) for name, one in value.items()}
    return value


def _unfit(status: HTTPStatus, problem: msgspec.ValidationError, what: str, kind: type[msgspec.Struct]) -> Refused:
    wrong = misfit_of(problem, what, kind)
    return _refused(status, wrong.field, wrong.detail, wrong.hint)


def _refused(status: HTTPStatus, field: str, detail: str, hint: str | None = None) -> Refused:
    detail = f"{field} {detail}" if field and not detail.startswith(field) else detail
    return Refused(status, "invalid-input", detail, field=field or None, hint=hint, close=False)


@cache
def _lists_of(kind: type[msgspec.Struct]) -> frozenset[str]:
    """The parameters that may be given more than once."""
    hints = get_type_hints(kind)
    return frozenset(name for name, hint in hints.items() if _is_list(hint))


def _is_list(hint: Any) -> bool:
    return get_origin(hint) in (list, tuple) or any(get_origin(one) in (list, tuple) for one in get_args(hint))

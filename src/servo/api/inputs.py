"""What a request says, as structs: unknown names, wrong types and what is out of bounds are refused by name."""

from __future__ import annotations

import asyncio
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from litestar import Request
from msgspec import Meta

from servo import decoders
from servo.api.problems import Refused
from servo.api.states import When, when_of
from servo.operations.fields import LONGEST_TEXT, Limit
from servo.operations.operation import misfit_of
from servo.runtime.secrets import Secret

__all__ = [
    "BODY_BYTES",
    "BODY_SECONDS",
    "HEADER",
    "Cursors",
    "Keyed",
    "Listing",
    "Reading",
    "body_of",
    "key_of",
    "query_of",
    "read_body",
    "require_key",
]

S = TypeVar("S", bound=msgspec.Struct)

BODY_BYTES = 1024 * 1024
BODY_SECONDS = 30.0
_JSON = "application/json"
_EXACT = 2**53  # whole numbers beyond are not what was written


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

    limit: Limit = 50
    cursor: (
        Annotated[
            str,
            Meta(description="`next_cursor` of the page before, with the same filters.", max_length=LONGEST_TEXT),
        ]
        | None
    ) = None


def query_of(request: Request[Any, Any, Any], kind: type[S]) -> S:
    """The parameters behind the question mark; those that the route does not know are refused."""
    several = _lists_of(kind)
    values: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in several:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise _refused(HTTPStatus.BAD_REQUEST, name, "is given twice")
        else:
            values[name] = value
    try:
        parameters = decoders.convert(values, kind, strict=False)
    except msgspec.ValidationError as problem:
        raise _unfit(HTTPStatus.BAD_REQUEST, problem, "the query", kind) from None
    for name in values:
        if getattr(parameters, name) is None:  # `null` was written, which is a word like any other in a URL
            raise _refused(HTTPStatus.BAD_REQUEST, name, "is left out, where it is not to be said")
    return parameters


async def read_body(request: Request[Any, Any, Any], *, most: int = BODY_BYTES) -> bytes:
    """The whole body; no more of a large one is read than shows that it is."""
    announced = request.headers.get("content-length", "0")
    if announced.isascii() and announced.isdigit() and int(announced) > most:
        raise _too_large(most)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                event = await request.receive()
                if event["type"] != "http.request":
                    # Half a message must not be taken for a whole one.
                    raise Refused(HTTPStatus.BAD_REQUEST, "incomplete-body", "The body ended before its end.")
                body += event.get("body", b"")
                if len(body) > most:
                    raise _too_large(most)
                if not event.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        detail = f"The body was not there after {BODY_SECONDS:g} seconds."
        raise Refused(HTTPStatus.REQUEST_TIMEOUT, "request-timeout", detail) from None


def _too_large(most: int) -> Refused:
    hint = "store what is large, and send where it is"
    return Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "content-too-large", f"At most {most:,} bytes are taken.", hint=hint
    )


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


# ── idempotency keys: the header, or `client_request_id` in the body ─────────────────────────────────────────────


HEADER = "Idempotency-Key"
LONGEST_KEY = 200


class Keyed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body that may carry the key of its request; a header wins over it.

    What was done under a key is in the ledger, not here: see `servo.runtime.performer`.
    """

    client_request_id: (
        Annotated[
            str,
            Meta(description="As the header Idempotency-Key, which wins.", min_length=1, max_length=LONGEST_KEY),
        ]
        | None
    ) = None


def key_of(request: Request[Any, Any, Any], body: Keyed) -> str | None:
    """The key of a request, if it has one."""
    given = request.headers.getall(HEADER, [])
    if len(given) > 1:
        raise _refused_key(f"{HEADER} is given {len(given)} times.")
    key = given[0].strip() if given else body.client_request_id
    if key is None:
        return None
    if not 1 <= len(key) <= LONGEST_KEY or not key.isprintable() or not key.isascii():
        raise _refused_key(
            f"{key!r:.80} cannot be an idempotency key.", f"give 1 to {LONGEST_KEY} printable ASCII characters"
        )
    return key


def require_key(request: Request[Any, Any, Any], body: Keyed) -> str:
    """The key of a request that creates something."""
    key = key_of(request, body)
    if key is None:
        detail = f"Whoever creates something gives an {HEADER}, so that asking again is safe."
        raise _refused_key(
            detail, "send a UUID as the header, or as client_request_id", code="idempotency-key-required"
        )
    return key


def _refused_key(detail: str, hint: str | None = None, *, code: str = "invalid-input") -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, code, detail, hint=hint, field=HEADER, close=False)


# ── cursors: where a list goes on ────────────────────────────────────────────────────────────────────────────────


P = TypeVar("P")

_SEAL_BYTES = 16


class Cursors:
    """The cursors of one list with its filters: opaque, and nobody's to make up.

    A cursor is a place in the sorted list and not a number of items: whatever is added or removed meanwhile, nothing
    comes twice and nothing that stays is left out. It is sealed with the tenant's secret together with the list and the
    filters it belongs to, so that one of another list, or one that somebody wrote, is refused.
    """

    def __init__(self, secret: Secret, *belongs_to: Any) -> None:
        self._secret = secret.value
        self._list = msgspec.json.encode(belongs_to)

    def text(self, place: Any) -> str:
        content = msgspec.json.encode(place)
        return urlsafe_b64encode(self._seal(content) + content).rstrip(b"=").decode()

    def place(self, text: str | None, kind: type[P]) -> P | None:
        """The place that a cursor means; None for no cursor: the beginning."""
        if text is None:
            return None
        try:
            whole = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
            seal, content = whole[:_SEAL_BYTES], whole[_SEAL_BYTES:]
            if hmac.compare_digest(seal, self._seal(content)):
                return decoders.decode(content, kind)
        except (NotBase64, UnicodeEncodeError, ValueError, msgspec.DecodeError):
            pass
        raise Refused(
            HTTPStatus.BAD_REQUEST,
            "invalid-input",
            f"cursor: {text!r:.60} is none of this list with these filters",
            hint="pass next_cursor of the page before, and the same filters",
            field="cursor",
            close=False,
        )

    def _seal(self, content: bytes) -> bytes:
        return hmac.digest(self._secret, b"servo.cursor\0" + self._list + b"\0" + content, sha256)[:_SEAL_BYTES]

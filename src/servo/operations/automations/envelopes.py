"""Messages as others send them over HTTP: Google Pub/Sub's push envelope, and CloudEvents 1.0 (structured, binary).

Nothing here reads from anywhere: headers and a body come in, a Message or an InvalidInput that names the field goes
out. What a message is known by is Pub/Sub's message id, or the source and id of a CloudEvent.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from servo import decoders
from servo.assets.evaluation import Message
from servo.errors import InvalidInput

__all__ = ["MAX_DATA_BYTES", "MAX_ID_LENGTH", "cloud_event_id", "read_message", "require_acceptable"]

MAX_ID_LENGTH = 512
MAX_DATA_BYTES = 256 * 1024
MAX_ATTRIBUTES = 100
MAX_NAME_LENGTH = 256
MAX_VALUE_LENGTH = 4096

Headers = Iterable[tuple[bytes, bytes]]

_CLOUD_EVENT = "application/cloudevents+json"
_BATCH = "application/cloudevents-batch"
_JSON = "application/json"
_ATTRIBUTE_NAME = re.compile(r"[a-z0-9]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HALF_AN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_REQUIRED = ("specversion", "id", "source", "type")
_FORMS = f"send Pub/Sub's envelope as {_JSON}, or a CloudEvent as {_CLOUD_EVENT} or with ce- headers"


def read_message(headers: Headers, body: bytes) -> Message:
    """The message in a request, whichever way it is wrapped."""
    known = _texts(headers)
    content_type = known.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type.startswith(_BATCH):
        raise InvalidInput("content-type: a batch of CloudEvents is not taken", hint="send one event in each request")
    if media_type == _CLOUD_EVENT:
        return _structured(body)
    if media_type.startswith("application/cloudevents"):
        raise InvalidInput(f"content-type: CloudEvents as {media_type!r:.80} are not taken", hint=_FORMS)
    if any(name.startswith("ce-") for name in known):
        return _binary(known, content_type, body)
    if media_type == _JSON:
        return _pubsub(body)
    what = f"{media_type!r:.80} is not a message" if media_type else "is missing"
    raise InvalidInput(f"content-type: {what}", hint=_FORMS)


def require_acceptable(message: Message) -> None:
    """Refuse a message without an id, or one that is too large, whatever way it came."""
    _checked_id("id", message.id)
    _bounded("data", message.data)
    _check_attributes("attributes", message.attributes)


def cloud_event_id(source: str, identity: str) -> str:
    """`{source}#{id}`, what a CloudEvent is known by. A # of the source is escaped, so that no two events are one."""
    return f"{source.replace('%', '%25').replace('#', '%23')}#{identity}"


# ── Google Pub/Sub ───────────────────────────────────────────────────────────────────────────────────────────────


def _pubsub(body: bytes) -> Message:
    envelope = _object(body)
    message = envelope.get("message")
    if not isinstance(message, dict):
        hint = f"a CloudEvent is sent as {_CLOUD_EVENT}" if "specversion" in envelope else "it holds messageId and data"
        raise InvalidInput("message: is missing, or not an object", hint=hint)
    _optional_text("subscription", envelope.get("subscription"))
    data = message.get("data")
    return Message(
        id=_checked_id("message.messageId", _either(message, "messageId", "message_id")),
        data=b"" if data is None else _from_base64("message.data", data),
        attributes=_attributes("message.attributes", message.get("attributes")),
        published_at=_moment("message.publishTime", _either(message, "publishTime", "publish_time")),
    )


def _either(message: dict[str, Any], name: str, other: str) -> Any:
    """A field that Pub/Sub writes in two spellings, often both."""
    given = [message[key] for key in (name, other) if message.get(key) is not None]
    if len(given) == 2 and given[0] != given[1]:
        raise InvalidInput(f"message.{name}: {other} says something else", hint="send one of the two")
    return given[0] if given else None


# ── CloudEvents ──────────────────────────────────────────────────────────────────────────────────────────────────


def _structured(body: bytes) -> Message:
    event = _object(body, raw="data")
    data, encoded = event.pop("data", None), event.pop("data_base64", None)
    attributes = {name: _value_text(name, value) for name, value in event.items() if value is not None}
    if encoded is not None:
        if data is not None:
            raise InvalidInput("data_base64: there is data too", hint="send one of the two")
        content = _from_base64("data_base64", encoded)
    else:
        content = _json_data(data, attributes.get("datacontenttype"))
    return _event(attributes, content)


def _json_data(data: bytes | None, content_type: str | None) -> bytes:
    """The data of a structured event: JSON as it was written, or a text where the event says that it is not JSON."""
    if data is None:
        return b""
    media_type = (content_type or _JSON).partition(";")[0].strip().lower()
    is_json = media_type.rpartition("/")[2] == "json" or media_type.endswith("+json")
    if is_json or not data.startswith(b'"'):
        return data
    return str(_decoded(data, "data", str)).encode()


def _binary(headers: Mapping[str, str], content_type: str, body: bytes) -> Message:
    attributes = {
        name.removeprefix("ce-"): _from_header(name, value) for name, value in headers.items() if name.startswith("ce-")
    }
    if "datacontenttype" in attributes:
        raise InvalidInput("ce-datacontenttype: says what content-type says", hint="leave it out")
    if content_type:
        attributes["datacontenttype"] = content_type
    return _event(attributes, body)


def _event(attributes: dict[str, str], data: bytes) -> Message:
    for name in _REQUIRED:
        if not attributes.get(name):
            raise InvalidInput(f"{name}: is missing or empty", hint="a CloudEvent has specversion, id, source and type")
    if attributes["specversion"] != "1.0":
        raise InvalidInput(f"specversion: {attributes['specversion']!r:.80} is not known", hint="send 1.0")
    for name in attributes:
        if not _ATTRIBUTE_NAME.fullmatch(name):
            raise InvalidInput(f"{name!r:.80}: is no name of an attribute", hint="use lower-case letters and digits")
    _check_attributes("attributes", attributes)
    return Message(
        id=_checked_id("id", cloud_event_id(attributes["source"], attributes["id"])),
        data=_bounded("data", data),
        attributes=attributes,
        published_at=_moment("time", attributes.get("time")),
    )


def _value_text(name: str, value: Any) -> str:
    """An attribute as text: CloudEvents has texts, booleans and integers."""
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case int() if -(1 << 31) <= value < 1 << 31:
            return str(value)
        case _:
            raise InvalidInput(
                f"{name!r:.80}: is no value of an attribute", hint="send a text, true, false or a number"
            )


def _from_header(name: str, value: str) -> str:
    """A header's value without quotes and escapes, as CloudEvents' HTTP binding has it."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    if _HALF_AN_ESCAPE.search(value):
        raise InvalidInput(f"{name}: a % is not followed by two hexadecimal digits", hint="write %25")
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{name}: is not UTF-8", hint="encode it as UTF-8, then percent-encode it") from None


# ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _texts(headers: Headers) -> dict[str, str]:
    """The headers that matter here, by lower-case name: of these, none may come twice."""
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name = raw_name.decode("latin-1").lower()
        if name != "content-type" and not name.startswith("ce-"):
            continue
        if name in found:
            raise InvalidInput(f"{name!r:.80}: is there twice", hint="send it once")
        try:
            found[name] = raw_value.decode().strip()
        except UnicodeDecodeError:
            raise InvalidInput(f"{name!r:.80}: is not UTF-8", hint="percent-encode it") from None
    return found


def _object(body: bytes, raw: str | None = None) -> dict[str, Any]:
    """The fields of a JSON object; the one called `raw` stays as it was written."""
    try:
        body.decode()
    except UnicodeDecodeError:
        raise InvalidInput("body: is not UTF-8", hint="JSON is UTF-8") from None
    fields: dict[str, msgspec.Raw] = _decoded(body, "body", dict[str, msgspec.Raw])
    return {
        name: _written(value) if name == raw else _decoded(value, name if name.isprintable() else "body", Any)
        for name, value in fields.items()
    }


def _written(value: msgspec.Raw) -> bytes | None:
    text = bytes(value).strip()
    return None if text == b"null" else text


def _decoded(text: bytes | msgspec.Raw, field: str, kind: Any) -> Any:
    try:
        return decoders.decode(text, kind)
    except RecursionError:
        raise InvalidInput(f"{field:.80}: is nested too deeply", hint="flatten it") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        what = "is not a JSON object" if isinstance(problem, msgspec.ValidationError) else f"is not JSON: {problem}"
        raise InvalidInput(f"{field:.80}: {what}", hint=_FORMS) from None


def _checked_id(field: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{field}: is missing, or not a text", hint="a message is known by its id: send one")
    if len(value) > MAX_ID_LENGTH:
        raise InvalidInput(f"{field}: has {len(value)} characters", hint=f"at most {MAX_ID_LENGTH} are taken")
    if _CONTROL.search(value):
        raise InvalidInput(f"{field}: holds a control character", hint="send an id that can be shown")
    return value


def _from_base64(field: str, value: Any) -> bytes:
    try:
        return _bounded(field, binascii.a2b_base64(value.encode("ascii"), strict_mode=True))
    except (AttributeError, binascii.Error, UnicodeEncodeError):
        raise InvalidInput(f"{field}: is not base64", hint="encode it with the standard alphabet, padded") from None


def _bounded(field: str, data: bytes) -> bytes:
    if len(data) > MAX_DATA_BYTES:
        hint = f"at most {MAX_DATA_BYTES:,} are taken: store what is large, and send where it is"
        raise InvalidInput(f"{field}: has {len(data):,} bytes", hint=hint)
    return data


def _attributes(field: str, value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(f"{field}: is not an object", hint="send texts by name")
    for name, text in value.items():
        if not isinstance(text, str):
            raise InvalidInput(f"{field}.{name!r:.80}: is not a text", hint="send texts by name")
    _check_attributes(field, value)
    return value


def _check_attributes(field: str, attributes: dict[str, str]) -> None:
    if len(attributes) > MAX_ATTRIBUTES:
        raise InvalidInput(f"{field}: there are {len(attributes)}", hint=f"at most {MAX_ATTRIBUTES} are taken")
    for name, text in attributes.items():
        if len(name) > MAX_NAME_LENGTH or len(text) > MAX_VALUE_LENGTH:
            hint = f"at most {MAX_NAME_LENGTH} characters for the name and {MAX_VALUE_LENGTH:,} for the value"
            raise InvalidInput(f"{field}.{name!r:.80}: is too long", hint=hint)


def _optional_text(field: str, value: Any) -> None:
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"{field}: is not a text", hint="leave it out, or send a text")


def _moment(field: str, value: Any) -> datetime | None:
    if value is None:
        return None
    try:
        moment = decoders.convert(value, datetime) if isinstance(value, str) else None
    except msgspec.ValidationError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInput(f"{field}: is not a time", hint="write it as 2025-01-15T10:30:00Z")
    return moment

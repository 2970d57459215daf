"""Messages in the wrappings that others send them in."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from servo.assets.evaluation import Message
from servo.errors import InvalidInput
from servo.operations.automations.envelopes import MAX_DATA_BYTES, MAX_ID_LENGTH, cloud_event_id, read_message

JSON = [(b"Content-Type", b"application/json; charset=utf-8")]
STRUCTURED = [(b"content-type", b"application/cloudevents+json; charset=UTF-8")]
EVENT = {"specversion": "1.0", "id": "7", "source": "/orders", "type": "placed"}
CE = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/orders", "ce-type": "placed"}
PLACED = {"specversion": "1.0", "id": "7", "source": "/orders", "type": "placed"}


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


def pushed(**fields: Any) -> bytes:
    message = {"messageId": "m1", "data": b64encode(b"hello").decode()} | fields
    return body({"message": {name: value for name, value in message.items() if value is not ...}, "subscription": "s"})


def event(**fields: Any) -> bytes:
    return body({name: value for name, value in (EVENT | fields).items() if value is not ...})


def headers(**more: str) -> list[tuple[bytes, bytes]]:
    named = CE | {name.replace("_", "-"): value for name, value in more.items()}
    return [(name.encode(), value.encode()) for name, value in named.items()]


def the_words(value: Any) -> str:
    """A case is called by what is said: what is sent is long."""
    return value if isinstance(value, str) else "sent"


# ── what is taken ────────────────────────────────────────────────────────────────────────────────────────────────


def test_pubsub_as_google_sends_it() -> None:
    # Google sends both spellings of the id and of the time.
    sent = {
        "message": {
            "attributes": {"key": "value", "größe": "10 €"},
            "data": "SGVsbG8gQ2xvdWQgUHViL1N1YiEgSGVyZSBpcyBteSBtZXNzYWdlIQ==",
            "messageId": "2070443601311540",
            "message_id": "2070443601311540",
            "orderingKey": "k",
            "publishTime": "2021-02-26T19:13:55.749Z",
            "publish_time": "2021-02-26T19:13:55.749Z",
        },
        "subscription": "projects/myproject/subscriptions/mysubscription",
        "deliveryAttempt": 5,
    }
    assert read_message(JSON, body(sent)) == Message(
        id="2070443601311540",
        data=b"Hello Cloud Pub/Sub! Here is my message!",
        attributes={"key": "value", "größe": "10 €"},
        published_at=datetime(2021, 2, 26, 19, 13, 55, 749_000, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"data": ...}, {"data": b""}),
        ({"data": None, "attributes": None, "publishTime": None}, {"data": b""}),
        ({"data": "", "attributes": {"only": "these"}}, {"data": b"", "attributes": {"only": "these"}}),
        ({"messageId": ..., "message_id": "m1"}, {}),
        ({"data": b64encode(bytes(MAX_DATA_BYTES)).decode()}, {"data": bytes(MAX_DATA_BYTES)}),
        ({"messageId": "é" * MAX_ID_LENGTH}, {"id": "é" * MAX_ID_LENGTH}),
        (
            {"publishTime": "2021-02-26T19:13:55.123456789+01:00"},
            {"published_at": datetime(2021, 2, 26, 18, 13, 55, 123_457, tzinfo=UTC)},
        ),
    ],
    ids=the_words,
)
def test_pubsub_in_other_shapes(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert read_message(JSON, pushed(**fields)) == Message(**({"id": "m1", "data": b"hello"} | expected))


@pytest.mark.parametrize(
    ("fields", "data", "attributes"),
    [
        ({}, b"", {}),
        # JSON stays as it was written: numbers keep their digits.
        ({"data": {"a": [1, 2.5]}}, b'{"a": [1, 2.5]}', {}),
        ({"data": "text"}, b'"text"', {}),
        ({"data": "text", "datacontenttype": "application/vnd.x+json"}, b'"text"', {}),
        ({"data": "tä\nxt", "datacontenttype": "text/plain; charset=utf-8"}, "tä\nxt".encode(), {}),
        ({"data": "<a/>", "datacontenttype": "application/xml"}, b"<a/>", {}),
        ({"data": {"a": 1}, "datacontenttype": "application/xml"}, b'{"a": 1}', {}),
        ({"data": None}, b"", {}),
        ({"data": False}, b"false", {}),
        ({"data_base64": b64encode(b"\xff\x00").decode()}, b"\xff\x00", {}),
        (
            {"ext": True, "number": -5, "gone": None, "subject": "x"},
            b"",
            {"ext": "true", "number": "-5", "subject": "x"},
        ),
    ],
)
def test_structured_cloud_events(fields: dict[str, Any], data: bytes, attributes: dict[str, str]) -> None:
    stated = {"datacontenttype": fields["datacontenttype"]} if "datacontenttype" in fields else {}
    read = read_message(STRUCTURED, event(**fields))
    assert read == Message(id="/orders#7", data=data, attributes=PLACED | stated | attributes)


def test_a_cloud_events_time_is_when_it_was_published() -> None:
    read = read_message(STRUCTURED, event(time="2025-01-15T10:30:00Z"))
    assert read.published_at == datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
    read = read_message(headers(ce_time="2025-01-15T10:30:00Z"), b"")
    assert read.published_at == datetime(2025, 1, 15, 10, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", "plain"),
        ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),  # the example of CloudEvents' HTTP binding
        ("50%25", "50%"),
        ('"quo\\"ted"', 'quo"ted'),
        ("Köln", "Köln"),
    ],
)
def test_binary_cloud_events(value: str, expected: str) -> None:
    sent = headers(ce_subject=value, Content_Type="text/csv")
    read = read_message(sent, b"\x00\xff,1")
    attributes = PLACED | {"subject": expected, "datacontenttype": "text/csv"}
    assert read == Message(id="/orders#7", data=b"\x00\xff,1", attributes=attributes)


def test_a_binary_event_may_hold_what_looks_like_pubsub() -> None:
    read = read_message([*headers(), *JSON], pushed())
    assert (read.id, read.data) == ("/orders#7", pushed())


@given(st.tuples(st.text(min_size=1), st.text(min_size=1)), st.tuples(st.text(min_size=1), st.text(min_size=1)))
@example(("x", "a#b"), ("x#a", "b"))
@example(("x%23a", "b"), ("x#a", "b"))
def test_no_two_cloud_events_have_one_id(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (cloud_event_id(*one) == cloud_event_id(*other)) == (one == other)


# ── round trips ──────────────────────────────────────────────────────────────────────────────────────────────────

shown = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=100)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=100)
names = st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True).filter(
    lambda name: name not in {"specversion", "id", "source", "type", "time", "data", "datacontenttype"}
)


@given(shown, st.binary(max_size=300), st.dictionaries(texts, texts, max_size=5), st.datetimes(timezones=st.just(UTC)))
def test_what_is_pushed_is_what_is_read(
    identity: str, data: bytes, attributes: dict[str, str], moment: datetime
) -> None:
    sent = pushed(
        messageId=identity, data=b64encode(data).decode(), attributes=attributes, publishTime=moment.isoformat()
    )
    assert read_message(JSON, sent) == Message(id=identity, data=data, attributes=attributes, published_at=moment)


@given(shown, shown, st.binary(max_size=300), st.dictionaries(names, shown, max_size=5))
def test_a_cloud_event_is_the_same_in_both_modes(
    identity: str, source: str, data: bytes, extensions: dict[str, str]
) -> None:
    attributes = EVENT | extensions | {"id": identity, "source": source, "datacontenttype": "text/plain"}
    structured = read_message(STRUCTURED, body(attributes | {"data_base64": b64encode(data).decode()}))
    binary = read_message(
        [
            (b"content-type", b"text/plain"),
            *(
                (f"ce-{name}".encode(), quote(value, safe="").encode())
                for name, value in attributes.items()
                if name != "datacontenttype"
            ),
        ],
        data,
    )
    assert structured == binary == Message(id=cloud_event_id(source, identity), data=data, attributes=attributes)


@given(st.sampled_from([JSON, STRUCTURED, headers(), headers(ce_time="x"), []]), st.binary(max_size=200))
@example(STRUCTURED, event(data={"a": 1}))
@example(JSON, pushed())
def test_any_bytes_are_read_or_refused(sent: list[tuple[bytes, bytes]], data: bytes) -> None:
    try:
        assert read_message(sent, data).id
    except InvalidInput as problem:
        assert "\n" not in problem.message and problem.hint  # noqa: PT017, PT018 (either way is right)


# ── what is refused, by the name of the field ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"", "body: is not JSON"),
        (b"{", "body: is not JSON"),
        (b"[]", "body: is not a JSON object"),
        (b'"text"', "body: is not a JSON object"),
        (b'{"message": "\xff"}', "body: is not UTF-8"),
        (b'{"message": {"messageId": "1", "attributes": {"a": "\xc3"}}}', "body: is not UTF-8"),
        (b'{"message": {"messageId": "\\ud800"}}', "body: is not JSON"),
        (b'{"message": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"unknown": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}", "nested too deeply"),
        (body({}), "message: is missing"),
        (body({"message": "text"}), "message: is missing, or not an object"),
        (body(EVENT), "message: is missing"),
        (body({"message": {"data": ""}, "subscription": "s"}), "message.messageId: is missing"),
        (pushed(messageId=...), "message.messageId: is missing"),
        (pushed(messageId=""), "message.messageId: is missing"),
        (pushed(messageId=7), "message.messageId: is missing, or not a text"),
        (pushed(message_id="m2"), "message.messageId: message_id says something else"),
        (pushed(messageId="x" * (MAX_ID_LENGTH + 1)), "message.messageId: has 513 characters"),
        (pushed(messageId="a\0b"), "message.messageId: holds a control character"),
        (pushed(messageId="a\nb"), "message.messageId: holds a control character"),
        (pushed(data="*"), "message.data: is not base64"),
        (pushed(data="aGk"), "message.data: is not base64"),
        (pushed(data="aGk=\n"), "message.data: is not base64"),
        (pushed(data="-_-_"), "message.data: is not base64"),
        (pushed(data="é"), "message.data: is not base64"),
        (pushed(data=5), "message.data: is not base64"),
        (pushed(data=b64encode(bytes(MAX_DATA_BYTES + 1)).decode()), "message.data: has 262,145 bytes"),
        (pushed(attributes=[]), "message.attributes: is not an object"),
        (pushed(attributes={"a": 1}), "message.attributes.'a': is not a text"),
        (pushed(attributes={"a": {"b": "c"}}), "message.attributes.'a': is not a text"),
        (pushed(attributes={str(n): "" for n in range(101)}), "message.attributes: there are 101"),
        (pushed(attributes={"a" * 257: ""}), "is too long"),
        (pushed(attributes={"a": "b" * 4097}), "message.attributes.'a': is too long"),
        (pushed(publishTime="yesterday"), "message.publishTime: is not a time"),
        (pushed(publishTime="2021-02-26T19:13:55"), "message.publishTime: is not a time"),
        (pushed(publishTime=1), "message.publishTime: is not a time"),
        (body({"message": {"messageId": "1"}, "subscription": 5}), "subscription: is not a text"),
    ],
    ids=the_words,
)
def test_pubsub_that_is_refused(sent: bytes, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_message(JSON, sent)
    assert said in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"nothing", "body: is not JSON"),
        (body([EVENT]), "body: is not a JSON object"),
        (event(id=...), "id: is missing or empty"),
        (event(id=""), "id: is missing or empty"),
        (event(source=None), "source: is missing or empty"),
        (event(type=...), "type: is missing or empty"),
        (event(specversion=...), "specversion: is missing or empty"),
        (event(specversion="0.3"), "specversion: '0.3' is not known"),
        (event(id="x" * 512), "id: has 520 characters"),
        (event(id="\x1b[31m"), "id: holds a control character"),
        (event(Upper="x"), "'Upper': is no name"),
        (event(under_score="x"), "'under_score': is no name"),
        (event(number=1.5), "'number': is no value"),
        (event(number=1 << 31), "'number': is no value"),
        (event(things={}), "'things': is no value"),
        (event(time="soon"), "time: is not a time"),
        (event(data="x", data_base64="eA=="), "data_base64: there is data too"),
        (event(data_base64="x"), "data_base64: is not base64"),
        (event(data="x" * MAX_DATA_BYTES), "data: has 262,146 bytes"),
        (event(data_base64=b64encode(bytes(MAX_DATA_BYTES + 1)).decode()), "data_base64: has 262,145 bytes"),
        (event()[:-1] + b', "data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (event()[:-1] + b', "data": "\xff"}', "body: is not UTF-8"),
    ],
    ids=the_words,
)
def test_structured_cloud_events_that_are_refused(sent: bytes, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_message(STRUCTURED, sent)
    assert said in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ([], "content-type: is missing"),
        ([(b"content-type", b"text/plain")], "content-type: 'text/plain' is not a message"),
        ([(b"content-type", b"application/cloudevents-batch+json")], "content-type: a batch"),
        ([(b"content-type", b"application/cloudevents+avro")], "content-type: CloudEvents as"),
        ([*JSON, *JSON], "'content-type': is there twice"),
        ([*headers(), (b"CE-ID", b"8")], "'ce-id': is there twice"),
        ([(b"ce-id", b"7")], "specversion: is missing"),
        ([*headers(), (b"ce-subject", b"\xff")], "'ce-subject': is not UTF-8"),
        (headers(ce_subject="%FF"), "ce-subject: is not UTF-8"),
        (headers(ce_subject="50%"), "ce-subject: a %"),
        (headers(ce_subject="%zz"), "ce-subject: a %"),
        (headers(ce_id=""), "id: is missing or empty"),
        (headers(ce_id="%00"), "id: holds a control character"),
        (headers(ce_specversion="2.0"), "specversion: '2.0' is not known"),
        (headers(ce_datacontenttype="text/plain"), "ce-datacontenttype"),
        (headers(ce_some_thing="x"), "'some-thing': is no name"),
        (headers(ce_time="x"), "time: is not a time"),
    ],
    ids=the_words,
)
def test_headers_that_are_refused(sent: list[tuple[bytes, bytes]], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_message(sent, b"x")
    assert said in refused.value.message
    assert refused.value.hint


def test_binary_data_is_bounded() -> None:
    assert len(read_message(headers(), bytes(MAX_DATA_BYTES)).data) == MAX_DATA_BYTES
    with pytest.raises(InvalidInput, match="data: has 262,145 bytes"):
        read_message(headers(), bytes(MAX_DATA_BYTES + 1))

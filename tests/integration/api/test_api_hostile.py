"""Whatever is sent to whichever route: it is answered, never with a fault of the server, and the server stays well."""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import BadStatusLine, HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from servo.api import inputs, slow_clients
from servo.api.problems import Refused
from servo.api.threads import NameResolver, Shares, Threads
from tests.support.served import PREFIX, House, house

NASTY = [
    "",
    " ",
    "0",
    "-1",
    "1e999",
    "null",
    "true",
    "..",
    "../../etc/passwd",
    "%2e%2e%2f",
    "'; DROP TABLE runs; --",
    '" OR 1=1 --',
    "$(id)",
    "a" * 3_000,
    "\u0000",
    "\ud7ff\U0010ffff",
    "🦆",
    "line\nbreak",
    "orders",
    "shop/orders",
    "shop.orders",
    "orders@2025-01-01",
    "2025-01-01",
    "2025-01-01..2031-12-31",
    "9999-12-31T23:59:59Z",
    "0001-01-01",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "latest",
    "all",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
    "run_",
    "nightly",
    "uploads",
    "landing",
    "MATERIALIZED",
    "date=d:2025-01-01",
    "99999999999999999999999999",
]
VALUES = [*NASTY, None, True, 0, -1, 2**63, 2**70, 1.5, [], {}, [None], {"a": {"b": []}}, ["orders"], [""], {"": ""}]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("shop")) as found:
        found.made("orders", partitions="2025-01-01")
        yield found


def requests(shop: House, seed: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each operation of the document, with things in it that nobody would mean."""
    chance = random.Random(seed)
    document = httpx.get(f"{shop.served.url}/schema/openapi.json").json()
    for path, entry in document["paths"].items():
        for method, said in entry.items():
            there = re.sub(r"\{\w+\}", lambda _: quote(chance.choice(NASTY), safe="") or "x", path)
            names = [one["name"] for one in said["parameters"] if one["in"] == "query"]
            chosen = chance.sample(names, min(len(names), chance.randint(0, 3)))
            query = {name: chance.choice(NASTY) for name in chosen if name not in ("timeout_ms", "until_now")}
            query |= {"timeout_ms": "50"} if "timeout_ms" in names else {}
            query |= {"until_now": "true"} if "until_now" in names else {}
            how: dict[str, Any] = {"params": query, "headers": {"Idempotency-Key": f"{seed}-{path}-{method}"[:200]}}
            if "requestBody" in said:
                content = said["requestBody"]["content"]["application/json"]
                ref = content["schema"].get("$ref", "").rpartition("/")[2]
                fields = document["components"]["schemas"].get(ref, {}).get("properties", {"message": {}})
                body = {**content.get("example", {})}
                for name in chance.sample(sorted(fields), min(len(fields), chance.randint(1, 2))):
                    body[name] = chance.choice(VALUES)
                how["json"] = body
            yield method.upper(), there, how


@pytest.mark.parametrize("seed", range(12))
def test_nothing_that_is_sent_is_a_fault_of_the_server(shop: House, seed: int) -> None:
    root = httpx.Client(base_url=shop.served.url, timeout=60)
    with root:
        for method, path, how in requests(shop, seed):
            if path.endswith("/internal/tick"):
                continue
            answer = root.request(method, path, **how)
            assert answer.status_code < 500 or answer.status_code == 503, (method, path, how, answer.text)
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json", (method, path, answer.text)
                assert answer.json()["code"], answer.text
        assert root.get("/healthz").status_code == 200
    assert shop.items("/runs")


# ── whatever it is, nothing is written and everybody else is served ──────────────────────────────────────────────


@pytest.fixture
def unharmed(shop: House) -> Iterator[None]:
    shop.workshop.at_rest()  # of what other tests have asked for
    head = shop.head()
    yield
    assert shop.head() == head, "something was written"
    assert shop.client.get(f"{shop.served.url}/readyz").status_code == 200
    assert shop.items("/runs")


def refused(answer: httpx.Response, *codes: str) -> None:
    assert 400 <= answer.status_code < 500, (answer.request.url, answer.text)
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    said = answer.json()
    assert (said["status"], said["type"]) == (answer.status_code, f"urn:servo:problem:{said['code']}")
    if codes:
        assert said["code"] in codes, said


def operations(shop: House) -> Iterator[tuple[str, str, dict[str, Any]]]:
    document = httpx.get(f"{shop.served.url}/schema/openapi.json").json()
    for path, entry in document["paths"].items():
        for method, said in entry.items():
            yield method.upper(), path, said


def with_bodies(shop: House) -> list[tuple[str, str]]:
    """The routes that take a body, of things that are there."""
    found = [
        (method, re.sub(r"\{(\w+)\}", lambda one: NAMES.get(one[1], "01ARZ3NDEKTSV4RRFFQ69G5FAV"), path))
        for method, path, said in operations(shop)
        if "requestBody" in said
    ]
    assert len(found) > 15
    return found


NAMES = {"schedule": "nightly", "sensor": "uploads", "backfill": "held", "dimension": "customer"}
PLACES = [
    "../../../../etc/passwd",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/etc/passwd",
    "..%5c..%5cservo.toml",
    "%00",
    "orders%00.json",
    "%0d%0aSet-Cookie:%20a=b",
    "%ff%fe",
    "%c0%ae%c0%ae/",
    "'%20OR%20'1'='1",
    "x';%20DROP%20TABLE%20events;--",
    'x"%20UNION%20SELECT%20*%20FROM%20tokens--',
    "%24%7Bjndi:ldap://x%7D",
    "*",
    "a" * 5_000,
    "%F0%9F%A6%86" * 200,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda text: text[:24])
def test_names_that_are_paths_or_sql_are_the_names_of_nothing(shop: House, unharmed: None, place: str) -> None:
    """In the place of every parameter of every path, as it is written here."""
    client, asked = HTTPConnection(shop.served.host, shop.served.port, timeout=60), 0
    for method, path, said in operations(shop):
        if "{" not in path:
            continue
        body = None
        if "requestBody" in said:
            body = json.dumps(said["requestBody"]["content"]["application/json"].get("example", {})).encode()
        headers = {"Idempotency-Key": shop.key(), "Content-Type": "application/json"}
        client.request(method, re.sub(r"\{\w+\}", lambda _: place, path), body=body, headers=headers)
        answer = client.getresponse()
        text = answer.read()
        assert 400 <= answer.status < 500, (method, path, text)
        assert answer.headers["content-type"] == "application/problem+json", (path, text)
        assert answer.headers["set-cookie"] is None
        assert b"root:" not in text
        assert json.loads(text)["code"]
        asked += 1
    client.close()
    assert asked > 30


@pytest.mark.parametrize("place", PLACES[::3], ids=lambda text: text[:24])
def test_parameters_that_are_paths_or_sql_are_about_nothing(shop: House, unharmed: None, place: str) -> None:
    client = HTTPConnection(shop.served.host, shop.served.port, timeout=60)
    for method, path, said in operations(shop):
        names = [one["name"] for one in said["parameters"] if one["in"] == "query"]
        if method != "GET" or "{" in path or not names:
            continue
        for name in names:
            ends = "&until_now=true" if "until_now" in names and name != "until_now" else ""
            client.request("GET", f"{path}?{name}={place}{ends}")
            answer = client.getresponse()
            text = answer.read()
            assert answer.status < 500, (path, name, text)
            assert answer.headers["set-cookie"] is None
            assert b"root:" not in text
    client.close()


# ── too much ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_body_of_100_mb_is_refused_by_what_it_announces(shop: House, unharmed: None) -> None:
    for method, path in with_bodies(shop):
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with wire(shop) as sent:
            sent.sendall(f"{head}Idempotency-Key: large\r\nContent-Length: 104857600\r\n\r\n".encode() + b" " * 1000)
            status, said = answered(sent)
        assert (status, said["code"]) == (413, "content-too-large"), path


def test_a_body_of_100_mb_that_announces_nothing_is_refused_on_the_way(shop: House, unharmed: None) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    head = f"POST {PREFIX}/runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    taken = 0
    with wire(shop) as sent:
        sent.sendall(head.encode())
        with suppress(BrokenPipeError, ConnectionResetError):
            while taken < 100 * 1024 * 1024:
                sent.sendall(chunk)
                taken += len(chunk)
    assert taken < 50 * 1024 * 1024, "it was read to its end"
    with wire(shop) as sent:  # the same, and the answer is read in time
        sent.sendall(head.encode() + chunk * 17)
        assert answered(sent)[0] == 413


@pytest.mark.parametrize("levels", [1_200, 100_000])
@pytest.mark.parametrize(
    ("begin", "end"), [("[", "]"), ('{"a":', "}"), ('{"watch":{"a":', "}}"), ('{"select":[', "]}")]
)
def test_json_that_is_nested_too_deep_is_refused(
    shop: House, unharmed: None, begin: str, end: str, levels: int
) -> None:
    levels = min(levels, 500_000 // len(begin))
    sent = (begin * levels + "1" + end * levels).encode()
    flat = (begin + "[" * levels + "1.0" + "]" * levels + end).encode()
    for method, path in with_bodies(shop):
        for body in (sent, flat):
            headers = {"Idempotency-Key": "deep", "Content-Type": "application/json"}
            refused(shop.client.request(method, shop.served.url + path, content=body, headers=headers))


def test_a_million_ids_in_one_body_are_refused(shop: House, unharmed: None) -> None:
    for count, code in ((1_000_000, "content-too-large"), (200_000, "invalid-input")):
        ids = ["a"] * count
        for path, field in (("/runs", "select"), ("/backfills", "assets"), ("/schedules", "select")):
            body = {"name": "many", "cron": "0 6 * * *", field: ids} if path == "/schedules" else {field: ids}
            refused(shop.send(path, body), code)
        refused(shop.send("/lineage/invalidate", {"asset": "orders", "partitions": ids, "reason": "x"}), code)
        refused(
            shop.send("/runs", {"select": ["orders"], "tags": {str(one): "x" for one in range(count)}}),
            code,
            "content-too-large",
        )


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz?" + b"a=b&" * 50_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 20_000 + b"\r\n",
    ],
    ids=["query", "path", "header", "headers"],
)
def test_a_head_that_is_too_long_is_refused(shop: House, unharmed: None, head: bytes) -> None:
    with wire(shop) as sent:
        with suppress(BrokenPipeError, ConnectionResetError):
            sent.sendall(head)
        assert refused_or_closed(sent) in (None, "malformed-request")


def test_a_long_query_is_refused_by_the_name_of_what_is_too_long(shop: House, unharmed: None) -> None:
    refused(shop.client.get("/runs", params={"asset": "a" * 30_000}), "invalid-input")
    refused(shop.client.get("/runs", params={f"p{number}": "x" for number in range(3_000)}), "invalid-input")
    refused(shop.client.get("/events", params={"event_type": ["a"] * 3_000, "until_now": True}), "invalid-input")
    refused(shop.client.get("/runs", params=[("limit", "1"), ("limit", "2")]), "invalid-input")


# ── too slow ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_clients_that_never_end_their_heads_keep_nobody_waiting(
    shop: House, unharmed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_clients, "_HEAD_SECONDS", 0.5)
    with ExitStack() as stack:
        slow = [stack.enter_context(wire(shop)) for _ in range(50)]
        for number, one in enumerate(slow):
            one.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: "[: 3 + number % 30])
        assert shop.items("/runs"), "the others are served meanwhile"
        for one in slow:
            assert one.recv(1000) == b"", "it was given up"


def test_clients_that_never_end_their_bodies_keep_nobody_waiting(
    shop: House, unharmed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "BODY_SECONDS", 1.0)
    with ExitStack() as stack:
        slow = [stack.enter_context(wire(shop)) for _ in range(50)]
        for number, one in enumerate(slow):
            length = b"Transfer-Encoding: chunked" if number % 2 else b"Content-Length: 100"
            one.sendall(b"POST %b/runs HTTP/1.1\r\nHost: localhost\r\n%b\r\n\r\n" % (PREFIX.encode(), length))
            one.sendall(b"5\r\n     \r\n" if number % 2 else b"     ")
        assert shop.items("/runs"), "the others are served meanwhile"
        for one in slow:
            assert answered(one)[1]["code"] == "request-timeout"


def test_clients_of_a_stream_that_never_read_keep_nobody_waiting(shop: House, unharmed: None) -> None:
    ask = f"GET {PREFIX}/events?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with ExitStack() as stack:
        deaf = [stack.enter_context(wire(shop)) for _ in range(20)]
        for one in deaf:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            one.sendall(ask)
        read = shop.client.get("/events", params={"after": "0", "until_now": True}).text
        assert read.count("\nid: ") == shop.head(), "who reads is told everything"
        assert shop.items("/runs")


# ── what is no text, or no HTTP ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "body", [b'{"select": ["\xff"]}', b"\xff\xfe{\x00}\x00", b'{"select": ["\xed\xa0\x80"]}', b"\x00", b"{}x"]
)
def test_a_body_that_is_no_utf8_is_refused(shop: House, unharmed: None, body: bytes) -> None:
    for method, path in with_bodies(shop):
        headers = {"Idempotency-Key": "text", "Content-Type": "application/json"}
        refused(shop.client.request(method, shop.served.url + path, content=body, headers=headers))


def test_nul_and_other_signs_in_names_are_refused(shop: House, unharmed: None) -> None:
    for name in ("a\x00b", "a\nb", "a\r\nSet-Cookie: a=b", "\u202eevil", "a/../b", "", " ", "a" * 5_000, "🦆"):
        refused(shop.send("/schedules", {"name": name, "cron": "0 6 * * *", "select": ["totals"]}))
        refused(shop.send("/sensors", {"name": name, "select": "totals"}))
        refused(shop.send("/backfills", {"assets": ["totals"], "name": name}))
        refused(shop.send("/runs", {"select": [name]}))
        refused(shop.send("/runs", {"select": ["orders"], "partitions": name}))


def test_what_is_echoed_breaks_no_line(shop: House) -> None:
    """What comes back in a header, or as a line of a stream, has no ends of lines of somebody else's making."""
    forged = "x\r\nSet-Cookie: a=b\n\nid: forged\nevent: forged\ndata: forged\n\n"
    made = shop.post("/runs", {"select": ["totals"], "tags": {"forged": forged}})
    shop.workshop.until(lambda: shop.data(f"/runs/{made['run_id']}")["status"] == "SUCCEEDED", "the run succeeded")
    shop.send("/schedules/nightly/pause", {"reason": forged})
    text = shop.client.get("/events", params={"after": "0", "until_now": True}).text
    assert "forged" in text
    kinds = {line.partition(":")[0] for line in text.split("\n") if line}
    assert kinds == {"retry", "id", "event", "data", ""}
    assert [line for line in text.split("\n") if line.startswith(":")] == [": end"]
    assert not [line for line in re.split(r"[\r\n]", text) if line.endswith(": forged")]
    for query in ({"correlation_id": forged}, {"event_type": forged}):
        answer = shop.client.get("/events", params={"after": "0", "until_now": True, **query})
        assert "set-cookie" not in answer.headers
        assert "forged" not in answer.text
    for name in ("after", "cursor", "as_of", "wait_for_event_id"):
        answer = shop.client.get("/events" if name == "after" else "/runs", params={name: forged})
        refused(answer)
        assert "set-cookie" not in answer.headers


RAW = {
    "both lengths": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both lengths, other way": b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nX",
    "two lengths": b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n{}  ",
    "two equal lengths": b"Content-Length: 4, 5\r\n\r\n{}  ",
    "a length with a sign": b"Content-Length: +4\r\n\r\n{}  ",
    "a negative length": b"Content-Length: -4\r\n\r\n{}  ",
    "a length in hex": b"Content-Length: 0x4\r\n\r\n{}  ",
    "an endless length": b"Content-Length: " + b"9" * 100 + b"\r\n\r\n{}  ",
    "another coding": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "two codings": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "coding twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding after a tab": b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "space before the colon": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded header": b"X: a\r\n Transfer-Encoding: chunked\r\nTransfer-Encoding: \r\n chunked\r\n\r\n0\r\n\r\n",
    "a chunk of a negative size": b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    "a chunk of no size": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    "NUL in a header": b"Idempotency-Key: a\x00b\r\nContent-Length: 2\r\n\r\n{}",
    "CR in a header": b"Idempotency-Key: a\rX: b\r\nContent-Length: 2\r\n\r\n{}",
    "no UTF-8 in a header": b"Idempotency-Key: \xff\xfe\r\nContent-Length: 23\r\n\r\n" + b'{"select": ["totals"]} ',
    "two keys": b"Idempotency-Key: a\r\nIdempotency-Key: b\r\nContent-Length: 23\r\n\r\n" + b'{"select": ["totals"]} ',
    "two hosts": b"Host: localhost\r\nContent-Length: 23\r\nIdempotency-Key: a\r\n\r\n" + b'{"select": ["totals"]} ',
    "another host": b"Idempotency-Key: a\r\nOrigin: http://evil.example\r\nContent-Length: 2\r\n\r\n{}",
    "a name with a space": b"X Y: a\r\nContent-Length: 2\r\n\r\n{}",
    "no name": b": a\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("name", RAW)
def test_what_could_be_read_in_two_ways_is_refused(shop: House, unharmed: None, name: str) -> None:
    """And what comes after it on the same connection is never taken for another request."""
    body = b'{"select": ["totals"]}'
    smuggled = b"POST %b/runs HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: smuggled\r\n" % PREFIX.encode()
    smuggled += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    head = b"POST %b/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % PREFIX.encode()
    after = b"" if name in ("two keys", "no UTF-8 in a header") else smuggled  # those are read to their end
    with wire(shop) as sent:
        sent.sendall(head + RAW[name] + after)
        code = refused_or_closed(sent, goes_on=bool(after))
        assert code in (None, "malformed-request", "invalid-input", "foreign-origin", "content-too-large"), code
        with suppress(ConnectionResetError):
            assert not after or sent.recv(1000) == b"", "the connection ends"


@pytest.mark.parametrize(
    "line",
    [
        b"GET /healthz",
        b"GET /healthz HTTP/0.9",
        b"GET /healthz HTTP/9.9",
        b"GET  /healthz HTTP/1.1",
        b"G\x00T /healthz HTTP/1.1",
        b"GET /\xff\xfe HTTP/1.1",
        b"GET /a\x00b HTTP/1.1",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"PRI * HTTP/2.0",
        b"\r\n\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(shop: House, unharmed: None, line: bytes) -> None:
    with wire(shop) as sent:
        sent.sendall(line + b"\r\nHost: localhost\r\n\r\n")
        assert refused_or_closed(sent) in (None, "malformed-request", "not-found")


def wire(shop: House) -> socket.socket:
    return socket.create_connection((shop.served.host, shop.served.port), timeout=60)


def answered(sent: socket.socket) -> tuple[int, Any]:
    """The one answer that there is; after it, the connection ends."""
    answer = HTTPResponse(sent)
    answer.begin()
    assert answer.headers["content-type"] == "application/problem+json"
    said = json.loads(answer.read())
    assert said["status"] == answer.status
    with suppress(ConnectionResetError):
        assert sent.recv(1000) == b"", "the connection ends"
    return answer.status, said


def refused_or_closed(sent: socket.socket, *, goes_on: bool = False) -> str | None:
    """The code of the refusal; None where the connection ended without one. `goes_on`: the client might send more."""
    answer = HTTPResponse(sent)
    try:
        if not goes_on:
            sent.shutdown(socket.SHUT_WR)
        answer.begin()
    except (BadStatusLine, OSError):
        return None
    text = answer.read()
    assert 400 <= answer.status < 500, text
    assert answer.headers["content-type"] == "application/problem+json", text
    return str(json.loads(text)["code"])


def test_a_sensor_has_one_share_of_the_threads_however_it_is_called(shop: House) -> None:
    """Else a sensor that hangs takes all of them, under all the names that it can be given."""
    sensor, schedule = shop.data("/sensors/uploads")["sensor_id"], shop.data("/schedules/nightly")["schedule_id"]

    async def places() -> int:
        shares = Shares(at_once=1, waiting=0, id_of=NameResolver(shop.project, Threads(requests=2)).id_of)
        taken = 0
        async with shares.place("sensor", "uploads"):
            for name in ("uploads", sensor, sensor.lower(), f" {sensor} ", "uploads "):
                with suppress(Refused):
                    async with shares.place("sensor", name):
                        taken += 1
            async with shares.place("sensor", "landing"), shares.place("schedule", "nightly"):
                for size in range(20, 26):
                    with suppress(Refused):
                        async with shares.place("schedule", schedule[:size]):
                            taken += 1
        async with shares.place("sensor", sensor):
            return taken

    assert asyncio.run(places()) == 0


def test_the_docs_page_loads_nothing_from_anywhere(shop: House) -> None:
    page = shop.client.get(f"{shop.served.url}/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert not re.findall(r"""(?i)<(?:script|link|img|iframe|object|embed|video|audio|source|base|form)\b""", page.text)
    assert not re.findall(r"""(?i)(?:src|href|action|srcset|poster)\s*=\s*["']?(?:[a-z]+:)?//""", page.text)
    assert not re.findall(r"(?i)@import|url\(|javascript:|\son\w+\s*=\s*['\"]", page.text)
    assert re.findall(r"href='([^']*)'", page.text) == ["/schema/openapi.json"]

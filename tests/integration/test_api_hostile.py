"""Whatever is sent to whichever route: it is answered, never with a fault of the server, and the server stays well."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.support.served import House, house

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

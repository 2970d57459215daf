"""Tenants and workspaces that share a ledger, a home and a machine: nobody hears anything of anybody else.

What is another's is not there: neither by an answer, nor by an error, nor by how much work the server has with it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest

from servo.events import RecordedEvent
from servo.ledger.history import History
from servo.projections.snapshot import Snapshot, Tables
from tests.support.served import PREFIX, SHOP, House, house
from tests.support.stocked import marked, stock

# In every name, tag, reason and message of the others. Nobody who was not told can say it.
THEIRS = {"tenant": "_q7zk2w9x", "workspace": "_v4tj8m1y"}
NEVER = "_p3bn6c5u"  # of things that never were
ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


class Others(NamedTuple):
    names: dict[str, list[str]]  # by path parameter
    event_id: str
    materialization_id: str
    run_key: str


class Place(NamedTuple):
    mine: House
    folder: Path
    others: dict[str, Others]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("shared")
    home = f'home = "{root / "home"}"\n'
    others = {}
    for kind, mark in THEIRS.items():
        with house(root / kind, marked(SHOP, mark), toml=f'{home}{kind} = "acme{mark.replace("_", "-")}"\n') as other:
            names = stock(other, mark)
            made = other.items("/materializations", asset=f"totals{mark}")[0]["materialization_id"]
            conflict = other.items("/conflicts")[0]["run_key"]
            event_id = other.project.ledger.head().event_id
            assert event_id is not None
            others[kind] = Others(names, event_id, made, conflict)
    with house(root / "mine", toml=home) as mine:
        stock(mine)
        yield Place(mine, root / "mine", others)


@pytest.fixture(params=THEIRS)
def theirs(place: Place, request: pytest.FixtureRequest) -> Others:
    return place.others[request.param]


def like(text: str) -> str:
    """A name or an id of the same form, of something that never was."""
    for mark in THEIRS.values():
        text = text.replace(mark, NEVER)
    if text.startswith("run_"):
        return "run_" + "".join("abcdefgh234567"[index % 14] for index in range(len(text) - 4))
    if ULID.fullmatch(text):
        return text[:10] + "7ZZZZZZZZZZZZZZZ"  # of the same moment
    return text


def operations(place: Place) -> Iterator[tuple[str, str, dict[str, Any]]]:
    document = httpx.get(f"{place.mine.served.url}/schema/openapi.json").json()
    for path, entry in document["paths"].items():
        for method, said in entry.items():
            yield method.upper(), path, said


def ask(place: Place, method: str, path: str, said: dict[str, Any], values: dict[str, str], **query: Any) -> Any:
    """The answer without the headers; the request is as good as it can be but for what it is about."""
    url = re.sub(r"\{(\w+)\}", lambda found: quote(values[found[1]], safe=""), path)
    how: dict[str, Any] = {}
    if "requestBody" in said:
        how["json"] = said["requestBody"]["content"]["application/json"].get("example", {})
        if path.endswith("/messages"):
            how["json"] = {"message": {"messageId": "m", "data": ""}}
    if method != "GET":
        how["headers"] = {"Idempotency-Key": place.mine.key()}
    return place.mine.client.request(method, place.mine.served.url + url, params=query, **how)


def same(one: httpx.Response, other: httpx.Response, said: str, never: str) -> None:
    """But for the name that was asked for, and in nothing else."""
    assert one.status_code == other.status_code, (one.text, other.text)
    assert set(one.headers) == set(other.headers)

    def plain(answer: httpx.Response, name: str) -> Any:
        return json.loads(answer.text.replace(name, "NAME").replace(name[:20], "NAME"))

    assert plain(one, said) == plain(other, never)


# ── what is another's is not there ───────────────────────────────────────────────────────────────────────────────


def test_things_of_others_never_were(place: Place, theirs: Others) -> None:
    """Every route that names a thing, with the names and ids of theirs: 404, as of what never was."""
    asked = 0
    head = place.mine.head()
    for method, path, said in operations(place):
        parameters = re.findall(r"\{(\w+)\}", path)
        if not parameters:
            continue
        unknown = [one for one in parameters if one not in theirs.names]
        assert not unknown, f"a new kind of thing: {unknown} of {path}; put one into the stock"
        first = next((one for one in parameters if one not in ("namespace", "partition")), parameters[0])
        for name in theirs.names[first]:
            values = {one: theirs.names[one][0] for one in parameters} | {first: name}
            never = values | {first: like(name)}
            got = ask(place, method, path, said, values)
            # A dimension is a part of what is declared, and not a thing: that none is so called is another fault.
            assert got.status_code == (422 if first == "dimension" else 404), (method, path, values, got.text)
            assert got.headers["content-type"] == "application/problem+json"
            same(got, ask(place, method, path, said, never), values[first], never[first])
            asked += 1
    assert asked > 60
    assert place.mine.head() == head, "nothing of it was written"


QUESTIONS = [
    ("/lineage/upstream", {"asset": "{asset}"}),
    ("/lineage/downstream", {"asset": "{asset}"}),
    ("/lineage/impact", {"asset": "{asset}"}),
    ("/lineage/graph", {"asset": "{asset}"}),
    ("/lineage/graph", {"asset": "orders", "partition": "2025-01-01", "run": "{run}"}),
    ("/audit/report", {"asset": "{asset}"}),
    ("/materializations", {"asset": "{asset}"}),
    ("/partitions/stale", {"select": "{asset}"}),
    ("/runs", {"asset": "{asset}"}),
    ("/runs", {"as_of": "{event}"}),
    ("/runs", {"wait_for_event_id": "{event}", "timeout_ms": "10"}),
    ("/backfills", {"asset": "{asset}"}),
    ("/checkpoints", {"asset": "{asset}"}),
    ("/checkpoints", {"run_id": "{run}"}),
    ("/conflicts", {"run_key": "{key}"}),
    ("/events", {"after": "{event}", "until_now": "true"}),
    ("/events", {"after": "0", "correlation_id": "{run}", "until_now": "true"}),
]


@pytest.mark.parametrize(("path", "query"), QUESTIONS)
def test_questions_about_things_of_others_are_answered_as_if_they_never_were(
    place: Place, theirs: Others, path: str, query: dict[str, str]
) -> None:
    told = {
        "asset": theirs.names["asset"][0],
        "run": theirs.names["run_id"][0],
        "event": theirs.event_id,
        "key": theirs.run_key,
    }
    never = {name: like(value) if name != "key" else "manual:never" for name, value in told.items()}
    one = place.mine.client.get(path, params={name: value.format(**told) for name, value in query.items()})
    other = place.mine.client.get(path, params={name: value.format(**never) for name, value in query.items()})
    assert one.status_code == other.status_code
    assert one.status_code in (200, 404, 422, 503), one.text
    texts = []
    for answer, names in ((one, told), (other, never)):
        text = answer.text
        for value in names.values():
            text = text.replace(value, "NAME")
        texts.append(text)
    assert texts[0] == texts[1]


BODIES = [
    ("/runs", {"select": ["{asset}"]}),
    ("/backfills", {"assets": ["{asset}"]}),
    ("/backfills/preview", {"assets": ["{asset}"]}),
    ("/lineage/invalidate", {"asset": "{asset}", "partitions": ["2025-01-01"], "reason": "mine"}),
    ("/lineage/rematerialize", {"asset": "{asset}", "partitions": ["2025-01-01"]}),
    ("/materializations/rollback", {"asset": "{asset}", "reason": "mine"}),
    ("/materializations/rollback", {"asset": "totals", "reason": "mine", "to": "{materialization}"}),
    ("/sensors/uploads/evaluate", {"message_id": "message-0{mark}"}),
]


@pytest.mark.parametrize(("path", "body"), BODIES)
def test_nobody_does_anything_with_things_of_others(
    place: Place, theirs: Others, path: str, body: dict[str, Any]
) -> None:
    mark = next(mark for mark in THEIRS.values() if theirs.names["asset"][0].endswith(mark))
    told = {"asset": theirs.names["asset"][0], "materialization": theirs.materialization_id, "mark": mark}
    never = {"asset": like(told["asset"]), "materialization": like(told["materialization"]), "mark": NEVER}

    def filled(names: dict[str, str]) -> Any:
        text = json.dumps(body)
        for name, value in names.items():
            text = text.replace(f"{{{name}}}", value)
        return json.loads(text)

    head = place.mine.head()
    answers = []
    for names in (told, never):
        answer = place.mine.send(path, filled(names))
        text = answer.text
        for value in names.values():
            text = text.replace(value, "NAME")
        answers.append((answer.status_code, text))
    assert answers[0] == answers[1]
    assert answers[0][0] in (400, 404, 409, 422), answers
    assert place.mine.head() == head


# ── nor can it be told by how long it takes ──────────────────────────────────────────────────────────────────────


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is asked of the projections and of the ledger meanwhile."""
    calls: list[str] = []
    query, ask, read, find = Snapshot.query, Tables.query, History.read, History.find

    def told(what: str) -> None:
        if current_thread().name.startswith("servo-re"):  # of requests; others are at work in this process, too
            calls.append(what)

    def counting_query(self: Snapshot, sql: str, *args: Any, **kwargs: Any) -> Any:
        told(sql)
        return query(self, sql, *args, **kwargs)

    def counting_ask(self: Tables, sql: str, *args: Any, **kwargs: Any) -> Any:
        told(sql)
        return ask(self, sql, *args, **kwargs)

    def counting_read(self: History, *args: Any, **kwargs: Any) -> list[RecordedEvent]:
        told("read")
        return read(self, *args, **kwargs)

    def counting_find(self: History, *args: Any, **kwargs: Any) -> int:
        told("find")
        return find(self, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(Snapshot, "query", counting_query)
        patched.setattr(Tables, "query", counting_ask)
        patched.setattr(History, "read", counting_read)
        patched.setattr(History, "find", counting_find)
        yield calls


def test_the_same_is_done_for_things_of_others_as_for_what_never_was(
    place: Place, theirs: Others, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same questions to the same tables, in the same order: then it takes as long, too."""
    compared = 0
    for method, path, said in operations(place):
        parameters = re.findall(r"\{(\w+)\}", path)
        if method != "GET" or not parameters:
            continue
        first = next((one for one in parameters if one not in ("namespace", "partition")), parameters[0])
        values = {one: theirs.names[one][0] for one in parameters}
        done = []
        for given in (values, values | {first: like(values[first])}):
            ask(place, method, path, said, given)  # what is folded once is folded by now
            with counted(monkeypatch) as calls:
                ask(place, method, path, said, given)
            done.append(calls)
        assert done[0] == done[1], (path, values)
        compared += bool(done[0])
    assert compared > 10


# ── nothing of theirs is ever said ───────────────────────────────────────────────────────────────────────────────


def marks_in(text: str) -> list[str]:
    return [mark for mark in THEIRS.values() if mark in text or mark.replace("_", "-") in text]


def test_no_answer_says_anything_of_others(place: Place) -> None:
    """All that can be read without naming anything, with everything that there is in it."""
    looked_at = 0
    for method, path, said in operations(place):
        if method != "GET" or "{" in path:
            continue
        names = {one["name"] for one in said["parameters"]}
        query: dict[str, Any] = {"limit": 100} if "limit" in names else {}
        query |= {"after": "0", "until_now": True} if "until_now" in names else {}
        query |= {"asset": "orders", "partition": "2025-01-01"} if "partition" in names else {}
        answer = ask(place, method, path, said, {}, **query)
        assert answer.status_code in (200, 400, 404, 422), (path, answer.text)
        assert not marks_in(answer.text), path
        looked_at += answer.status_code == 200
    assert looked_at > 15
    stream = place.mine.client.get("/events", params={"after": "0", "until_now": True}).text
    assert stream.count("\nid: ") > 20
    assert not marks_in(stream)


def test_a_server_of_mine_says_nothing_of_others_in_answers_metrics_or_logs(place: Place) -> None:
    """A `servo up` of its own, as it is run: what it logs as JSON while it is asked for theirs."""
    command = [sys.executable, "-m", "servo", "up", "--workers", "0", "--port", "0", "--json"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVO_")}
    log = place.folder / "up.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=place.folder, env=kept, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        assert said, log.read_text()
        with httpx.Client(base_url=json.loads(said)["url"], timeout=60) as client:
            for theirs in place.others.values():
                for run_id in theirs.names["run_id"]:
                    assert client.get(f"{PREFIX}/runs/{run_id}").status_code == 404
                client.get(f"{PREFIX}/runs", params={"wait_for_event_id": theirs.event_id, "timeout_ms": 10})
                client.get(f"{PREFIX}/events", params={"after": theirs.event_id, "until_now": True})
            client.post(f"{PREFIX}/internal/tick")
            texts = [client.get(path).text for path in ("/metrics", "/readyz", "/healthz", f"{PREFIX}/runs")]
    finally:
        process.terminate()
        rest = process.communicate(timeout=600)[0]
    texts += [said, rest, log.read_text()]
    assert "servo_" in texts[0]
    assert not marks_in("\n".join(texts))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["tenant"] for line in lines if "tenant" in line} <= {"default"}

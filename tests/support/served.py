"""A server on a whole project at work but for Spark, and a client that knows how to ask it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from servo.api.serving import Served, serving
from servo.runtime.evaluation.pool import EvaluatorPool
from servo.runtime.loop.driver import one_pass
from servo.runtime.loop.sensors import Sensing
from servo.runtime.tokens import Tokens
from tests.support.idle import IdleExecutor, at_work
from tests.support.workshop import ME, Workshop, deployed_workshop

PREFIX = "/api/v1/orchestration"

SHOP = '''
from datetime import timedelta

import servo
from servo import Approval, Daily, asset

days = Daily("date", start="2025-01-01", end="2025-01-20")


@asset(partitions=days)
def orders(context): ...


@asset(partitions=days)
def revenue(context, orders): ...


@asset(partitions=days, approval=Approval(approvers="anyone", four_eyes=False))
def filing(context): ...


@asset
def totals(context): ...


nightly = servo.Schedule("nightly", cron="0 6 * * *", select="orders", partitions="2025-01-02")


@servo.sensor(kind="push")
def uploads(context):
    """One run for each message."""
    return servo.RunRequest(select="orders", partitions=[context.message.json()["day"]])


@servo.sensor(min_interval=timedelta(days=1))
def landing(context):
    yield servo.RunRequest(key="first", select="orders", partitions=["2025-01-03"])
    context.cursor = "1"
'''


class Promises:
    """What the OpenAPI document says of every route; an answer that is otherwise is wrong, or the document is."""

    def __init__(self, url: str) -> None:
        self._document = httpx.get(f"{url}/schema/openapi.json", timeout=60).json()
        names = sorted(self._document["paths"], key=lambda path: path.count("{"))  # as they are told apart
        self._paths = [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), path) for path in names]

    def check(self, answer: httpx.Response) -> None:
        path = next(name for pattern, name in self._paths if pattern.fullmatch(answer.request.url.path))
        said = self._document["paths"][path][answer.request.method.lower()]["responses"]
        assert str(answer.status_code) in said, f"{path} never answers {answer.status_code}: {answer.text}"
        media_type = answer.headers["content-type"].partition(";")[0]
        schema = said[str(answer.status_code)]["content"][media_type]["schema"]
        whole = {**schema, "components": self._document["components"]}
        problem = best_match(Draft202012Validator(whole).iter_errors(answer.json()))
        assert problem is None, f"{path}: {problem.json_path} {problem.message}"


class House:
    """The server, what is behind it, and a client."""

    def __init__(self, place: Workshop, served: Served, token: str | None = None) -> None:
        self.workshop, self.served, self.project, self.token = place, served, place.project, token
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.client = httpx.Client(base_url=served.url + PREFIX, timeout=60, headers=headers)
        self._keys = count(1)
        self.mark = ""  # is in every key
        self._promises = Promises(served.url)

    def key(self) -> str:
        return f"key-{next(self._keys)}{self.mark}"

    def get(self, path: str, code: int = 200, /, **query: Any) -> Any:
        return self._body(self.client.get(path, params=query), code)

    def data(self, path: str, **query: Any) -> Any:
        return self.get(path, fresh=True, **query)["data"]

    def items(self, path: str, **query: Any) -> Any:
        return self.get(path, fresh=True, **query)["items"]

    def send(self, path: str, body: Any = None, *, key: str | None = None, method: str = "POST", **how: Any) -> Any:
        headers = {"Idempotency-Key": key or self.key(), **how.pop("headers", {})}
        return self.client.request(method, path, json={} if body is None else body, headers=headers, **how)

    def post(self, path: str, body: Any = None, status: int = 202, **how: Any) -> Any:
        return self._body(self.send(path, body, **how), status)

    def head(self) -> int:
        return self.project.ledger.head().position

    def made(self, *select: str, partitions: str | None = None) -> str:
        """A run that has ended, or waits for a person; its id."""
        body: dict[str, Any] = {"select": list(select)}
        run_id: str = self.post("/runs", body | ({"partitions": partitions} if partitions else {}))["run_id"]
        self.workshop.until(
            lambda: (
                self.data(f"/runs/{run_id}")["status"] in ("SUCCEEDED", "FAILED", "CANCELLED")
                or self.items("/checkpoints", run_id=run_id)
            ),
            f"{run_id} has ended",
        )
        return run_id

    def _body(self, answer: httpx.Response, status: int) -> Any:
        assert answer.status_code == status, answer.text
        self._promises.check(answer)
        body = answer.json()
        if status >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            assert (body["status"], body["type"]) == (status, f"urn:servo:problem:{body['code']}")
        return body


@contextmanager
def house(
    folder: Path,
    definitions: str = SHOP,
    *,
    executor: IdleExecutor | None = None,
    guarded: bool = False,
    toml: str = "",
) -> Iterator[House]:
    """The server of a project with these definitions, with one control loop and one worker.

    `guarded`: it listens to everybody, and takes nothing without a token; the client's is an admin's.
    """
    with ExitStack() as stack:
        place = stack.enter_context(deployed_workshop(folder, definitions, toml=toml))
        token = Tokens(place.project).create("tester", "admin", actor=ME).token if guarded else None
        evaluators = stack.enter_context(EvaluatorPool(place.project.settings))
        stack.enter_context(at_work(place, executor))
        served = stack.enter_context(
            serving(
                place.project,
                user_code=Sensing(place.project, evaluators),
                driver=lambda: one_pass(place.project, evaluators),
                host="0.0.0.0" if guarded else None,
                port=0,
            )
        )
        found = House(place, served, token)
        with found.client:
            yield found

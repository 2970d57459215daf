"""schemathesis, with all of its checks, over every operation of the OpenAPI document: it finds nothing.

It makes requests that fit the document and requests that do not, follows what answers name into other operations, and
holds every answer against the document. More of it, when something here changes: SERVO_TEST_ROUNDS=20.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import StopReason, events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder

from tests.support.served import PREFIX, House, house
from tests.support.stocked import stock

ROUNDS = int(os.environ.get("SERVO_TEST_ROUNDS", "1"))
SEED = int(os.environ.get("SERVO_TEST_SEED", "7"))
# Every boundary of every field is many thousands of requests: a round takes the operations of one part.
PARTS = 8

CHECKS = {
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "positive_data_acceptance",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "use_after_free",
    "ensure_resource_availability",
    "ignored_auth",
    "object_level_authorization",
}
# How a request is refused whose shape is wrong: one that fits the document must never be refused so. For the rest there
# are reasons that no schema can say: a cursor is of another list, there is no such partition, a name is taken.
SHAPE = re.compile(r"Expected `|missing required field|unknown field|Invalid (enum )?value|no JSON|twice|left out")


class Told:
    """What a siege came to."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()  # by operation
        self.checks: Counter[str] = Counter()
        self.answers: Counter[int] = Counter()
        self.found: list[str] = []
        self.transitions = 0

    def take(self, recorder: ScenarioRecorder) -> None:
        for case_id, node in recorder.cases.items():
            if case_id in recorder.interactions:
                self.asked[node.value.operation.label] += 1
        self.answers.update(one.response.status_code for one in recorder.interactions.values() if one.response)
        for checks in recorder.checks.values():
            for check in checks:
                self.checks[check.name] += 1
                if check.failure_info is not None:
                    failure = check.failure_info.failure
                    self.found.append(
                        f"{check.name}: {failure.title}\n{failure.message}\n{check.failure_info.code_sample}"
                    )


def is_a_fault(_: Any, failure: schemathesis.Failure, case: schemathesis.Case, response: schemathesis.Response) -> bool:
    """A request that fits may be refused for what it means, and only for that."""
    if response.status_code == 503 and "wait_for_event_id" in (case.query or {}):
        # Whether such an event will come nobody knows: who waits for it is told that it has not.
        return bool(response.json()["code"] != "projection-lagging")
    if type(failure).__name__ != "RejectedPositiveData" or response.status_code not in (400, 422):
        return True
    detail = str(response.json()["detail"])
    if case.operation.path.endswith("/audit/verify") and "got `float`" in detail:
        return False  # a report is proof of what it says digit for digit, so 3.0 is no 3 in there
    return SHAPE.search(detail) is not None


@schemathesis.hook("before_call")  # of all schemas: there is no other
def be_quick(_: Any, case: schemathesis.Case, __: dict[str, Any]) -> None:
    """Nobody waits a minute for an event that was made up."""
    if case.query and "wait_for_event_id" in case.query and case.query.get("timeout_ms", 5_000) in range(61_000):
        case.query["timeout_ms"] = 10


def document_of(shop: House) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{shop.served.url}/schema/openapi.json", timeout=60).json()
    return found


def siege(
    shop: House, names: dict[str, list[str]], seed: int, phase: str, *, examples: int = 1, only: Sequence[str] = ()
) -> Told:
    """One phase of schemathesis against the server, as an admin."""
    config = SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "base-url": shop.served.url,
            "headers": {"Authorization": f"Bearer {shop.token}"},
            "continue-on-failure": True,
            "request-timeout": 60,
            "generation": {"database": "none", "max-examples": examples},
            "suppress-health-check": ["all"],  # they are about time
            # Things that are there, so that more than "there is no such thing" is seen.
            "dictionaries": {name: {"values": values} for name, values in names.items()},
            "parameters": {f"path.{name}": {"dictionary": name, "probability": 0.7} for name in names},
            "checks": {
                # Many items are many bytes: 413 is a refusal too. What is wrong is never answered with 5xx.
                "negative_data_rejection": {
                    "expected-statuses": ["400", "401", "403", "404", "405", "409", "413", "415", "422"]
                },
            },
            # A stream ends when the client goes; with this it ends by itself.
            "operations": [
                {"include-path": f"{PREFIX}/events", "parameters": {"query.until_now": True}},
                *([{"exclude-name": list(only), "enabled": False}] if only else []),
            ],
            "phases": {
                name: {"enabled": name == phase, **({"max-steps": 10} if name == "stateful" else {})}
                for name in ("examples", "coverage", "fuzzing", "stateful")
            },
        }
    )
    schema = schemathesis.openapi.from_dict(document_of(shop), config=config)
    schema.hooks.hook("filter_failure")(is_a_fault)
    told = Told()
    for event in from_schema(schema).execute():
        match event:
            case events.ScenarioFinished():
                told.take(event.recorder)
            case events.PhaseStarted() if event.payload is not None:
                told.transitions = event.payload.transitions_selected
            case events.NonFatalError():
                told.found.append(f"{event.label}: {event.value}")
            case events.FatalError():
                raise event.exception
            case events.Interrupted():
                raise KeyboardInterrupt
            case events.EngineFinished():
                assert event.stop_reason is StopReason.COMPLETED
                told.found += [str(failure) for failure in event.failures]
    return told


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("shop"), guarded=True) as found:
        yield found


@pytest.fixture(scope="module")
def names(shop: House) -> dict[str, list[str]]:
    return stock(shop)


@pytest.fixture(scope="module")
def operations(shop: House) -> list[str]:
    paths = document_of(shop)["paths"]
    return sorted(f"{method.upper()} {path}" for path, entry in paths.items() for method in entry)


@pytest.fixture(autouse=True)
def _well(shop: House) -> Iterator[None]:
    yield
    assert shop.client.get(f"{shop.served.url}/readyz").status_code == 200


def require_nothing(told: Told) -> None:
    print(f"{told.asked.total()} requests, {told.checks.total()} checks, {len(told.asked)} operations")
    assert not told.found, f"{len(told.found)} found\n\n" + "\n\n".join(told.found[:10])


def test_examples_are_good(shop: House, names: dict[str, list[str]]) -> None:
    require_nothing(siege(shop, names, SEED, "examples"))


@pytest.mark.parametrize("part", range(min(ROUNDS, PARTS)))
def test_nothing_is_found_at_the_bounds(
    shop: House, names: dict[str, list[str]], operations: list[str], part: int
) -> None:
    only = operations[part::PARTS]
    told = siege(shop, names, SEED + part, "coverage", only=only)
    require_nothing(told)
    assert set(told.asked) == set(only)
    assert set(told.checks) == CHECKS


@pytest.mark.parametrize("number", range(ROUNDS))
def test_nothing_is_found_by_chance(
    shop: House, names: dict[str, list[str]], operations: list[str], number: int
) -> None:
    told = siege(shop, names, SEED + number, "fuzzing", examples=3 if ROUNDS == 1 else 40)
    require_nothing(told)
    assert set(told.asked) == set(operations)
    assert set(told.checks) == CHECKS
    assert {200, 202, 400, 401, 404, 422} <= set(told.answers)


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("noun", ["runs", "backfills", "schedules", "sensors", "checkpoints"])
def test_nothing_is_found_on_the_way_from_one_to_the_other(
    shop: House, names: dict[str, list[str]], operations: list[str], noun: str, number: int
) -> None:
    """What is made is there, what is deleted is gone, and what an answer names can be asked for.

    A noun at a time, and without messages: schemathesis begins where it hopes for most, and would begin nowhere else.
    """
    only = [one for one in operations if f"{PREFIX}/{noun}" in one and not one.endswith("/messages")]
    examples = 6 if ROUNDS == 1 else 60
    told = siege(shop, names, SEED + number, "stateful", examples=examples, only=only)
    require_nothing(told)
    assert told.transitions >= 3
    assert len(told.asked) >= len(only) // 2
    assert 200 in told.answers
    assert set(told.checks) == CHECKS

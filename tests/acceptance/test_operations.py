"""Every operation of the table, by whichever door it is asked: in the folder, over HTTP, by the client, by a command.

The examples are in tests/support/operation_examples.py: an operation without one fails here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from servo import Client
from servo.cli import main
from servo.cli.folder import Folder
from servo.cli.opening import Services
from servo.cli.remote import Remote
from servo.errors import ServoError
from servo.operations.assets.requests import ListAssets
from servo.operations.operation import Change, ListQuestion, Operation, fields
from servo.operations.table import OPERATIONS
from servo.runtime import load_settings, open_workspace
from servo.runtime.tokens import Role, Tokens
from tests.support.operation_examples import (
    CASES,
    DAY,
    QUESTIONS,
    Asked,
    Stocked,
    example_shop,
    mine,
    route_of,
    send,
    stock,
)
from tests.support.served import House, house

Kind = type[Operation[Any]]
CHANGING = [kind for kind in OPERATIONS if issubclass(kind, Change)]
ASKING = [kind for kind in OPERATIONS if not issubclass(kind, Change)]
DOORS = ("folder", "http", "client", "command")
# What follows from the time of day.
_OF_THE_MOMENT = {"next_at", "now", "generated_at", "report_hash", "age_seconds"}
# Commands whose document is of another shape than the answer, or leaves a part of it out.
_OF_ITS_OWN_SHAPE = {"GET /runs/{run_id}/logs", "GET /data", "GET /audit/report", "POST /audit/reports"}
_OF_ITS_OWN_SHAPE |= {"GET /partitions/summary", "GET /forecast"}
_LARGEST_PAGE = 1_000
# What an answer over HTTP has beside that of the operation, and whether it was asked before: each door says it itself.
_ENVELOPE = {"accepted_event_id", "accepted_at", "correlation_id", "duplicate"}

every_operation = pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.__name__)
every_change = pytest.mark.parametrize("kind", CHANGING, ids=lambda kind: kind.__name__)
every_question = pytest.mark.parametrize("kind", ASKING, ids=lambda kind: kind.__name__)


class Doors(NamedTuple):
    """The ways to ask one project."""

    stocked: Stocked
    here: Services
    there: Remote
    client: Client
    elsewhere: Path

    @property
    def shop(self) -> House:
        return self.stocked.shop

    def asks(self, door: str, kind: Kind) -> Any:
        """What a question is answered with, as JSON has it."""
        question = QUESTIONS[route_of(kind)]
        asked, then = self.stocked.asked(question), question.as_of
        request = asked.request(kind)
        match door:
            case "folder":
                found = self._by_services(self.here, request, then)
            case "client":
                found = self._by_client(kind, asked, then)
            case "command":
                found = self._by_services(self.there, request, then)
            case _:
                fresh = {"fresh": "true"} if then is None else {"as_of": then}
                if kind.contract.route.has_body:
                    fresh = {}
                answer = send(self.shop, route_of(kind), msgspec.structs.replace(asked, body=asked.body | fresh), None)
                assert answer.status_code in (200, 202), answer.text
                said = answer.json()
                found = said["items"] if issubclass(kind, ListQuestion) else said["data"] if fresh else said
        return in_order(kind, timeless(plain(found)))

    def changes(self, door: str, kind: Kind, asked: Asked, key: str, body: dict[str, Any] | None = None) -> Any:
        """What a change is answered with: its fields, but for whether it was asked before."""
        request = asked.request(kind, body)
        match door:
            case "folder":
                done = plain(self.here.do(request, key=key))
            case "client":
                done = plain(self.client.performer.change(request, key=key))
            case "command":
                done = plain(self.there.do(request, key=key))
            case _:
                answer = send(self.shop, route_of(kind), asked, key, body)
                if answer.status_code >= 400:
                    raise RefusedError(answer.json()["code"])
                done = answer.json()
        return {name: value for name, value in done.items() if name not in _ENVELOPE}

    @staticmethod
    def _by_services(services: Services, request: Any, then: str | None) -> Any:
        """As a command asks, here or there."""
        if isinstance(request, ListQuestion):
            return services.listed(request, limit=_LARGEST_PAGE).items
        return services.ask(request, as_of=then)

    def _by_client(self, kind: Kind, asked: Asked, then: str | None) -> Any:
        """By the method that has the operation's name, where the client has one."""
        noun, _, verb = kind.contract.client.partition(".")
        request = asked.request(kind)
        if not verb:
            if issubclass(kind, ListQuestion):
                return list(self.client.performer.items(request))
            return self.client.performer.answer(request, None if then is None else {"as_of": then})
        contract, given = kind.contract, [name for name in fields(kind) if name in asked.fields(kind)]
        said = {contract.called.get(name, name): getattr(request, name) for name in given}
        found = getattr(getattr(self.client, noun), verb)(**said)
        if issubclass(kind, ListQuestion):
            return list(found)
        return {contract.part: found} if contract.part else found


class RefusedError(Exception):
    """A request that the server has refused, with the code of the problem."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def in_order(kind: Kind, said: Any) -> Any:
    """A folder lists its assets as they are defined, a server by their names."""
    return sorted(said, key=lambda one: str(one["asset_key"])) if kind is ListAssets else said


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def timeless(value: Any) -> Any:
    if isinstance(value, list):
        return [timeless(one) for one in value]
    if isinstance(value, dict):
        return {name: timeless(one) for name, one in value.items() if name not in _OF_THE_MOMENT}
    return value


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder, elsewhere = tmp_path_factory.mktemp("shop"), tmp_path_factory.mktemp("elsewhere")
    with example_shop(folder) as shop, open_workspace(load_settings(folder, {})) as project:
        here, there = Folder(project), Remote(shop.served.url)
        with Client(shop.served.url, fresh=True) as client:
            yield Doors(stock(shop), here, there, client, elsewhere)
        there.close()
        here.close()


def test_every_operation_has_an_example() -> None:
    assert set(CASES) == {route_of(kind) for kind in CHANGING}
    assert set(QUESTIONS) == {route_of(kind) for kind in ASKING}


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────


@every_question
def test_a_question_is_answered_alike_at_every_door(doors: Doors, kind: Kind) -> None:
    answers = {door: doors.asks(door, kind) for door in DOORS}
    for door in DOORS:
        assert answers[door] == answers["folder"], door
    assert answers["folder"] or route_of(kind) == "GET /conflicts", "it says something"


@pytest.mark.parametrize(
    "kind", [kind for kind in ASKING if QUESTIONS[route_of(kind)].command], ids=lambda kind: kind.__name__
)
def test_a_command_says_what_the_server_answers(
    doors: Doors, kind: Kind, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    question = QUESTIONS[route_of(kind)]
    words = [*doors.stocked.named(list(question.command)), "--json"]
    here, there = (_documents(words, doors, monkeypatch, capsys, remotely=remotely) for remotely in (False, True))
    assert here == there
    if route_of(kind) not in _OF_ITS_OWN_SHAPE:
        answer = doors.asks("http", kind)
        [document] = here
        said = (
            next(value for value in document.values() if isinstance(value, list))
            if issubclass(kind, ListQuestion)
            else document
        )
        assert in_order(kind, said) == answer


def _documents(
    words: list[str], doors: Doors, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str], *, remotely: bool
) -> list[Any]:
    """What a command says in the project's folder, or with SERVO_URL in a folder that holds nothing."""
    for name in [name for name in os.environ if name.startswith("SERVO_")]:
        patch.delenv(name)
    if remotely:
        patch.setenv("SERVO_URL", doors.shop.served.url)
    patch.chdir(doors.elsewhere if remotely else doors.shop.project.settings.root)
    captured.readouterr()
    code = main.run(words)
    out, err = captured.readouterr()
    assert code == 0, err
    found = [json.loads(out)] if out.startswith("{\n") else [json.loads(line) for line in out.splitlines()]
    if words[:2] == ["partition", "list"]:  # each door has cursors of its own, and takes no other
        found = [{**one, "cursor": one["cursor"] is None} for one in found]
    return list(timeless(found))


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("remotely", [False, True], ids=["in the folder", "at the server"])
@every_change
def test_a_change_is_made_once_and_answered_alike_at_every_door(doors: Doors, kind: Kind, remotely: bool) -> None:
    """Made at one door, which for a server is each in turn, it is so at all of them."""
    asked = CASES[route_of(kind)](doors.shop)
    first = DOORS[1 + CHANGING.index(kind) % 3] if remotely else "folder"
    key = f"{doors.shop.key()}-{first}"
    done = doors.changes(first, kind, asked, key)
    head = doors.shop.head()
    for door in DOORS:
        assert doors.changes(door, kind, asked, key) == done, door
        if asked.other is not None:
            with pytest.raises((ServoError, RefusedError)) as refused:
                doors.changes(door, kind, asked, key, asked.other)
            assert refused.value.code == "idempotency-mismatch", door
    assert mine(doors.shop, head) == [], "what is asked again changes nothing"


# ── roles ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Guarded(NamedTuple):
    shop: House
    tokens: dict[Role, str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with house(tmp_path_factory.mktemp("guarded"), guarded=True) as shop:
        made = Tokens(shop.project)
        yield Guarded(shop, {role: made.create(role.name, role.name, actor="person:ann").token for role in Role})


@every_operation
def test_who_has_too_small_a_role_is_refused_and_who_has_it_is_not(guarded: Guarded, kind: Kind) -> None:
    contract = kind.contract
    path = re.sub(r"\{\w+\}", "x", contract.route.path)
    head = guarded.shop.head()
    for role, token in guarded.tokens.items():
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": f"{kind.__name__}-{role.name}"}
        answer = guarded.shop.client.request(contract.route.method, path, headers=headers)
        if role < Role[contract.role]:
            assert (answer.status_code, answer.json()["code"]) == (403, "not-allowed"), role
            assert contract.role in answer.json()["detail"]
        else:
            assert answer.status_code not in (401, 403), (role, answer.text)
    assert guarded.shop.head() == head, "a request without its fields changes nothing"


# ── hostile input ────────────────────────────────────────────────────────────────────────────────────────────────

HOSTILE: list[Any] = ["", "\u0000", "x" * 5_000, "../../etc", "';--", "9999-99-99", -1, 2**70, [None], {"a": {}}]
TRIED = 2  # of them for each field; over all fields, all of them


@every_operation
def test_what_nobody_would_mean_is_no_fault_of_the_server(doors: Doors, kind: Kind) -> None:
    """Each field in turn holds what nobody would mean: it is refused with a code, or means what it says."""
    route = route_of(kind)
    asked = doors.stocked.asked(QUESTIONS[route]) if route in QUESTIONS else CASES[route](doors.shop)
    turn, head = OPERATIONS.index(kind), doors.shop.head()
    for name in sorted(fields(kind).keys() - set(kind.contract.route.parameters)):
        turn += 1
        for value in (HOSTILE * 2)[turn * TRIED % len(HOSTILE) :][:TRIED]:
            body = asked.body | {name: value}
            if kind.contract.route.method in ("GET", "DELETE"):
                body = {one: said for one, said in body.items() if not isinstance(said, list | dict) or said == [DAY]}
            answer = send(doors.shop, route, asked, doors.shop.key(), body)
            assert answer.status_code < 500, (name, value, answer.text)
            assert answer.status_code < 400 or answer.json()["code"], answer.text
    recorded = {event.event_type for event in mine(doors.shop, head)}
    assert recorded <= {*asked.makes, "RequestAccepted"}

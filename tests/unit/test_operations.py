"""The table of operations: what every door relies on holds for each of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from servo.errors import InvalidInput
from servo.operations.automations.requests import CreateSchedule, ForecastSchedules, ListSchedules
from servo.operations.handling import Decision, Found, Handler, Lister, handler_of, lister_of
from servo.operations.operation import Change, ListQuestion, Operation, answer_type, fields, validated
from servo.operations.table import OPERATIONS

ROOT = Path(__file__).resolve().parents[2]
every_operation = pytest.mark.parametrize("kind", OPERATIONS, ids=lambda kind: kind.__name__)


@every_operation
def test_an_operation_is_declared_whole(kind: type[Operation[Any]]) -> None:
    contract, names = kind.contract, fields(kind)
    assert kind.__doc__
    assert kind.__doc__.strip().partition("\n")[0].endswith((".", ":", ";", ","))
    assert set(contract.route.parameters) <= set(names)
    assert set(contract.positional) <= set(names)
    assert answer_type(kind) is not None
    if isinstance(kind, type) and issubclass(kind, Change):
        assert contract.role != "viewer", "what changes something takes more than looking"
        assert contract.route.method != "GET"
    else:
        assert contract.key != "required", "nothing is recorded under it"
    if issubclass(kind, ListQuestion):
        assert "limit" in names
    if contract.example is not None:
        named = dict.fromkeys(contract.route.parameters, "x")
        msgspec.convert(contract.example | named, kind)


def test_no_two_operations_have_one_route_or_one_method_of_the_client() -> None:
    routes = [(kind.contract.route.method, kind.contract.route.path) for kind in OPERATIONS]
    methods = [kind.contract.client for kind in OPERATIONS if "." in kind.contract.client]
    assert len(set(routes)) == len(routes)
    assert len(set(methods)) == len(methods)


@every_operation
def test_every_operation_is_answered_with_what_it_declares(kind: type[Operation[Any]]) -> None:
    handler: Handler | Lister = lister_of(kind) if issubclass(kind, ListQuestion) else handler_of(kind)
    said = get_type_hints(handler.function)["return"]
    answer = answer_type(kind)
    if isinstance(handler, Lister) and (shown := get_type_hints(handler.show).get("return")) is not None:
        assert shown == answer  # what is found says more than is shown
        return
    expected = (
        Decision[answer] if issubclass(kind, Change) else Found[answer] if issubclass(kind, ListQuestion) else answer
    )
    assert said == expected


def test_the_client_is_what_the_table_says() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate-client"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_requests_load_nothing_that_answers_them() -> None:
    heavy = "('servo.runtime', 'servo.projections', 'servo.ledger', 'servo.execution', 'duckdb', 'pyarrow', 'pyspark')"
    script = f"import sys, servo.operations.table\nprint([name for name in sys.modules if name.startswith({heavy})])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("request_", "field", "words"),
    [
        (CreateSchedule(name="", cron="0 6 * * *", select=("a",)), "name", "name is empty"),
        (CreateSchedule(name="x" * 5_000, cron="0 6 * * *", select=("a",)), "name", "longer than 4,000 characters"),
        (CreateSchedule(name="x", cron="0 6 * * *", select=()), "select", "select is empty"),
        (CreateSchedule(name="x", cron="c", select=("a",), overlap="maybe"), "overlap", "cannot be 'maybe'"),  # type: ignore[arg-type]
        (ForecastSchedules(days=0), "days", "days"),
        (ForecastSchedules(limit=2_000), "limit", "must be 1,000 or less"),
        (ListSchedules(limit=0), "limit", "must be 1 or more"),
    ],
)
def test_a_request_that_does_not_fit_is_refused_by_the_name_of_its_field(
    request_: Operation[Any], field: str, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words) as refused:
        validated(request_)
    assert refused.value.field == field


def test_a_list_in_a_folder_may_be_longer_than_a_page_of_the_network() -> None:
    assert validated(ListSchedules(limit=1_000_000)).limit == 1_000_000

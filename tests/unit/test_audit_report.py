"""Audit reports prove themselves: every statement follows from the events that are cited, and every change is found."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from servo import canonical
from servo.errors import InvalidInput
from servo.events.columns import PartitionOutcomes
from servo.events.fact import Fact
from servo.events.model import MaterializationPublished, PartitionsMarked
from servo.ids import ulid_offset
from servo.lineage import audit
from servo.lineage.report import Report, hash_of, parse, plain, schema, to_json
from servo.lineage.report_page import typeset
from tests.support import audits
from tests.support.recording import at, recorded, said

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "audit-report.schema.json"


@pytest.fixture(scope="module")
def report() -> Report:
    return audits.example()


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Everything in a document that is no container, and empty ones."""
    if isinstance(value, dict) and value:
        for name, one in value.items():
            yield from leaves(one, (*path, name))
    elif isinstance(value, list) and value:
        for number, one in enumerate(value):
            yield from leaves(one, (*path, number))
    else:
        yield path, value


def shown(path: tuple[Any, ...]) -> str:
    text = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in path)
    return text.removeprefix(".")


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(document)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return changed


def others(value: Any) -> Iterator[Any]:
    """Values of the same kind, and none at all."""
    match value:
        case bool():
            yield not value
        case int():
            yield value + 1
        case str() if len(value) == 64 and set(value) <= set("0123456789abcdef"):
            yield ("0" if value[0] != "0" else "1") + value[1:]
        case str() if len(value) == 27 and value.endswith("Z"):
            yield value[:-2] + ("1" if value[-2] != "1" else "2") + "Z"
        case str() if len(value) == 26:
            yield value[:-1] + ("0" if value[-1] != "0" else "1")
        case str():
            yield value + "x"
        case None:
            yield "x"
            yield 1
        case []:
            yield ["x"]
        case {}:
            yield {"x": "x"}
    if value is not None:
        yield None


def faults(document: Any) -> list[str]:
    """Why a document is refused: it is no report, or not a true one."""
    try:
        return [str(fault) for fault in audit.verify(parse(json.dumps(document).encode()))]
    except InvalidInput as problem:
        return [problem.message]


def test_says_what_the_events_say(report: Report) -> None:
    assert (report.asset, report.partition, report.materialization) == ("finance/revenue", audits.MONTH, audits.STAGED)
    assert report.partition_values == {"month": "2025-01"}
    assert (report.workspace.tenant, report.workspace.name) == ("acme", "main")
    assert (report.actor, report.code_version) == ("person:ada", "v3")
    assert report.current is not None
    assert (report.current.by, report.current.actor, report.current.event) == ("rollback", "person:grace", 20)
    run = report.execution
    assert run is not None
    assert (run.run, run.status, run.duration_ms) == (audits.RUN, "SUCCEEDED", 11 * 60_000)
    assert run.trigger is not None
    assert run.trigger.kind == "manual"
    assert [(one.attempt, one.worker, one.ended and one.ended.outcome) for one in run.attempts] == [
        (1, "worker-1", "RETRY"),
        (2, "worker-2", "STAGED"),
    ]
    assert run.attempts[1].spark_application == "app-20250115-0001"
    assert (report.output.rows, report.output.bytes, report.output.content_hash) == (10, 1000, f"{300:064x}")
    assert [(node.depth, node.asset, node.event) for node in report.lineage] == [
        *[(1, "shop/orders", 3)] * 3,
        *[(2, "shop/landing", 2)] * 3,
    ]
    assert report.lineage[1].inputs == [audits.LANDED[:-1] + "B"]
    assert [one.content_hash for one in report.inputs] == [f"{200 + number:064x}" for number in range(3)]
    assert [(check.name, check.passed, check.attempt) for check in report.checks] == [
        ("not_null(amount)", False, 1),
        ("not_null(amount)", True, 2),
        ("row_count", False, 2),
    ]
    [approval] = report.approvals
    assert (approval.status, approval.role, approval.four_eyes) == ("APPROVED", "finance", True)
    assert approval.escalated is not None
    assert approval.escalated.to == "cfo"
    assert approval.decided is not None
    assert (approval.decided.by, approval.decided.event) == ("person:grace", 16)
    assert approval.content_hash == report.output.content_hash
    assert [event.position for event in report.proof.events] == list(audits.CITED)


def test_proves_itself_and_fits_its_schema(report: Report) -> None:
    written = to_json(report)
    assert audit.verify(parse(written)) == []
    assert parse(written) == report
    document = json.loads(written)
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.Draft202012Validator(schema()).validate(document)
    assert json.loads(SCHEMA.read_text()) == schema(), "write it anew: see docs/reference/audit.md"


def test_any_changed_field_is_found_and_named(report: Report) -> None:
    """Also where the forger has made the report's own hash fit again, but for what the hash alone protects."""
    document = plain(report)
    seen = 0
    for path, value in leaves(document):
        for other in others(value):
            seen += 1
            changed = replaced(document, path, other)
            found = faults(changed)
            name = shown(path)
            assert any(name in fault for fault in found), f"{name} = {other!r}: {found}"
            if not any(part in name for part in ("generated_at", "as_of", "proof.head")):
                rehashed = dict(changed)
                rehashed.pop("report_hash")
                rehashed["report_hash"] = canonical.sha256_hex(rehashed)
                if name != "report_hash":
                    assert faults(rehashed), name
    assert seen > 500


def test_a_changed_field_is_said_with_the_event_that_says_otherwise(report: Report) -> None:
    document = plain(report)
    document["output"]["content_hash"] = "f" * 64
    assert faults(document) == [
        f'output.content_hash is "{"f" * 64}" in the report, and "{300:064x}" in event 13',
    ]
    document = plain(report)
    document["approvals"][0]["decided"]["by"] = "person:ada"
    assert faults(document) == ['approvals[0].decided.by is "person:ada" in the report, and "person:grace" in event 16']


def test_every_cited_event_is_needed(report: Report) -> None:
    """An event that was left out is missed, and so is one entry less in any list."""
    document = plain(report)
    for number, cited in enumerate(report.proof.events):
        changed = copy.deepcopy(document)
        del changed["proof"]["events"][number]
        changed["report_hash"] = "0" * 64
        changed["report_hash"] = hash_of(msgspec.convert(changed, Report))
        assert faults(changed), f"nothing rests on event {cited.position}, {cited.event_type}"
    for name in ("inputs", "lineage", "checks", "approvals"):
        changed = copy.deepcopy(document)
        changed[name].pop()
        assert any(name in fault for fault in faults(changed))


def test_a_forged_event_breaks_its_link(report: Report) -> None:
    document = plain(report)
    event = document["proof"]["events"][-2]
    event["canonical"] = event["canonical"].replace("SUCCEEDED", "FAILED")
    [fault] = faults(document)
    assert "event 18" in fault
    assert "chain hash" in fault


def test_nothing_but_a_report_is_read(report: Report) -> None:
    for data in (b"", b"[]", b"{}", b"\xff", b'{"format": "servo.audit/2"}', b"[" * 100_000):
        with pytest.raises(InvalidInput, match="audit report"):
            parse(data)
    with pytest.raises(InvalidInput, match="unknown field"):
        parse(json.dumps(plain(report) | {"extra": 1}).encode())
    events = recorded(*audits.story())
    with pytest.raises(InvalidInput, match="no cited event made"):
        audit.derive(events[:2], audits.STAGED)


def test_what_nobody_told_of_is_unknown_and_not_invented() -> None:
    events = recorded(*audits.story())
    told = audit.derive([events[2]], audits.CLEANED)
    assert told.execution is not None
    assert (told.execution.status, told.execution.requested, told.actor) == ("UNKNOWN", None, "worker:worker-1")
    assert [(node.event, node.content_hash) for node in told.lineage] == [(None, None)]


@pytest.mark.parametrize("how", ["mark", "hand"])
def test_what_no_run_made_has_no_execution(how: str) -> None:
    """Somebody stated it, or published it by hand: that person is the actor."""
    asset: dict[str, Any] = {"asset_id": audits.CLEAN, "asset_key": "shop/orders"}
    partitions = PartitionOutcomes(keys=["", audits.DAYS[0]], first_materialization_id=audits.CLEANED, rows=[1, 2])
    fact: Fact = (
        PartitionsMarked(mark_id="m", **asset, mark="MATERIALIZED", partitions=partitions, reason="made elsewhere")
        if how == "mark"
        else MaterializationPublished(publication_id="p", **asset, partitions=partitions)
    )
    events = recorded(said(fact, actor="person:ada"))
    second = ulid_offset(audits.CLEANED, 1)
    made = audit.assemble(audits.links(events, [1]), second, head=audits.head_of(events), generated_at=at(1))
    assert audit.verify(made) == []
    assert (made.execution, made.checks, made.approvals, made.actor) == (None, [], [], "person:ada")
    assert made.current is not None
    assert (made.current.by, made.current.reason) == (how, "made elsewhere" if how == "mark" else None)
    assert (made.partition, made.output.rows) == (audits.DAYS[0], 2)
    assert typeset(made)


def test_a_printed_report_is_no_report() -> None:
    with pytest.raises(InvalidInput, match="a printed report cannot be verified"):
        parse(b"%PDF-1.7\n")

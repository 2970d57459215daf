"""Audit reports on real runs, what they protect, and computing it all again."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from servo.cli.main import run as servo
from servo.errors import DataNotFound, InvalidInput, StorageFailed
from servo.execution import row_differences
from servo.execution.content_hash import named
from servo.execution.executor import Executor
from servo.execution.settings import SparkSettings
from servo.execution.spark import session
from servo.lineage.report import Report, hash_of, parse, plain, schema, to_json
from servo.operations.lineage import audit as handlers
from servo.operations.lineage.audit import verify_offline
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.reproducing import reproduce
from tests.support.idle import at_work
from tests.support.operating import Checkpoints
from tests.support.questions import Audits, Data
from tests.support.workshop import ME, Workshop, deployed_workshop

DEFINITIONS = """
from pathlib import Path

from pyspark.sql import DataFrame, functions as F

from servo import Approval, Daily, Monthly, asset, check

FACTOR = Path(__file__).parent / "factor"
days = Daily("date", start="2025-01-01", end="2025-01-04")


@asset(partitions=days, batch=True)
def numbers(context) -> DataFrame:
    days = ", ".join(f"date '{one['date']}'" for one in context.partitions)
    return context.spark.range(1, 4, numPartitions=1).select(
        F.expr(f"explode(array({days}))").alias("date"), (F.col("id") * int(FACTOR.read_text())).alias("n")
    )


@asset(partitions=Monthly("month", start="2025-01", end="2025-02"), checks=[check.row_count(min=1, blocking=True)])
def total(context, numbers: DataFrame) -> DataFrame:
    print("a function may print")
    return numbers.groupBy("date").agg(F.sum("n").alias("n"), F.map_from_arrays(F.array(F.lit("k")),
        F.array(F.max("n"))).alias("extra"))


@asset(approval=Approval("finance", four_eyes=True))
def shaky(context) -> DataFrame:
    r = F.rand()
    return context.spark.range(5).select(
        "id", r.alias("r"), F.struct(F.array(F.create_map(F.lit("k"), r)).alias("maps")).alias("deep")
    )
"""


class Shop(Workshop):
    """A project with work done in it: three days and a month, then the second day and the month anew."""

    def __init__(self, project: Project, spark: Any) -> None:
        super().__init__(project)
        with at_work(self, Executor(project.storage, lambda: spark)):
            self.make("1", "numbers@all", "total@all", "shaky", approve=True)
            self.then = self.head()
            self.make("10", "numbers@2025-01-02", "total@all")

    def make(self, factor: str, *selection: str, approve: bool = False) -> None:
        (self.path / "factor").write_text(factor)
        run_id = self.request(*selection)
        if approve:
            checkpoints = Checkpoints(self.project)
            while not (waiting := checkpoints.list(run_id=run_id)):
                time.sleep(0.1)
            checkpoints.approve(waiting[0].checkpoint_id, reason="#1 <looks> good", actor="person:grace")
        assert self.wait(run_id).status == "SUCCEEDED"

    def opened(self, **variables: str) -> Project:
        return open_workspace(load_settings(self.path, variables), create=True)

    def files(self) -> list[Path]:
        return sorted((self.path / ".servo" / "storage").rglob("*.parquet"))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    before = Path.cwd(), list(sys.path), dict(os.environ)
    with (
        session(SparkSettings(master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})) as spark,
        deployed_workshop(tmp_path_factory.mktemp("shop"), DEFINITIONS, toml='[spark]\nmaster = "local[2]"\n') as made,
    ):
        yield Shop(made.project, spark)
    # Who computes settles in the project's folder.
    os.chdir(before[0])
    sys.path[:] = before[1]
    os.environ.clear()
    os.environ.update(before[2])


@pytest.fixture(scope="module")
def now(shop: Shop) -> Report:
    return Audits(shop.project).report("total", "2025-01", keep=False)


@pytest.fixture(scope="module")
def then(shop: Shop) -> Report:
    return Audits(shop.project).report("total", "2025-01", as_of=shop.then, keep=False)


def test_reports_what_ran_and_on_what(shop: Shop, now: Report, then: Report) -> None:
    """Now and as of then are two materializations, each with exactly the versions that it read."""
    newest, oldest = shop.data.materializations("total", "2025-01")
    assert (now.materialization, now.output.content_hash) == (newest["materialization_id"], newest["content_hash"])
    assert (then.materialization, then.output.content_hash) == (oldest["materialization_id"], oldest["content_hash"])
    days = {f"date=d:2025-01-0{day}" for day in (1, 2, 3)}
    assert {one.partition for one in now.inputs} == {one.partition for one in then.inputs} == days
    changed = [
        one.partition
        for one, other in zip(now.inputs, then.inputs, strict=True)
        if one.content_hash != other.content_hash
    ]
    assert changed == ["date=d:2025-01-02"]
    run = now.execution
    assert run is not None
    assert (run.run, run.status) == (newest["run_id"], "SUCCEEDED")
    assert run.requested is not None
    assert (run.requested.by, now.actor) == (ME, ME)
    [attempt] = run.attempts
    assert attempt.worker
    assert attempt.spark_application
    assert attempt.duration_ms is not None
    assert [(check.name, check.passed) for check in now.checks] == [("row_count", True)]
    types = [event.event_type for event in now.proof.events]
    # Of the run, which made a day and then the month: what made that day, and all that bears on the month.
    assert types[-7:] == [
        "RunRequested",
        "RunPlanned",
        "RunStarted",
        "TaskFinished",
        "TaskStarted",
        "TaskFinished",
        "RunFinished",
    ]


def test_reports_who_approved(shop: Shop) -> None:
    report = Audits(shop.project).report("shaky", keep=False)
    [approval] = report.approvals
    assert (approval.status, approval.role, approval.four_eyes) == ("APPROVED", "finance", True)
    assert approval.decided is not None
    assert (approval.decided.by, approval.decided.reason) == ("person:grace", "#1 <looks> good")
    assert (approval.materialization, approval.content_hash) == (report.materialization, report.output.content_hash)
    assert report.published is not None
    assert (report.published.by, report.published.actor) == ("approval", "person:grace")
    assert report.execution is not None
    assert [one.ended and one.ended.outcome for one in report.execution.attempts] == ["STAGED"]
    assert Audits(shop.project).verify(report).faults == []


def test_proves_itself_and_the_ledger_agrees(
    shop: Shop, now: Report, then: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the events lie so far apart that each is looked for."""
    monkeypatch.setattr(handlers, "_DENSE", 0)
    assert Audits(shop.project).report("total", "2025-01", keep=False).proof == now.proof
    for report in (now, then):
        read = parse(to_json(report))
        jsonschema.Draft202012Validator(schema()).validate(json.loads(to_json(report)))
        assert verify_offline(read).faults == []
        assert Audits(shop.project).verify(read).faults == []


def test_a_forgery_that_proves_itself_is_not_the_ledgers(shop: Shop, now: Report) -> None:
    """Whoever forges an event, its hash and the report's fools who has only the report, and not the ledger."""
    document = plain(now)
    last, head = document["proof"]["events"][-1], document["proof"]["head"]
    assert (last["event_type"], last["position"]) == ("RunFinished", head["position"])
    last["canonical"] = last["canonical"].replace("controller:", "nobody:")
    link = bytes.fromhex(last["previous_chain_hash"]) + last["canonical"].encode()
    last["chain_hash"] = head["chain_hash"] = sha256(link).hexdigest()
    document["report_hash"] = hash_of(msgspec.convert(document, Report))
    forged = msgspec.convert(document, Report)
    assert verify_offline(forged).faults == []
    [fault] = Audits(shop.project).verify(forged).faults
    assert f"event {head['position']} of this ledger" in fault.reason


def test_the_ledger_misses_what_a_report_leaves_out(shop: Shop, now: Report, then: Report) -> None:
    """An old report with a new head would hide what came after it."""
    late = msgspec.structs.replace(then, proof=msgspec.structs.replace(then.proof, head=now.proof.head))
    late = msgspec.structs.replace(late, report_hash=hash_of(late))
    assert verify_offline(late).faults == []
    faults = [str(fault) for fault in Audits(shop.project).verify(late).faults]
    assert any(fault.startswith("materialization is") and "the ledger" in fault for fault in faults)


def test_a_report_of_another_workspace_is_refused(shop: Shop, now: Report) -> None:
    with (
        shop.opened(SERVO_WORKSPACE="other", SERVO_LEDGER=f"sqlite:{shop.path}/other.db") as other,
        pytest.raises(InvalidInput, match=r"default/default.*default/other"),
    ):
        Audits(other).verify(now)
    with shop.opened(SERVO_LEDGER=f"sqlite:{shop.path}/empty.db", SERVO_HOME=f"{shop.path}/empty") as empty:
        [fault] = Audits(empty).verify(now).faults
        assert "has no event" in fault.reason


def test_computes_it_again(shop: Shop, now: Report, then: Report, capsys: pytest.CaptureFixture[str]) -> None:
    """Also an earlier version, from inputs that are not current any more; and nothing of it is left behind."""
    files, head = shop.files(), shop.project.ledger.head()
    os.chdir(shop.path)
    assert servo(["reproduce", "total", "2025-01", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["reproducible"], answer["inputs"], answer["rows"]) == (True, 3, 3)
    assert answer["reproduced_content_hash"] == now.output.content_hash
    old = reproduce(shop.project, "total", "2025-01", materialization_id=then.materialization)
    assert (old.reproducible, old.reproduced_content_hash) == (True, then.output.content_hash)
    random = reproduce(shop.project, "shaky")
    assert (random.reproducible, random.rows, random.reproduced_rows) == (False, 5, 5)
    assert random.only_then is not None
    assert random.only_now is not None
    assert (random.only_then.count, random.only_now.count) == (5, 5)
    assert set(random.only_now.examples[0]) == {"id", "r", "deep"}
    assert str(random.only_now.examples[0]["deep"]).startswith('{"maps":[{"k":0.')
    assert random.not_compared is None
    assert (shop.files(), shop.project.ledger.head()) == (files, head)
    assert not list((shop.path / ".servo" / "storage").rglob("_staging/*"))


def test_what_spark_refuses_to_compare_is_said_in_a_line(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it is not the same is the answer all the same."""
    monkeypatch.setattr(row_differences, "comparable", lambda name, _: named(name))
    found = reproduce(shop.project, "shaky")
    assert (found.reproducible, found.only_then, found.only_now) == (False, None, None)
    assert found.reproduced_content_hash not in (None, found.content_hash)
    assert found.not_compared is not None
    assert "MAP" in found.not_compared
    assert "\n" not in found.not_compared


def test_other_code_is_refused_unless_it_is_asked_for(shop: Shop) -> None:
    definitions = shop.path / "definitions.py"
    try:
        definitions.write_text(
            DEFINITIONS.replace('F.sum("n").alias("n")', 'F.avg("n").alias("n"), F.max("n").alias("m")')
        )
        with pytest.raises(InvalidInput, match="made by code version"):
            reproduce(shop.project, "total", "2025-01")
        found = reproduce(shop.project, "total", "2025-01", any_code=True)
        assert not found.reproducible
        assert (found.columns_new, found.columns_changed) == (["m bigint"], ["n bigint → double"])
        definitions.write_text(DEFINITIONS.replace('print("a function may print")', 'raise ValueError("never again")'))
        failed = reproduce(shop.project, "total", "2025-01", any_code=True)
        assert not failed.reproducible
        assert failed.failure is not None
        assert "never again" in failed.failure
    finally:
        definitions.write_text(DEFINITIONS)


def test_what_a_report_cites_is_kept(shop: Shop, then: Report) -> None:
    """Retention lets the earlier versions go, but not while a report cites them."""
    with shop.opened(SERVO_RETENTION_VERSIONS="1", SERVO_RETENTION_GRACE_HOURS="0") as project:
        data, ours = Data(project), Audits(project)
        old = {then.materialization, next(one for one in then.inputs if one.partition.endswith("02")).materialization}
        assert {one.found.name for one in data.vacuum(dry_run=True)} == old
        report = ours.report("total", "2025-01", as_of=shop.then)
        assert data.vacuum(dry_run=False) == []
        [citation] = (shop.path / ".servo" / "audits").rglob("*.json")
        assert citation.stem == report.report_hash
        citation.write_text("{")
        with pytest.raises(StorageFailed, match="cannot be read"):
            data.vacuum(dry_run=False)
        citation.unlink()
        assert {one.found.name for one in data.vacuum(dry_run=False)} == old
        with pytest.raises(DataNotFound, match=r"shop/numbers 2025-01-02 \("):
            reproduce(project, "total", "2025-01", materialization_id=then.materialization)
        # The report speaks of the past, and is as true as before.
        assert ours.verify(then).faults == []


def test_what_there_is_no_report_of(shop: Shop) -> None:
    with pytest.raises(DataNotFound, match="has no data"):
        Audits(shop.project).report("total", "2025-01", as_of=first_event(shop))
    with pytest.raises(DataNotFound, match="no materialization"):
        reproduce(shop.project, "total", "2025-01", materialization_id="01JHMN0000000000000000000A")


def first_event(shop: Shop) -> str:
    """The deployment: the asset is there, and nothing of it yet."""
    return shop.project.history.read(0, 1)[0].event_id

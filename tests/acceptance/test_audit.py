"""`servo audit` and `servo reproduce` from outside: reports made in a project, and verified where there is none."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from servo.assets.loading import load
from servo.errors import DataNotFound, InvalidInput, LedgerCorrupt, NotFound, ServoError
from servo.events import Proposal
from servo.events.columns import CheckOutcomes, InputPartitions, Outcome, PartitionOutcomes
from servo.events.definitions import Source
from servo.events.fact import Fact
from servo.events.model import RunFinished, RunRequested, RunStarted, TaskFinished, TaskStarted
from servo.ids import ulid_offset
from servo.lineage.report import to_json
from servo.runtime.deploying import deploy
from servo.runtime.reproducing import reproduce
from tests.acceptance.projects import make_project
from tests.acceptance.support import FIRST_MATERIALIZATION, MANUAL, Folder
from tests.acceptance.test_program import imported
from tests.support.questions import Audits

DAYS = [f"date=d:2025-01-{day:02d}" for day in (1, 2)]
NUMBERS, DOUBLED = FIRST_MATERIALIZATION, ulid_offset(FIRST_MATERIALIZATION, 10)
SOURCE: Source = MANUAL


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Two days of two assets, as a run would have recorded them; no Spark was there, nor is any data."""
    folder = make_project(tmp_path_factory.mktemp("shop"))
    with folder.project() as project:
        known = deploy(project, load(project.settings), actor="tester").catalog
        run = "run_" + "a" * 26

        def finished(name: str, first: str, **more: Any) -> list[Fact]:
            key = f"shop/{name}"
            about = {"run_id": run, "task_key": f"{key}#0", "attempt": 1, "asset_id": known.asset_id(key)}
            partitions = PartitionOutcomes(
                keys=DAYS, first_materialization_id=first, rows=3, bytes=100, files=1, content_hash=["a" * 64, "b" * 64]
            )
            return [
                TaskStarted(**about, asset_key=key, partition_count=2, worker="w1"),
                TaskFinished(
                    **about,
                    asset_key=key,
                    outcome=Outcome.SUCCEEDED,
                    partitions=partitions,
                    code_version="then",
                    worker="w1",
                    spark_application_id="local-1",
                    **more,
                ),
            ]

        read = InputPartitions(
            asset_id=known.asset_id("shop/numbers"),
            asset_key="shop/numbers",
            keys=DAYS,
            materialization_ids=[NUMBERS, ulid_offset(NUMBERS, 1)],
        )
        facts: list[Fact] = [
            RunRequested(
                run_id=run,
                run_key="manual:1",
                request_fingerprint="f" * 64,
                asset_selection=["shop/doubled"],
                source=SOURCE,
            ),
            RunStarted(run_id=run, source=SOURCE),
            *finished("numbers", NUMBERS),
            *finished("doubled", DOUBLED, inputs=[read], checks=[CheckOutcomes(name="row_count", keys=DAYS)]),
            RunFinished(run_id=run, outcome=Outcome.SUCCEEDED, source=SOURCE),
        ]
        for fact in facts:
            project.ledger.append([Proposal(fact=fact, occurred_at=folder.clock(), actor="person:ann")])
    return folder


def test_reports_and_verifies(shop: Folder, tmp_path: Path) -> None:
    """In the project, and in a folder where nothing is."""
    report = json.loads(shop.ok("audit", "report", "doubled", "2025-01-02"))
    assert (report["asset"], report["partition"], report["actor"]) == ("shop/doubled", DAYS[1], "person:ann")
    assert [one["materialization"] for one in report["inputs"]] == [ulid_offset(NUMBERS, 1)]
    outputs = [f"--output={tmp_path / name}" for name in ("report.json", "report.pdf")]
    written = shop.json("audit", "report", "doubled", "2025-01-02", *outputs)
    assert [one["format"] for one in written["files"]] == ["json", "pdf"]
    assert written["materialization"] == ulid_offset(DOUBLED, 1)
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF-")
    assert not imported(shop, "audit", "report", "doubled", "2025-01-02") & {"pyspark", "py4j", "typst"}
    assert "the ledger agrees" in shop.ok("audit", "verify", str(tmp_path / "report.json"))

    nowhere = Folder(tmp_path)
    found = nowhere.json("audit", "verify", "report.json", "--report-hash", written["report_hash"])
    assert (found["valid"], found["with_ledger"], found["faults"]) == (True, False, [])
    assert "no ledger" in nowhere.fails(3, "audit", "verify", "report.json", "--ledger")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.pdf"]

    changed = (tmp_path / "report.json").read_text().replace("b" * 64, "c" * 64, 1)
    (tmp_path / "changed.json").write_text(changed)
    said = nowhere.servo("audit", "verify", "changed.json", "--report-hash", "0" * 64)
    assert (said.returncode, said.stderr) == (1, "")
    assert f'output.content_hash is "{"c" * 64}" in the report, and "{"b" * 64}" in event 7' in said.stdout
    assert f"and not {'0' * 64}" in said.stdout


def test_a_report_of_another_workspace(shop: Folder, tmp_path: Path) -> None:
    with shop.project() as project:
        (tmp_path / "report.json").write_bytes(to_json(Audits(project).report("doubled", "2025-01-01")))
    other = Folder(tmp_path)
    (tmp_path / "servo.toml").write_text('workspace = "elsewhere"\n')
    other.record_runs(1)
    refused = other.fails(2, "audit", "verify", "report.json")
    assert "default/default" in refused
    assert "default/elsewhere" in refused
    assert "offline" in other.ok("audit", "verify", "report.json", "--offline")


def test_a_ledger_that_was_changed(shop: Folder, tmp_path: Path) -> None:
    """It gives no report, and does not confirm one that was made before."""
    with shop.project() as project:
        report = Audits(project).report("doubled", "2025-01-01")
    shutil.copytree(shop.path, tmp_path, dirs_exist_ok=True)
    with closing(sqlite3.connect(tmp_path / ".servo" / "ledger.db")) as database, database:
        database.execute("UPDATE events SET actor = 'person:bob' WHERE event_type = 'RunRequested'")
    with Folder(tmp_path).project() as project:
        with pytest.raises(LedgerCorrupt, match=r"does not prove shop/doubled 2025-01-01.*chain hash"):
            Audits(project).report("doubled", "2025-01-01")
        [fault] = Audits(project).verify(report).faults
    assert "event 2 of this ledger, whose content is another" in fault.reason


@pytest.mark.parametrize(
    ("partition", "as_of", "problem", "said"),
    [
        ("2025-01-09", None, DataNotFound, "has no data"),
        ("1999-01-01", None, InvalidInput, "1999-01-01"),
        ("2025-01-01", datetime(1999, 1, 1, tzinfo=UTC), NotFound, "nothing was recorded by 1999-01-01"),
        ("2025-01-01", "01JGFJJZ000000000000000000", NotFound, "01JGFJJZ000000000000000000"),
    ],
)
def test_what_there_is_no_report_of(
    shop: Folder, partition: str, as_of: Any, problem: type[ServoError], said: str
) -> None:
    with shop.project() as project, pytest.raises(problem, match=said):
        Audits(project).report("doubled", partition, as_of=as_of)


def test_a_partition_that_the_definition_no_longer_has(shop: Folder, tmp_path: Path) -> None:
    """Its data and events are there: an auditor gets a report, by the canonical key; computed it cannot be."""
    shutil.copytree(shop.path, tmp_path, dirs_exist_ok=True)
    folder, definitions = Folder(tmp_path), tmp_path / "definitions.py"
    before = definitions.read_text()
    with folder.project() as project:
        then = project.ledger.head().event_id
        definitions.write_text(before.replace('start="2025-01-01"', 'start="2025-01-02"'))
        deploy(project, load(project.settings), actor="tester")
    report = json.loads(folder.ok("audit", "report", "doubled", DAYS[0]))
    assert (report["partition"], report["materialization"]) == (DAYS[0], DOUBLED)
    assert [(one["partition"], one["materialization"]) for one in report["inputs"]] == [(DAYS[0], NUMBERS)]
    (tmp_path / "report.json").write_text(json.dumps(report))
    assert "the ledger agrees" in folder.ok("audit", "verify", "report.json", "--ledger")
    assert folder.ok("audit", "report", "doubled", DAYS[0], "--output", "report.pdf")
    # People type it as ever: as of then, when it was one like any other, and now that it was removed.
    for options in (("--as-of", str(then)), ()):
        typed = json.loads(folder.ok("audit", "report", "doubled", "2025-01-01", *options))
        assert typed["materialization"] == DOUBLED
    for unknown in ("date=d:1999-01-01", "date=nonsense"):
        refused = folder.fails(2, "audit", "report", "doubled", unknown)
        assert "shop/doubled: " in refused, refused

    for options in ((), ("--any-code",)):
        refused = folder.fails(2, "reproduce", "doubled", DAYS[0], *options)
        assert (
            "shop/doubled 2025-01-01 cannot be computed: it is not among the partitions that the definition" in refused
        )
        assert "Traceback" not in refused
    # With the definitions that made it checked out again, it is its inputs that are looked for.
    definitions.write_text(before)
    assert f"shop/numbers 2025-01-01 ({NUMBERS})" in folder.fails(3, "reproduce", "doubled", DAYS[0], "--any-code")


def test_reproduces_only_what_can_be(shop: Folder) -> None:
    """What stands against it is said before Spark is started."""
    assert "code version then" in shop.fails(2, "reproduce", "doubled", "2025-01-01")
    with shop.project() as project:
        with pytest.raises(DataNotFound) as gone:
            reproduce(project, "doubled", "2025-01-01", any_code=True)
        assert f"shop/numbers 2025-01-01 ({NUMBERS})" in gone.value.message
        with pytest.raises(DataNotFound, match="has no data"):
            reproduce(project, "total", "2025-01")

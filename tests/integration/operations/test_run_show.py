"""What people are shown of a run: partitions as they type them, and those that were skipped. Without Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from servo.assets.loading import load
from servo.controllers import request
from servo.events import Proposal
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.definitions import PlannedTask, Source
from servo.events.fact import Fact
from servo.events.model import RunFinished, RunPlanned, TaskFinished, TaskStarted
from servo.planning.catalog import Catalog
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.deploying import deploy, recorded_catalog
from servo.runtime.worker.task_log import TaskLog
from tests.support import commands
from tests.support.operating import Runs
from tests.support.terminal import on_terminal

SHOP = """
    from servo import Monthly, Static, asset

    months = Monthly("month", start="2025-01", end="2025-04")

    @asset(partitions=months)
    def orders(context): ...

    @asset(partitions=months * Static("region", ["eu", "us"]))
    def sums(orders): ...
"""
MONTHS = ["month=d:2025-01-01", "month=d:2025-02-01", "month=d:2025-03-01"]
SUMS = [f"{month},region=s:{region}" for month in MONTHS for region in ("ZXU", "dXM")]  # eu, us
RUN = "run_1"
SOURCE = Source(kind="manual", id="person:ann")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    (tmp_path / "definitions.py").write_text(dedent(SHOP))
    (tmp_path / "servo.toml").write_text("namespace = 'shop'\n")
    monkeypatch.chdir(tmp_path)
    with open_workspace(load_settings(tmp_path, {}), create=True) as opened:
        known = deploy(opened, load(opened.settings)).catalog
        for fact in _story(known):
            opened.ledger.append([Proposal(fact=fact, occurred_at=opened.clock(), actor="worker:w")])
        log = TaskLog.open(opened.settings, RUN, "shop/orders", 1)
        with log:
            log.write("boom", level="ERROR", partition=MONTHS[1])
            log.write("hm", level="WARNING", partition="whatever")
        yield opened


def _story(known: Catalog) -> Iterator[Fact]:
    """February fails, so that its two sums are skipped."""
    wanted = {key: known.spec(key).partitions.set_of(keys) for key, keys in _KEYS.items()}
    yield request(known, wanted, run_key="manual:1", run_id=RUN, source=SOURCE)
    yield RunPlanned(
        run_id=RUN,
        tasks=[
            PlannedTask(
                task_key=key,
                asset_id=known.asset_id(key),
                asset_key=key,
                partition_count=len(keys),
                partitions=wanted[key].to_json(),
                upstream=["shop/orders"] if key == "shop/sums" else [],
            )
            for key, keys in _KEYS.items()
        ],
    )
    for key, keys in _KEYS.items():
        bad = Outcome.FAILED if key == "shop/orders" else Outcome.SKIPPED
        outcomes = [bad if "2025-02" in one else Outcome.SUCCEEDED for one in keys]
        errors = ["boom" if one is Outcome.FAILED else None for one in outcomes]
        yield TaskStarted(
            run_id=RUN,
            task_key=key,
            attempt=1,
            asset_id=known.asset_id(key),
            asset_key=key,
            partition_count=len(keys),
            worker="w",
        )
        yield TaskFinished(
            run_id=RUN,
            task_key=key,
            attempt=1,
            asset_id=known.asset_id(key),
            asset_key=key,
            outcome=Outcome.FAILED if key == "shop/orders" else Outcome.SUCCEEDED,
            partitions=PartitionOutcomes(keys=keys, outcome=outcomes, error=errors),
        )
    yield RunFinished(run_id=RUN, outcome=Outcome.FAILED, source=SOURCE, tasks_succeeded=1, tasks_failed=1)


_KEYS = {"shop/orders": MONTHS, "shop/sums": SUMS}


def _said(*command: str) -> str:
    """In a process of its own, where nobody is at a terminal."""
    done = commands.servo(command, cwd=Path.cwd(), env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_shows_what_was_skipped(project: Project) -> None:
    tasks = {task.task_key: task for task in Runs(project).show(RUN).tasks}
    counts = {
        key: [task.partitions_succeeded, task.partitions_failed, task.partitions_skipped] for key, task in tasks.items()
    }
    assert counts == {"shop/orders": [2, 1, 0], "shop/sums": [4, 0, 2]}
    shown = _said("run", "show", RUN).splitlines()
    names = next(line for line in shown if line.startswith("task"))
    assert names.split()[4:7] == ["succeeded", "failed", "skipped"]
    sums = next(line for line in shown if line.startswith("shop/sums"))
    assert sums.split()[3:7] == ["6", "4", "0", "2"]


def _all_fail(known: Catalog) -> Iterator[Fact]:
    """A second run: every month of the orders fails of the same, at a column that is not there."""
    key = "shop/orders"
    wanted = {key: known.spec(key).partitions.set_of(MONTHS)}
    yield request(known, wanted, run_key="manual:2", run_id="run_2", source=SOURCE)
    task = PlannedTask(
        task_key=key,
        asset_id=known.asset_id(key),
        asset_key=key,
        partition_count=3,
        partitions=wanted[key].to_json(),
    )
    yield RunPlanned(run_id="run_2", tasks=[task])
    said = {"run_id": "run_2", "task_key": key, "attempt": 1, "asset_id": known.asset_id(key), "asset_key": key}
    yield TaskStarted(partition_count=3, worker="w", **said)
    error = "definitions.py:7: AnalysisException: a column with the name `amnt` cannot be resolved, and so on"
    outcomes = PartitionOutcomes(keys=MONTHS, outcome=[Outcome.FAILED] * 3, error=[error] * 3)
    yield TaskFinished(outcome=Outcome.FAILED, partitions=outcomes, **said)
    yield RunFinished(
        run_id="run_2",
        outcome=Outcome.FAILED,
        source=SOURCE,
        tasks_succeeded=0,
        tasks_failed=1,
        reason=f"{key}: {error}",
    )


def test_equal_failures_are_one_line_and_runs_fit_a_terminal(project: Project) -> None:
    for fact in _all_fail(deploy(project, load(project.settings)).catalog):
        project.ledger.append([Proposal(fact=fact, occurred_at=project.clock(), actor="worker:w")])
    shown = _said("run", "show", "run_2")
    [line] = [line for line in shown.splitlines() if line.startswith("✗ shop")]
    assert line.startswith("✗ shop/orders: 3 partitions (2025-01..2025-03): definitions.py:7: AnalysisException: a col")
    for columns in (80, 100, 140):
        runs = on_terminal(columns, "run", "list")
        assert max(map(len, runs)) <= columns
        assert len([line for line in runs if re.search(r"run_[12]\b.* \d{4}-\d\d-\d\d \d\d:\d\dZ  ", line)]) == 2, runs
        lines = on_terminal(columns, "run", "show", "run_2")
        assert max(map(len, lines)) <= columns
        [place] = [number for number, line in enumerate(lines) if line.startswith("✗ shop/orders: 3 partitions")]
        said = lines[place].removeprefix("✗ ") + "".join(f" {line.strip()}" for line in lines[place + 1 :])
        assert "a column with the name `amnt` cannot be resolved, and so on" in said, "broken between words"
    assert "not shown: by;" in "".join(on_terminal(60, "run", "list"))


def test_months_are_shown_as_people_type_them(project: Project) -> None:
    shown = _said("run", "show", RUN)
    assert "✗ shop/orders 2025-02: boom" in shown
    assert "2025-02-01" not in shown
    logs = _said("run", "logs", RUN)
    assert "shop/orders 2025-02 boom" in logs
    assert "whatever hm" in logs, "a partition may be called anything in a log"
    label = recorded_catalog(project).label
    assert label("sums", SUMS[2]) == "month=2025-02,region=eu"
    assert label("shop/gone", MONTHS[1]) == "2025-02-01", "nobody knows any more that it was a month"
    assert label("orders", "") == label("orders", None) == ""

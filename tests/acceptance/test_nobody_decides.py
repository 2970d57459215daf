"""Commands that wait where no `servo up` is there: they decide what is theirs to decide, or say who is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from servo.assets.loading import load
from servo.events import Proposal
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.model import TaskFinished, TaskStarted
from servo.runtime import load_settings, open_workspace
from servo.runtime.deploying import deploy
from servo.runtime.loop.control import Control
from tests.acceptance.projects import make_project
from tests.acceptance.support import Folder
from tests.support.operating import Runs

ME = "person:ann"


@pytest.fixture
def shop(tmp_path: Path) -> Folder:
    return make_project(tmp_path)


def test_a_run_is_cancelled_although_nobody_plans(shop: Folder) -> None:
    asked = shop.json("materialize", "numbers", "--partitions", "2025-01-01", "--no-wait")
    done = shop.servo("run", "cancel", asked["run_id"], "--wait")
    assert done.returncode == 0, done
    assert shop.json("run", "show", asked["run_id"])["status"] == "CANCELLED"


def test_a_worker_is_idle_when_all_is_computed_and_says_that_nobody_ends_the_run(shop: Folder) -> None:
    settings = load_settings(shop.path, {})
    with open_workspace(settings, create=True) as project:
        deploy(project, load(settings))
        run = Runs(project).request(["numbers"], partitions="2025-01-01", actor=ME)
        Control(project).step()
        [planned] = Runs(project).progress(run.run_id).tasks
        asset_id = project.reader.query("SELECT asset_id FROM tasks", fresh=True).rows[0][0]
        same = {
            "run_id": run.run_id,
            "task_key": planned.task_key,
            "attempt": 1,
            "asset_id": asset_id,
            "asset_key": planned.asset_key,
        }
        made = PartitionOutcomes(
            keys=["date=d:2025-01-01"], outcome=Outcome.SUCCEEDED, first_materialization_id=project.mint()
        )
        facts = [
            TaskStarted(**same, partition_count=1, worker="gone"),
            TaskFinished(**same, outcome=Outcome.SUCCEEDED, partitions=made, worker="gone"),
        ]
        project.ledger.append([Proposal(fact=fact, occurred_at=project.clock(), actor=ME) for fact in facts])
    done = shop.servo("worker", "--until-idle")
    assert done.returncode == 0, done
    assert "1 run cannot end before somebody decides: start `servo up`" in done.stderr


@pytest.mark.parametrize(
    ("code", "selection", "variables"),
    [
        (3, "nombers@2025-01-01", {}),
        (2, "numbers@2024-12-31", {}),
        (1, "numbers@2025-01-01", {"SERVO_SPARK_MASTER": "spark://localhost:1"}),
        (1, "numbers@2025-01-01", {"SERVO_STORAGE": "/proc/nowhere"}),
    ],
)
def test_what_is_refused_in_a_new_project_leaves_nothing_behind(
    shop: Folder, code: int, selection: str, variables: dict[str, str]
) -> None:
    shop.variables.update(variables)
    before = shop.files()
    refused = shop.fails(code, "materialize", selection)
    assert "(" in refused, "it says what to do"
    assert shop.files() == before

"""What ends a checkpoint, and what does not: deadlines by the clock, newer runs, cancels, two approvers at once.

Everything is real but Spark: what an executor would hand over is written here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from servo.clock import system_clock
from servo.controllers.approvals import Members
from servo.errors import CheckpointNotFound, Conflict, NotAllowed
from servo.events.columns import Outcome
from servo.runtime.checkpoints import Checkpoints
from servo.runtime.control import Control
from tests.chaos.workplace import PATIENCE, Site, site
from tests.integration.test_runs_attempts import Begun, begin

DEFINITIONS = """
from datetime import timedelta

from servo import Approval, Daily, asset

days = Daily("date", start="2025-01-01", end="2025-02-01")


@asset(partitions=days, approval=Approval("finance"))
def solemn(context): ...


@asset(partitions=days, approval=Approval("finance", deadline=timedelta(hours=8)))
def urgent(context): ...


@asset(
    partitions=days,
    approval=Approval("finance", deadline=timedelta(hours=8), on_deadline="escalate", escalate_to="board"),
)
def grave(context): ...
"""
ANNA = "person:anna"


class Clock:
    """Real time, and more where a test says so."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return system_clock() + self.ahead


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path, DEFINITIONS, '[approvals]\nfinance = ["anna", "ben"]\nboard = ["zoe"]') as shop:
        shop.project.clock = Clock()
        yield shop


def stage(shop: Site, asset: str) -> tuple[Begun, str]:
    """A run whose three partitions wait, and the checkpoint that they wait in."""
    begun = begin(shop, asset)
    # In parts: people are asked once all the same.
    for key in begun.keys:
        begun.attempt.commit(begun.made(key, outcome=Outcome.STAGED))
    assert begun.attempt.end(None) is Outcome.STAGED
    [row] = Checkpoints(shop.project).list(run_id=begun.run_id)
    assert (row["status"], row["partition_keys"]) == ("REQUESTED", list(begun.keys))
    return begun, row["checkpoint_id"]


def ahead(shop: Site, **time: float) -> None:
    assert isinstance(shop.project.clock, Clock)
    shop.project.clock.ahead = timedelta(**time)


def settled(shop: Site, begun: Begun) -> str:
    for _ in range(3):
        begun.control.step()
    return shop.runs.progress(begun.run_id).status


def standing(shop: Site, name: str) -> tuple[Any, ...]:
    row = Checkpoints(shop.project).show(name)
    return row["status"], row["decided_by"], row["decision_reason"]


def test_it_expires_at_its_deadline_by_the_clock_of_the_control_loop(shop: Site) -> None:
    begun, name = stage(shop, "urgent")
    ahead(shop, hours=7.99)
    assert settled(shop, begun) == "RUNNING"
    assert 0 < Control(shop.project)._pause() <= 1
    ahead(shop, hours=8.01)
    assert settled(shop, begun) == "FAILED"
    assert shop.runs.progress(begun.run_id).reason == "shop/urgent failed: nobody approved it in time"
    assert standing(shop, name) == ("EXPIRED", "controller:dispatch", None)
    assert begun.current() == []
    with pytest.raises(Conflict, match=r"expired at .*: nobody approved it in time"):
        Checkpoints(shop.project).approve(name, actor=ANNA)


def test_the_deadline_holds_also_where_nobody_was_at_work_when_it_passed(shop: Site) -> None:
    begun, name = stage(shop, "urgent")
    ahead(shop, hours=9)
    with pytest.raises(Conflict, match="expired at"):
        Checkpoints(shop.project).approve(name, actor=ANNA)
    assert begun.current() == []
    assert settled(shop, begun) == "FAILED"


def test_what_is_escalated_waits_for_another_role(shop: Site) -> None:
    begun, name = stage(shop, "grave")
    found = Checkpoints(shop.project)
    with pytest.raises(NotAllowed, match="that is for finance"):
        found.approve(name, actor="person:zoe")
    ahead(shop, hours=9)
    assert settled(shop, begun) == "RUNNING"
    [row] = found.list(status="REQUESTED")
    assert (row["checkpoint_id"], row["escalated_to"]) == (name, "board")
    with pytest.raises(NotAllowed, match="that is for board"):
        found.approve(name, actor=ANNA)
    ahead(shop, days=900)
    assert settled(shop, begun) == "RUNNING"
    found.approve(name, actor="person:zoe")
    assert begun.current() == list(begun.keys)
    assert settled(shop, begun) == "SUCCEEDED"


def test_a_run_that_stages_the_same_partitions_supersedes_it(shop: Site) -> None:
    first, name = stage(shop, "solemn")
    second, newer = stage(shop, "solemn")
    found = Checkpoints(shop.project)
    # Before any control loop has looked …
    with pytest.raises(Conflict, match=f"superseded by {second.run_id}"):
        found.approve(name, actor=ANNA)
    assert [one["superseded_by"] for one in found.show(name)["partitions"]] == [second.run_id] * 3
    # … and after.
    assert settled(shop, first) == "FAILED"
    reason = f"superseded by {second.run_id}"
    assert shop.runs.progress(first.run_id).reason == f"shop/solemn failed: {reason}"
    assert standing(shop, name) == ("SUPERSEDED", "controller:dispatch", reason)
    newest = "SELECT DISTINCT last_attempt_run_id, last_attempt_outcome FROM partition_status"
    assert shop.query(newest) == [(second.run_id, "STAGED")]
    found.approve(newer, actor=ANNA)
    assert settled(shop, second) == "SUCCEEDED"
    assert shop.hashes("solemn") == {
        one["partition_key"]: one["content_hash"] for one in found.show(newer)["partitions"]
    }
    [one] = {row["run_id"] for row in shop.data.materializations("solemn", "2025-01-02")}
    assert one == second.run_id  # the other was never published


def test_cancelling_the_run_ends_it(shop: Site) -> None:
    begun, name = stage(shop, "solemn")
    begun.cancel()
    with pytest.raises(Conflict, match="was cancelled"):
        Checkpoints(shop.project).approve(name, actor=ANNA)
    assert settled(shop, begun) == "CANCELLED"
    assert standing(shop, name) == ("CANCELLED", "controller:dispatch", "the run was cancelled: enough")
    with pytest.raises(Conflict, match=r"ended at .*: the run was cancelled: enough"):
        Checkpoints(shop.project).reject(name, reason="late", actor=ANNA)
    assert begun.current() == []
    assert shop.data.vacuum(dry_run=False) == []
    # Nobody can publish it any more: what was staged goes once its grace is over.
    ahead(shop, days=30)
    assert len(shop.data.vacuum(dry_run=False)) == len(begun.keys)


def test_whoever_is_asked_for_roles_decides_who_may(shop: Site) -> None:
    _, name = stage(shop, "solemn")
    tokens = Checkpoints(shop.project, Members({"finance": ["robot"]}))
    with pytest.raises(NotAllowed):
        tokens.approve(name, actor=ANNA)
    tokens.reject(name.lower()[:24], reason="by a token", actor="robot")
    assert standing(shop, name) == ("REJECTED", "robot", "by a token")
    for unknown in ("", "01ZZ", "' OR 1=1 --"):
        with pytest.raises(CheckpointNotFound):
            tokens.show(unknown)
    assert tokens.list(status="REQUESTED") == []


RACE = """
import sys
from servo.errors import Conflict
from servo.runtime import load_settings, open_workspace
from servo.runtime.checkpoints import Checkpoints

with open_workspace(load_settings()) as project:
    found = Checkpoints(project)
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            decided = found.approve(line.strip(), actor=f"person:{sys.argv[1]}")
            print("won", len(decided.published), flush=True)
        except Conflict as late:
            print("lost", late, flush=True)
"""


def test_of_two_approvers_in_two_processes_one_decides(shop: Site) -> None:
    processes = {}
    for who in ("anna", "ben"):
        processes[who] = subprocess.Popen(
            [sys.executable, "-c", RACE, who],
            cwd=shop.here,
            env=shop.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    try:
        assert [_line(one) for one in processes.values()] == ["ready", "ready"]
        for _ in range(3):
            begun, name = stage(shop, "solemn")
            for one in processes.values():
                assert one.stdin is not None
                one.stdin.write(f"{name}\n")
                one.stdin.flush()
            said = {who: _line(one) for who, one in processes.items()}
            [winner] = [who for who, line in said.items() if line == "won 3"]
            [loser] = said.keys() - {winner}
            assert said[loser].startswith(f"lost checkpoint {name} was approved by person:{winner} at"), said
            assert standing(shop, name)[:2] == ("APPROVED", f"person:{winner}")
            assert settled(shop, begun) == "SUCCEEDED"
            [(published,)] = shop.query(
                f"SELECT count(*) FROM materializations WHERE published_at IS NOT NULL AND run_id = '{begun.run_id}'"
            )
            assert published == 3
    finally:
        for one in processes.values():
            one.communicate(timeout=PATIENCE)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()

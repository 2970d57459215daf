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

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servo.assets.loading import load
from servo.clock import system_clock
from servo.errors import AssetNotFound, CheckpointNotFound, Conflict, DataNotFound, InvalidInput, NotAllowed, TaskError
from servo.events import Proposal
from servo.events.columns import Outcome
from servo.events.model import TaskRetryScheduled
from servo.ledger.leases import Holder
from servo.operations.checkpoints import handlers as deciding
from servo.runtime.deploying import deploy
from servo.runtime.loop.control import Control
from servo.runtime.outside import ProjectOutside
from tests.integration.runtime.test_runs_attempts import Begun, begin, claimed
from tests.support.operating import Checkpoints
from tests.support.workshop import PATIENCE, Workshop, spark_workshop

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


@asset(partitions=Daily("date", start="2024-01-01", end="2025-01-01"), approval=Approval("finance"))
def vast(context): ...
"""
ANNA = "person:anna"


class Clock:
    """Real time, and more where a test says so."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return system_clock() + self.ahead


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with spark_workshop(tmp_path, DEFINITIONS, '[approvals]\nfinance = ["anna", "ben"]\nboard = ["zoe"]') as shop:
        shop.project.clock = Clock()
        yield shop


def stage(shop: Workshop, asset: str) -> tuple[Begun, str]:
    """A run whose three partitions wait, and the checkpoint that they wait in."""
    begun = begin(shop, asset)
    # In parts: people are asked once all the same.
    for key in begun.keys:
        begun.attempt.commit(begun.made(key, outcome=Outcome.STAGED))
    assert begun.attempt.end(None) is Outcome.STAGED
    [row] = Checkpoints(shop.project).list(run_id=begun.run_id)
    assert (row.status, row.partition_keys) == ("REQUESTED", list(begun.keys))
    return begun, row.checkpoint_id


def ahead(shop: Workshop, **time: float) -> None:
    assert isinstance(shop.project.clock, Clock)
    shop.project.clock.ahead = timedelta(**time)


def settled(shop: Workshop, begun: Begun) -> str:
    for _ in range(3):
        begun.control.step()
    return shop.runs.progress(begun.run_id).status


def standing(shop: Workshop, name: str) -> tuple[Any, ...]:
    row = Checkpoints(shop.project).show(name)
    return row.status, row.decided_by, row.decision_reason


def test_it_expires_at_its_deadline_by_the_clock_of_the_control_loop(shop: Workshop) -> None:
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


def test_the_deadline_holds_also_where_nobody_was_at_work_when_it_passed(shop: Workshop) -> None:
    begun, name = stage(shop, "urgent")
    ahead(shop, hours=9)
    with pytest.raises(Conflict, match="expired at"):
        Checkpoints(shop.project).approve(name, actor=ANNA)
    assert begun.current() == []
    assert settled(shop, begun) == "FAILED"


def test_what_is_escalated_waits_for_another_role(shop: Workshop) -> None:
    begun, name = stage(shop, "grave")
    found = Checkpoints(shop.project)
    with pytest.raises(NotAllowed, match="that is for finance"):
        found.approve(name, actor="person:zoe")
    ahead(shop, hours=9)
    assert settled(shop, begun) == "RUNNING"
    [row] = found.list(status="REQUESTED")
    assert (row.checkpoint_id, row.escalated_to) == (name, "board")
    with pytest.raises(NotAllowed, match="that is for board"):
        found.approve(name, actor=ANNA)
    ahead(shop, days=900)
    assert settled(shop, begun) == "RUNNING"
    found.approve(name, actor="person:zoe")
    assert begun.current() == list(begun.keys)
    assert settled(shop, begun) == "SUCCEEDED"


def test_a_run_that_stages_the_same_partitions_supersedes_it(shop: Workshop) -> None:
    first, name = stage(shop, "solemn")
    second, newer = stage(shop, "solemn")
    found = Checkpoints(shop.project)
    # Before any control loop has looked …
    with pytest.raises(Conflict, match=f"superseded by {second.run_id}"):
        found.approve(name, actor=ANNA)
    assert [one.superseded_by for one in found.show(name).partitions] == [second.run_id] * 3
    # … and after.
    assert settled(shop, first) == "FAILED"
    reason = f"superseded by {second.run_id}"
    assert shop.runs.progress(first.run_id).reason == f"shop/solemn failed: {reason}"
    assert standing(shop, name) == ("SUPERSEDED", "controller:dispatch", reason)
    newest = "SELECT DISTINCT last_attempt_run_id, last_attempt_outcome FROM partition_status"
    assert shop.query(newest) == [(second.run_id, "STAGED")]
    found.approve(newer, actor=ANNA)
    assert settled(shop, second) == "SUCCEEDED"
    assert shop.hashes("solemn") == {one.partition_key: one.content_hash for one in found.show(newer).partitions}
    [one] = {row["run_id"] for row in shop.data.materializations("solemn", "2025-01-02")}
    assert one == second.run_id  # the other was never published


def test_cancelling_the_run_ends_it(shop: Workshop) -> None:
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


def _flipped(path: Path, place: int) -> bytes:
    whole = path.read_bytes()
    return whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]


def test_one_byte_that_changed_since_it_was_staged_is_not_approved(shop: Workshop) -> None:
    """In a page of the data, or in the footer, which no checksum of Parquet's covers; the length is as it was."""
    begun, name = stage(shop, "solemn")
    found = Checkpoints(shop.project)
    [_, (file,), _] = [shop.files_of(one.materialization_id) for one in found.show(name).partitions]
    whole, column = file.read_bytes(), pq.read_metadata(file).row_group(0).column(0)
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    page = column.dictionary_page_offset or column.data_page_offset
    for place in (page + column.total_compressed_size - 1, footer + 5, len(whole) - 20):
        file.write_bytes(_flipped(file, place))
        assert len(file.read_bytes()) == len(whole)
        with pytest.raises(DataNotFound, match=rf"{file} is not as it was staged: its bytes have changed") as refused:
            found.approve(name, actor=ANNA)
        assert (refused.value.hint, refused.value.exit_code) == ("reject it, and run it again", 3)
        file.write_bytes(whole)
    assert (standing(shop, name)[0], begun.current()) == ("REQUESTED", [])
    # Another file of the same length, and of the same rows, is not what was staged either.
    other = pa.table({"text": ["date=d:2025-01-09"]})
    pq.write_table(other, file)
    with pytest.raises(DataNotFound, match=file.parent.name):
        found.approve(name, actor=ANNA)
    file.write_bytes(whole)
    found.approve(name, actor=ANNA)
    assert begun.current() == list(begun.keys)


def test_what_was_overtaken_need_not_be_there_for_the_rest_to_be_approved(shop: Workshop) -> None:
    begun, name = stage(shop, "solemn")
    found = Checkpoints(shop.project)
    newer = begin(shop, "solemn", "w2")
    newer.attempt.commit(newer.made(newer.keys[0], outcome=Outcome.STAGED))
    newer.attempt.end(TaskError("the others failed"))
    [first, *rest] = found.show(name).partitions
    assert (first.superseded_by, [one.superseded_by for one in rest]) == (newer.run_id, [None, None])
    [file] = shop.files_of(first.materialization_id)
    file.write_bytes(_flipped(file, 8))
    decided = found.approve(name, actor=ANNA)
    assert [one["partition_key"] for one in decided.published] == list(begun.keys[1:])


def test_checkpoints_of_an_asset_are_found_by_what_it_is_called_now(shop: Workshop) -> None:
    _, name = stage(shop, "solemn")
    _, other = stage(shop, "urgent")
    found = Checkpoints(shop.project)
    renamed = DEFINITIONS.replace(
        '@asset(partitions=days, approval=Approval("finance"))\ndef solemn',
        '@asset(partitions=days, approval=Approval("finance"), renamed_from="solemn")\ndef merry',
    )
    assert renamed != DEFINITIONS
    (shop.path / "definitions.py").write_text(renamed)
    deploy(shop.project, load(shop.project.settings))
    assert [row.checkpoint_id for row in found.list(asset="merry")] == [name]
    assert [row.checkpoint_id for row in found.list(asset="urgent")] == [other]
    assert [row.checkpoint_id for row in found.list(asset="solemn")] == [name]  # by every name that it had
    with pytest.raises(AssetNotFound):
        found.list(asset="nobody")
    _, newer = stage(shop, "merry")
    assert {row.checkpoint_id: row.asset_key for row in found.list(asset="merry")} == {
        newer: "shop/merry",
        name: "shop/merry",
    }


def test_a_run_of_many_partitions_asks_once_for_each_of_its_tasks(shop: Workshop) -> None:
    """A task takes a hundred partitions at most: more than that are several checkpoints, each decided by itself."""
    shop.project.leases.beat(Holder.here("worker", "w1"), 1000)
    run_id = shop.request("vast", partitions="2024-01-01..2024-04-19")  # 110 days
    control = Control(shop.project)
    control.step()
    for _ in range(2):
        begun = claimed(shop, run_id, control, "w1")
        begun.attempt.commit(begun.made(*begun.keys, outcome=Outcome.STAGED))
        assert begun.attempt.end(None) is Outcome.STAGED
        control.step()
    found = Checkpoints(shop.project)
    rows = found.list(run_id=run_id)
    assert {(row.task_key, len(row.partition_keys)) for row in rows} == {
        ("shop/vast#1", 100),
        ("shop/vast#2", 10),
    }
    for row, status in zip(rows, ("RUNNING", "SUCCEEDED"), strict=True):
        assert len(found.approve(row.checkpoint_id, actor=ANNA).published) == len(row.partition_keys)
        assert settled(shop, begun) == status


def test_whoever_is_asked_for_roles_decides_who_may(shop: Workshop) -> None:
    _, name = stage(shop, "solemn")
    shop.project.settings = msgspec.structs.replace(shop.project.settings, approvals={"finance": ["robot"]})
    tokens = Checkpoints(shop.project)
    with pytest.raises(NotAllowed):
        tokens.approve(name, actor=ANNA)
    tokens.reject(name.lower()[:24], reason="by a token", actor="robot")
    assert standing(shop, name) == ("REJECTED", "robot", "by a token")
    with pytest.raises(InvalidInput):
        tokens.show("")
    for unknown in ("01ZZ", "' OR 1=1 --"):
        with pytest.raises(CheckpointNotFound):
            tokens.show(unknown)
    assert tokens.list(status="REQUESTED") == []


RACE = """
import sys
from servo.errors import Conflict
from servo.operations.checkpoints.requests import ApproveCheckpoint
from servo.runtime import load_settings, open_workspace
from servo.runtime.performer import Performer
from servo.runtime.outside import FolderUserCode

with open_workspace(load_settings()) as project:
    performer = Performer(project, FolderUserCode(project))
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            request = ApproveCheckpoint(checkpoint_id=line.strip())
            decided = performer.change(request, actor=f"person:{sys.argv[1]}").told
            print("won", len(decided.published), flush=True)
        except Conflict as late:
            print("lost", late, flush=True)
"""


def test_of_two_approvers_in_two_processes_one_decides(shop: Workshop) -> None:
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


def test_who_rejects_in_the_same_words_a_moment_later_is_told_who_was_first(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, name = stage(shop, "solemn")
    real = deciding.rejected

    def overtaken(checkpoint: Any, *, reason: str) -> Any:
        monkeypatch.setattr(deciding, "rejected", real)
        Checkpoints(shop.project).reject(name, reason="off", actor=ANNA)
        return real(checkpoint, reason=reason)

    monkeypatch.setattr(deciding, "rejected", overtaken)
    with pytest.raises(Conflict, match="was rejected by person:anna"):
        Checkpoints(shop.project).reject(name, reason="off", actor="person:ben")
    assert standing(shop, name)[:2] == ("REJECTED", ANNA)


def test_nothing_is_approved_after_its_deadline_whatever_else_its_run_records(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, name = stage(shop, "urgent")
    ahead(shop, hours=9)
    real = ProjectOutside._append

    def overtaken(outside: ProjectOutside, decision: Any) -> None:
        monkeypatch.setattr(ProjectOutside, "_append", real)
        now = shop.project.clock()
        fact = TaskRetryScheduled(run_id=begun.run_id, task_key="other", attempt=9, retry_at=now)
        shop.project.ledger.append([Proposal(fact=fact, occurred_at=now, actor="worker:x")])
        real(outside, decision)

    monkeypatch.setattr(ProjectOutside, "_append", overtaken)
    with pytest.raises(Conflict):
        Checkpoints(shop.project).approve(name, actor=ANNA)
    assert standing(shop, name)[0] == "EXPIRED"

"""Approvals: who may decide, what is published, and what ends a checkpoint without a decision."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from servo.assets.spec import Approval
from servo.controllers import Board, decide, next_wake
from servo.controllers.approvals import (
    Checkpoint,
    Members,
    approved,
    content,
    digest,
    rejected,
    require_allowed,
    require_hash,
    require_open,
    stretches,
)
from servo.errors import Conflict, InvalidInput, NotAllowed
from servo.events.columns import InputPartitions, Outcome, PartitionOutcomes
from servo.events.model import (
    CheckpointExpired,
    CheckpointRequested,
    MaterializationPublished,
    PartitionsMarked,
    RunCancelRequested,
    TaskFinished,
)
from servo.ids import ulid_offset
from servo.partitions import Static
from servo.planning.deployed import definition_of, spec_of
from tests.support.catalogs import asset_id, catalog, spec
from tests.support.recording import again, at
from tests.support.runs import Story

EU, US, UK = "region=s:ZXU", "region=s:dXM", "region=s:dWs"
REGIONS = Static("region", ["eu", "uk", "us"])
SHOP = catalog(spec("orders", REGIONS), spec("revenue", REGIONS, ["orders"]))
ORDERS, ALL = asset_id("shop/orders"), [EU, US, UK]
STAGED, GOOD = Outcome.STAGED, Outcome.SUCCEEDED
FIRST = "01JHMN00000000000000000M01"
LATER = "01JHMN00000000000000000M90"


def staged(run: str, keys: list[str], first: str = FIRST, **asked: Any) -> list[Any]:
    """What an attempt records of what it staged."""
    partitions = PartitionOutcomes(
        keys=keys,
        outcome=STAGED,
        first_materialization_id=first,
        rows=[number + 1 for number, _ in enumerate(keys)],
        content_hash=[f"hash of {key} by {run}" for key in keys],
    )
    common = {"run_id": f"run_{run}", "task_key": "shop/orders", "asset_id": ORDERS, "asset_key": "shop/orders"}
    finished = TaskFinished(attempt=1, outcome=STAGED, partitions=partitions, code_version="7", inputs=INPUTS, **common)
    asked = {"approvers": "finance", **common, **asked}
    return [finished, CheckpointRequested(checkpoint_id=f"c_{run}", name="c", partitions=partitions, **asked)]


INPUTS = [
    InputPartitions(
        asset_id=asset_id("shop/raw"),
        asset_key="shop/raw",
        keys=ALL,
        materialization_ids=[ulid_offset(FIRST, 500 + number) for number in range(3)],
    ),
    InputPartitions(
        asset_id=asset_id("shop/rates"),
        asset_key="shop/rates",
        keys=["", EU],
        materialization_ids=[ulid_offset(FIRST, 600), ulid_offset(FIRST, 601)],
        edges=[[0, 1], [0], []],
    ),
]


def waiting(run: str = "a", keys: list[str] | None = None, story: Story | None = None, **asked: Any) -> Story:
    story = story or Story(SHOP)
    some = SHOP.spec("shop/orders").partitions.set_of(keys or ALL)
    story.planned(run, {"shop/orders": some, "shop/revenue": some})
    story.started(run, "shop/orders")
    first = asked.pop("first", FIRST)
    story.happens(*staged(run, keys or ALL, first, **asked), actor="worker:w1")
    return story


def the(story: Story, run: str = "a") -> Checkpoint:
    checkpoint = story.board.checkpoints.get(f"c_{run}")
    assert checkpoint is not None
    return checkpoint


def settle(story: Story) -> list[Any]:
    """Everything that follows by itself."""
    facts: list[Any] = []
    while decisions := decide(story.board, SHOP, story.now):
        facts += story.decided(decisions)
    return facts


# ── who ──────────────────────────────────────────────────────────────────────────────────────────────────────────

FINANCE = Members({"finance": ["anna", "ben"]})


def allowed(
    actor: str, roles: Members = FINANCE, *, approve: bool = True, four_eyes: bool = False, **more: Any
) -> bool:
    story = waiting(approvers="finance", four_eyes=four_eyes)
    checkpoint = msgspec.structs.replace(the(story), **more)
    try:
        require_allowed(checkpoint, actor, roles, requested_by="person:anna", approve=approve)
    except NotAllowed:
        return False
    return True


def test_who_may_decide() -> None:
    assert allowed("person:ben")
    assert allowed("ben")  # a token of that name
    assert not allowed("person:eve")
    assert not allowed("eve", approve=False)
    assert not allowed("controller:ben")
    # Nobody is named: whoever can write the ledger may.
    assert allowed("person:eve", Members({"others": []}))
    assert not allowed("person:eve", Members({"finance": []}))


def test_four_eyes_are_not_those_of_who_asked_for_the_run() -> None:
    assert allowed("person:anna")
    assert not allowed("person:anna", four_eyes=True)
    assert not allowed("anna", four_eyes=True)
    assert not allowed("person:anna", Members(), four_eyes=True)
    assert allowed("person:anna", four_eyes=True, approve=False)  # to refuse it is hers too
    assert allowed("person:ben", four_eyes=True)


def test_what_was_handed_on_is_for_those_it_was_handed_to() -> None:
    both = Members({"finance": ["anna", "ben"], "cfo": ["zoe"]})
    assert not allowed("person:zoe", both)
    assert allowed("person:zoe", both, escalated_to="cfo")
    assert not allowed("person:ben", both, escalated_to="cfo")
    # Waiting must not make it anybody's.
    assert not allowed("person:eve", escalated_to="cfo")
    assert allowed("person:ben", escalated_to="cfo")
    assert allowed("person:eve", Members(), escalated_to="cfo")


# ── approving ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_published_is_what_was_staged() -> None:
    story = waiting()
    finished = staged("a", ALL)[0]
    decided, published = approved(the(story), finished, reason="fine", publication_ids=["p"])
    assert (decided.decision, decided.reason) == ("APPROVED", "fine")
    assert isinstance(published, MaterializationPublished)
    assert published.partitions == msgspec.structs.replace(finished.partitions, outcome=GOOD)
    assert (published.inputs, published.code_version) == (finished.inputs, "7")
    assert (published.checkpoint_id, published.run_id, published.task_key) == ("c_a", "run_a", "shop/orders")
    assert story.run("a").parked
    story.happens(decided, published, actor="person:ben")
    assert not story.run("a").parked  # nobody waits for a person any more
    [done] = settle(story)
    assert (done.outcome, story.run("a").tasks["shop/revenue"].shown) == (GOOD, "READY")
    assert len(story.board.checkpoints) == 0


def test_a_rejection_says_why() -> None:
    story = waiting()
    with pytest.raises(InvalidInput):
        rejected(the(story), reason=" ")
    story.happens(*rejected(the(story), reason="odd"))
    failed, skipped, end = settle(story)
    assert (failed.outcome, failed.error) == (Outcome.FAILED, "its approval was refused: odd")
    assert (skipped.task_key, skipped.outcome) == ("shop/revenue", Outcome.SKIPPED)
    assert end.outcome is Outcome.FAILED


def test_the_hash_is_that_of_what_would_be_published() -> None:
    alone, many = the(waiting(keys=[EU])), the(waiting())
    assert digest(content(alone)) == f"hash of {EU} by a"
    require_hash(alone, f"hash of {EU} by a")
    whole = digest(content(many))
    assert len(whole) == 64
    assert whole == digest(list(reversed(content(many))))
    require_hash(many, whole)
    less = msgspec.structs.replace(many, overtaken={US: "run_b"})
    with pytest.raises(Conflict, match="c_a holds"):
        require_hash(less, whole)


# ── superseded ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_newer_run_supersedes_what_waits() -> None:
    story = waiting()
    waiting("b", story=story, first=LATER)
    task = story.run("a").tasks["shop/orders"]
    assert (task.staged, task.rejected) == (set(), set(ALL))
    with pytest.raises(Conflict, match="superseded by run_b"):
        require_open(the(story), story.run("a"))
    over, failed, skipped, end = settle(story)
    assert (over.checkpoint_id, over.outcome, over.reason) == ("c_a", "SUPERSEDED", "superseded by run_b")
    assert (failed.outcome, failed.error) == (Outcome.FAILED, "superseded by run_b")
    # The newest attempt at these partitions is that of the other run: this one says nothing of theirs.
    assert failed.partitions == PartitionOutcomes(keys=sorted(ALL), outcome=[Outcome.SKIPPED] * 3, error=[None] * 3)
    assert (skipped.outcome, end.outcome) == (Outcome.SKIPPED, Outcome.FAILED)
    assert [one.checkpoint_id for one in story.board.checkpoints] == ["c_b"]
    # Whoever begins to look only now, or hears everything twice, sees the same.
    assert Board().take(story.history()).runs == story.board.runs
    late = Board(position=story.run("b").position - 1).take(story.history())
    assert late.runs == story.board.runs


def test_what_a_newer_run_leaves_can_be_approved() -> None:
    story = waiting()
    waiting("b", [US], story, first=LATER)
    checkpoint = the(story)
    assert (checkpoint.left, stretches(checkpoint)) == ([EU, UK], [range(1), range(2, 3)])
    require_open(checkpoint, story.run("a"))
    assert settle(story) == []
    finished = staged("a", ALL)[0]
    _, eu, uk = approved(checkpoint, finished, reason=None, publication_ids=["p1", "p2"])
    assert isinstance(eu, MaterializationPublished)
    assert isinstance(uk, MaterializationPublished)
    assert (eu.partitions.keys, eu.partitions.materialization_ids(), eu.partitions.rows) == ([EU], [FIRST], [1])
    assert (uk.partitions.keys, uk.partitions.materialization_ids()) == ([UK], [ulid_offset(FIRST, 2)])
    assert [(one.asset_key, one.keys, one.edges) for one in eu.inputs] == [
        ("shop/raw", [EU], None),
        ("shop/rates", ["", EU], [[0, 1]]),
    ]
    assert [(one.asset_key, one.keys, one.edges) for one in uk.inputs] == [("shop/raw", [UK], None)]
    assert uk.inputs[0].materialization_ids == [ulid_offset(FIRST, 502)]
    story.happens(*approved(checkpoint, finished, reason=None, publication_ids=["p1", "p2"]))
    [failed] = settle(story)
    assert (failed.outcome, failed.partitions.keys, failed.error) == (Outcome.FAILED, [US], "superseded by run_b")
    assert failed.partitions.outcomes() == [Outcome.SKIPPED]
    # What reads the two goes on, what reads the third does not.
    task = story.run("a").tasks["shop/orders"]
    assert (task.succeeded, task.failed, task.skipped) == ({EU, UK}, set(), {US})
    assert story.run("a").tasks["shop/revenue"].shown == "READY"
    assert the(story, "b").left == [US]


def test_what_is_published_otherwise_supersedes_too_unless_it_is_an_old_story() -> None:
    def made(key: str, first: str | None) -> PartitionOutcomes:
        return PartitionOutcomes(keys=[key], first_materialization_id=first)

    def published(key: str, first: str) -> MaterializationPublished:
        return MaterializationPublished(
            publication_id=f"{key}{first}", asset_id=ORDERS, asset_key="shop/orders", partitions=made(key, first)
        )

    story = waiting()
    story.happens(published(EU, ulid_offset(FIRST, -1)))
    assert the(story).left == ALL
    story.happens(published(EU, LATER))
    assert the(story).left == [US, UK]
    mark = {"asset_id": ORDERS, "asset_key": "shop/orders"}
    story.happens(PartitionsMarked(mark_id="1", mark="FROZEN", partitions=made(US, LATER), **mark))
    assert the(story).left == [US, UK]
    story.happens(PartitionsMarked(mark_id="2", mark="MATERIALIZED", partitions=made(US, LATER), **mark))
    assert the(story).left == [UK]
    # A run without approval, asked for before this board began to look.
    finished = TaskFinished(run_id="run_old", task_key="t", attempt=1, outcome=GOOD, partitions=made(UK, LATER), **mark)
    repeated = msgspec.structs.replace(finished, partitions=made(UK, ulid_offset(FIRST, -1)), attempt=2)
    story.happens(repeated)
    assert the(story).left == [UK]
    story.happens(finished)
    assert the(story).left == []


def test_what_is_told_again_long_after_it_was_decided_opens_nothing() -> None:
    story = waiting()
    asked = story.history()[-1]
    story.happens(*rejected(the(story), reason="odd"))
    story.board.take([again(asked, story.history())])
    assert len(story.board.checkpoints) == 0


# ── by itself ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_expires_at_the_deadline_and_not_before() -> None:
    story = waiting(deadline=at(60))
    assert next_wake(story.board, story.now) == at(60)
    story.minute = 59.999
    assert decide(story.board, SHOP, story.now) == []
    story.minute = 60
    expired, failed, _, end = settle(story)
    assert expired == CheckpointExpired(checkpoint_id="c_a")
    assert (failed.outcome, failed.error, end.outcome) == (
        Outcome.FAILED,
        "nobody approved it in time",
        Outcome.FAILED,
    )
    assert next_wake(story.board, story.now) is None


def test_what_is_escalated_waits_for_another_role_as_long_as_it_takes() -> None:
    story = waiting(deadline=at(60), on_deadline="escalate", escalate_to="cfo", approvers="finance")
    story.minute = 61
    [handed_on] = settle(story)
    assert handed_on == CheckpointExpired(checkpoint_id="c_a", escalated_to="cfo")
    assert (the(story).escalated_to, the(story).deadline) == ("cfo", None)
    story.minute = 10_000
    assert settle(story) == []
    assert next_wake(story.board, story.now) is None
    # It can still be superseded, although it was heard of at its deadline before.
    waiting("b", story=story, first=LATER)
    assert settle(story)[0].outcome == "SUPERSEDED"


def test_a_cancelled_run_has_nothing_left_to_decide() -> None:
    story = waiting(deadline=at(1_000))
    story.happens(RunCancelRequested(run_id="run_a", reason="enough"))
    with pytest.raises(Conflict, match="run_a was cancelled"):
        require_open(the(story), story.run("a"))
    over, *_, end = settle(story)
    assert (over.outcome, over.reason, end.outcome) == (
        "CANCELLED",
        "the run was cancelled: enough",
        Outcome.CANCELLED,
    )
    assert (len(story.board.checkpoints), story.board.runs) == (0, {})


def test_an_approval_survives_its_deployment() -> None:
    for approval in (
        Approval("finance", four_eyes=True),
        Approval("finance", deadline=at(1) - at(0), on_deadline="escalate", escalate_to="cfo"),
    ):
        declared = spec("orders", REGIONS, approval=approval)
        assert spec_of(definition_of(declared, {declared.key: ORDERS})).approval == approval
    with pytest.raises(InvalidInput, match="names nobody"):
        Approval("finance", escalate_to="")

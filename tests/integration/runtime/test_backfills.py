"""Backfills from request to end, with real control loops and workers: who decides what when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from servo.cli.backfill_progress import at_rest, outcome
from servo.errors import BackfillConflict, Conflict, NotAllowed
from servo.events import decode
from servo.events.automation import BackfillChunkPlanned, BackfillCreated
from servo.events.model import RunCancelRequested, RunFinished, RunRequested, TaskFinished, TaskStarted
from servo.execution.protocol import Order
from servo.partitions import PartitionKey
from servo.ui.backfill import lines, to_retry
from tests.support.idle import IdleExecutor, at_work
from tests.support.operating import Checkpoints
from tests.support.questions import Audits
from tests.support.workshop import ME, Workshop, deployed_workshop

DAYS = """
from servo import Daily, Monthly, asset

days = Daily("date", start="2025-01-01", end="2025-04-01")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days)
def orders(raw): ...

@asset(partitions=days)
def refunds(raw): ...

@asset(partitions=Monthly("month", start="2025-01-01", end="2025-04-01"))
def report(orders, refunds): ...
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with deployed_workshop(tmp_path, DAYS) as found:
        yield found


def active_at_most(shop: Workshop, backfill_id: str) -> int:
    """The most chunks of a backfill that were planned and not ended, over the whole history."""
    active: set[str] = set()
    most = 0
    for event in shop.events():
        fact = decode(event)
        if isinstance(fact, BackfillChunkPlanned) and fact.backfill_id == backfill_id:
            active.add(fact.run_id)
        elif isinstance(fact, RunFinished):
            active.discard(fact.run_id)
        most = max(most, len(active))
    return most


def planned(shop: Workshop, backfill_id: str) -> list[int]:
    return [fact.chunk_index for fact in shop.facts(BackfillChunkPlanned) if fact.backfill_id == backfill_id]


def test_thirty_one_days_are_four_chunks(shop: Workshop) -> None:
    made = shop.create("raw", start="2025-01-01", end="2025-01-31", chunk_size=10)
    with at_work(shop):
        tree = shop.ended(made.name)
    assert (tree.root.state, tree.partitions, tree.succeeded, tree.percent) == ("SUCCEEDED", 31, 31, 100.0)
    assert tree.root.chunks == {"SUCCEEDED": 4}
    counts = [fact.partition_count for fact in shop.facts(BackfillChunkPlanned)]
    assert counts == [10, 10, 10, 1]
    [created] = shop.facts(BackfillCreated)
    assert created.selector["range"] == {"from": "date=d:2025-01-01", "to": "date=d:2025-01-31"}
    requests = {fact.run_id: fact for fact in shop.facts(RunRequested)}
    for chunk in shop.facts(BackfillChunkPlanned):
        assert chunk.run_key == f"backfill:{made.backfill_id}:chunk:{chunk.chunk_index}"
        assert requests[chunk.run_id].request_fingerprint == chunk.request_fingerprint


def test_never_more_than_the_limit_though_three_decide(shop: Workshop) -> None:
    made = shop.create("raw", start="2025-01-01", end="2025-01-10", chunk_size=3, concurrency=2)
    with at_work(shop, controls=3, workers=2):
        tree = shop.ended(made.name)
    assert tree.root.state == "SUCCEEDED"
    assert planned(shop, made.backfill_id) == [0, 1, 2, 3]
    assert active_at_most(shop, made.backfill_id) == 2


def test_the_same_request_is_one_backfill(shop: Workshop) -> None:
    asked = {"start": "2025-01-01", "end": "2025-01-04", "include_upstream": True}
    first = shop.create("orders", request_id="r1", **asked)
    again = shop.create("orders", request_id="r1", **asked)
    assert (again.backfill_id, again.duplicate, first.duplicate) == (first.backfill_id, True, False)
    assert (again.jobs, again.total_partitions) == (first.jobs, first.total_partitions)
    assert len(shop.facts(BackfillCreated)) == 2
    with pytest.raises(Conflict, match="used for another request"):
        shop.create("orders", request_id="r1", start="2025-01-01", end="2025-01-05")


def test_paused_in_the_middle_it_resumes_with_exactly_the_rest(shop: Workshop) -> None:
    begun, go_on = Event(), Event()

    def wait(_: Order) -> None:
        begun.set()
        go_on.wait(60)

    executor = IdleExecutor(works=wait, fails=lambda _, key: key == "date=d:2025-01-02")
    made = shop.create("raw", start="2025-01-01", end="2025-01-10", chunk_size=2, concurrency=1)
    with at_work(shop, executor):
        assert begun.wait(600)
        version = shop.tree(made.name).root.state_version
        with pytest.raises(BackfillConflict, match=f"is at version {version}, not at {version + 5}"):
            shop.backfills.pause(made.name, expected_version=version + 5, actor=ME)
        paused = shop.backfills.pause(made.name, expected_version=version, reason="busy", actor=ME)
        assert (paused.state, paused.state_version) == ("PAUSED", version + 1)
        go_on.set()
        shop.until(lambda: not shop.tree(made.name).root.running, "what ran has finished")
        root = shop.tree(made.name).root
        assert (root.display_state, root.succeeded, root.failed) == ("PAUSED_WITH_FAILURES", 1, 1)
        assert planned(shop, made.backfill_id) == [0]
        position = shop.project.ledger.head().position
        shop.until(lambda: not shop.project.ledger.head(beyond=position, timeout=2.0).position > position, "rest", 5)
        shop.backfills.resume(made.name, actor=ME)
        tree = shop.ended(made.name)
    assert (tree.root.state, tree.succeeded, tree.failed) == ("FAILED", 9, 1)
    assert planned(shop, made.backfill_id) == [0, 1, 2, 3, 4]
    with pytest.raises(BackfillConflict, match="has ended"):
        shop.backfills.resume(made.name, actor=ME)


def test_resuming_is_shown_until_a_chunk_starts(shop: Workshop) -> None:
    made = shop.create("raw", start="2025-01-01", end="2025-01-10")
    shop.backfills.pause(made.name, actor=ME)
    assert shop.tree(made.name).root.display_state == "PAUSED"
    shop.backfills.resume(made.name, actor=ME)
    assert shop.tree(made.name).root.display_state == "RESUMING"
    with at_work(shop):
        assert shop.ended(made.name).root.display_state == "SUCCEEDED"


def test_cancelled_in_the_middle_what_is_done_stays(shop: Workshop) -> None:
    begun, go_on = Event(), Event()

    def wait(order: Order) -> None:
        if "date=d:2025-01-03" in order.keys:
            begun.set()
            go_on.wait(60)

    made = shop.create("raw", start="2025-01-01", end="2025-01-10", chunk_size=2, concurrency=1)
    with at_work(shop, IdleExecutor(works=wait)):
        assert begun.wait(600)
        cancelled = shop.backfills.cancel(made.name, reason="enough", actor=ME)
        assert (cancelled.state, cancelled.jobs, cancelled.runs) == ("CANCELLED", 1, 1)
        go_on.set()
        shop.until(lambda: len(shop.facts(RunFinished)) == 2, "its run has ended")
        root = shop.tree(made.name).root
    assert (root.state, root.succeeded, root.state_reason) == ("CANCELLED", 2, "enough")
    assert planned(shop, made.backfill_id) == [0, 1]
    with pytest.raises(BackfillConflict, match="no partition of"):
        shop.backfills.retry_failed(made.name, actor=ME)


def test_only_what_failed_is_retried(shop: Workshop) -> None:
    poison = {"date=d:2025-01-02", "date=d:2025-01-07", "date=d:2025-01-08"}
    made = shop.create("raw", start="2025-01-01", end="2025-01-10", chunk_size=5)
    with at_work(shop, IdleExecutor(fails=lambda _, key: key in poison)):
        tree = shop.ended(made.name)
        assert (tree.root.state, tree.succeeded, tree.failed) == ("FAILED", 7, 3)
        assert [(one.chunk_index, one.failed) for one in tree.failures] == [(0, 1), (1, 2)]
        poison.discard("date=d:2025-01-02")
        retry = shop.backfills.retry_failed(made.name, request_id="again", actor=ME)
        same = shop.backfills.retry_failed(made.name, request_id="again", actor=ME)
        assert (retry.total_partitions, same.backfill_id, same.duplicate) == (3, retry.backfill_id, True)
        second = shop.ended(retry.name)
        assert (second.root.state, second.succeeded, second.failed) == ("FAILED", 1, 2)
        assert second.root.retry_of == made.backfill_id
        poison.clear()
        third = shop.backfills.retry_failed(retry.name, actor=ME)
        assert shop.ended(third.name).root.state == "SUCCEEDED"
        with pytest.raises(BackfillConflict, match="was made since by a retry"):
            shop.backfills.retry_failed(retry.name, actor=ME)
    [_, first_again, last] = shop.facts(BackfillCreated)
    assert (first_again.parent_backfill_id, last.parent_backfill_id) == (made.backfill_id, retry.backfill_id)
    assert last.selector["range"] == {"from": "date=d:2025-01-07", "to": "date=d:2025-01-08"}
    asked = [fact for fact in shop.facts(RunRequested) if fact.source.id == third.backfill_id]
    assert len(asked) == 1


def test_nothing_starts_before_what_it_reads_is_there(shop: Workshop) -> None:
    made = shop.create("report", start="2025-01", end="2025-02", include_upstream=True, max_upstream_depth=-1)
    assert set(made.jobs) == {"shop/raw", "shop/orders", "shop/refunds"}
    assert made.total_partitions == 59 * 3 + 2
    before = shop.tree(made.name)
    assert before.root.display_state == "WAITING_UPSTREAM"
    assert sorted((job.assets[0], job.level) for job in before.jobs) == [
        ("shop/orders", 1),
        ("shop/raw", 0),
        ("shop/refunds", 1),
        ("shop/report", 2),
    ]
    with at_work(shop, controls=2, workers=2):
        tree = shop.ended(made.name)
    assert {job.state for job in tree.jobs} == {"SUCCEEDED"}
    require_order(shop)


def require_order(shop: Workshop) -> None:
    """No partition was begun before every upstream partition of its mapping was published."""
    reads = {"shop/raw": (), "shop/orders": ("shop/raw",), "shop/refunds": ("shop/raw",)}
    reads["shop/report"] = ("shop/orders", "shop/refunds")
    there: dict[str, set[str]] = {key: set() for key in reads}
    begun_with: dict[tuple[str, int], dict[str, set[str]]] = {}
    for event in shop.events():
        fact = decode(event)
        if isinstance(fact, TaskStarted):
            begun_with[fact.run_id, fact.attempt] = {key: set(some) for key, some in there.items()}
        elif isinstance(fact, TaskFinished):
            for key in fact.partitions.keys:
                for upstream in reads[fact.asset_key]:
                    found = begun_with[fact.run_id, fact.attempt][upstream]
                    assert days_of(key) <= found, (fact.asset_key, key, upstream)
            there[fact.asset_key].update(fact.partitions.keys)


def days_of(key: str) -> set[str]:
    if key.startswith("date="):
        return {key}
    month = str(PartitionKey.parse(key).values["month"])[:7]
    return {f"date=d:{month}-{day:02}" for day in range(1, 32 if month == "2025-01" else 29)}


def test_a_failed_upstream_blocks_until_its_retry_succeeds(shop: Workshop) -> None:
    poison = {"date=d:2025-01-05"}
    executor = IdleExecutor(fails=lambda order, key: order.task_key == "shop/raw" and key in poison)
    made = shop.create("report", start="2025-01", end="2025-01", include_upstream=True, max_upstream_depth=2)
    with at_work(shop, executor):
        shop.until(lambda: shop.tree(made.name).root.display_state == "BLOCKED_UPSTREAM_FAILED", "it is blocked")
        tree = shop.tree(made.name)
        raw = next(job for job in tree.jobs if job.assets == ["shop/raw"])
        assert (tree.root.state, raw.state, tree.root.blocked_by) == ("WAITING_UPSTREAM", "FAILED", [raw.name])
        assert not tree.over
        poison.clear()
        retry = shop.backfills.retry_failed(raw.name, actor=ME)
        tree = shop.ended(made.name)
    assert tree.root.state == "SUCCEEDED"
    assert {job.name: job.state for job in tree.jobs if job.backfill_id == retry.backfill_id} == {
        retry.name: "SUCCEEDED"
    }
    require_order(shop)


def test_a_retry_is_part_of_the_tree_that_it_repairs(shop: Workshop) -> None:
    poison = {"date=d:2025-01-05", "date=d:2025-01-06"}
    made = shop.create("raw", start="2025-01-01", end="2025-01-10", chunk_size=5, name="days")
    with at_work(shop, IdleExecutor(fails=lambda _, key: key in poison)):
        shop.ended(made.name)
        assert [job.name for job in to_retry(shop.tree("days").jobs)] == ["days"]
        poison.discard("date=d:2025-01-05")
        shop.backfills.retry_failed("days", actor=ME)
        tree = shop.ended("days")
        assert [job.name for job in tree.jobs] == ["days", "days-retry"]
        assert (tree.succeeded, tree.failed) == (9, 1)
        assert [job.name for job in to_retry(tree.jobs)] == ["days-retry"]
        poison.clear()
        shop.backfills.retry_failed("days-retry", actor=ME)
        tree = shop.ended("days")
    assert (tree.root.state, tree.root.display_state) == ("FAILED", "REPAIRED")
    assert (tree.succeeded, tree.failed, tree.percent) == (10, 0, 100.0)
    assert to_retry(tree.jobs) == []
    said = ["".join(span.text for span in line) for line in lines(tree, 200)]
    assert said[1] == "3 chunks failed, and a retry has made the rest since"
    assert not [line for line in said if "retry-failed" in line]
    [listed] = shop.backfills.list()
    assert [job.name for job in listed.jobs] == ["days", "days-retry", "days-retry-retry"]


def test_what_blocks_a_root_is_named_to_who_would_retry_it(shop: Workshop) -> None:
    executor = IdleExecutor(fails=lambda order, _: order.task_key == "shop/raw")
    made = shop.create("orders", start="2025-01-01", end="2025-01-02", include_upstream=True, name="late")
    with at_work(shop, executor):
        shop.until(lambda: shop.tree(made.name).root.display_state == "BLOCKED_UPSTREAM_FAILED", "it is blocked")
        with pytest.raises(BackfillConflict, match="late is WAITING_UPSTREAM: there is nothing to retry") as raised:
            shop.backfills.retry_failed("late", actor=ME)
    assert raised.value.hint == "retry what it waits for: late.raw"


APPROVED = """
from servo import Approval, Daily, asset

days = Daily("date", start="2025-01-01", end="2025-02-01")

@asset(partitions=days, approval=Approval("finance"))
def figures(context): ...

@asset(partitions=days)
def summary(figures): ...
"""


def test_who_created_a_backfill_asked_for_its_runs(tmp_path: Path) -> None:
    """Otherwise whoever wants two pairs of eyes on it could bring both: their own, and those of a controller."""
    definitions = APPROVED.replace('Approval("finance")', 'Approval("finance", four_eyes=True)')
    with deployed_workshop(tmp_path, definitions) as shop:
        made = shop.create("figures", start="2025-01-01", end="2025-01-02", name="mine")
        with at_work(shop):
            shop.until(lambda: shop.tree(made.name).root.waiting_approval, "it waits for an approval")
        [waiting] = Checkpoints(shop.project).list(status="REQUESTED")
        assert waiting.requested_by == ME
        with pytest.raises(NotAllowed, match="asked for"):
            Checkpoints(shop.project).approve(waiting.checkpoint_id, actor=ME)
        [asked] = shop.facts(RunRequested)
        assert (asked.source.kind, asked.on_behalf_of) == ("backfill", ME)


def test_an_audit_report_names_who_created_the_backfill(shop: Workshop) -> None:
    made = shop.create("raw", start="2025-01-01", end="2025-01-02")
    with at_work(shop):
        shop.ended(made.name)
    report = Audits(shop.project).report("raw", "2025-01-01", keep=False)
    assert report.execution is not None
    assert report.execution.trigger is not None
    assert (report.actor, report.execution.trigger.id) == (ME, made.backfill_id)


def test_what_waits_for_people_is_told(tmp_path: Path) -> None:
    with deployed_workshop(tmp_path, APPROVED) as shop:
        asked = {"start": "2025-01-01", "end": "2025-01-06", "chunk_size": 2, "include_upstream": True}
        made = shop.create("summary", **asked, name="approved")
        assert not at_rest(shop.tree(made.name))
        with at_work(shop):
            shop.until(lambda: at_rest(shop.tree(made.name)), "all that is left is to be approved")
            tree = shop.tree(made.name)
            figures = tree.jobs[0]
            # Staged is not there, and the third chunk waits for a place.
            assert (figures.state, figures.waiting_approval, figures.succeeded, figures.running) == ("RUNNING", 2, 0, 4)
            assert (figures.chunks, figures.eta_seconds) == ({"RUNNING": 2, "PENDING": 1}, None)
            assert tree.root.display_state == "WAITING_UPSTREAM"
            assert outcome(tree) == 0
            said = ["".join(span.text for span in line) for line in lines(tree, 200)]
            assert said[1:3] == ["· 2 runs wait for an approval", "└─ servo checkpoint list"]
            for row in Checkpoints(shop.project).list(status="REQUESTED")[:1]:
                Checkpoints(shop.project).reject(row.checkpoint_id, reason="wrong", actor=ME)
            shop.until(lambda: shop.tree(made.name).jobs[0].chunks.get("FAILED") == 1, "what was refused has failed")
            shop.until(lambda: at_rest(shop.tree(made.name)), "the third chunk waits now")
            tree = shop.tree(made.name)
            assert (tree.jobs[0].failed, tree.jobs[0].waiting_approval, outcome(tree)) == (2, 2, 1)
            # A run that is cancelled makes room, and is not a failure of what it was to make.
            [row, _] = Checkpoints(shop.project).list(status="REQUESTED")
            shop.runs.cancel(row.run_id, actor=ME)
            shop.until(lambda: shop.tree(made.name).jobs[0].cancelled == 2, "its run is cancelled")
            tree = shop.tree(made.name)
            assert (tree.jobs[0].failed, tree.failed, tree.jobs[0].waiting_approval) == (2, 2, 1)


def test_cancel_of_a_root_cancels_every_job(shop: Workshop) -> None:
    begun, go_on = Event(), Event()

    def wait(_: Order) -> None:
        begun.set()
        go_on.wait(60)

    made = shop.create("report", start="2025-01", end="2025-03", include_upstream=True, max_upstream_depth=-1)
    with at_work(shop, IdleExecutor(works=wait)):
        assert begun.wait(600)
        cancelled = shop.backfills.cancel(made.name, actor=ME)
        assert (cancelled.jobs, cancelled.runs) == (4, 2)
        go_on.set()
        shop.until(lambda: len(shop.facts(RunFinished)) == 2, "its runs have ended")
        tree = shop.tree(made.name)
    assert {job.state for job in tree.jobs} == {"CANCELLED"}
    assert len(shop.facts(RunCancelRequested)) == 2


def test_pause_and_resume_of_a_tree_keep_what_is_done(shop: Workshop) -> None:
    seen, go_on = Event(), Event()

    def wait(order: Order) -> None:
        if order.task_key == "shop/orders":
            seen.set()
            go_on.wait(60)

    made = shop.create("report", start="2025-01", end="2025-01", include_upstream=True, max_upstream_depth=2)
    with at_work(shop, IdleExecutor(works=wait)):
        assert seen.wait(60)
        shop.backfills.pause(made.name, actor=ME)
        go_on.set()
        states = {job.assets[0]: job.state for job in shop.tree(made.name).jobs}
        assert states["shop/raw"] == "SUCCEEDED"
        assert {states[key] for key in ("shop/orders", "shop/report")} == {"PAUSED"}
        shop.until(lambda: not any(job.running for job in shop.tree(made.name).jobs), "what ran has finished")
        shop.backfills.resume(made.name, actor=ME)
        assert shop.ended(made.name).root.state == "SUCCEEDED"
    raw = [fact for fact in shop.facts(TaskStarted) if fact.asset_key == "shop/raw"]
    assert sum(fact.partition_count for fact in raw) == 31


def test_it_goes_on_with_its_snapshot_when_the_definition_is_edited(shop: Workshop) -> None:
    made = shop.create("raw", start="2025-01-01", end="2025-01-10", chunk_size=4, concurrency=1)
    file = shop.project.settings.root / "definitions.py"
    file.write_text(DAYS.replace('Daily("date", start="2025-01-01"', 'Daily("date", start="2024-12-01"'))
    with deployed_workshop(shop.project.settings.root, file.read_text()):
        pass
    assert "goes on with those of its creation" in (shop.tree(made.name).root.edited or "")
    with at_work(shop):
        assert shop.ended(made.name).root.state == "SUCCEEDED"
    keys = [key for fact in shop.facts(TaskFinished) for key in fact.partitions.keys]
    assert sorted(keys) == [f"date=d:2025-01-{day:02}" for day in range(1, 11)]


def test_several_assets_are_one_tree(shop: Workshop) -> None:
    made = shop.create("raw", "orders", start="2025-01-01", end="2025-01-05", chunk_size=2)
    assert set(made.jobs) == {"shop/raw", "shop/orders"}
    with at_work(shop, workers=2):
        tree = shop.ended(made.name)
    assert (tree.root.assets, tree.root.state, tree.partitions) == (["shop/raw", "shop/orders"], "SUCCEEDED", 10)
    require_order(shop)


def test_downstream_follows(shop: Workshop) -> None:
    made = shop.create("raw", start="2025-01-01", end="2025-01-31", include_downstream=True, chunk_size=31)
    assert set(made.jobs) == {"shop/orders", "shop/refunds", "shop/report"}
    with at_work(shop):
        tree = shop.ended(made.name)
    assert {job.state for job in tree.jobs} == {"SUCCEEDED"}
    require_order(shop)


def test_what_happened_is_folded_once_nothing_happens_any_more(shop: Workshop) -> None:
    made = shop.create("raw", start="2025-01-01", end="2025-01-03")
    with at_work(shop):
        shop.ended(made.name)
        shop.until(
            lambda: shop.project.store.current().watermark.position == shop.project.ledger.head().position,
            "it is folded",
            20,
        )

"""The picture of a backfill: bars, times, and a tree in which what failed comes first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from servo.answers.backfills import BackfillFailure, BackfillTree, BackfillView
from servo.cli.backfill_progress import at_rest, outcome, summarize
from servo.ui.backfill import bar, lines, repaired, time_left, to_retry

START = datetime(2025, 1, 1, tzinfo=UTC)


def job(name: str, number: int = 0, **more: Any) -> BackfillView:
    values = {
        "backfill_id": f"id-{name}",
        "name": name,
        "assets": [f"shop/{name}"],
        "role": "target",
        "level": 0,
        "state": "RUNNING",
        "state_version": 1,
        "state_reason": None,
        "state_at": None,
        "partitions": 10,
        "succeeded": 0,
        "failed": 0,
        "running": 0,
        "pending": 10,
        "chunks": {},
        "chunk_size": 10,
        "max_concurrent_runs": 2,
        "priority": 0,
        "newest_first": False,
        "percent": 0.0,
        "created_at": START + timedelta(seconds=number),
        "created_by": "person:ann",
    } | more
    return BackfillView(**{"display_state": values["state"], **values})


def tree(*jobs: BackfillView, failures: list[BackfillFailure] | None = None, **more: Any) -> BackfillTree:
    values = {"partitions": 10, "succeeded": 0, "failed": 0, "percent": 0.0, "over": False} | more
    return BackfillTree(root=jobs[0], jobs=list(jobs), failures=failures or [], **values)


def drawn(one: BackfillTree, columns: int = 200) -> list[str]:
    return ["".join(span.text for span in line).rstrip() for line in lines(one, columns)]


@pytest.mark.parametrize(
    ("succeeded", "failed", "running", "total", "shown"),
    [
        (0, 0, 0, 31, "·" * 16),
        (0, 0, 0, 0, "·" * 16),
        (31, 0, 0, 31, "█" * 16),
        (999_999, 0, 1, 1_000_000, "█" * 15 + "░"),  # it is full only at the end
        (1, 0, 0, 1_000_000, "█" + "·" * 15),  # and what is there is seen
        (2, 1, 0, 3, "█" * 11 + "✗" * 5),
        (999_998, 1, 0, 1_000_000, "█" * 14 + "✗·"),
        (0, 5, 0, 5, "✗" * 16),
        (8, 0, 8, 16, "█" * 8 + "░" * 8),
    ],
)
def test_bars(succeeded: int, failed: int, running: int, total: int, shown: str) -> None:
    assert "".join(span.text for span in bar(succeeded, failed, running, total)) == shown


@pytest.mark.parametrize("counts", [(a, b, c) for a in range(9) for b in range(9 - a) for c in range(9 - a - b)])
def test_a_bar_has_always_the_same_width(counts: tuple[int, int, int]) -> None:
    assert sum(len(span.text) for span in bar(*counts, 8, size=5)) == 5


def test_times() -> None:
    assert time_left(None, reliable=True) == ""
    assert time_left(3, reliable=True) == "about 5 s left"
    assert time_left(44, reliable=True) == "about 40 s left"
    assert time_left(190, reliable=True) == "about 3 min left"
    assert time_left(190, reliable=False) == "~3 min left, a guess"
    assert time_left(3 * 3600, reliable=True) == "about 3 h left"
    assert time_left(3 * 86400, reliable=True) == "about 3 days left"


def test_a_diamond_is_drawn_once_below_the_longest_way() -> None:
    one = job("d", waits_for=["shop/b", "shop/c", "shop/a"])
    others = [job("a"), job("b", waits_for=["shop/a"]), job("c", waits_for=["shop/a"])]
    _, *below = (line.partition("··")[0].rstrip() for line in drawn(tree(one, *others)))
    assert below == ["shop/d", "├─ shop/b", "│  └─ shop/a", "└─ shop/c"]


def test_a_root_of_several_assets_is_above_them_all() -> None:
    root = job("all", assets=["shop/a", "shop/b"], waits_for=["shop/a", "shop/b"], partitions=0)
    _, first, *rest = drawn(tree(root, job("a"), job("b", waits_for=["shop/a"])))
    assert first.split() == ["2", "assets", "RUNNING"]
    assert [line.split("shop/")[0] for line in rest] == ["└─ ", "   └─ "]


def test_what_failed_is_first_until_it_is_repaired() -> None:
    lost = job("numbers", state="FAILED", succeeded=9, failed=1)
    reason = "shop/numbers failed: the source\nand more"
    failure = BackfillFailure(
        backfill_id=lost.backfill_id,
        asset_key="shop/numbers",
        chunk_index=3,
        run_id="run_x",
        failed=1,
        state="FAILED",
        reason=reason,
    )
    waiting = job("total", state="WAITING_UPSTREAM", blocked_by=["numbers"], waits_for=["shop/numbers"])
    said = drawn(tree(waiting, lost, failures=[failure], failed=1))
    assert said[1:5] == [
        "✗ shop/numbers chunk 3: 1 partition failed in run_x",
        "└─ shop/numbers failed: the source",
        "✗ blocked by numbers",
        "└─ servo backfill retry-failed numbers",
    ]
    again = job("again", 1, state="FAILED", retry_of=lost.backfill_id, partitions=1)
    third = job("third", 2, state="SUCCEEDED", retry_of=again.backfill_id, partitions=1)
    assert repaired([lost, again]) == set()
    lost, again = (msgspec.structs.replace(one, display_state="REPAIRED") for one in (lost, again))
    assert repaired([third, lost, again]) == {lost.backfill_id, again.backfill_id}
    waiting = msgspec.structs.replace(waiting, blocked_by=[])
    said = drawn(tree(waiting, lost, again, third, failures=[failure]))
    assert said[1] == "1 chunk failed, and a retry has made the rest since"
    assert [line.lstrip(" └─├").split("  ")[0] for line in said[2:]] == [
        "shop/total",
        "shop/numbers",
        "retry again",
        "retry third",
    ]


def failures(backfill_id: str, count: int, reason: str = "reason {}") -> list[BackfillFailure]:
    return [
        BackfillFailure(
            backfill_id=backfill_id,
            asset_key="shop/a",
            chunk_index=index,
            run_id=f"run_{index}",
            failed=1,
            state="FAILED",
            reason=reason.format(index),
        )
        for index in range(count)
    ]


def test_failures_that_are_not_shown_are_counted() -> None:
    """Of many the tree has the first alone: the jobs know how many there are."""
    lost = job("a", state="FAILED", failed=50, chunks={"FAILED": 48, "CANCELLED": 2, "SUCCEEDED": 7})
    other = job("b", state="FAILED", failed=3, chunks={"FAILED": 3})
    said = drawn(tree(lost, other, failures=failures("id-a", 20)))
    assert [line for line in said if "more" in line] == ["  and 43 more chunks: servo backfill chunks a"]  # of 10 shown
    few = job("a", state="FAILED", failed=11, chunks={"FAILED": 11})
    said = drawn(tree(few, failures=failures("id-a", 11)))
    assert [line for line in said if "more" in line] == ["  and 1 more chunk: servo backfill chunks a"]
    assert not [line for line in drawn(tree(few, failures=failures("id-a", 10))) if "see --json" in line]
    again = job("again", 1, state="SUCCEEDED", retry_of=lost.backfill_id, partitions=50)
    lost = msgspec.structs.replace(lost, display_state="REPAIRED")
    said = drawn(tree(lost, again, failures=failures("id-a", 20)))
    assert said[1] == "50 chunks failed, and a retry has made the rest since"
    assert not [line for line in said if "more" in line]


def test_chunks_that_failed_of_the_same_are_one() -> None:
    lost = job("a", state="FAILED", failed=30, chunks={"FAILED": 30})
    said = drawn(tree(lost, failures=[*failures("id-a", 28, "no column"), *failures("id-a", 1, "no space")]))
    assert said[1:5] == [
        "✗ shop/a 28 chunks (0..27): 28 partitions failed, first in run_0",
        "└─ no column",
        "✗ shop/a chunk 0: 1 partition failed in run_0",
        "└─ no space",
    ]
    assert said[5] == "  and 1 more chunk: servo backfill chunks a"


def test_remarks_come_last_and_all_fits() -> None:
    long = job("a_rather_long_name", edited="its partitions were defined otherwise since", warnings=["all are taken"])
    said = drawn(tree(long, job("short", warnings=["all are taken"])), columns=60)
    assert said[-1] == "! all are taken"
    assert said.count("! all are taken") == 1
    assert any(line.startswith("! shop/a_rather_long_name: its partitions were") for line in said)
    assert max(map(len, said)) <= 60


def test_what_waits_for_people_and_what_was_cancelled_is_said() -> None:
    one = job("figures", waiting_approval=1, cancelled=3, succeeded=2, percent=20.0, chunks={"RUNNING": 1})
    head, *said = drawn(tree(one, succeeded=2, percent=20.0))
    assert head == "· RUNNING figures 2 of 10 partitions, 20 %, 3 cancelled"
    assert said[:2] == ["· 1 run waits for an approval", "└─ servo checkpoint list"]
    assert said[2].endswith("RUNNING 3 cancelled, 1 run to approve")
    two = job("figures", waiting_approval=2, chunks={"RUNNING": 2})
    assert "· 2 runs wait for an approval" in drawn(tree(two))
    # Nothing is said of what is not.
    assert not [line for line in drawn(tree(job("figures"))) if "approv" in line or "cancelled" in line]
    # What a retry has made since is nobody's concern any more.
    lost = job("lost", state="FAILED", succeeded=9, cancelled=1)
    assert "1 cancelled" in drawn(tree(lost))[0]
    lost = msgspec.structs.replace(lost, display_state="REPAIRED")
    assert "cancelled" not in drawn(tree(lost, job("again", 1, state="SUCCEEDED", retry_of=lost.backfill_id)))[0]


def ended(name: str, number: int = 0, **more: Any) -> BackfillView:
    return job(name, number, finished_at=START + timedelta(hours=1), **more)


REPAIRED = {"state": "FAILED", "display_state": "REPAIRED"}
STOPPED = {"state": "CANCELLED", "display_state": "REPAIRED"}
PARKED: dict[str, Any] = {"waiting_approval": 2, "chunks": {"SUCCEEDED": 1, "RUNNING": 2}}


@pytest.mark.parametrize(
    ("rests", "code", "jobs"),
    [
        (True, 0, [job("a", **PARKED)]),
        (True, 0, [job("b", state="WAITING_UPSTREAM", waits_for=["shop/a"]), job("a", **PARKED)]),
        # No more than so many may be active: those to come wait as well.
        (True, 0, [job("a", waiting_approval=2, chunks={"RUNNING": 2, "PENDING": 3})]),
        (False, 0, [job("a", waiting_approval=1, chunks={"RUNNING": 1, "PENDING": 3})]),
        (False, 0, [job("a", waiting_approval=1, chunks={"RUNNING": 2})]),
        (False, 0, [job("a", waiting_approval=1, chunks={"RUNNING": 1, "PLANNED": 1})]),
        (False, 0, [job("a", **PARKED), job("b", state="PENDING")]),
        (False, 0, [job("a", **PARKED, state="PAUSED")]),
        # What it waits for is there, and it is about to start.
        (
            False,
            0,
            [
                job("b", state="WAITING_UPSTREAM", waits_for=["shop/a"]),
                ended("a", state="SUCCEEDED"),
                job("c", **PARKED),
            ],
        ),
        (
            False,
            0,
            [
                job("all", assets=["shop/a", "shop/b"], state="WAITING_UPSTREAM", waits_for=["shop/a", "shop/b"]),
                ended("a", state="SUCCEEDED"),
                job("b", state="WAITING_UPSTREAM", waits_for=["shop/a"]),
                job("c", **PARKED),
            ],
        ),
        # Not all can be made any more.
        (True, 1, [job("a", **PARKED, failed=1)]),
        (True, 1, [job("a", **PARKED, cancelled=1)]),
        (True, 1, [job("a", **PARKED), ended("b", state="FAILED", failed=1)]),
        (True, 1, [job("a", **PARKED), ended("b", state="CANCELLED")]),
        # But where a retry waits, it can.
        (True, 0, [ended("a", state="FAILED", failed=2), job("again", 1, **PARKED, retry_of="id-a")]),
        (True, 1, [ended("a", state="FAILED", failed=2), job("again", 1, **PARKED, failed=1, retry_of="id-a")]),
        (True, 0, [ended("a", state="SUCCEEDED")]),
        (True, 1, [ended("a", state="FAILED", failed=1)]),
        (True, 0, [ended("a", **REPAIRED, failed=1), ended("again", 1, state="SUCCEEDED", retry_of="id-a")]),
        (True, 0, [ended("a", **STOPPED, cancelled=1), ended("again", 1, state="SUCCEEDED", retry_of="id-a")]),
        (False, 1, [ended("a", state="CANCELLED", **PARKED)]),  # its runs end after it
    ],
)
def test_who_waits_waits_for_no_person(rests: bool, code: int, jobs: list[BackfillView]) -> None:
    one = tree(*jobs)
    assert (at_rest(one), outcome(one)) == (rests, code)


def test_what_to_retry() -> None:
    lost = job("a", state="FAILED")
    again = job("again", 1, state="FAILED", retry_of="id-a")
    third = job("third", 2, retry_of="id-again")
    assert to_retry([lost]) == [lost]
    assert to_retry([lost, again]) == [again]
    assert to_retry([lost, msgspec.structs.replace(again, state="CANCELLED")]) == [lost]
    assert to_retry([lost, again, third]) == []
    assert to_retry([lost, again, msgspec.structs.replace(third, state="SUCCEEDED")]) == []
    assert to_retry([again]) == [again], "alone, as it is shown by itself"
    assert to_retry([job("a"), job("b", state="CANCELLED")]) == []


def test_the_last_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert summarize(tree(job("a", **PARKED))) == 0
    said = capsys.readouterr()
    assert (said.err, "took" in said.out, "servo checkpoint list" in said.out) == ("", False, True)
    assert summarize(tree(job("a", **PARKED, failed=1))) == 1
    assert "servo: a cannot be completed, and 2 runs wait for an approval (" in capsys.readouterr().err
    lost = [ended("a", state="FAILED", failed=2), ended("again", 1, state="FAILED", failed=1, retry_of="id-a")]
    assert summarize(tree(*lost, over=True, succeeded=9)) == 1
    assert "servo: a failed: 1 partition not made" in (err := capsys.readouterr().err)
    assert "`servo backfill retry-failed again --wait`" in err
    assert summarize(tree(ended("a", state="SUCCEEDED"), over=True)) == 0
    assert "took 1 h" in capsys.readouterr().out

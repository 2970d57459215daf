"""Lists, counts, pictures and explanations over a real ledger and real projections; no Spark is needed for them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from servo.errors import Conflict, InvalidInput, InvalidPartition, NotFound
from servo.events.columns import Outcome, PartitionOutcomes
from servo.events.model import CheckpointRequested, PartitionsMarked
from servo.operations.runs.selection import what_is_due
from servo.runtime.deploying import recorded_catalog
from servo.runtime.states import state_of
from servo.status.grids import grid_of, kinds_of, strip_of
from servo.status.staleness import stale_partitions
from tests.support.operating import Runs, plan_what_is_due
from tests.support.questions import PartitionBook, Why, mark
from tests.support.telling import START, Telling

DEFINITIONS = """
from datetime import timedelta
from servo import Approval, Daily, Monthly, Static, asset

days = Daily("date", start="2025-01-01", end="2025-04-01")

@asset(partitions=days)
def raw(context): ...

@asset(partitions=days * Static("region", ["eu", "us"]), code_version="CODE")
def orders(raw): ...

@asset(partitions=Monthly("month", start="2025-01", end="2025-04"))
def report(orders): ...

@asset(partitions=days, approval=Approval("finance"))
def signed(raw): ...

@asset(freshness=timedelta(days=1))
def rates(context): ...
"""
JANUARY = "2025-01-01..2025-01-31"


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Telling]:
    telling = Telling(tmp_path)
    telling.deploy(DEFINITIONS)
    yield telling
    telling.close()


def test_a_story_from_nothing_to_stale(told: Telling) -> None:
    book, why = PartitionBook(told.project), Why(told.project)
    # Nothing is known, and yet everything is expected: three months of days that have ended.
    (summary,) = book.summary(["raw"])
    assert (summary.expected, summary.missing, summary.total) == (90, 90, 90)
    assert [one.code for one in why.partition("raw", "2025-01-05").not_run] == ["NEVER_ASKED_FOR"]
    lacking = why.partition("report", "2025-01")
    assert [one.code for one in lacking.not_run] == ["NEVER_ASKED_FOR", "INPUTS_MISSING"]
    assert "shop/orders 2025-01-01..2025-01-31 × eu, us" in lacking.not_run[1].sentence
    before = told.now

    first = told.materialized("first", raw=JANUARY, orders=JANUARY, report="2025-01")
    assert why.partition("report", "2025-01").partition.status == "MATERIALIZED"
    then = told.now
    told.now += timedelta(hours=1)

    # Two days are made anew, one with the same content; two more fail.
    again = told.run("again", raw="2025-01-05..2025-01-08", orders="2025-01-05..2025-01-08")
    keys = told.keys("raw", "2025-01-05..2025-01-08")
    told.finished(again, "raw", keys[:1], content="run_" + "first".rjust(26, "x"), part=1, final=False)
    changed = told.finished(
        again,
        "raw",
        keys[1:],
        [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.FAILED],
        errors=[None, "ValueError: the 7th is not readable", "ValueError: the 8th is not readable"],
    )
    skipped = told.keys("orders", "2025-01-05..2025-01-08")
    told.skipped(again, "orders", skipped, "shop/raw did not give what it reads")
    told.ended(again, Outcome.FAILED)

    (raw, orders) = book.summary(["raw", "orders"])
    assert raw.statuses == {
        "MATERIALIZED_BUT_LAST_ATTEMPT_FAILED": 2,
        "NEVER_MATERIALIZED": 59,
        "STALE": 0,
        "MATERIALIZED": 29,
    }
    assert (raw.attempt_failed, orders.statuses["STALE"], orders.missing) == (2, 2, 2 * 59)

    # The same content is no news; the other is, for exactly those who read it, since it was published.
    assert why.partition("orders", "2025-01-05,eu").partition.status == "MATERIALIZED"
    stale = why.partition("orders", "2025-01-06,us")
    assert (stale.partition.status, [(one.code, one.since) for one in stale.reasons]) == (
        "STALE",
        [("UPSTREAM_CHANGED", changed)],
    )
    (guilty,) = stale.reasons[0].inputs
    assert (guilty.asset_key, guilty.partition_key, guilty.state) == ("shop/raw", "date=d:2025-01-06", "changed")
    assert guilty.read_run_id == f"run_{'first':x>26}"
    assert guilty.current_run_id == again
    assert guilty.current_materialization_id == told.made["shop/raw", "date=d:2025-01-06"]
    assert stale.made is not None
    assert stale.made.run_id == f"run_{'first':x>26}"
    assert stale.made.published_at is not None
    assert stale.made.published_at < first

    # A failed retry keeps the data, and says what it died of; who read nothing new was skipped because of it.
    kept = why.partition("raw", "2025-01-07")
    assert kept.partition.status == "MATERIALIZED_BUT_LAST_ATTEMPT_FAILED"
    assert kept.partition.materialization_id == told.made["shop/raw", "date=d:2025-01-07"]
    assert [(one.code, one.error) for one in kept.not_run] == [("FAILED", "ValueError: the 7th is not readable")]
    (missed,) = why.partition("orders", "2025-01-07,eu").not_run
    assert (missed.code, missed.because_of, missed.error) == (
        "SKIPPED",
        ["shop/raw 2025-01-07"],
        "ValueError: the 7th is not readable",
    )

    # Stale by nothing but an upstream: its status is as it was, and the root is named.
    report = why.partition("report", "2025-01")
    assert (report.partition.status, [one.code for one in report.reasons]) == ("MATERIALIZED", ["UPSTREAM_STALE"])
    assert report.root is not None
    assert (report.root.asset_key, report.root.partition, report.root.code) == (
        "shop/orders",
        "date=2025-01-06,region=eu",
        "UPSTREAM_CHANGED",
    )
    asset = why.asset("orders")
    assert [(one["code"], one["partitions"]) for one in asset.reasons] == [("UPSTREAM_CHANGED", 2)]
    assert [(one["why"], one["partitions"]) for one in asset.missing] == [
        ("reads shop/raw 2025-02-01..2025-03-31, which is not there", 118)
    ]
    assert [(one["asset_key"], one["code"]) for one in why.asset("report").roots] == [
        ("shop/orders", "UPSTREAM_CHANGED")
    ]
    found = PartitionBook(told.project).stale(["orders@2025-01-06", "report"], transitive=True)
    assert (len(found.rows), found.assets) == (3, {"shop/orders": 2, "shop/report": 1})

    # As of then, nothing of that had happened; as of before, nothing at all; before history, there is nothing to say.
    assert book.summary(["raw"], as_of=then)[0].statuses["MATERIALIZED"] == 31
    assert why.partition("orders", "2025-01-06,us", as_of=then).partition.status == "MATERIALIZED"
    assert book.summary(["raw"], as_of=before)[0].statuses["MATERIALIZED"] == 0
    with pytest.raises(NotFound, match="nothing was recorded by"):
        book.summary(["raw"], as_of=START - timedelta(days=1))
    # Windows that had not ended then were not missing then.
    assert book.summary(["raw"], as_of=then)[0].expected == 90


def test_one_partition_by_itself_is_told_like_all_of_them_at_once(told: Telling) -> None:
    """`why` looks at one partition only: its reasons are those that the query over all partitions finds."""
    told.materialized("first", raw=JANUARY, orders=JANUARY, report="2025-01", rates="all")
    told.now += timedelta(hours=2)
    told.invalidated("orders", told.keys("orders", "2025-01-02..2025-01-03"), "bad rates")
    told.materialized("second", raw="2025-01-03..2025-01-04")
    told.materialized("third", orders="2025-01-04")
    told.deploy(DEFINITIONS.replace('"CODE"', '"CODE 2"'))
    told.materialized("fourth", raw="2025-01-05", orders="2025-01-05")
    mark(told.project, "orders", ["2025-01-06"], as_what="frozen", reason="audited", actor="person:bob")
    told.materialized("late", raw="2025-02-01", orders="2025-02-01", report="2025-02")
    told.materialized("later", raw="2025-02-02", orders="2025-02-02")
    told.now += timedelta(days=2)
    book, codes = PartitionBook(told.project), set()
    rows = {(one.asset_key, one.partition_key): one for one in stale_partitions(state_of(told.project))}
    asked = told.now
    told.clock = lambda: asked  # type: ignore[method-assign]  # the same moment for all
    told.project.clock = told.clock
    for asset in ("raw", "orders", "report", "rates"):
        for view in book.page(asset, limit=1000, partitions=None).partitions:
            alone = book.one(asset, view.partition_key)
            assert alone == view
            row = rows.get((view.asset_key, view.partition_key))
            assert alone.stale_reasons == ([] if row is None else list(row.reasons))
            codes |= {code for code, _ in alone.stale_reasons}
    assert codes == {"INVALIDATED", "CODE_CHANGED", "UPSTREAM_CHANGED", "FRESHNESS_POLICY"}


def test_lists_and_pictures(told: Telling) -> None:
    told.materialized("first", raw="2025-01-01..2025-03-10")
    told.deploy(DEFINITIONS.replace('start="2025-01-01"', 'start="2025-01-11"'))
    book = PartitionBook(told.project)
    seen, cursor, pages = [], None, 0
    while True:
        page = book.page("raw", limit=20, cursor=cursor)
        seen += [one.partition for one in page.partitions]
        pages += 1
        if pages == 2:  # something happens between two pages
            more = told.materialized("more", raw="2025-01-12..2025-03-20")
        cursor = page.cursor
        if cursor is None:
            break
    # What the definition expects, in its order; then what it no longer has.
    assert seen[:80] == [one.partition for one in book.page("raw", limit=80).partitions]
    assert (seen[0], seen[79]) == ("2025-01-11", "2025-03-31")
    assert seen[80:] == [f"2025-01-{day:02d}" for day in range(1, 11)]
    assert len(seen) == len(set(seen)) == page.total == 90
    gone = book.page("raw", statuses=["undefined"])
    assert [one.undefined for one in gone.partitions] == [True] * 10
    assert book.one("raw", "date=d:2025-01-03").undefined
    assert Why(told.project).partition("raw", "date=d:2025-01-03").not_run[0].code == "UNDEFINED"

    assert book.page("raw", statuses=["missing"]).total == 11
    assert book.page("raw", statuses=["MATERIALIZED"], partitions="2025-03-19..2025-03-22").total == 2
    assert book.page(statuses=["missing"], partitions="2025-03-30..2025-03-31", limit=1000).total == 2 + 4 + 2
    recent = book.page("raw", since=more)
    assert recent.total == 68
    assert book.page("raw", until=START).total == 0
    for wrong in ({"statuses": ["rotten"]}, {"limit": 0}, {"cursor": "nonsense"}, {"partitions": "2024-01"}):
        with pytest.raises(InvalidInput):
            book.page("raw", **wrong)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        book.page("nope")
    with pytest.raises(InvalidPartition, match="shop/raw: date=1999-01-01"):
        book.one("raw", "1999-01-01")

    # Every cell of a picture is counted once, and no kind is lost.
    for states in book.statuses().values():
        kinds = {kind: some.count for kind, some in kinds_of(states).items() if some}
        assert sum(kinds.values()) == states.all.count
        grid = grid_of(states)
        total = {kind: sum(row.counts.get(kind, 0) for row in grid.rows) for kind in kinds}
        assert total == kinds
        strip = strip_of(states, 24)
        assert {kind: sum(cell.get(kind, 0) for cell in strip) for kind in kinds} == kinds
    (raw,) = book.statuses(["raw"]).values()
    grid = grid_of(raw)
    assert ([row.label for row in grid.rows], len(grid.columns), grid.folded) == (
        ["2025-01", "2025-02", "2025-03"],
        31,
        False,
    )
    assert grid_of(raw, most_rows=2).unit == "month"


def test_what_goes_on_and_why_something_waits(told: Telling) -> None:
    told.materialized("first", raw="2025-01-01..2025-01-10")
    working = told.run("working", raw="2025-01-11..2025-01-20", orders="2025-01-11..2025-01-20")
    told.started(working, "raw")
    told.finished(working, "raw", told.keys("raw", "2025-01-11..2025-01-14"), part=1, final=False)
    retrying = told.run("retrying", raw="2025-02-01")
    told.started(retrying, "raw")
    failed = told.keys("raw", "2025-02-01")
    told.finished(retrying, "raw", failed, Outcome.FAILED, errors=["OSError: no such file"], part=1, final=False)
    until = told.now + timedelta(hours=1)
    told.retry(retrying, "raw", until, "OSError: no such file")
    waiting = told.run("waiting", signed="2025-01-01..2025-01-02")
    told.started(waiting, "signed")
    staged = told.keys("signed", "2025-01-01..2025-01-02")
    told.finished(waiting, "signed", staged, Outcome.STAGED)
    told.say(
        CheckpointRequested(
            checkpoint_id="01JHM000000000000000000CHK",
            name="signed",
            run_id=waiting,
            task_key="shop/signed",
            asset_id=told.known.asset_id("shop/signed"),
            asset_key="shop/signed",
            partitions=PartitionOutcomes(keys=staged, outcome=Outcome.STAGED),
            approvers="finance",
        )
    )
    queued = told.run("queued", raw="2025-03-01")
    book, why = PartitionBook(told.project), Why(told.project)
    summaries = {one.asset_key: one.overlays for one in book.summary()}
    assert summaries["shop/raw"] == {"running": 6, "queued": 2}
    assert summaries["shop/orders"] == {"queued": 20}
    assert summaries["shop/signed"] == {"waiting_approval": 2}

    def told_of(asset: str, partition: str) -> tuple[str, str | None]:
        first = why.partition(asset, partition).not_run[0]
        return first.code, first.run_id

    assert told_of("raw", "2025-01-15") == ("RUNNING", working)
    assert told_of("orders", "2025-01-15,eu") == ("WAITS_FOR_UPSTREAM", working)
    assert told_of("raw", "2025-03-01") == ("READY", queued)
    assert told_of("raw", "2025-03-02") == ("NEVER_ASKED_FOR", None)
    retry = why.partition("raw", "2025-02-01").not_run[0]
    assert (retry.code, retry.until, retry.error) == ("RETRY_WAIT", until, "OSError: no such file")
    approval = why.partition("signed", "2025-01-01").not_run[0]
    assert (approval.code, approval.checkpoint_id) == ("WAITING_APPROVAL", "01JHM000000000000000000CHK")
    assert "by finance" in approval.sentence

    # What is on its way already is not asked for again.
    due = what_is_due(state_of(told.project), ["raw"], "2025-01-01..2025-03-01")
    assert due.wanted["shop/raw"].count == 60 - 10 - 4 - 6 - 2
    assert [(one.why, one.partitions.count) for one in due.held] == [("an unfinished run computes it", 8)]

    # All places are taken: what is ready waits behind the limit, and behind whom is told.
    for number in range(4):
        name = told.run(f"busy{number}", rates="all")
        told.started(name, "rates")
    held = why.partition("raw", "2025-03-01").not_run[0]
    assert (held.code, "limit of 4 tasks" in held.sentence) == ("QUEUED", True)
    assert "shop/rates" in held.because_of


def test_what_should_run_now(told: Telling) -> None:
    told.materialized("first", raw=JANUARY, orders=JANUARY, report="2025-01")
    told.materialized("again", raw="2025-01-06")
    told.invalidated("report", told.keys("report", "2025-01"), "wrong totals")
    mark(told.project, "orders", ["2025-01-06,us"], as_what="frozen", reason="audited", actor="person:bob")
    days = "2025-01-01..2025-02-02"
    selection = [f"raw@{days}", f"orders@{days}", "report@2025-01..2025-02"]
    due, plan = plan_what_is_due(told.project, selection)
    assert [(one.asset_key, one.code, one.partitions.describe()) for one in due.groups] == [
        ("shop/raw", "MISSING", "2025-02-01..2025-02-02"),
        ("shop/orders", "MISSING", "2025-02-01..2025-02-02 × eu, us"),
        ("shop/orders", "UPSTREAM_CHANGED", "2025-01-06 × eu"),
        ("shop/report", "INVALIDATED", "2025-01"),
    ]
    # A month of which days are missing waits for them; what runs is what was shown, upstreams first, and always so.
    assert [(one.asset_key, one.partitions.describe(), one.frozen) for one in due.held] == [
        ("shop/orders", "2025-01-06 × us", True), ("shop/report", "2025-02", False),
    ]  # fmt: skip
    assert {task.asset_key: task.partitions for task in plan.tasks} == due.wanted
    assert [task.asset_key for task in plan.tasks] == ["shop/raw", "shop/orders", "shop/report"]
    assert plan_what_is_due(told.project, selection) == (due, plan)

    # What is fresh and reads what runs follows it, and is named with that.
    told.materialized("report", report="2025-01")
    told.materialized("once more", raw="2025-01-07")
    after, _ = plan_what_is_due(told.project, ["orders", "report"])
    assert [(one.asset_key, one.code, one.because_of) for one in after.groups] == [
        ("shop/orders", "UPSTREAM_CHANGED", ()),
        ("shop/report", "AFTER_UPSTREAM", ("shop/orders",)),
    ]
    assert after.wanted["shop/orders"].describe() == "3 partitions: 2025-01-06 × eu; 2025-01-07 × eu, us"
    told.materialized("orders", orders="2025-01-07")
    told.invalidated("report", told.keys("report", "2025-01"), "wrong totals")

    # What has nothing to read is held, and said so.
    whole, _ = plan_what_is_due(told.project, ["report", "orders"])
    assert [(one.asset_key, one.code) for one in whole.groups] == [
        ("shop/orders", "UPSTREAM_CHANGED"),
        ("shop/report", "INVALIDATED"),
    ]
    assert {(one.asset_key, one.partitions.count) for one in whole.held} == {
        ("shop/orders", 1), ("shop/orders", 118), ("shop/report", 2),
    }  # fmt: skip
    mark(told.project, "report", ["2025-01"], as_what="frozen", reason="filed", actor="person:bob")
    assert list(plan_what_is_due(told.project, ["report", "orders"])[0].wanted) == ["shop/orders"]
    mark(told.project, "report", ["2025-01"], as_what="thawed", reason="wrong after all", actor="person:bob")

    # Code that is not deployed yet counts as if it were: it will be, with the run.
    (told.path / "definitions.py").write_text(DEFINITIONS.replace('"CODE"', '"CODE 2"'))
    coded, _ = plan_what_is_due(told.project, ["orders"])
    assert {one.code: one.partitions.count for one in coded.groups} == {"UPSTREAM_CHANGED": 1, "CODE_CHANGED": 60}
    # Selections know the word.
    runs = Runs(told.project)
    assert runs.plan(["orders and status:stale"]).partition_count == 1
    before = (told.path / "definitions.py").read_text()
    (told.path / "definitions.py").write_text(before + "\n\n@asset\ndef new(context): ...\n")
    assert "shop/new" not in {task.asset_key for task in runs.plan(["status:stale"]).tasks}
    (told.path / "definitions.py").write_text(before)

    requested = runs.request_due(["orders"], actor="person:alice")
    assert requested is not None
    assert requested.assets == {"shop/orders": 62}, "with the frozen one, which its plan holds back"


FOLDER = """
from datetime import timedelta
from servo import Daily, Static, asset

@asset(partitions=Daily("date", start="2025-01-01", end="2025-01-04"))
def days(context): ...

@asset
def all_days(days): ...

@asset(partitions=Static("region", ["eu", "us", "ap"]))
def regions(context): ...

@asset
def all_regions(regions): ...
"""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ('start="2025-01-01"', 'start="2025-01-02"', {("shop/all_days", "UPSTREAM_CHANGED", "")}),
        (
            'start="2025-01-01"',
            'start="2024-12-31"',
            {("shop/days", "MISSING", "2024-12-31"), ("shop/all_days", "AFTER_UPSTREAM", "")},
        ),
        ('"us", "ap"', '"us"', {("shop/all_regions", "UPSTREAM_CHANGED", "")}),
        (
            "@asset\ndef all_days",
            "@asset(freshness=timedelta(minutes=1))\ndef all_days",
            {("shop/all_days", "FRESHNESS_POLICY", "")},
        ),
    ],
)
def test_what_the_folder_changed_counts_before_it_is_deployed(
    tmp_path: Path, before: str, after: str, expected: set[tuple[str, str, str]]
) -> None:
    told = Telling(tmp_path)
    told.deploy(FOLDER)
    told.materialized("first", days="all", all_days="all", regions="all", all_regions="all")
    told.now += timedelta(hours=1)
    assert plan_what_is_due(told.project, ["*"])[0].groups == ()
    (told.path / "definitions.py").write_text(FOLDER.replace(before, after))
    head = told.project.ledger.head().position
    due, plan = plan_what_is_due(told.project, ["*"])
    assert {(one.asset_key, one.code, one.partitions.describe()) for one in due.groups} == expected
    assert plan.partition_count == len(expected)
    assert told.project.ledger.head().position == head, "a plan writes nothing"
    requested = Runs(told.project).request_due(["*"], actor="person:alice")
    assert requested is not None
    assert requested.assets == {key: 1 for key, _, _ in expected}
    told.close()


def test_a_run_of_what_is_stale_deploys_the_folder_also_where_nothing_is_due(tmp_path: Path) -> None:
    told = Telling(tmp_path)
    told.deploy(FOLDER)
    told.materialized("first", days="all", all_days="all", regions="all", all_regions="all")
    head = told.project.ledger.head().position
    assert Runs(told.project).request_due(["*"], actor="person:alice") is None
    assert told.project.ledger.head().position == head
    later = FOLDER.replace("@asset\ndef all_days", "@asset(freshness=timedelta(hours=1))\ndef all_days")
    (told.path / "definitions.py").write_text(later)
    assert Runs(told.project).request_due(["*"], actor="person:alice") is None
    assert recorded_catalog(told.project).spec("shop/all_days").freshness == timedelta(hours=1)
    told.now += timedelta(hours=2)
    assert PartitionBook(told.project).one("all_days").stale_reason_code == "FRESHNESS_POLICY"
    told.close()


def test_marks_state_and_hide_nothing(told: Telling) -> None:
    told.materialized("first", raw="2025-01-01")
    book = PartitionBook(told.project)

    def said(partition: str, as_what: str, reason: str = "made elsewhere") -> None:
        mark(told.project, "raw", [partition], as_what=as_what, reason=reason, actor="person:bob")

    events = told.project.ledger.head().position
    with pytest.raises(Conflict, match="2025-01-01 has data"):
        said("2025-01-01", "materialized")
    for partition, as_what, reason in (
        ("2025-01-02", "rotten", "x"),
        ("2025-01-02", "frozen", " "),
        ("1999-01-01", "frozen", "x"),
    ):
        with pytest.raises(InvalidInput):
            said(partition, as_what, reason)
    with pytest.raises(InvalidInput, match="no partition is named"):
        mark(told.project, "raw", [], as_what="frozen", reason="x", actor="person:bob")
    assert told.project.ledger.head().position == events

    said("2025-01-02..2025-01-03", "materialized")
    view = book.one("raw", "2025-01-03")
    assert (view.status, view.last_materialization_run_id, view.last_attempt_outcome) == ("MATERIALIZED", None, None)
    told.invalidated("raw", ["date=d:2025-01-01"], "bad")
    assert book.one("raw", "2025-01-01").status == "STALE"
    said("2025-01-01", "frozen", "audited")
    frozen = book.one("raw", "2025-01-01")
    assert (frozen.status, frozen.overlays, frozen.stale_reasons) == ("MATERIALIZED", ["frozen"], [])
    said("2025-01-01", "thawed", "over")
    assert book.one("raw", "2025-01-01").status == "STALE"
    (event,) = told.project.history.read(told.project.ledger.head().position - 1, 1)
    assert (event.event_type, event.actor) == (PartitionsMarked.event_type, "person:bob")

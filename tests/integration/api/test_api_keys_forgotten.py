"""Keys of so long ago that the ledger has forgotten them: what was done under them is found in the archive."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from servo import canonical
from servo.answers.runs import Requested
from servo.errors import IdempotencyMismatch
from servo.events import Proposal
from servo.events.access import RequestAccepted
from servo.events.columns import EarlierMaterializations
from servo.events.fact import Fact
from servo.events.model import PartitionsInvalidated, RolledBack, RunCancelRequested, RunRequested
from servo.ledger.protocol import holder_of
from servo.operations.assets import materializations as going_back
from servo.operations.runs import handlers
from servo.runtime import Project, load_settings, open_workspace
from servo.runtime.keyed_requests import KeyedRequest, recorded_under
from servo.runtime.maintenance import Maintenance
from tests.support.earlier import earlier_version
from tests.support.operating import Runs
from tests.support.questions import Data
from tests.support.served import house

NONE = EarlierMaterializations(keys=[], materialization_ids=[], run_ids=[], materialized_at=[])


class Shop:
    """A project with a clock that somebody can turn."""

    def __init__(self, root: Path) -> None:
        self.now = datetime(2025, 3, 1, tzinfo=UTC)
        self.project: Project = open_workspace(load_settings(root, {}), create=True, clock=lambda: self.now)

    def append(self, *facts: Fact) -> list[str]:
        proposals = [self.said(fact) for fact in facts]
        return [receipt.event_id for receipt in self.project.ledger.append(proposals)]

    def said(self, fact: Fact) -> Proposal:
        return Proposal(fact=fact, occurred_at=self.now, actor="person:ann")

    def archive(self) -> None:
        Maintenance(self.project).archive(before=self.now)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    with made.project:
        yield made


def rollback(name: str, reason: str = "") -> RolledBack:
    return RolledBack(rollback_id=name, asset_id="a", asset_key="shop/a", partitions=NONE, reason=reason)


def invalidation(name: str, reason: str = "") -> PartitionsInvalidated:
    return PartitionsInvalidated(invalidation_id=name, sets=[], reason=reason)


def test_what_was_done_under_a_key_is_found_whether_or_not_the_ledger_has_forgotten_it(shop: Shop) -> None:
    old = shop.append(rollback("r-1", "wrong"), invalidation("i-1", "corrected"))
    shop.now += timedelta(days=30)
    new = shop.append(rollback("r-2", "wrong"))
    probes = [rollback("r-1"), invalidation("i-1"), rollback("r-2")]

    def found() -> list[str | None]:
        events = [recorded_under(shop.project, probe) for probe in probes]
        return [None if event is None else event.event_id for event in events]

    assert found() == [*old, *new]
    shop.now += timedelta(hours=2)
    shop.archive()
    assert shop.project.ledger.head().trimmed_position == 3
    assert holder_of(shop.project.ledger, shop.said(rollback("r-1"))) is None, "that key was forgotten"
    assert holder_of(shop.project.ledger, shop.said(rollback("r-2"))) is not None
    assert found() == [*old, *new]
    assert recorded_under(shop.project, rollback("i-1")) is None
    assert recorded_under(shop.project, rollback("r-3")) is None


def test_the_archive_knows_what_it_speaks_of(shop: Shop) -> None:
    kind = RunCancelRequested.event_type
    shop.append(*(RunCancelRequested(run_id=f"run-{number}") for number in range(1_000)), rollback("r-1"))
    assert not shop.project.archive.may_speak_of("run-1", kind), "there is none yet"
    shop.now += timedelta(days=1)
    shop.archive()
    shop.append(RunCancelRequested(run_id="run-later"))
    assert all(shop.project.archive.may_speak_of(f"run-{number}", kind) for number in range(1_000))
    assert not any(shop.project.archive.may_speak_of(f"run-{number}", kind) for number in range(1_000, 2_000))
    assert not shop.project.archive.may_speak_of("run-later", kind)
    assert not shop.project.archive.may_speak_of("r-1", kind), "that is of another type"
    shop.now += timedelta(days=1)
    shop.archive()
    assert shop.project.archive.may_speak_of("run-later", kind)


def test_what_was_done_under_a_key_that_no_request_was_kept_for_is_the_first_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The idle executor writes no files, so nobody can look for them.
    monkeypatch.setattr(going_back, "require_files", lambda *_: None)
    body = {"asset": "orders", "partitions": ["2025-01-02"], "reason": "wrong"}
    with house(tmp_path) as served:
        for _ in range(2):
            served.made("orders", partitions="2025-01-02")
        done = Data(served.project).rollback(
            "orders", ["2025-01-02"], to=None, reason="wrong", rollback_id="k-1", actor="person:ann"
        )
        head = served.head()
        answers = [served.post("/materializations/rollback", body, 200, key="k-1") for _ in range(2)]
        assert answers[0] == answers[1]
        assert answers[0]["accepted_event_id"] == done["event_id"]
        assert served.head() == head
        other = served.post("/materializations/rollback", {**body, "reason": "other"}, 409, key="k-1")
        assert other["code"] == "idempotency-mismatch"


def test_a_run_whose_request_is_recorded_with_it_alone_is_found_by_its_key(tmp_path: Path) -> None:
    """As earlier versions recorded it: the fingerprint of the body is a tag of the run, and nothing else is kept."""
    body = {"select": ["orders"], "partitions": "latest"}
    said = body | {"accept_schema": False, "priority": 0, "tags": {}}
    with house(tmp_path) as served:
        fingerprint = canonical.sha256_hex({"what": "run", "body": said})
        with earlier_version(**{"servo.request": fingerprint}):
            made = Runs(served.project).request(
                ["orders"],
                partitions="2025-01-03",  # which was the newest then
                request_id="k-1",
                actor="person:ann",
            )
        answers = [served.post("/runs", body, 200, key="k-1") for _ in range(2)]
        assert answers[0] == answers[1]
        assert (answers[0]["run_id"], answers[0]["accepted_event_id"]) == (made.run_id, made.event_id)
        assert answers[0]["assets"] == {"shop/orders": 1}
        other = served.post("/runs", body | {"priority": 1}, 409, key="k-1")
        assert other["code"] == "idempotency-mismatch"
        kinds = [event.event_type for event in served.project.history.events()]
        assert (kinds.count(RunRequested.event_type), kinds.count(RequestAccepted.event_type)) == (1, 0)


def test_a_run_whose_key_the_ledger_has_forgotten_is_the_one_of_the_request_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"select": ["orders"], "partitions": "latest"}
    with house(tmp_path) as served:
        made = served.post("/runs", body, key="k-1")
        monkeypatch.setattr(KeyedRequest, "first", lambda *_: None)
        monkeypatch.setattr(handlers, "run_requested", _refuse)
        assert served.post("/runs", body, 200, key="k-1") == made
        other = served.post("/runs", body | {"priority": 1}, 409, key="k-1")
        assert other["code"] == "idempotency-mismatch"


def _refuse(*_: object, **__: object) -> Requested:
    """What `latest` is today is another partition, and the run of this key is not of that."""
    raise IdempotencyMismatch("it was used for another run", idempotency_key="k-1")

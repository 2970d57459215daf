"""Runs, backfills, partitions, lineage, data and approvals over HTTP, to a real server on a real ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from servo.events import Proposal
from servo.events.model import RunRequested
from servo.operations.assets import materializations as going_back
from servo.operations.checkpoints import handlers as deciding
from tests.support.idle import IdleExecutor
from tests.support.operating import Backfills, Checkpoints, Runs
from tests.support.questions import Audits, Data, PartitionBook, Why
from tests.support.served import House, house

POISON = "date=d:2025-01-13"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    executor = IdleExecutor(fails=lambda order, key: key == POISON)
    with house(tmp_path_factory.mktemp("shop"), executor=executor) as found:
        yield found


@pytest.fixture
def shop(served: House) -> House:
    """The server, once nothing is under way that an earlier test asked for: answers are compared as they are now."""
    served.workshop.at_rest()
    return served


def as_json(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_is_asked_for_listed_and_shown(shop: House) -> None:
    body = {"select": ["orders", "revenue"], "partitions": "2025-01-01", "tags": {"team": "sales"}, "priority": 3}
    made = shop.post("/runs", body)
    assert made["assets"] == {"shop/orders": 1, "shop/revenue": 1}
    assert made["correlation_id"] == made["run_id"]
    shop.workshop.until(lambda: shop.data(f"/runs/{made['run_id']}")["status"] == "SUCCEEDED", "the run succeeded")
    shown = shop.data(f"/runs/{made['run_id']}")
    assert shown == as_json(Runs(shop.project).show(made["run_id"]))
    assert shown["tags"]["team"] == "sales"
    tasks = shop.items(f"/runs/{made['run_id']}/tasks")
    assert tasks == shown["tasks"]
    assert [task["asset_key"] for task in tasks] == ["shop/orders", "shop/revenue"]
    assert shop.items("/runs") == as_json(Runs(shop.project).list())
    assert made["run_id"] in [run["run_id"] for run in shop.items("/runs", status="SUCCEEDED", asset="revenue")]
    assert shop.items("/runs", until="2025-01-01") == []
    logs = shop.get(f"/runs/{made['run_id']}/logs")
    assert logs["status"] == "SUCCEEDED"
    assert logs["next_cursor"] is None
    assert shop.get("/runs/run_unknown", 404)["code"] == "run-not-found"
    assert shop.get("/runs/run_unknown/tasks", 404)["code"] == "run-not-found"
    assert shop.get("/runs/run_unknown/logs", 404)["code"] == "run-not-found"


def test_a_run_that_cannot_be_is_refused_and_nothing_is_written(shop: House) -> None:
    head = shop.head()
    assert shop.post("/runs", {"select": ["nothing"]}, 404)["code"] == "asset-not-found"
    assert shop.post("/runs", {"select": ["orders"], "partitions": "2031-01-01"}, 422)["code"] == "invalid-partition"
    assert shop.post("/runs", {"select": ["(orders"]}, 422)["code"] == "invalid-selection"
    assert shop.post("/runs", {"select": ["revenue"], "partitions": "2025-01-19"}, 422)["code"] == "inputs-missing"
    assert shop.post("/runs", {"select": []}, 422)["field"] == "select"
    assert shop.post("/runs", {"select": ["orders"], "tags": {"servo.request": "x"}}, 400)["code"] == "invalid-input"
    assert shop.client.post("/runs", json={"select": ["orders"]}).json()["code"] == "idempotency-key-required"
    assert shop.head() == head


def test_a_run_that_failed_is_retried_once_for_a_key(shop: House) -> None:
    run_id = shop.made("orders", partitions="2025-01-12..2025-01-13")
    assert shop.data(f"/runs/{run_id}")["status"] == "FAILED"
    key = shop.key()
    retried = shop.post(f"/runs/{run_id}/retry", key=key)
    assert retried["assets"] == {"shop/orders": 1}
    assert shop.post(f"/runs/{run_id}/retry", {}, 200, key=key) == retried
    assert shop.post(f"/runs/{run_id}/retry", {"everything": True}, 409, key=key)["code"] == "idempotency-mismatch"
    assert (
        shop.post("/runs", {"select": ["orders"], "partitions": "2025-01-13"}, 409, key=key)["code"]
        == "idempotency-mismatch"
    )
    everything = shop.post(f"/runs/{run_id}/retry", {"everything": True})
    assert everything["assets"] == {"shop/orders": 2}
    assert shop.post("/runs/run_unknown/retry", {}, 404)["code"] == "run-not-found"


def test_a_run_is_cancelled_and_once_is_enough(shop: House) -> None:
    waiting = shop.made("filing", partitions="2025-01-01")
    cancelled = shop.post(f"/runs/{waiting}/cancel", {"reason": "wrong day"})
    assert cancelled["status"] == "CANCELLING"
    shop.workshop.until(lambda: shop.data(f"/runs/{waiting}")["status"] == "CANCELLED", "the run was cancelled")
    assert shop.post(f"/runs/{waiting}/cancel", {}, 409)["code"] == "conflict"


# ── backfills ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_backfill_is_previewed_made_and_shown(shop: House) -> None:
    body = {"assets": ["orders"], "start": "2025-01-01", "end": "2025-01-06", "chunk_size": 2, "name": "history"}
    head = shop.head()
    preview = shop.post("/backfills/preview", body, 200)
    assert (preview["partitions"], preview["chunks"]) == (6, 3)
    assert shop.head() == head
    key = shop.key()
    made = shop.post("/backfills", body, key=key)
    assert (made["name"], made["total_partitions"]) == ("history", 6)
    assert made["correlation_id"] == made["backfill_id"]
    shop.workshop.ended("history")
    assert shop.post("/backfills", body, 200, key=key) == made
    assert shop.post("/backfills", body | {"chunk_size": 3}, 409, key=key)["code"] == "idempotency-mismatch"
    tree = shop.data("/backfills/history/tree")
    assert tree == as_json(Backfills(shop.project).tree("history"))
    assert shop.data("/backfills/history") == tree["root"]
    chunks = shop.get("/backfills/history/chunks", fresh=True, limit=2)
    assert [chunk["chunk_index"] for chunk in chunks["items"]] == [0, 1]
    assert chunks["name"] == "history"
    rest = shop.get("/backfills/history/chunks", fresh=True, limit=2, cursor=chunks["next_cursor"])
    assert ([chunk["chunk_index"] for chunk in rest["items"]], rest["next_cursor"]) == ([2], None)
    listed = shop.items("/backfills", status="SUCCEEDED", asset="orders")
    assert "history" in [one["root"]["name"] for one in listed]
    assert all("failures" not in one for one in listed)
    assert shop.items("/backfills", until="2025-01-01") == []
    assert shop.post("/backfills", body, 409)["detail"] == "there is a backfill history already"
    assert shop.post("/backfills/history/pause", {}, 409)["code"] == "backfill-conflict"
    assert shop.get("/backfills/nothing", 404)["code"] == "backfill-not-found"
    assert shop.post("/backfills/preview", {"assets": ["nothing"]}, 404)["code"] == "asset-not-found"
    assert shop.post("/backfills", body | {"chunk_size": 0}, 422)["field"] == "chunk_size"


def test_a_backfill_is_steered_at_the_version_that_was_seen(shop: House) -> None:
    # What waits for a person goes on until somebody decides.
    body = {"assets": ["filing"], "start": "2025-01-02", "end": "2025-01-05", "chunk_size": 1, "name": "filed"}
    shop.post("/backfills", body)
    shop.workshop.until(lambda: shop.data("/backfills/filed")["state"] == "RUNNING", "it runs")
    version = shop.data("/backfills/filed")["state_version"]
    stale = shop.post("/backfills/filed/pause", {"expected_state_version": version + 5}, 409)
    assert (stale["expected"], stale["actual"]) == (version + 5, version)
    paused = shop.post("/backfills/filed/pause", {"expected_state_version": version, "reason": "lunch"})
    assert (paused["state"], paused["state_version"]) == ("PAUSED", version + 1)
    assert shop.post("/backfills/filed/resume")["state"] == "RUNNING"
    assert shop.post("/backfills/filed/cancel")["state"] == "CANCELLED"
    assert shop.post("/backfills/filed/cancel", {}, 409)["code"] == "backfill-conflict"


def test_what_failed_in_a_backfill_is_retried_once_for_a_key(shop: House) -> None:
    body = {"assets": ["orders"], "start": "2025-01-12", "end": "2025-01-14", "chunk_size": 1, "name": "poisoned"}
    shop.post("/backfills", body)
    shop.workshop.ended("poisoned")
    key = shop.key()
    retried = shop.post("/backfills/poisoned/retry-failed", key=key)
    assert (retried["name"], retried["total_partitions"]) == ("poisoned-retry", 1)
    assert shop.post("/backfills/poisoned/retry-failed", {}, 200, key=key) == retried
    assert shop.post("/backfills/nothing/retry-failed", {}, 404)["code"] == "backfill-not-found"


# ── partitions and assets ────────────────────────────────────────────────────────────────────────────────────────


def test_assets_are_named_in_three_ways(shop: House) -> None:
    listed = shop.items("/assets")
    assert [one["asset_key"] for one in listed] == ["shop/filing", "shop/orders", "shop/revenue", "shop/totals"]
    shown = shop.data("/assets/shop/orders")
    assert shown["downstream"][0]["asset_key"] == "shop/revenue"
    assert shop.data("/assets/shop.orders") == shop.data("/assets/orders") == shown
    assert shop.get("/assets/nothing", 404)["code"] == "asset-not-found"
    assert shop.get("/assets/shop/nothing", 404)["code"] == "asset-not-found"


def test_partitions_are_listed_counted_and_explained(shop: House) -> None:
    book = PartitionBook(shop.project)
    page = shop.get("/assets/shop/orders/partitions", fresh=True)
    assert page["items"] == as_json(book.page("orders").partitions)
    assert page["total"] == 19
    assert shop.get("/assets/shop.orders/partitions", fresh=True)["items"] == page["items"]
    (made,) = shop.items("/assets/orders/partitions", partitions="2025-01-01", status="MATERIALIZED")
    assert made["partition_key"] == "date=d:2025-01-01"
    everything = shop.get("/partitions", fresh=True, limit=100)
    assert everything["total"] == 3 * 19 + 1
    assert shop.data("/assets/shop/orders/partitions/summary") == as_json(book.summary(["orders"])[0])
    assert shop.data("/assets/orders/partitions/summary")["total"] == 19
    assert shop.data("/assets/orders/partitions/2025-01-01") == made
    assert shop.data("/assets/shop/orders/partitions/date=d:2025-01-01") == made
    why = Why(shop.project)
    told = shop.data("/assets/shop/orders/partitions/2025-01-13/why")
    assert {**told, "now": 0} == {**as_json(why.partition("orders", "2025-01-13")), "now": 0}
    assert shop.data("/assets/orders/why", partition="2025-01-13")["sentence"] == told["sentence"]
    assert shop.data("/assets/shop/orders/why")["sentence"] == why.asset("orders").sentence
    assert shop.get("/assets/orders/partitions/2031-01-01", 422)["code"] == "invalid-partition"
    assert shop.get("/assets/orders/partitions/2031-01-01/why", 422)["code"] == "invalid-partition"
    assert shop.get("/assets/orders/partitions", 400, status="blue")["code"] == "invalid-input"
    assert shop.get("/assets/nothing/partitions", 404)["code"] == "asset-not-found"
    assert shop.get("/assets/nothing/partitions/summary", 404)["code"] == "asset-not-found"


# ── lineage ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_lineage_is_followed_invalidated_and_made_anew(shop: House) -> None:
    shop.made("orders", "revenue", partitions="2025-01-08")
    asked = {"asset": "revenue", "partition": "2025-01-08"}
    up = shop.data("/lineage/upstream", **asked)
    assert [node["asset_key"] for node in up["nodes"]] == ["shop/revenue", "shop/orders"]
    below = {"asset": "orders", "partition": "2025-01-08"}
    assert [node["asset_key"] for node in shop.data("/lineage/downstream", **below)["nodes"]] == [
        "shop/orders",
        "shop/revenue",
    ]
    assert {node["status"] for node in shop.data("/lineage/impact", **below)["nodes"]} == {"MATERIALIZED"}
    assert len(shop.data("/lineage/graph", **below)["nodes"]) == 2
    head = shop.project.ledger.head().event_id
    assert head is not None
    then = shop.get("/lineage/at", as_of=head, **asked)["data"]
    assert [node["asset_key"] for node in then["nodes"]] == ["shop/revenue", "shop/orders"]
    assert shop.get("/lineage/at", 400, **asked)["code"] == "invalid-input"
    assert shop.get("/lineage/upstream", 400)["code"] == "invalid-input"
    assert shop.get("/lineage/upstream", 404, asset="revenue", partition="2025-01-19")["code"] == "data-not-found"

    body = {"asset": "orders", "partitions": ["2025-01-08"], "reason": "the source was corrected"}
    key = shop.key()
    declared = shop.post("/lineage/invalidate", body, key=key)
    assert declared["invalidated"] == [{"asset_key": "shop/revenue", "partition_keys": ["date=d:2025-01-08"]}]
    assert shop.post("/lineage/invalidate", body, 200, key=key) == declared
    assert (
        shop.post("/lineage/invalidate", body | {"reason": "another"}, 409, key=key)["code"] == "idempotency-mismatch"
    )
    assert shop.post("/lineage/invalidate", {**body, "reason": ""}, 422)["field"] == "reason"

    stale = shop.get("/partitions/stale", fresh=True, select="revenue@2025-01-08")
    assert [(one["asset_key"], one["partition"]) for one in stale["items"]] == [("shop/revenue", "2025-01-08")]
    assert stale["total"] == 1
    assert stale["items"] == as_json(PartitionBook(shop.project).stale(["revenue@2025-01-08"]).page(200))
    assert shop.get("/partitions/stale", 404, select="nothing")["code"] == "asset-not-found"

    key, again = shop.key(), {"asset": "orders", "partitions": ["2025-01-08"]}
    anew = shop.post("/lineage/rematerialize", again, key=key)
    assert anew["total_partitions"] == 1
    shop.workshop.ended(anew["name"])
    assert shop.post("/lineage/rematerialize", again, 200, key=key) == anew
    nothing = shop.post("/lineage/rematerialize", again, 200)
    assert (nothing["backfill_id"], nothing["accepted_event_id"]) == (None, None)


# ── data, approvals, proof ───────────────────────────────────────────────────────────────────────────────────────


def test_an_earlier_version_becomes_current_again(shop: House, monkeypatch: pytest.MonkeyPatch) -> None:
    # The idle executor writes no files, so nobody can look for them.
    monkeypatch.setattr(going_back, "require_files", lambda *_: None)
    for _ in range(3):
        shop.made("totals")
    versions = shop.items("/materializations", asset="totals")
    assert versions == as_json(Data(shop.project).materializations("totals"))
    assert [one["current"] for one in versions] == [True, False, False]
    first = shop.get("/materializations", fresh=True, asset="totals", limit=2)
    rest = shop.get("/materializations", fresh=True, asset="totals", limit=2, cursor=first["next_cursor"])
    assert first["items"] + rest["items"] == versions
    key, body = (
        shop.key(),
        {"asset": "totals", "reason": "the newest is wrong", "to": versions[1]["materialization_id"]},
    )
    back = shop.post("/materializations/rollback", body, key=key)
    assert back["partitions"] == [{"partition_key": "", "materialization_id": versions[1]["materialization_id"]}]
    assert shop.post("/materializations/rollback", body, 200, key=key) == back
    assert (
        shop.post("/materializations/rollback", body | {"reason": "other"}, 409, key=key)["code"]
        == "idempotency-mismatch"
    )
    forth = shop.post("/materializations/rollback", body | {"to": versions[0]["materialization_id"]})
    assert shop.post("/materializations/rollback", body, 200, key=key) == back
    assert forth["accepted_event_id"] > back["accepted_event_id"]
    assert shop.get("/materializations", 404, asset="revenue", partition="2025-01-19")["code"] == "data-not-found"
    assert shop.post("/materializations/rollback", {"asset": "totals"}, 422)["code"] == "invalid-input"


def test_what_waits_for_a_person_is_approved_or_rejected(shop: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "require_files", lambda *_: None)
    runs = [shop.made("filing", partitions=f"2025-01-1{day}") for day in (0, 1)]
    waiting = shop.items("/checkpoints", status="REQUESTED")
    assert [one["run_id"] for one in waiting] == [runs[1], runs[0]]
    ids = [one["checkpoint_id"] for one in waiting]
    page = shop.get("/checkpoints", fresh=True, status="REQUESTED", limit=1)
    following = shop.get("/checkpoints", fresh=True, status="REQUESTED", limit=1, cursor=page["next_cursor"])
    assert [one["checkpoint_id"] for one in page["items"] + following["items"]] == ids
    shown = shop.data(f"/checkpoints/{ids[0]}")
    assert shown == as_json(Checkpoints(shop.project).show(ids[0]))
    assert shop.post(f"/checkpoints/{ids[0]}/approve", {"content_hash": "0" * 64}, 409)["code"] == "conflict"
    approved = shop.post(f"/checkpoints/{ids[0]}/approve", {"reason": "fine", "content_hash": shown["hash"]})
    assert (approved["status"], approved["run_status"]) == ("APPROVED", "SUCCEEDED")
    assert "was approved by" in shop.post(f"/checkpoints/{ids[0]}/approve", {}, 409)["detail"]
    assert shop.post(f"/checkpoints/{ids[1]}/reject", {}, 422)["code"] == "invalid-input"
    assert shop.post(f"/checkpoints/{ids[1]}/reject", {"reason": "off"})["status"] == "REJECTED"
    assert shop.get("/checkpoints/01ARZ3NDEKTSV4RRFFQ69G5FAV", 404)["code"] == "checkpoint-not-found"
    assert shop.get("/checkpoints", 400, status="MAYBE")["field"] == "status"


def test_a_report_proves_itself_also_when_it_comes_back(shop: House) -> None:
    shop.made("orders", partitions="2025-01-09")
    report = shop.data("/audit/report", asset="orders", partition="2025-01-09")
    made = as_json(Audits(shop.project).report("orders", "2025-01-09", keep=False))
    assert report["materialization"] == made["materialization"]
    verified = shop.post("/audit/verify", report, 200)
    assert verified["valid"], verified
    report["proof"]["events"].pop()
    assert not shop.post("/audit/verify", report, 200)["valid"]
    assert shop.get("/audit/report", 404, asset="orders", partition="2025-01-19")["code"] == "data-not-found"
    assert shop.post("/audit/verify", {"report": 1}, 400)["code"] == "invalid-input"


def test_run_keys_that_were_used_for_two_things_are_listed(shop: House) -> None:
    assert shop.items("/conflicts") == []
    key = shop.key()
    made = shop.post("/runs", {"select": ["totals"]}, key=key)
    shop.workshop.until(lambda: shop.data(f"/runs/{made['run_id']}")["status"] == "SUCCEEDED", "the run succeeded")
    (first,) = [fact for fact in shop.workshop.facts(RunRequested) if fact.run_id == made["run_id"]]
    other = msgspec.structs.replace(first, request_fingerprint="another")
    shop.project.ledger.append([Proposal(fact=other, occurred_at=shop.project.clock(), actor="person:other")])
    (conflict,) = shop.items("/conflicts")
    assert (conflict["run_key"], conflict["requested_by"]) == (f"manual:{key}", "person:other")
    assert shop.items("/conflicts") == as_json(Runs(shop.project).conflicts())
    assert shop.items("/conflicts", run_key="manual:other") == []
    assert shop.post("/runs", {"select": ["totals"]}, 200, key=key) == made
    assert "since" in shop.get("/conflicts", 400, since="2025-01-01")["detail"]

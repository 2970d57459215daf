"""Schedules and sensors over HTTP, to a real server on a real ledger."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from tests.support.operating import Schedules, Sensors
from tests.support.served import House, house


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("shop")) as found:
        yield found


def as_json(value: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(value))


def hourly(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "cron": "0 * * * *", "select": ["totals"], **more}


# ── schedules ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_schedule_is_made_shown_edited_and_deleted(shop: House) -> None:
    made = shop.post("/schedules", hourly("ours", tags={"team": "sales"}))
    assert (made["name"], made["version"], made["enabled"]) == ("ours", 1, True)
    assert made["accepted_event_id"] == made["event_id"]
    assert made["correlation_id"] == made["id"]
    shown = shop.data("/schedules/ours")
    service = as_json(Schedules(shop.project).show("ours"))
    assert isinstance(service, dict)
    assert {**shown, "next_at": None} == {**service, "next_at": None}
    edited = shop.post("/schedules/ours", {"cron": "30 * * * *", "expected_state_version": 1}, method="PATCH")
    assert (edited["version"], edited["changed"]) == (2, ["cron"])
    stale = shop.post("/schedules/ours", {"cron": "0 1 * * *", "expected_state_version": 1}, 409, method="PATCH")
    assert (stale["expected"], stale["actual"]) == (1, 2)
    gone = shop.client.delete("/schedules/ours", params={"expected_state_version": 1})
    assert gone.status_code == 409
    assert shop.client.delete("/schedules/ours", params={"expected_state_version": 2}).status_code == 202
    assert shop.get("/schedules/ours", 404, fresh=True)["code"] == "schedule-not-found"


def test_a_schedule_that_code_declares_is_not_edited(shop: House) -> None:
    assert "declared by code" in shop.post("/schedules/nightly", {"cron": "0 1 * * *"}, 400, method="PATCH")["detail"]
    assert shop.client.delete("/schedules/nightly").status_code == 400


def test_what_no_schedule_can_be_is_refused_and_nothing_is_written(shop: House) -> None:
    head = shop.head()
    assert "cron" in shop.post("/schedules", hourly("x", cron="never"), 400)["detail"]
    assert "cron" in shop.post("/schedules", {"name": "x"}, 422)["detail"]
    assert shop.post("/schedules", hourly("x", overlap="perhaps"), 422)["field"] == "overlap"
    assert shop.post("/schedules", hourly("x", nonsense=1), 422)["code"] == "invalid-input"
    assert shop.post("/schedules", hourly("nightly"), 409)["detail"].startswith("schedule nightly is declared by code")
    assert shop.post("/schedules", hourly("x", select=["nothing"]), 404)["code"] == "asset-not-found"
    assert shop.client.post("/schedules", json=hourly("x")).json()["code"] == "idempotency-key-required"
    assert shop.head() == head


def test_schedules_are_switched_and_ticked_by_hand(shop: House) -> None:
    shop.post("/schedules", hourly("switched"))
    paused = shop.post("/schedules/switched/pause", {"reason": "too many"})
    assert (paused["enabled"], paused["version"]) == (False, 2)
    again = shop.post("/schedules/switched/pause", {}, 200)
    assert again["accepted_event_id"] is None
    assert [one["name"] for one in shop.items("/schedules", status="paused")] == ["switched"]
    assert shop.post("/schedules/switched/resume")["enabled"]
    assert shop.post("/schedules/missing/pause", {}, 404)["code"] == "schedule-not-found"
    key = shop.key()
    ticked = shop.post("/schedules/nightly/trigger", {"at": "2025-01-10T06:00:00Z"}, key=key)
    assert ticked["status"] == "TRIGGERED"
    assert ticked["scheduled_for"] == "2025-01-10T06:00:00Z"
    assert shop.post("/schedules/nightly/trigger", {"at": "2025-01-10T06:00:00Z"}, 200, key=key) == ticked
    assert (
        shop.post("/schedules/nightly/trigger", {"at": "2025-01-11T06:00:00Z"}, 409, key=key)["code"]
        == "idempotency-mismatch"
    )
    assert shop.post("/schedules/nightly/trigger", {}, 409, key=key)["code"] == "idempotency-mismatch"
    now = shop.post("/schedules/nightly/trigger", {}, key=(key := shop.key()))
    assert shop.post("/schedules/nightly/trigger", {}, 200, key=key) == now
    shop.workshop.at_rest()  # a tick tells how its run is doing
    ticks = shop.items("/schedules/nightly/ticks")
    assert [tick["tick_id"] for tick in ticks] == [now["tick_id"], ticked["tick_id"]]
    assert ticks == as_json(Schedules(shop.project).ticks("nightly"))
    assert shop.items("/schedules/nightly/ticks", until="2025-01-11", status="TRIGGERED")[0] == ticks[1]
    assert shop.get("/schedules/nightly/ticks", 400, status="LATE")["field"] == "status"


# ── sensors ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sensor_is_made_without_code(shop: House) -> None:
    body = {"name": "sent", "select": "orders", "partitions": "{day}"}
    key = shop.key()
    made = shop.post("/sensors", body, key=key)
    assert shop.post("/sensors", body, 200, key=key) == made
    assert shop.post("/sensors", body | {"name": "other"}, 409, key=key)["code"] == "idempotency-mismatch"
    assert shop.data("/sensors/sent") == as_json(Sensors(shop.project).show("sent"))
    assert shop.client.delete("/sensors/sent").status_code == 202
    assert shop.get("/sensors/sent", 404, fresh=True)["code"] == "sensor-not-found"
    assert shop.client.delete("/sensors/uploads").status_code == 400
    assert shop.post("/sensors", {"name": "bad", "select": "nothing"}, 404)["code"] == "asset-not-found"


def test_sensors_are_listed_with_what_they_found(shop: House) -> None:
    names = [one["name"] for one in shop.items("/sensors")]
    assert {"landing", "uploads"} <= set(names)
    assert names == sorted(names)
    sent = {"message": {"messageId": "m1", "data": "eyJkYXkiOiAiMjAyNS0wMS0wNCJ9"}}
    first = shop.client.post("/sensors/uploads/messages", json=sent)
    assert first.status_code == 202, first.text
    assert shop.client.post("/sensors/uploads/messages", json=sent).status_code == 200
    shop.workshop.at_rest()  # an evaluation tells how its runs are doing
    (found,) = shop.items("/sensors/uploads/evals", trigger="push")
    assert found["message_id"] == "m1"
    assert shop.items("/sensors/uploads/evals") == as_json(Sensors(shop.project).evals("uploads"))
    assert shop.get("/sensors/uploads/evals", 400, trigger="wind")["field"] == "trigger"
    assert shop.get("/sensors/nobody/evals", 404)["code"] == "sensor-not-found"


def test_a_sensor_is_asked_by_hand_once_for_a_key(shop: House) -> None:
    trial = shop.post("/sensors/landing/evaluate", {"dry_run": True}, 200)
    assert (trial["status"], trial["accepted_event_id"]) == ("TRIGGERED", None)
    key = shop.key()
    done = shop.post("/sensors/landing/evaluate", {}, key=key)
    assert done["run_keys"] == [f"sensor:{done['sensor_id']}:first"]
    assert shop.post("/sensors/landing/evaluate", {}, 200, key=key) == done
    assert shop.post("/sensors/landing/evaluate", {"message_id": "m1"}, 409, key=key)["code"] == "idempotency-mismatch"
    assert shop.post("/sensors/uploads/evaluate", {}, 400)["code"] == "invalid-input"
    assert shop.client.post("/sensors/landing/evaluate").json()["code"] == "idempotency-key-required"


def test_sensors_are_switched_and_their_cursor_is_set(shop: House) -> None:
    assert shop.post("/sensors/landing/pause")["enabled"] is False
    assert shop.post("/sensors/landing/resume")["enabled"] is True
    version = shop.data("/sensors/landing")["state_version"]
    reset = shop.post("/sensors/landing/reset-cursor", {"cursor": "7", "expected_state_version": version})
    assert (reset["cursor"], reset["state_version"]) == ("7", version + 1)
    stale = shop.post("/sensors/landing/reset-cursor", {"cursor": "8", "expected_state_version": version}, 409)
    assert (stale["expected"], stale["actual"]) == (version, version + 1)
    assert shop.post("/sensors/landing/reset-cursor", {}, 422)["code"] == "invalid-input"
    assert shop.post("/sensors/uploads/reset-cursor", {"cursor": None}, 400)["code"] == "invalid-input"


def test_one_pass_over_schedules_and_sensors(shop: House) -> None:
    done = shop.post("/internal/tick", status=200)
    assert {"ticks", "evaluations"} <= done.keys()

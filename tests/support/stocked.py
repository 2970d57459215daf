"""A served project of which there is something of everything: an id or a name for each thing that a route asks for."""

from __future__ import annotations

import re

import msgspec

from servo.events import Proposal
from servo.events.model import RunRequested
from tests.support.served import House

__all__ = ["marked", "stock"]


def stock(shop: House, mark: str = "") -> dict[str, list[str]]:
    """Record runs, backfills, ticks, evaluations, checkpoints, conflicts; what they are called, by path parameter.

    `mark`: is at the end of every name, and in whatever else is said; the definitions are `marked` with it.
    """
    shop.mark = mark
    orders, revenue, totals, filing = (name + mark for name in ("orders", "revenue", "totals", "filing"))
    nightly, hourly, landing, uploads, notes = (
        name + mark for name in ("nightly", "hourly", "landing", "uploads", "notes")
    )
    done = shop.made(orders, revenue, partitions="2025-01-01..2025-01-03")
    shop.made(totals)
    waiting = shop.made(filing, partitions="2025-01-01..2025-01-02")
    body = {"assets": [orders], "start": "2025-01-04", "end": "2025-01-06", "chunk_size": 1, "name": f"history{mark}"}
    history = shop.post("/backfills", body)["backfill_id"]
    shop.workshop.ended(f"history{mark}")
    held = {"assets": [filing], "start": "2025-01-05", "end": "2025-01-08", "chunk_size": 1, "name": f"held{mark}"}
    shop.post("/backfills", held)
    shop.post("/schedules", {"name": hourly, "cron": "0 * * * *", "select": [totals], "tags": {"for": f"us{mark}"}})
    shop.post(f"/schedules/{nightly}/trigger")
    shop.post("/sensors", {"name": notes, "select": totals})
    shop.post(f"/sensors/{landing}/evaluate")
    for number in range(3):
        message = {"messageId": f"message-{number}{mark}", "data": "eyJkYXkiOiAiMjAyNS0wMS0wOSJ9"}  # the 9th of January
        shop.client.post(f"/sensors/{uploads}/messages", json={"message": message}).raise_for_status()
    shop.post("/lineage/invalidate", {"asset": orders, "partitions": ["2025-01-01"], "reason": f"for{mark}"})
    # A run key that was used for two things: only what writes the ledger by itself can do that.
    first = next(fact for fact in shop.workshop.facts(RunRequested) if fact.run_id == done)
    other = msgspec.structs.replace(first, request_fingerprint="another")
    shop.project.ledger.append([Proposal(fact=other, occurred_at=shop.project.clock(), actor=f"person:other{mark}")])
    shop.workshop.at_rest()
    checkpoints = [one["checkpoint_id"] for one in shop.items("/checkpoints")]
    assert checkpoints, "something waits for a person"
    return {
        "asset": [orders, f"shop.{revenue}", totals, filing],
        "namespace": ["shop"],
        "name": [orders, totals],
        "partition": ["2025-01-01", "date=d:2025-01-02"],
        "run_id": [done, waiting],
        "backfill": [f"history{mark}", history, f"held{mark}"],
        "checkpoint_id": checkpoints,
        "dimension": [f"customer{mark}"],
        "schedule": [nightly, hourly],
        "sensor": [uploads, landing, notes],
    }


def marked(definitions: str, mark: str) -> str:
    """Definitions whose names all end with this."""
    names = "orders|revenue|totals|filing|nightly|landing|uploads"
    return re.sub(rf"\b({names})\b", lambda found: found[0] + mark, definitions)

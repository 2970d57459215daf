"""JSON lines that need nothing of Servo."""

from __future__ import annotations

import hashlib
import io
import json

from servo.ledger import MemoryLedger
from servo.ledger.history import History, export
from tests.contract.support import WORKSPACE, cancel, mint

AWKWARD = 'quotes " \\ / controls \x01\x1f\x7f\n\t, ä € 𝄞 \u2028 <>&'


def history() -> History:
    ledger = MemoryLedger(WORKSPACE, mint())
    ledger.append([cancel(f"run_{n}{AWKWARD}", AWKWARD * (n % 40)) for n in range(500)])
    return History(ledger, None)


def test_a_stranger_recomputes_the_chain_from_the_lines() -> None:
    out = io.BytesIO()
    assert export(history(), out) == 500
    previous = bytes(32)
    lines = out.getvalue().decode().split("\n")
    assert lines.pop() == ""
    for position, line in enumerate(lines, 1):
        event = json.loads(line)
        assert event["position"] == position
        assert isinstance(event["payload"], dict)
        chain_hash = event.pop("chain_hash")
        text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        previous = hashlib.sha256(previous + text.encode()).digest()
        assert previous.hex() == chain_hash
        event["chain_hash"] = chain_hash
        assert line == json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert set(event) == {
            "actor",
            "causation_id",
            "chain_hash",
            "correlation_id",
            "event_id",
            "event_type",
            "event_version",
            "idempotency_key",
            "occurred_at",
            "payload",
            "position",
            "tenant_id",
            "workspace_id",
        }


def test_text_and_bytes_say_the_same_and_ranges_are_cut_exactly() -> None:
    story = history()
    text, data = io.StringIO(newline=""), io.BytesIO()
    assert export(story, text, after=10, until=20) == export(story, data, after=10, until=20) == 10
    assert text.getvalue().encode() == data.getvalue()
    assert [json.loads(line)["position"] for line in data.getvalue().splitlines()] == list(range(11, 21))

"""What happens next with a backfill: which chunk becomes a run, and how it ends."""

from __future__ import annotations

from base64 import b64encode
from zlib import compress

import msgspec
import pytest

from servo.controllers.backfill_board import BackfillState
from servo.controllers.backfilling import BACKFILLS, decide
from servo.errors import AppendConflict, InvalidPartition
from servo.events.automation import BackfillChunkPlanned, BackfillStateChanged
from servo.events.columns import Outcome
from servo.events.model import RunRequested
from servo.ids import request_fingerprint
from servo.ledger import Condition
from servo.partitions import Daily, Dynamic, Partitions, PartitionSet, Static
from servo.partitions.definitions import Dimension
from servo.planning.backfills import selected
from tests.support.backfill_stories import (
    DAYS,
    JANUARY,
    SHOP,
    chunks_of,
    run_id_of,
    states_of,
    story,
)
from tests.support.catalogs import asset_id, catalog, spec

# ── chunks ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_month_by_ten_is_four_chunks_two_at_a_time() -> None:
    told = story()
    told.created("b", "raw", JANUARY)
    facts = told.decides()
    assert [fact.event_type for fact in facts] == [
        "BackfillStateChanged",
        "BackfillChunkPlanned",
        "RunRequested",
        "BackfillChunkPlanned",
        "RunRequested",
    ]
    assert told.job("b").state is BackfillState.RUNNING
    assert told.job("b").chunks == 4
    assert told.decides() == []  # two are active
    told.ends("b", 1)
    assert chunks_of(told.decides()) == [("b", 2)]
    told.ends("b", 0)
    assert chunks_of(told.decides()) == [("b", 3)]
    told.ends("b", 2)
    assert told.decides() == []  # the last one still runs
    told.ends("b", 3)
    assert states_of(told.decides()) == [("b", "SUCCEEDED")]
    assert told.decides() == []
    assert told.job("b").succeeded == 31


def test_a_chunk_and_the_request_of_its_run_say_the_same() -> None:
    told = story()
    told.created("b", "raw", JANUARY, priority=7)
    _, chunk, asked, *_ = told.decides()
    assert isinstance(chunk, BackfillChunkPlanned)
    assert isinstance(asked, RunRequested)
    assert chunk.run_key == asked.run_key == "backfill:b:chunk:0"
    assert chunk.run_id == asked.run_id == run_id_of(chunk.run_key)
    assert chunk.partition_count == 10
    assert asked.partitions == {"shop/raw": chunk.partitions}
    assert chunk.request_fingerprint == asked.request_fingerprint
    assert asked.request_fingerprint == request_fingerprint(["shop/raw"], {"shop/raw": chunk.partitions})
    assert (asked.source.kind, asked.source.id, asked.source.detail) == ("backfill", "b", "0")
    assert asked.priority == 7
    assert {event.actor for event in told.history()[1:]} == {BACKFILLS}


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_never_more_than_the_limit_are_active(limit: int) -> None:
    told = story()
    told.created("b", "raw", JANUARY, chunk_size=3, max_concurrent_runs=limit)
    planned, most = [], 0
    while not told.job("b").over:
        planned += chunks_of(told.decides())
        active = list(told.job("b").active.values())
        most = max(most, len(active))
        if active:
            told.ends("b", active[-1].index)
    assert most == min(limit, 11)
    assert planned == [("b", index) for index in range(11)]


def test_who_is_behind_can_plan_nothing() -> None:
    """Whoever has not seen the newest chunk does not know how many are active."""
    told = story()
    told.created("b", "raw", JANUARY)
    [stale] = decide(told.board, SHOP, told.now, run_id_of)
    told.decides()
    condition = Condition(position=stale.position, subjects=stale.subjects)
    told.ledger.append(stale.proposals, condition)  # exactly the same: that is nothing new
    assert len(told.history()) == 6
    told.ends("b", 0)
    [decision] = decide(told.board, SHOP, told.now, run_id_of)
    told.pauses("b")
    with pytest.raises(AppendConflict):
        told.ledger.append(decision.proposals, Condition(position=decision.position, subjects=decision.subjects))


def test_newest_first() -> None:
    told = story()
    told.created("b", "raw", JANUARY, newest_first=True, max_concurrent_runs=4)
    chunks = [fact for fact in told.decides() if isinstance(fact, BackfillChunkPlanned)]
    definition = SHOP.spec("shop/raw").partitions
    assert [PartitionSet.from_json(definition, chunk.partitions).describe() for chunk in chunks] == [
        "2024-01-22..2024-01-31",
        "2024-01-12..2024-01-21",
        "2024-01-02..2024-01-11",
        "2024-01-01",
    ]


def test_the_most_urgent_goes_first_then_the_oldest() -> None:
    told = story()
    told.created("low", "raw", JANUARY)
    told.created("high", "raw", JANUARY, priority=5)
    told.created("low2", "raw", JANUARY)
    assert [job.id for job in told.board.open] == ["high", "low", "low2"]
    assert [name for name, index in chunks_of(told.decides()) if index == 0] == ["high", "low", "low2"]


def test_an_edited_definition_leaves_the_chunks_as_they_were_decided() -> None:
    told = story()
    told.created("b", "raw", JANUARY)
    told.decides()
    told.ends("b", 0)
    edited = catalog(spec("raw", Daily("date", start="2024-01-15") * Static("region", ["eu", "us"])))
    [chunk, asked] = told.decides(edited)
    assert isinstance(chunk, BackfillChunkPlanned)
    assert isinstance(asked, RunRequested)
    assert chunk.partitions == {"dimensions": ["date"], "parts": [[["2024-01-21", "2024-01-30"]]]}
    assert asked.partitions == {"shop/raw": chunk.partitions}


def test_a_renamed_asset_is_still_the_same() -> None:
    told = story()
    told.created("b", "raw", JANUARY)
    renamed = catalog(spec("landing", DAYS))
    renamed = msgspec.structs.replace(renamed, asset_ids={"shop/landing": asset_id("shop/raw")})
    asked = [fact for fact in told.decides(renamed) if isinstance(fact, RunRequested)]
    assert {key for fact in asked for key in fact.asset_selection} == {"shop/landing"}


def test_an_asset_that_is_no_longer_deployed_fails_it_once_its_runs_have_ended() -> None:
    told = story()
    told.created("b", "raw", JANUARY)
    told.decides()
    without = catalog(spec("other", DAYS))
    told.ends("b", 0)
    assert told.decides(without) == []  # the other one still runs
    told.ends("b", 1)
    [fact] = told.decides(without)
    assert isinstance(fact, BackfillStateChanged)
    assert (fact.state, fact.reason) == ("FAILED", "b: its asset is no longer deployed")
    assert told.job("b").succeeded == 20


def test_one_that_cannot_be_read_fails_and_stops_nobody_else() -> None:
    told = story()
    fact = told.created("good", "raw", JANUARY).fact
    bad = msgspec.structs.replace(
        fact, backfill_id="bad", name="bad", client_request_id="bad", selector={"every": "second"}, priority=9
    )
    worse = msgspec.structs.replace(fact, backfill_id="worse", name="worse", client_request_id="worse", definition=None)
    torn = msgspec.structs.replace(
        fact, backfill_id="torn", name="torn", client_request_id="torn", selector={"packed": "eJwrTi0="}
    )
    told.happens(bad, worse, torn)
    facts = told.decides()
    assert [name for name, state in states_of(facts) if state == "FAILED"] == ["bad", "worse", "torn"]
    assert chunks_of(facts) == [("good", 0), ("good", 1)]
    assert told.job("bad").reason == "bad: a selector that does not say which partitions"


@pytest.mark.parametrize(
    "packed",
    [
        "eJwrTi0=",  # torn off
        "AAAA",  # not compressed
        "no base64!",
        "é",
        7,
        b64encode(compress(b"{")).decode(),
        b64encode(compress(b"[1]")).decode(),
        b64encode(compress(b'{"dimensions":["customer"],"parts":[7]}')).decode(),
    ],
)
@pytest.mark.parametrize("dimension", [DAYS, Dynamic("customer", ["ann"])])
def test_a_selector_that_was_packed_badly_is_refused_in_a_line(packed: object, dimension: Dimension) -> None:
    with pytest.raises(InvalidPartition):
        selected(Partitions.of(dimension).to_json(), {"packed": packed})


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_it_fails_if_a_partition_failed_and_not_before_all_have_ended() -> None:
    told = story()
    told.created("b", "raw", JANUARY)
    told.decides()
    told.ends("b", 0, lost=3)
    assert chunks_of(told.decides()) == [("b", 2)]  # a failure stops nothing
    told.ends("b", 1)
    told.ends("b", 2)
    told.decides()
    told.ends("b", 3, lost=1, outcome=Outcome.CANCELLED)
    [fact] = told.decides()
    assert isinstance(fact, BackfillStateChanged)
    assert (fact.state, fact.reason) == ("FAILED", "4 of 31 partitions failed")
    job = told.job("b")
    assert (job.succeeded, job.failed) == (27, 4)


def test_a_run_that_was_cancelled_when_all_was_made_fails_nothing() -> None:
    told = story()
    told.created("b", "raw", "2024-01-01")
    told.decides()
    told.ends("b", 0, lost=0, outcome=Outcome.CANCELLED)
    assert states_of(told.decides()) == [("b", "SUCCEEDED")]

"""Laws of the codec: what is written is canonical, and what is read is what was written."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servo import canonical
from servo.events import EVENT_CLASSES, UnknownEvent, decode, encode, encode_as_before
from servo.events.definitions import Source
from servo.events.fact import Fact
from servo.events.model import RunCancelRequested, RunRequested
from servo.fold import fold
from servo.fold.batch import batch
from tests.support.earlier import request_before
from tests.support.facts import FACTS, facts, json_objects, proposals
from tests.support.recording import recorded, said

modest = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
any_text = st.text(st.characters(exclude_categories=["Cs"]))


@settings(modest, max_examples=10)
@given(st.data())
def test_every_kind_of_fact_comes_back_as_it_was(data: st.DataObject) -> None:
    for kind in EVENT_CLASSES:
        fact = data.draw(FACTS[kind])
        [event] = recorded(said(fact))
        assert (event.event_type, event.event_version) == (kind.event_type, kind.event_version)
        assert decode(event) == fact
        assert encode(decode(event)) == event.payload


@settings(modest, max_examples=100)
@given(FACTS[RunRequested])
def test_a_request_of_version_1_is_the_same_request(fact: RunRequested) -> None:
    before = request_before(fact)
    assert list(encode_as_before(fact)) == [encode(before)]
    [event] = recorded(said(before))
    assert (event.event_version, event.idempotency_key) == (1, fact.idempotency_key)
    assert decode(event) == fact


@settings(modest, max_examples=100)
@given(facts())
def test_encoding_is_canonical(fact: Fact) -> None:
    payload = encode(fact)
    assert payload == canonical.dumps(msgspec.to_builtins(fact))
    assert canonical.dumps(canonical.loads(payload)) == payload


@settings(modest, max_examples=100)
@given(any_text, json_objects, st.dictionaries(any_text, any_text | st.integers(), max_size=3))
def test_any_text_and_any_integer_comes_back(text: str, selector: dict[str, Any], more: dict[str, Any]) -> None:
    for fact in (
        RunCancelRequested(run_id="r", reason=text),
        RunRequested(
            run_id="r",
            run_key="k",
            request_fingerprint="f",
            asset_selection=[text],
            source=Source(kind="manual", id="alice"),
            partitions={"selector": selector, "more": more},
            tags={text: text},
        ),
    ):
        [event] = recorded(said(fact))
        assert decode(event) == fact
        assert event.payload == canonical.dumps(msgspec.to_builtins(fact))


@settings(modest, max_examples=60)
@given(st.lists(proposals(), min_size=1, max_size=3), any_text, st.integers(1, 9))
def test_the_unknown_is_kept_and_says_nothing(known: list[Any], name: str, newer: int) -> None:
    for proposal in known:
        [event] = recorded(proposal)
        of_another_kind = msgspec.structs.replace(event, event_type=f"{name}Happened")
        of_a_newer_version = msgspec.structs.replace(event, event_version=event.event_version + newer)
        for unknown in (of_another_kind, of_a_newer_version):
            expected = UnknownEvent(event_type=unknown.event_type, event_version=unknown.event_version)
            assert decode(unknown) == expected
            assert fold([unknown]) == {}
            folded = batch([unknown])
            assert (folded.chunks, folded.requests, folded.unknown) == ([], [], [expected])


@settings(modest, max_examples=100)
@given(facts())
def test_a_fact_has_one_key_whoever_repeats_it(fact: Fact) -> None:
    """The key and the subject are read off the payload alone, so that they survive the ledger."""
    [event] = recorded(said(fact))
    read = decode(event)
    assert not isinstance(read, UnknownEvent)
    assert read.idempotency_key == fact.idempotency_key == event.idempotency_key
    assert read.correlation == fact.correlation == event.correlation_id

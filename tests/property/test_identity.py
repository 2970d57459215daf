"""Laws of identity: one value has one text, and nothing else reads as it."""

import json
import string
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servo import canonical
from servo.errors import InvalidCanonicalValue, InvalidPartitionKey
from servo.ids import (
    AssetKey,
    UlidFactory,
    is_ulid,
    request_fingerprint,
    run_id,
    ulid_offset,
    ulid_range,
    ulid_time,
)
from servo.partitions import PartitionKey, partition_id

texts = st.text(st.characters(exclude_categories=["Cs"]))
leaves = st.none() | st.booleans() | st.integers() | texts
json_values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=30)

dimension_names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
partition_values = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | texts
    | st.dates(date(1970, 1, 1))
    | st.datetimes(datetime.fromisoformat("1970-01-02"), datetime.fromisoformat("9999-12-30"), timezones=st.timezones())
)
partition_keys = st.dictionaries(dimension_names, partition_values, max_size=4).map(PartitionKey.of)
key_pieces = st.sampled_from(
    [
        *"=:,-_.+ \n\x00",
        *"sibdtnTZ",
        *string.digits,
        "٣",
        "é",
        "null",
        "true",
        "a",
        "A",
        "1969",
        "24",
        "60",
        "==",
    ]
)
scope_names = st.from_regex(r"[a-z][a-z0-9-]{0,62}", fullmatch=True)
ulids = st.integers(0, 2**128 - 1_000_000).map(lambda number: ulid_offset("0" * 26, number))


@st.composite
def mutated_keys(draw):
    """Texts a few edits away from a canonical key, where a lenient reader would be caught."""
    text = str(draw(partition_keys))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        stop = min(len(text), start + draw(st.integers(0, 2)))
        text = text[:start] + draw(st.just("") | key_pieces) + text[stop:]
    return text


def backwards(value):
    """The same value with every object's keys in the opposite order."""
    if isinstance(value, dict):
        return {key: backwards(value[key]) for key in reversed(value)}
    return [backwards(item) for item in value] if isinstance(value, list) else value


def in_utc(value):
    # Python calls no two zones equal around a change of the clocks, even where the moment is the same.
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@given(json_values)
def test_canonical_json_is_what_the_standard_library_writes(value):
    oracle = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical.dumps(value) == oracle.encode()


@given(json_values)
def test_canonical_json_reads_back_and_ignores_key_order(value):
    data = canonical.dumps(value)
    assert canonical.loads(data) == value
    assert canonical.dumps(canonical.loads(data)) == data
    assert canonical.dumps(backwards(value)) == data


@given(json_values, st.integers(0, 2), st.sampled_from([None, 1]))
def test_any_other_spelling_of_json_is_refused_or_the_same(value, spelling, indent):
    options = [{"ensure_ascii": True}, {"sort_keys": True}, {"ensure_ascii": False}][spelling]
    data = json.dumps(value, indent=indent, **options).encode()
    try:
        assert canonical.dumps(canonical.loads(data)) == data
    except InvalidCanonicalValue:
        assert data != canonical.dumps(value)


@given(st.binary())
def test_canonical_loads_takes_any_bytes(data):
    try:
        value = canonical.loads(data)
    except InvalidCanonicalValue:
        return
    assert canonical.dumps(value) == data


@given(json_values, st.floats())
def test_a_float_is_found_anywhere(value, number):
    with pytest.raises(InvalidCanonicalValue, match=r"^\$\.deep\[1\]\.n is a float"):
        canonical.dumps({"before": value, "deep": [value, {"n": number}]})


@given(st.dictionaries(dimension_names, partition_values, max_size=4))
def test_values_survive_the_text(values):
    key = PartitionKey.of(values)
    again = PartitionKey.parse(str(key))
    assert (again, hash(again), again.dimensions) == (key, hash(key), key.dimensions)
    assert again.values == {name: in_utc(value) for name, value in values.items()}
    assert str(PartitionKey.of(again.values)) == str(key)
    assert list(key.texts()) == sorted(values)


def parses_to_itself_or_raises(text):
    try:
        key = PartitionKey.parse(text)
    except InvalidPartitionKey:
        return
    assert str(key) == text
    assert str(PartitionKey.of(key.values)) == text


@given(st.text() | st.lists(key_pieces).map("".join))
def test_any_text_parses_to_itself_or_raises(text):
    parses_to_itself_or_raises(text)


@given(mutated_keys())
def test_nearly_canonical_text_parses_to_itself_or_raises(text):
    parses_to_itself_or_raises(text)


@given(partition_keys, partition_keys)
def test_different_keys_have_different_ids(one, other):
    assert (one == other) == (str(one) == str(other)) == (partition_id("a", one) == partition_id("a", other))
    assert (one < other) == (str(one) < str(other))


@given(scope_names, scope_names, texts, texts)
def test_run_id_is_a_pure_function(tenant, workspace, run_key, secret):
    first = run_id(tenant, workspace, run_key, secret)
    assert first == run_id(tenant, workspace, run_key, secret.encode())
    assert len(first) == 30
    assert first[:4] == "run_"
    assert set(first[4:]) <= set(string.ascii_lowercase + "234567")
    assert first != run_id(tenant, workspace, run_key + "x", secret)


@given(st.lists(st.from_regex(r"[a-z]{1,3}/[a-z]{1,3}(\.[a-z]{1,3})?", fullmatch=True)), json_values)
def test_fingerprint_ignores_the_order_of_assets(assets, partitions):
    fingerprint = request_fingerprint(assets, partitions)
    assert fingerprint == request_fingerprint(map(AssetKey.parse, reversed(assets)), partitions)
    assert fingerprint != request_fingerprint([*assets, "other/asset"], partitions)


@given(
    st.lists(st.tuples(st.integers(-5000, 5000), st.none() | st.integers(0, 2**64)), min_size=1, max_size=50),
    st.sampled_from([b"\x00", b"\x7f", b"\xff"]),
)
def test_ulids_only_go_up(steps, fill):
    clock = [datetime(2025, 1, 15, tzinfo=UTC)]
    factory = UlidFactory(lambda: clock[0], lambda count: fill * count)
    last = factory.next()
    for milliseconds, ahead in steps:
        clock[0] += timedelta(milliseconds=milliseconds)
        after = None if ahead is None else ulid_offset(last, ahead)
        ulid = factory.next(after)
        assert is_ulid(ulid)
        assert ulid > last
        assert after is None or ulid > after
        assert ulid_time(ulid) >= clock[0]
        last = ulid


@given(ulids, st.integers(0, 3000))
def test_ulid_range_is_repeated_offset(first, count):
    assert ulid_range(first, count) == [ulid_offset(first, n) for n in range(count)]

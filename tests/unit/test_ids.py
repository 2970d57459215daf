import hashlib
import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import RFC_4122, UUID

import pytest
from ulid import ULID

from servo import errors
from servo.errors import InvalidAssetKey, InvalidName, ServoError
from servo.ids import (
    AssetKey,
    UlidFactory,
    check_name,
    is_ulid,
    request_fingerprint,
    run_id,
    ulid_offset,
    ulid_range,
    ulid_time,
    uuid7,
)

GOLDEN = json.loads((Path(__file__).parent / "vectors" / "golden.json").read_text())["run_ids"]
NOW = datetime(2025, 1, 15, 10, 30, 0, 123_456, tzinfo=UTC)
LAST_ULID = "7" + "Z" * 25


def frozen_factory(fill=b"\x00"):
    return UlidFactory(lambda: NOW, lambda count: fill * count)


@pytest.mark.parametrize(("tenant", "workspace", "run_key", "secret", "expected"), GOLDEN)
def test_run_id_golden(tenant, workspace, run_key, secret, expected):
    assert run_id(tenant, workspace, run_key, secret) == expected
    assert run_id(tenant, workspace, run_key, secret.encode()) == expected
    assert len(expected) == 30


def test_run_id_checks_its_scope():
    with pytest.raises(InvalidName, match="'a:b' is not a tenant name"):
        run_id("a:b", "c", "key", "secret")
    with pytest.raises(InvalidName, match="'B' is not a workspace name"):
        run_id("a", "B", "key", "secret")
    with pytest.raises(InvalidName, match="lone surrogate"):
        run_id("a", "b", "\ud800", "secret")


@pytest.mark.parametrize("name", ["a", "acme-corp", "a1", "a-", "a" * 63])
def test_names(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "A", "1a", "-a", "a_b", "a:b", "a\n", "a b", "ä", "a/..", "a" * 64, None, "a٣"])
def test_refused_names(name):
    with pytest.raises(InvalidName, match=r"is not a workspace name .*letters"):
        check_name(name, "workspace")


@pytest.mark.parametrize("text", ["sales/orders", "sales/events.daily", "s_1/a.b.c_2"])
def test_asset_keys(text):
    key = AssetKey.parse(text)
    assert str(key) == text
    assert key.display == text.replace("/", ".")
    assert key == AssetKey(namespace=key.namespace, name=key.name)
    assert hash(key) == hash(AssetKey.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "/",
        "a/",
        "/a",
        "a/b/c",
        "a.b/c",
        "a/.b",
        "a/b.",
        "a/b..c",
        "A/b",
        "a/B",
        "a/b\n",
        "a\n/b",
        "a/1",
    ],
)
def test_refused_asset_keys(text):
    with pytest.raises(InvalidAssetKey, match="namespace/name"):
        AssetKey.parse(text)


def test_asset_key_is_frozen():
    with pytest.raises(AttributeError):
        AssetKey.parse("a/b").name = "c"


def test_request_fingerprint_is_the_formula():
    text = b'{"assets":["a/x","b/y"],"partitions":null,"v":1}'
    expected = hashlib.sha256(text).hexdigest()
    assert request_fingerprint(["b/y", AssetKey.parse("a/x")], None) == expected
    assert request_fingerprint(["a/x", "b/y", "a/x"], None) == expected
    assert request_fingerprint(["a/x", "b/y"], ["date=d:2025-01-15"]) != expected
    with pytest.raises(InvalidAssetKey, match="pass a list"):
        request_fingerprint("a/x", None)


def test_ulids_hold_the_time_and_agree_with_python_ulid():
    factory = UlidFactory(lambda: NOW, os.urandom)
    ulid = factory.next()
    assert is_ulid(ulid)
    assert ulid_time(ulid) == NOW.replace(microsecond=123_000)
    assert str(ULID.from_str(ulid)) == ulid
    assert ULID.from_str(ulid).datetime == ulid_time(ulid)


def test_ulids_count_up_within_a_millisecond():
    factory = frozen_factory()
    first = factory.next()
    assert [factory.next() for _ in range(5000)] == ulid_range(first, 5001)[1:]


def test_ulids_stay_monotonic_when_the_clock_goes_back():
    times = iter([NOW, NOW - timedelta(days=1), NOW - timedelta(days=40_000), NOW + timedelta(milliseconds=1)])
    factory = UlidFactory(lambda: next(times), os.urandom)
    first, second, third, fourth = (factory.next() for _ in range(4))
    assert (second, third) == (ulid_offset(first, 1), ulid_offset(first, 2))
    assert ulid_time(fourth) == ulid_time(first) + timedelta(milliseconds=1)


def test_ulids_move_to_the_next_millisecond_when_the_random_part_is_full():
    factory = frozen_factory(b"\xff")
    first, second = factory.next(), factory.next()
    assert first.endswith("Z" * 16)
    assert second.endswith("0" * 16)
    assert ulid_time(second) - ulid_time(first) == timedelta(milliseconds=1)


def test_ulids_follow_the_one_given():
    factory = frozen_factory()
    ahead = frozen_factory(b"\x42").next()
    assert factory.next(after=ahead) == ulid_offset(ahead, 1)
    assert factory.next() == ulid_offset(ahead, 2)
    assert factory.next(after="0" * 26) == ulid_offset(ahead, 3)
    with pytest.raises(InvalidName, match="not a ULID"):
        factory.next(after="nonsense")
    with pytest.raises(InvalidName, match="last"):
        factory.next(after=LAST_ULID)
    assert factory.next() == ulid_offset(ahead, 4)


def test_a_clock_before_1970_still_gives_ids():
    factory = UlidFactory(lambda: datetime(1960, 1, 1, tzinfo=UTC), os.urandom)
    assert is_ulid(factory.next())


def test_threads_share_a_factory():
    factory = UlidFactory(lambda: NOW, os.urandom)
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda _: [factory.next() for _ in range(2000)], range(4)))
    assert all(batch == sorted(batch) for batch in batches)
    assert len({ulid for batch in batches for ulid in batch}) == 8000


@pytest.mark.parametrize(
    "text",
    ["", "8" + "0" * 25, "0" * 25, "0" * 27, "0" * 25 + "\n", "0" * 25 + "U", "0" * 25 + "a", "٣" * 26, None],
)
def test_not_ulids(text):
    assert not is_ulid(text)
    with pytest.raises(InvalidName, match="not a ULID"):
        ulid_time(text)


def test_ulid_arithmetic_has_ends():
    first = "0" * 26
    assert ulid_range(first, 0) == []
    assert ulid_offset(first, 1024) == "0" * 23 + "100"
    assert ulid_range(LAST_ULID, 1) == [LAST_ULID]
    with pytest.raises(InvalidName, match="before the first"):
        ulid_offset(first, -1)
    with pytest.raises(InvalidName, match="after the last"):
        ulid_offset(LAST_ULID, 1)
    with pytest.raises(InvalidName, match="after the last"):
        ulid_range(LAST_ULID, 2)
    with pytest.raises(InvalidName, match="year 9999"):
        ulid_time(LAST_ULID)


def test_uuid7_of_the_rfc():
    # RFC 9562, appendix A.6: rand_a is CC3 and rand_b is 18C4DC0C0C07398F.
    random = (0xCC3 << 62 | 0x18C4DC0C0C07398F).to_bytes(10, "big")
    assert uuid7(0x017F22E279B0, lambda count: random) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
    minted = UUID(uuid7(1_736_937_000_123, os.urandom))
    assert (minted.version, minted.variant) == (7, RFC_4122)
    with pytest.raises(InvalidName, match="-1 ms"):
        uuid7(-1, os.urandom)


def all_errors(kind=ServoError):
    return [kind, *(found for child in kind.__subclasses__() for found in all_errors(child))]


def test_error_tree_is_drawn_and_codes_are_unique():
    kinds = [kind for kind in all_errors() if kind.__module__ == errors.__name__]
    assert len({kind.code for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert kind.__name__ in errors.__doc__
        assert kind.exit_code in {1, 2, 3, 4}
    assert str(ServoError("broken")) == "broken"
    assert str(ServoError("broken", hint="mend it")) == "broken (mend it)"


def test_errors_survive_another_process():
    sent = errors.AppendConflict("stale", expected=3, actual=5, hint="look again")
    received = pickle.loads(pickle.dumps(sent))
    assert type(received) is errors.AppendConflict
    assert (str(received), received.expected, received.actual) == ("stale (look again)", 3, 5)

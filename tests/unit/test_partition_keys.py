import copy
import json
import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from servo.errors import InvalidName, InvalidPartitionKey
from servo.partitions import EMPTY, PartitionKey, partition_id
from servo.partitions.keys import MAX_KEY_LENGTH

GOLDEN = json.loads((Path(__file__).parent / "vectors" / "golden.json").read_text())
ASSET_ID = "01930a0b-1234-7abc-9def-0123456789ab"


class Region(StrEnum):
    EU = "eu"


class Shard(IntEnum):
    FIRST = 1


class LaterDatetime(datetime):
    pass


def python_value(value):
    match value:
        case {"date": text}:
            return date.fromisoformat(text)
        case {"timestamp": text}:
            return datetime.fromisoformat(text)
        case _:
            return value


@pytest.mark.parametrize(("values", "text"), GOLDEN["partition_keys"]["canonical"])
def test_golden_keys(values, text):
    values = {name: python_value(value) for name, value in values.items()}
    key = PartitionKey.of(values)
    assert str(key) == text
    assert PartitionKey.parse(text) == key
    assert PartitionKey.parse(text).values == key.values == values


@pytest.mark.parametrize("text", GOLDEN["partition_keys"]["rejected"])
def test_golden_rejections(text):
    with pytest.raises(InvalidPartitionKey) as caught:
        PartitionKey.parse(text)
    assert caught.value.hint


@pytest.mark.parametrize(("asset_id", "text", "expected"), GOLDEN["partition_ids"])
def test_golden_ids(asset_id, text, expected):
    assert partition_id(asset_id, text) == expected
    assert partition_id(asset_id, PartitionKey.parse(text)) == expected


def test_partition_id_reads_strictly():
    with pytest.raises(InvalidPartitionKey):
        partition_id(ASSET_ID, "n=i:007")
    for asset_id in ("", "a:b"):
        with pytest.raises(InvalidName, match="asset id"):
            partition_id(asset_id, EMPTY)


@pytest.mark.parametrize(
    "text",
    [
        "n=i:0",
        "n=i:9223372036854775807",
        "n=i:-9223372036854775808",
        "d=d:1970-01-01",
        "d=d:2024-02-29",
        "d=d:9999-12-31",
        "t=t:1970-01-01T00:00:00.000000Z",
        "t=t:9999-12-31T23:59:59.999999Z",
        "s=s:Pz8_fn5-",
        "s=s:AA",
        "a=n:null,a1=n:null,a_=n:null",
    ],
)
def test_parses_to_the_letter(text):
    assert str(PartitionKey.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (",", "'' is not a dimension"),
        ("a=i:1,", "'' is not a dimension"),
        (" a=i:1", "' a=i:1' is not a dimension"),
        ("a=i:1, b=i:2", "' b=i:2' is not a dimension"),
        ("a=i:1\n", "write a decimal"),
        ("a\n=i:1", "is not a dimension"),
        ("a=", "begin the value with one of the tags"),
        ("a=i", "begin the value with one of the tags"),
        ("a=i:", "write a decimal"),
        ("a=I:1", "begin the value with one of the tags"),
        ("a=i:٣", "write a decimal"),
        ("a=i:1_0", "write a decimal"),
        ("a=i:9223372036854775808", "64 bits"),
        ("a=i:-9223372036854775809", "64 bits"),
        ("a=i:99999999999999999999", "write a decimal"),
        ("a=f:1.5", "begin the value with one of the tags"),
        ("a=b:True", "b:true or b:false"),
        ("a=b:1", "b:true or b:false"),
        ("a=n:", "write n:null"),
        ("a=n:None", "write n:null"),
        ("a=s:dGVzdA==", "without padding"),
        ("a=s:dGVzdB", "write a=s:dGVzdA"),
        ("a=s:d", "base64url text"),
        ("a=s:_w", "base64url text"),
        ("a=s:7aCA", "base64url text"),
        ("a=s:+/8", "base64url text"),
        ("a=d:2023-02-29", "day is out of range"),
        ("a=d:2025-00-10", "month must be"),
        ("a=d:20250115", "write a date"),
        ("a=d:2025-W03-3", "write a date"),
        ("a=d:٢٠٢٥-01-15", "write a date"),
        ("a=d:0000-01-01", "year"),
        ("a=d:10000-01-01", "write a date"),
        ("a=t:1969-12-31T23:59:59.999999Z", "before 1970"),
        ("a=t:2016-12-31T23:59:60.000000Z", "write a UTC timestamp"),
        ("a=t:2025-01-15T24:00:00.000000Z", "write a UTC timestamp"),
        ("a=t:2025-02-30T00:00:00.000000Z", "day is out of range"),
        ("a=t:2025-01-15 10:30:00.000000Z", "write a UTC timestamp"),
        ("a=t:2025-01-15T10:30:00.000000z", "write a UTC timestamp"),
        ("a=t:2025-01-15T10:30:00.000000+00:00", "write a UTC timestamp"),
        ("a=t:2025-01-15T10:30:00.0000000Z", "write a UTC timestamp"),
        ("a=i:1,a=i:1", "'a': given twice"),
        ("b=i:1,a=i:1", "sort the dimensions by name"),
        ("a_=i:1,a1=i:1", "sort the dimensions by name"),
        ("a=s:" + "A" * 2048, "2052 characters, more than 2048"),
    ],
)
def test_refuses_and_says_what_to_do(text, complaint):
    with pytest.raises(InvalidPartitionKey) as caught:
        PartitionKey.parse(text)
    assert complaint in str(caught.value)
    assert caught.value.hint
    assert len(str(caught.value)) < 600


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "b:true"),
        (False, "b:false"),
        (1, "i:1"),
        (Shard.FIRST, "i:1"),
        (Region.EU, "s:ZXU"),
        ("grün", "s:Z3LDvG4"),
        (datetime(2025, 1, 15, tzinfo=UTC), "t:2025-01-15T00:00:00.000000Z"),
        (datetime(2025, 1, 15, 0, 30, tzinfo=BERLIN), "t:2025-01-14T23:30:00.000000Z"),
        (datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=0), "t:2025-10-26T00:30:00.000000Z"),
        (datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=1), "t:2025-10-26T01:30:00.000000Z"),
        (
            datetime(2025, 1, 15, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=1))),
            "t:2025-01-15T00:02:03.000004Z",
        ),
        (datetime(1969, 12, 31, 23, tzinfo=timezone(-timedelta(hours=1))), "t:1970-01-01T00:00:00.000000Z"),
    ],
)
def test_values_convert_by_type(value, text):
    key = PartitionKey.of({"a": value})
    assert str(key) == f"a={text}"
    assert PartitionKey.parse(str(key)) == key
    assert [type(held) for held in key.values.values()] == [
        type(held) for held in PartitionKey.parse(str(key)).values.values()
    ]


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (1.0, "float"),
        (float("nan"), "float"),
        (2**63, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        pytest.param(10**5000, "64 bits", id="huge"),
        ("\ud800", "lone surrogate"),
        ("x" * 2000, "more than 2048"),
        (date(1969, 12, 31), "before 1970"),
        (datetime.fromisoformat("2025-01-15"), "no timezone"),
        (datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=1))), "before 1970"),
        (datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=2))), "out of range"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "out of range"),
        (LaterDatetime(2025, 1, 15, tzinfo=UTC), "LaterDatetime"),
        (b"raw", "builtins.bytes"),
        (["eu"], "builtins.list"),
        (timedelta(1), "datetime.timedelta"),
    ],
)
def test_refused_values(value, complaint):
    with pytest.raises(InvalidPartitionKey) as caught:
        PartitionKey.of({"a": value})
    assert complaint in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["", "A", "1a", "_a", "a-b", "a=b", "a,b", "a\n", "ä", None, 1])
def test_refused_names(name):
    with pytest.raises(InvalidPartitionKey, match=r"not the name of a dimension .*lower-case"):
        PartitionKey.of({name: 1})


def test_a_dimension_given_twice():
    with pytest.raises(InvalidPartitionKey, match="given twice"):
        PartitionKey(dimensions=(("a", 1), ("a", 2)))


def test_the_bound_is_the_same_both_ways():
    longest = PartitionKey.of({"a": "x" * 1533})
    assert len(str(longest)) == MAX_KEY_LENGTH
    assert PartitionKey.parse(str(longest)) == longest
    for write in (lambda: PartitionKey.of({"ab": "x" * 1533}), lambda: PartitionKey.parse(f"a{longest}")):
        with pytest.raises(InvalidPartitionKey, match="2049 characters, more than 2048"):
            write()


def test_the_empty_key():
    assert PartitionKey.of({}) == PartitionKey.parse("") == EMPTY
    assert str(EMPTY) == ""
    assert EMPTY.values == EMPTY.texts() == {}


def test_true_and_one_are_different_keys():
    true, one = PartitionKey.of({"a": True}), PartitionKey.of({"a": 1})
    assert true != one
    assert len({true, one, PartitionKey.parse("a=i:1")}) == 2


def test_keys_order_by_text():
    texts = ["b=i:1", "a=i:2", "a=i:10", "", "a=b:true,b=i:1"]
    assert [str(key) for key in sorted(map(PartitionKey.parse, texts))] == sorted(texts)


def test_texts_are_for_people():
    key = PartitionKey.of(
        {
            "region": "us-east",
            "shard": -7,
            "active": True,
            "idle": False,
            "date": date(2025, 1, 15),
            "hour": datetime(2025, 1, 15, 10, tzinfo=UTC),
            "unknown": None,
        }
    )
    assert key.texts() == {
        "active": "true",
        "date": "2025-01-15",
        "hour": "2025-01-15T10:00:00.000000Z",
        "idle": "false",
        "region": "us-east",
        "shard": "-7",
        "unknown": "null",
    }
    assert list(key.texts()) == list(key.values) == sorted(key.values)


def test_keys_are_frozen_values():
    key = PartitionKey.parse("date=d:2025-01-15,region=s:dXMtZWFzdA")
    with pytest.raises(AttributeError):
        key.dimensions = ()
    assert repr(key) == "PartitionKey.parse('date=d:2025-01-15,region=s:dXMtZWFzdA')"
    for twin in (copy.copy(key), copy.deepcopy(key), pickle.loads(pickle.dumps(key))):
        assert (twin, twin.values, hash(twin)) == (key, key.values, hash(key))

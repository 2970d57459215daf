import hashlib
import json
from collections import OrderedDict
from datetime import date
from enum import StrEnum
from pathlib import Path

import pytest

from servo import canonical
from servo.errors import InvalidCanonicalValue

GOLDEN = json.loads((Path(__file__).parent / "vectors" / "golden.json").read_text())["canonical_json"]


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(("value", "text"), GOLDEN)
def test_golden(value, text):
    assert canonical.dumps(value) == text.encode()
    assert canonical.loads(text.encode()) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ("", '""'),
        ([], "[]"),
        ({}, "{}"),
        ((1, (2,)), "[1,[2]]"),
        (10**40, "1" + "0" * 40),
        (-(2**63) - 1, "-9223372036854775809"),
        ("grün/\u2028\x7f", '"grün/\u2028\x7f"'),
        ("\x00\x1f\b\f\n\r\t\\", r'"\u0000\u001f\b\f\n\r\t\\"'),
        ({"\U0001f600": 1, "\uffff": 2, "a": 3, "": 4}, '{"":4,"a":3,"\uffff":2,"\U0001f600":1}'),
    ],
)
def test_text_of(value, text):
    assert canonical.dumps(value) == text.encode()


@pytest.mark.parametrize(
    ("value", "path", "what"),
    [
        (1.0, "$ ", "float"),
        ({"a": [0, 1, float("nan")]}, "$.a[2] ", "nan"),
        ({"a": {"b": float("inf")}}, "$.a.b ", "inf"),
        ([{"when": date(2025, 1, 15)}], "$[0].when ", "datetime.date"),
        ({1: "x"}, "$ ", "key 1"),
        ({"a": {None: 1}}, "$.a ", "key None"),
        ({"\ud800": 1}, "$ ", "key '\\ud800'"),
        ({"a": ["\udfff"]}, "$.a[0] ", "lone surrogate"),
        (b"raw", "$ ", "bytes"),
        ([{1, 2}], "$[0] ", "set"),
        ({"c": Colour.RED}, "$.c ", "Colour"),
        ({"o": OrderedDict()}, "$.o ", "OrderedDict"),
        ([10**5000], "$[0] ", "digits"),
    ],
)
def test_refuses_and_names_the_path(value, path, what):
    with pytest.raises(InvalidCanonicalValue) as caught:
        canonical.dumps(value)
    assert caught.value.message.startswith(path)
    assert what in caught.value.message
    assert caught.value.hint
    assert str(caught.value) == f"{caught.value.message} ({caught.value.hint})"


def test_cycles_and_depth_are_explained():
    cycle = []
    cycle.extend([cycle, cycle])
    with pytest.raises(InvalidCanonicalValue, match="contains itself"):
        canonical.dumps(cycle)
    deep = "leaf"
    for _ in range(canonical.MAX_DEPTH):
        deep = [deep]
    assert canonical.loads(canonical.dumps(deep)) == deep
    with pytest.raises(InvalidCanonicalValue, match="deeper than 128"):
        canonical.dumps([deep])


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" 1",
        b"1.0",
        b"1e3",
        b"-0",
        b"NaN",
        b'{"a":1,"a":1}',
        b'{"b":1,"a":2}',
        b"[1, 2]",
        b'"\\u0041"',
        b'"\\/"',
        b'"\\u001F"',
        b'"\\ud800"',
        b'"\xff"',
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b"[" * 200 + b"]" * 200, id="too deep"),
        pytest.param(b"9" * 5000, id="huge"),
    ],
)
def test_loads_is_strict(text):
    with pytest.raises(InvalidCanonicalValue):
        canonical.loads(text)


def test_sha256_hex():
    assert canonical.sha256_hex({"b": 1, "a": 2}) == hashlib.sha256(b'{"a":2,"b":1}').hexdigest()

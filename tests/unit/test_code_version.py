"""Versions of code: what they follow, and what they do not."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from servo import Daily, Monthly, Static, asset, check, mapping
from servo.assets.code_version import code_of, source_nodes
from servo.errors import InvalidInput

_numbers = count()


def made(source: str, name: str = "f", **names: Any) -> Callable[..., Any]:
    """A function from source, as if it stood in a file."""
    file = f"<made {next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)
    return names[name]


def version(source: str, **names: Any) -> str:
    return code_of(made(source, **names))


PLAIN = version("def f(context, orders):\n    total = orders.sum()\n    return total + 1\n")


@pytest.mark.parametrize(
    "same",
    [
        "def f(context, orders):\n    # why\n    total = orders.sum()  # so\n\n    return (total + 1)\n",
        'def f(context, orders):\n    """What it does."""\n    total = orders.sum()\n    return total + 1\n',
        "def f(context: 'Context', orders: int) -> float:\n    total: int = orders.sum()\n    return total + 1\n",
        "def f(context, orders):\n    total: int\n    total = orders.sum()\n    return total + 1\n",
        "def other(context, orders):\n    total = orders.sum()\n    return total + 1\nf = other\n",
        "\n\n\nif True:\n    def f(context, orders):\n        total = orders.sum()\n        return total + 1\n",
        "def d(x):\n    return x\n@d\n@d\ndef f(context, orders):\n    total = orders.sum()\n    return total + 1\n",
    ],
)
def test_does_not_follow_what_it_looks_like(same: str) -> None:
    assert version(same) == PLAIN


@pytest.mark.parametrize(
    "other",
    [
        "def f(context, orders):\n    total = orders.sum()\n    return total + 2\n",
        "def f(context, orders):\n    total = orders.sum()\n    return total + 1.0\n",
        "def f(context, orders):\n    total = orders.sum()\n    return total - 1\n",
        "def f(context, orders):\n    total = orders.max()\n    return total + 1\n",
        "def f(context, raw):\n    total = raw.sum()\n    return total + 1\n",
        "def f(context, orders):\n    total = orders.sum()\n    return 1 + total\n",
        "def f(context, orders, *, a=1):\n    total = orders.sum()\n    return total + 1\n",
        "def f(context, orders):\n    'doc'\n    'not doc'\n    total = orders.sum()\n    return total + 1\n",
    ],
)
def test_follows_what_it_says(other: str) -> None:
    assert version(other) != PLAIN


def test_tells_keyword_defaults_apart_by_their_place() -> None:
    assert version("def f(*, a, b=1): pass\n") != version("def f(*, a=1, b): pass\n")
    assert version("def f(x): return {**x, 'a': 1}\n") != version("def f(x): return {'a': 1, **x}\n")


FACTORY = "def factory(table):\n    def f():\n        return table\n    return f\n"


def test_follows_what_is_closed_over() -> None:
    factory = made(FACTORY, "factory")
    assert code_of(factory("a")) == code_of(factory("a"))
    versions = {
        code_of(factory(value)) for value in ("a", "b", 1, True, 1.0, None, ("a",), ["a"], {"a": 1}, {"a"}, b"a")
    }
    assert len(versions) == 11
    loop = made("fs = []\nfor n in range(3):\n    def f(x=n): return x\n    fs.append(f)\n", "fs")
    assert len({code_of(one) for one in loop}) == 3


def test_follows_functions_that_are_closed_over() -> None:
    factory = made(FACTORY, "factory")
    one, same, other = (made(f"def f(x):\n    return x {what}\n") for what in ("+ 1", "+ 1  # so", "+ 2"))
    assert code_of(factory(one)) == code_of(factory(same)) != code_of(factory(other))


def test_does_not_follow_objects_and_constants_of_the_module() -> None:
    factory = made(FACTORY, "factory")
    assert code_of(factory(object())) == code_of(factory(object()))
    assert version("N = 1\ndef f(): return N\n") == version("N = 2\ndef f(): return N\n")


def test_tells_lambdas_of_one_line_apart() -> None:
    a, b = made("a, b = (lambda x: x + 1), (lambda x: x + 2)\n", "a"), made("b = lambda x: x + 2\n", "b")
    both = made("both = [lambda x: x + 1, lambda x: x + 2]\n", "both")
    assert code_of(both[0]) == code_of(a)
    assert code_of(both[1]) == code_of(b) != code_of(a)


def test_long_chains_of_calls_have_a_version() -> None:
    chain = "".join(f".withColumn('c{n}', F.lit({n}))" for n in range(100))
    assert version(f"def f(df):\n    return df{chain}\n") != version(f"def f(df):\n    return df{chain}.x\n")


def test_says_what_to_do_where_there_is_no_source() -> None:
    names: dict[str, Any] = {}
    exec("def f(): pass", names)
    with pytest.raises(InvalidInput, match=r'source of f is not there.*code_version="1"'):
        code_of(names["f"])
    with pytest.raises(InvalidInput, match="code_version"):
        code_of(len)


# ── of assets ────────────────────────────────────────────────────────────────────────────────────────────────────


def of_asset(**declared: Any) -> str:
    @asset(**declared)
    def revenue(orders):
        return orders

    return revenue.spec.code_version


def test_of_an_asset_follows_what_changes_the_output() -> None:
    days = Daily("date", start="2025-01-01")
    versions = [
        of_asset(),
        of_asset(partitions=days),
        of_asset(partitions=days * Static("region", ["eu"])),
        of_asset(partitions=Daily("date", start="2025-01-01", timezone="Europe/Berlin")),
        of_asset(partitions=Monthly("date", start="2025-01")),
        of_asset(partitions=days, batch=True),
        of_asset(partitions=days, deps={"orders": mapping.Offset(-1)}),
        of_asset(partitions=days, deps={"orders": mapping.Offset(-2)}),
        of_asset(partitions=days, deps=["other"]),
        of_asset(checks=[check.not_null("a")]),
        of_asset(checks=[check.not_null("b")]),
    ]
    assert len(set(versions)) == len(versions)
    assert all(len(one) == 12 and int(one, 16) >= 0 for one in versions)


def test_of_an_asset_does_not_follow_what_does_not() -> None:
    plain = of_asset(partitions=Daily("date", start="2025-01-01") * Static("region", ["eu"]))
    longer = Daily("date", start="2024-01-01", end="2026-01-01") * Static("region", ["eu", "us"])
    assert of_asset(partitions=longer, group="x", owners=["me"], tags=["a"], description="b", name="c") == plain


def test_given_is_kept() -> None:
    assert of_asset(code_version="2") == "2"


def test_a_lambda_is_found_by_its_position_and_else_counts_as_all_that_it_may_be() -> None:
    pair = (lambda a: lambda b: a + b, lambda a: lambda b: a - b)
    found = [source_nodes(one.__code__) for one in pair]
    assert ["+" in ast.unparse(one) for (one,) in found] == [True, False]
    without_positions = pair[0].__code__.replace(co_linetable=b"")
    assert len(source_nodes(without_positions)) == 2

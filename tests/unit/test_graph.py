"""The graph: order, names, and everything that it refuses, with file and line."""

from __future__ import annotations

from typing import Any

import pytest

from servo import Daily, Dep, Monthly, Static, mapping
from servo.assets.graph import Graph, examine
from servo.assets.spec import AssetSpec, Dependency, Source
from servo.errors import AssetNotFound, InvalidDefinition
from servo.partitions import Partitions

days = Daily("date", start="2025-01-01")


def spec(key: str, *upstreams: str | Dep, line: int = 1, **declared: Any) -> AssetSpec:
    given = [Dep(one) if isinstance(one, str) else one for one in upstreams]
    declared["partitions"] = Partitions.of(declared.get("partitions"))
    return AssetSpec(
        key=key if "/" in key else f"shop/{key}",
        code_version="1",
        source=Source("shop.py", line),
        dependencies=tuple(
            Dependency(upstream=str(one.upstream), parameter=str(one.upstream), mapping=one.mapping) for one in given
        ),
        **declared,
    )


def problems(*specs: AssetSpec) -> list[str]:
    return [problem.error().message for problem in examine(specs)[1]]


def test_orders_upstreams_first() -> None:
    graph = Graph.of([spec("d", "b", "c"), spec("b", "a"), spec("c", "a"), spec("a")])
    assert list(graph.specs) == ["shop/a", "shop/b", "shop/c", "shop/d"]
    assert graph.upstream("shop/d") == ("shop/b", "shop/c")
    assert graph.downstream("shop/a") == ("shop/b", "shop/c")
    assert graph.downstream("shop/d") == ()
    assert Graph.known(reversed(graph.specs.values())).specs == graph.specs


def test_a_long_chain_is_no_trouble() -> None:
    graph = Graph.of([spec(f"a{n}", *([f"a{n - 1}"] if n else [])) for n in reversed(range(3000))])
    assert list(graph.specs)[-1] == "shop/a2999"


def test_fills_in_mappings() -> None:
    last = mapping.Last()
    graph = Graph.of(
        [
            spec("orders", partitions=days),
            spec("report", "orders", partitions=Monthly("month", start="2025-01")),
            spec("newest", Dep("orders", last), partitions=Monthly("month", start="2025-01")),
        ]
    )
    assert graph.mapping("shop/orders", "shop/newest") == last
    assert graph.mapping("shop/orders", "shop/report") == mapping.default_mapping(
        graph["shop/orders"].partitions, graph["shop/report"].partitions
    )
    assert graph["shop/report"].dependencies[0].mapping is not None


def test_finds_upstreams_in_their_own_namespace_first() -> None:
    graph = Graph.of(
        [
            spec("shop/orders"),
            spec("raw/orders"),
            spec("shop/x", "orders"),
            spec("raw/y", "orders"),
            spec("shop/z", "raw/orders", "raw.y"),
            spec("lab/w", "x"),
        ]
    )
    assert graph.upstream("shop/x") == ("shop/orders",)
    assert graph.upstream("raw/y") == ("raw/orders",)
    assert graph.upstream("shop/z") == ("raw/orders", "raw/y")
    assert graph.upstream("lab/w") == ("shop/x",)


def test_finds_upstreams_by_the_names_of_their_functions() -> None:
    graph, wrong = examine([spec("events.daily"), spec("x", "events_daily")], {"shop/events.daily": "events_daily"})
    assert graph is not None
    assert wrong == []
    assert graph.upstream("shop/x") == ("shop/events.daily",)


def test_resolves_names() -> None:
    graph = Graph.of([spec("shop/orders"), spec("shop/events.daily"), spec("shop/x"), spec("raw/x")])
    for name in ("orders", "shop/orders", "shop.orders", " orders "):
        assert graph.resolve(name) == "shop/orders"
    for name in ("events.daily", "shop/events.daily", "shop.events.daily"):
        assert graph.resolve(name) == "shop/events.daily"
    with pytest.raises(AssetNotFound, match=r"no asset 'ordrs' \(did you mean orders\?\)"):
        graph.resolve("ordrs")
    with pytest.raises(AssetNotFound, match=r"2 assets \(write shop/x or raw/x"):
        graph.resolve("x")
    with pytest.raises(AssetNotFound, match="servo asset list"):
        graph.resolve("zzzzzzz")


# ── what it refuses ──────────────────────────────────────────────────────────────────────────────────────────────


def test_names_cycles_in_full() -> None:
    assert problems(spec("b", "a", line=7), spec("a", "c", line=3), spec("c", "b")) == [
        "shop.py:3: asset shop/a is part of a cycle: shop/a → shop/b → shop/c → shop/a"
    ]
    assert problems(spec("a", "a")) == ["shop.py:1: asset shop/a is part of a cycle: shop/a → shop/a"]
    two = problems(spec("a", "b"), spec("b", "a"), spec("c", "d", "a"), spec("d", "c"), spec("late", "a"))
    assert [one.split(": ")[2] for one in two] == ["shop/a → shop/b → shop/a", "shop/c → shop/d → shop/c"]


def test_names_unknown_upstreams_and_what_was_probably_meant() -> None:
    [problem] = examine([spec("orders"), spec("revenue", "ordrs", line=9)])[1]
    assert problem.error().message == (
        "shop.py:9: asset shop/revenue has the parameter ordrs, but there is no asset ordrs"
    )
    assert problem.hint == "did you mean orders?"
    assert examine([spec("revenue", "orders")], broken=["orders"])[1] == []


def test_refuses_mappings_that_do_not_fit() -> None:
    regions = Static("region", ["eu"])
    [said] = problems(spec("a", partitions=regions), spec("b", Dep("a", mapping.Offset(-1)), partitions=days, line=4))
    assert said.startswith("shop.py:4: asset shop/b cannot read shop/a: ")


def test_refuses_what_is_declared_twice() -> None:
    assert problems(spec("a", line=1), spec("a", line=8)) == [
        "shop.py:8: asset shop/a is declared a second time; first at shop.py:1"
    ]
    [said] = problems(spec("a"), spec("b", "a", "shop/a"))
    assert "depends on shop/a twice" in said
    [said] = problems(spec("raw/a"), spec("lab/a"), spec("shop/b", "a"))
    assert "may be raw/a or lab/a" in said


def test_refuses_renamings_that_cannot_be() -> None:
    assert problems(spec("a"), spec("b", renamed_from="shop/a")) == []  # the old name is free for another
    assert "its own name" in problems(spec("a", renamed_from="shop/a"))[0]
    assert "both renamed" in problems(spec("b", renamed_from="shop/a"), spec("c", renamed_from="shop/a"))[0]


def test_gathers_everything_and_raises_the_first() -> None:
    specs = [spec("a", "b"), spec("b", "a"), spec("c", "nowhere", line=5), spec("c")]
    assert len(problems(*specs)) == 3
    with pytest.raises(InvalidDefinition, match=r"^shop.py:1: asset shop/c is declared a second time"):
        Graph.of(specs)

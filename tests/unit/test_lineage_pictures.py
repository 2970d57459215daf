"""Pictures of a lineage: what is folded, that nothing overlaps, and that no name becomes markup in any language."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pytest

from servo.lineage.graph import DEEPEST, MOST_PARTITIONS, Picture, picture, tree
from servo.lineage.graph_formats import dot, mermaid, svg
from servo.lineage.layout import Size, layout
from servo.lineage.walk import LineageEdge as Edge
from servo.lineage.walk import LineageNode as Node

NAMES = {
    "markup": "<script>alert('x')</script>",
    "quotes": """a"b'c`d""",
    "backslashes": "a\\nb\\\\c\\",
    "newlines": "a\nb\r\nc\td",
    "unicode": "Zürich 東京 🚀 \u202e\x00\x1b[31m\ud800",
    "entities": "&lt; ]]> --> %% #35; {{x}} |y|",
}


def node(asset: str, key: str, depth: int = 1, status: str = "MATERIALIZED") -> Node:
    return Node(
        asset_key=asset,
        partition_key=key,
        materialization_id=f"{asset}@{key}",
        content_hash="ab" * 16,
        made_at=datetime(2025, 1, 2, 3, 4, tzinfo=UTC),
        run_id="run_1",
        depth=depth,
        status=status,
    )


def read(reader: Node, source: Node, *, outdated: bool = False) -> Edge:
    assert reader.materialization_id is not None
    assert source.materialization_id is not None
    return Edge(
        asset_key=reader.asset_key,
        partition_key=reader.partition_key,
        materialization_id=reader.materialization_id,
        upstream_asset_key=source.asset_key,
        upstream_partition_key=source.partition_key,
        upstream_materialization_id=source.materialization_id,
        outdated=outdated,
    )


def described(_: str, keys: Sequence[str]) -> str:
    return keys[0] if len(keys) == 1 else f"{keys[0]}..{keys[-1]}"


def drawn(nodes: list[Node], edges: list[Edge], title: str = "t") -> Picture:
    return picture(title, nodes, edges, described)


def test_few_partitions_have_boxes_of_their_own_and_many_share_one() -> None:
    total = node("a/total", "all", 0)
    few = [node("a/few", f"{n:02d}") for n in range(MOST_PARTITIONS)]
    many = [node("a/many", f"{n:02d}", status="STALE" if n < 3 else "MATERIALIZED") for n in range(MOST_PARTITIONS + 1)]
    shown = drawn([total, *few, *many], [read(total, one, outdated=one.status == "STALE") for one in (*few, *many)])
    boxes = {(box.asset, box.label): box for box in shown.boxes}
    assert len(shown.boxes) == 1 + len(few) + 1
    folded = boxes["a/many", "00..12"]
    assert (folded.count, folded.statuses, folded.worst) == (13, {"MATERIALIZED": 10, "STALE": 3}, "STALE")
    assert folded.lines == ["00..12", "13 partitions", "3 stale"]
    assert boxes["a/total", "all"].centre
    (link,) = [one for one in shown.links if one.source == folded.id]
    assert (link.target, link.count, link.outdated) == (boxes["a/total", "all"].id, 13, 3)
    assert drawn([*many, *few, total], []).boxes == shown.boxes, "the order of the nodes does not matter"


def test_a_large_picture_is_folded_by_asset() -> None:
    nodes = [node(f"a/x{n}", f"{k}") for n in range(40) for k in range(2)]
    assert [(box.count, len(drawn(nodes, []).boxes)) for box in drawn(nodes, []).boxes] == [(2, 40)] * 40


@pytest.mark.parametrize("name", NAMES)
def test_names_never_become_markup(name: str) -> None:
    text = NAMES[name]
    centre, other = node("a/centre", text, 0), node(f"a/{text}", "x")
    shown = drawn([centre, other], [read(centre, other)], title=text)

    document = svg(shown)
    document.encode()  # what cannot be written is not in it
    root = ET.fromstring(document)
    assert {one.tag.rpartition("}")[2] for one in root.iter()} <= {"svg", "title", "style", "rect", "text", "g", "path"}
    kept = "".join(one if one == " " or one.isprintable() else "" for one in text)
    texts = "".join("".join(root.itertext()).split())
    assert "".join(kept.split())[:8] in texts

    lines = dot(shown).splitlines()
    strings = r'"(?:[^"\\]|\\.)*"'
    assert len(lines) == 5 + 2 + 1, "no name begins a line"
    for line in lines[1:-1]:
        assert re.fullmatch(r"[\w\s=,\[\]>;.-]*", re.sub(strings, "", line)), line

    flow = mermaid(shown)
    labels = re.findall(r'\("(.*)"\)', flow)
    assert len(labels) == 2
    for label in labels:
        assert re.fullmatch(r"[\w\s.,:/=()…·×+#;-]*", label.replace("<br/>", "")), label
    assert len(flow.splitlines()) == 4 + 2 + 1 + 5 + 1


def test_boxes_do_not_overlap_and_links_go_forward() -> None:
    nodes = [node(f"a/l{layer}", f"{n}") for layer in range(4) for n in range(3)]
    edges = [
        read(one, other)
        for one in nodes
        for other in nodes
        if one.asset_key > other.asset_key and hash_of(one, other) % 3
    ]
    shown = drawn(nodes, edges)
    placed = layout(shown, {box.id: Size(100, 40 + 5 * number) for number, box in enumerate(shown.boxes)})
    spots = list(placed.spots.values())
    for number, one in enumerate(spots):
        assert one.x >= 0
        assert one.y >= 0
        assert one.x + one.width <= placed.width + 0.01
        assert one.y + one.height <= placed.height + 0.01
        for other in spots[number + 1 :]:
            apart = one.x + one.width <= other.x or other.x + other.width <= one.x
            assert apart or one.y + one.height <= other.y or other.y + other.height <= one.y
    for link in shown.links:
        assert placed.spots[link.source].x + 100 <= placed.spots[link.target].x


def hash_of(one: Node, other: Node) -> int:
    return sum(map(ord, one.asset_key + one.partition_key + other.asset_key + other.partition_key))


def test_data_that_goes_in_circles_is_drawn_like_any_other() -> None:
    a, b, c = (node(f"a/{name}", "x", depth) for depth, name in enumerate("abc"))
    edges = [read(a, b), read(b, c), read(c, a), read(a, a)]
    ET.fromstring(svg(drawn([a, b, c], edges)))
    (branch,) = tree([a, b, c], edges, "upstream")
    assert branch.below[0].below[0].below[0].again


# ── trees ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tree_folds_partitions_and_opens_each_once() -> None:
    month = node("a/month", "2025-01", 0)
    left = [node("a/left", f"{n:02d}") for n in range(3)]
    right = [node("a/right", f"{n:02d}") for n in range(3)]
    raw = [node("a/raw", f"{n:02d}", 2) for n in range(3)]
    edges = [read(month, one) for one in (*left, *right)]
    edges += [read(one, source, outdated=source.partition_key == "02") for one, source in zip(left, raw, strict=True)]
    edges += [read(one, source) for one, source in zip(right, raw, strict=True)]
    (root,) = tree([month, *left, *right, *raw], edges, "upstream")
    assert [(one.asset_key, one.keys) for one in root.below] == [
        ("a/left", ["00", "01", "02"]),
        ("a/right", ["00", "01", "02"]),
    ]
    first, second = (one.below[0] for one in root.below)
    assert (first.asset_key, first.keys, first.outdated, first.again) == ("a/raw", ["00", "01", "02"], 1, False)
    assert (second.keys, second.outdated) == (first.keys, 0)
    source, last = msgspec.structs.replace(raw[0], depth=0), msgspec.structs.replace(month, depth=2)
    (down,) = tree([source, left[0], right[0], last], edges, "downstream")
    assert [(one.asset_key, one.below[0].asset_key) for one in down.below] == [
        ("a/left", "a/month"),
        ("a/right", "a/month"),
    ]


def test_an_asset_that_reads_itself_is_one_branch_and_a_deep_tree_is_cut() -> None:
    days = [node("a/running", f"{n:04d}", n) for n in range(400)]
    (root,) = tree(days, [read(one, other) for one, other in itertools.pairwise(days)], "upstream")
    assert (len(root.nodes), root.below) == (400, ())
    chain = [node(f"a/n{n:04d}", "x", n) for n in range(2_000)]
    edges = [read(one, other) for one, other in itertools.pairwise(chain)]
    (branch,) = tree(chain, edges, "upstream")
    deep = 0
    while branch.below:
        (branch,) = branch.below
        deep += 1
    assert (deep, branch.cut) == (DEEPEST, True)
    ET.fromstring(svg(drawn(chain, edges)))

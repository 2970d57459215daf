"""Where the boxes and lines of a report's lineage picture go: data in, millimetres out.

Columns are distances: the audited materialization on the right, what it was made from to its left. Partitions of one
asset are drawn one by one while they are few, and as one box once they are many, so that a thousand inputs are a
picture as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from servo.lineage.report import Report, key_text
from servo.lineage.statements import Node

_WIDTH = 174.0  # what a page has between its margins
_WIDEST, _GAP = 50.0, 9.0
_TITLE_LINE, _LINE, _PADDING, _BETWEEN = 3.4, 2.8, 2.5, 3.0  # millimetres down
_TITLE_CHARACTER, _CHARACTER = 1.75, 1.45  # millimetres across, of a wide one
_FEW, _MOST_BOXES, _MOST_COLUMNS = 3, 7, 5


class _Box(msgspec.Struct, kw_only=True):
    title: str
    lines: list[str]
    members: set[str]
    reads: set[str]
    stack: bool = False
    kind: str = "input"
    x: float = 0.0
    y: float = 0.0
    height: float = 0.0

    def fit(self, width: float) -> None:
        """Break what is too long for a line, so that no name is cut, and find how high it gets."""
        title = _broken(self.title, int(width / _TITLE_CHARACTER))
        lines = [line for one in self.lines for line in _broken(one, int(width / _CHARACTER))]
        self.title, self.lines = "\n".join(title), lines
        self.height = _TITLE_LINE * len(title) + _LINE * len(lines) + _PADDING


def picture(report: Report) -> dict[str, Any]:
    """Boxes and lines, and how much room they take."""
    columns = _columns(report)
    width = min(_WIDEST, (_WIDTH - _GAP * (len(columns) - 1)) / len(columns))
    across = width * len(columns) + _GAP * (len(columns) - 1)
    left = (_WIDTH - across) / 2
    for column in columns:
        for box in column:
            box.fit(width)
    heights = [sum(box.height + _BETWEEN for box in column) - _BETWEEN for column in columns]
    height = max(heights)
    for number, column in enumerate(columns):
        top = (height - heights[number]) / 2
        for box in column:
            box.x, box.y = left + number * (width + _GAP), top
            top += box.height + _BETWEEN
    boxes = [box for column in columns for box in column]
    return {
        "width": _WIDTH,
        "height": height,
        "boxes": [
            {
                "x": round(box.x, 3),
                "y": round(box.y, 3),
                "w": round(width, 3),
                "h": round(box.height, 3),
                "title": box.title,
                "lines": box.lines,
                "stack": box.stack,
                "kind": box.kind,
            }
            for box in boxes
        ],
        "lines": [
            {
                "x1": round(source.x + width, 3),
                "y1": round(source.y + source.height / 2, 3),
                "x2": round(target.x, 3),
                "y2": round(target.y + target.height / 2, 3),
            }
            for target in boxes
            for source in boxes
            if source is not target and source.x < target.x and source.members & target.reads
        ],
    }


def _columns(report: Report) -> list[list[_Box]]:
    """Farthest first; the audited materialization is the last."""
    own = _Box(
        title=report.asset,
        lines=[_key_text(report.partition), _short(report.output.content_hash)],
        members={report.materialization},
        reads={one.materialization for one in report.inputs},
        kind="output",
    )
    by_depth: dict[int, list[Node]] = {}
    for node in report.lineage:
        by_depth.setdefault(node.depth, []).append(node)
    columns = [[own]]
    for depth in sorted(by_depth):
        if len(columns) == _MOST_COLUMNS - 1 and len(by_depth) >= _MOST_COLUMNS:
            farther = [node for other in sorted(by_depth) if other >= depth for node in by_depth[other]]
            columns.append([_folded("further upstream", farther, ["see the JSON"])])
            break
        columns.append(_boxes(by_depth[depth]))
    return columns[::-1]


def _boxes(nodes: Sequence[Node]) -> list[_Box]:
    by_asset: dict[str, list[Node]] = {}
    for node in nodes:
        by_asset.setdefault(node.asset, []).append(node)
    alone = len(nodes) <= _MOST_BOXES
    boxes: list[_Box] = []
    for asset, members in by_asset.items():
        if len(members) <= _FEW and (alone or len(members) == 1):
            boxes += [_single(node) for node in members]
        else:
            first, last = _key_text(members[0].partition), _key_text(members[-1].partition)
            boxes.append(_folded(asset, members, [f"{first} … {last}"]))
    if len(boxes) > _MOST_BOXES:
        rest = boxes[_MOST_BOXES - 1 :]
        names = {name for box in rest for name in box.members}
        wanted = [node for node in nodes if node.materialization in names]
        boxes = [*boxes[: _MOST_BOXES - 1], _folded(f"{len(rest)} more", wanted, [])]
    return boxes


def _single(node: Node) -> _Box:
    return _Box(
        title=node.asset,
        lines=[_key_text(node.partition), _short(node.content_hash)],
        members={node.materialization},
        reads=set(node.inputs),
    )


def _folded(title: str, nodes: Iterable[Node], lines: list[str]) -> _Box:
    members = list(nodes)
    return _Box(
        title=title,
        lines=[f"{len(members):,} versions", *lines],
        members={node.materialization for node in members},
        reads={name for node in members for name in node.inputs},
        stack=True,
    )


def _key_text(key: str) -> str:
    return key_text(key) or "the whole asset"


def _short(text: str | None) -> str:
    return "no hash" if text is None else text[:12]


def _broken(text: str, most: int) -> list[str]:
    """A text in lines of so many characters at most, broken behind a mark between words where there is one."""
    lines = []
    while len(text) > most:
        mark = max(text.rfind(one, most // 3, most) for one in "/_.-,= ")
        end = mark + 1 if mark >= 0 else most
        lines.append(text[:end])
        text = text[end:]
    return [*lines, text]

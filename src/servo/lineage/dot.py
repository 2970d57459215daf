"""A picture in the language of Graphviz."""

from __future__ import annotations

from servo.lineage.graph import COLOURS, Picture

_GREY = "#94a3b8"


def dot(picture: Picture) -> str:
    """A digraph, left to right. Text from outside stands in quoted strings alone."""
    lines = [
        "digraph lineage {",
        f"  graph [rankdir=LR, label={_quoted(picture.title)}, labelloc=t, fontname=Helvetica];",
        '  node [shape=box, style="rounded,filled", fillcolor=white, fontname=Helvetica, fontsize=11];',
        '  edge [color="#94a3b8", arrowsize=0.7, fontname=Helvetica, fontsize=9];',
    ]
    for box in picture.boxes:
        width = 2.5 if box.centre else 1.2
        label = "\\n".join(_escaped(line) for line in (box.asset, *box.lines))
        lines.append(f'  {box.id} [label="{label}", color="{COLOURS.get(box.worst, _GREY)}", penwidth={width}];')
    for link in picture.links:
        more = [f'label="{link.count:,}"'] if link.count > 1 else []
        more += ["style=dashed", 'color="#d97706"'] if link.outdated else []
        attributes = f" [{', '.join(more)}]" if more else ""
        lines.append(f"  {link.source} -> {link.target}{attributes};")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """As Graphviz reads it in a quoted label: a backslash would begin an escape, and a newline end the line."""
    shown = "".join(one if one.isprintable() else " " for one in text)
    return shown.replace("\\", "\\\\").replace('"', '\\"')

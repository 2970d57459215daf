"""A lineage graph as SVG, in Graphviz's DOT and in Mermaid.

SVG is one file with nothing outside it, readable on light and on dark ground. Mermaid is what Markdown on many sites
draws.
"""

from __future__ import annotations

import itertools
import unicodedata

from servo.lineage.graph import COLOURS, Box, Link, Picture, short_time, status_text
from servo.lineage.layout import Layout, Size, Spot, layout

_MARGIN = 28.0
_TITLE, _LEGEND = 44.0, 40.0
_NAME_SIZE, _LINE_SIZE, _LINE = 13.0, 11.5, 17.0
_BOLD = 1.1  # how much wider than plain
_PAD, _BAR = 14.0, 5.0
_LEAST = 7.0  # of a bar
_NARROWEST, _WIDEST = 128.0, 300.0
_NARROW, _WIDE = frozenset("iljtfrI.,:;|!'()[]/ -"), frozenset("mwMW@%")

# The dark colours of the same things. What does not know the media query (a PDF) stays light.
_DARK = {
    "MATERIALIZED": "#3fb96f",
    "STALE": "#f0a238",
    "MATERIALIZED_BUT_LAST_ATTEMPT_FAILED": "#f26a6a",
    "NEVER_MATERIALIZED": "#7d8a9a",
    "SUPERSEDED": "#a99bf0",
}
_FONT = "Inter,'Segoe UI',Roboto,'Helvetica Neue',Arial,'Liberation Sans','DejaVu Sans',sans-serif"
_GREY = "#94a3b8"
_PLAIN = frozenset(" .,:/=-_()…·×+")


def svg(picture: Picture) -> str:
    """The whole document. Text from outside is escaped, and stands in text and titles alone."""
    sizes = {box.id: _size(box) for box in picture.boxes}
    placed = layout(picture, sizes)
    statuses = [status for status in COLOURS if any(status in box.statuses for box in picture.boxes)]
    outdated = any(link.outdated for link in picture.links)
    legend, legend_width = _legend(statuses, outdated=outdated)
    width = max(placed.width, legend_width, _text_width(picture.title, 15.0)) + 2 * _MARGIN
    height = placed.height + _TITLE + _LEGEND + 2 * _MARGIN
    left, top = (width - placed.width) / 2, _MARGIN + _TITLE
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
            f' viewBox="0 0 {width:.0f} {height:.0f}" role="img" font-family="{_FONT}">'
        ),
        f"<title>{_escaped(picture.title)}</title>",
        f"<style>{_styles()}</style>",
        '<rect class="ground" width="100%" height="100%"/>',
        (
            f'<text class="name" x="{_MARGIN:.0f}" y="{_MARGIN + 12:.0f}" font-size="15" font-weight="600">'
            f"{_escaped(picture.title)}</text>"
        ),
        f'<g transform="translate({left:.1f} {top:.1f})">',
        *(_link(link, placed) for link in sorted(picture.links, key=lambda one: one.outdated > 0)),
        *(_box(box, placed.spots[box.id]) for box in picture.boxes),
        "</g>",
        f'<g transform="translate({_MARGIN:.0f} {height - _MARGIN:.0f})">{legend}</g>',
        "</svg>",
    ]
    return "\n".join([*parts, ""])


# ── boxes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _size(box: Box) -> Size:
    widths = [_text_width(box.asset, _NAME_SIZE * _BOLD), *(_text_width(line, _LINE_SIZE) for line in box.lines)]
    width = min(max(max(widths) + 2 * _PAD + _BAR, _NARROWEST), _WIDEST)
    return Size(width, 2 * 11 + _LINE * (1 + len(box.lines)))


def _box(box: Box, spot: Spot) -> str:
    shape = f'width="{spot.width:.1f}" height="{spot.height:.1f}" rx="9"'
    room = spot.width - 2 * _PAD - _BAR
    parts = [f'<g transform="translate({spot.x:.1f} {spot.y:.1f})"><title>{_escaped(_tooltip(box))}</title>']
    if box.count > 1:  # as if several lay on each other
        parts += [f'<rect class="box under" x="{by}" y="{by}" {shape}/>' for by in (7, 3.5)]
    parts.append(f'<rect class="box{" centre" if box.centre else ""}" {shape}/>')
    parts.append(_bar(box, spot))
    x = _PAD + _BAR
    parts.append(
        f'<text class="name" x="{x:.0f}" y="24" font-size="{_NAME_SIZE}" font-weight="600">'
        f"{_escaped(_fitted(box.asset, _NAME_SIZE * _BOLD, room))}</text>"
    )
    for number, line in enumerate(box.lines, 1):
        parts.append(
            f'<text class="line" x="{x:.0f}" y="{24 + number * _LINE:.0f}" font-size="{_LINE_SIZE}">'
            f"{_escaped(_fitted(line, _LINE_SIZE, room))}</text>"
        )
    return "".join([*parts, "</g>"])


def _bar(box: Box, spot: Spot) -> str:
    """The status along the left edge; of several partitions, each status as long as its share."""
    inner = spot.height - 18
    shown = [status for status in COLOURS if box.statuses.get(status)]
    # Also a small share is seen; the largest gives way.
    shares = {status: max(inner * box.statuses[status] / box.count, _LEAST) for status in shown}
    largest = max(shares, key=lambda status: shares[status])
    shares[largest] -= sum(shares.values()) - inner
    parts, y = [], 9.0
    for status, share in shares.items():
        parts.append(
            f'<rect class="{status.lower()}" x="8" y="{y:.1f}" width="{_BAR:.0f}" height="{share:.1f}" rx="2"/>'
        )
        y += share
    return "".join(parts)


def _tooltip(box: Box) -> str:
    """What is shown where the mouse rests."""
    states = ", ".join(f"{number:,} {status_text(status)}" for status, number in box.statuses.items())
    facts = {
        "materialization": box.materialization_id,
        "content": box.content_hash,
        "made": None if box.made_at is None else f"{short_time(box.made_at)} UTC",
        "run": box.run_id,
    }
    told = [f"{name} {value}" for name, value in facts.items() if value is not None]
    return "\n".join([f"{box.asset} {box.label}".strip(), states, *told])


# ── links ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _link(link: Link, placed: Layout) -> str:
    source, target = placed.spots[link.source], placed.spots[link.target]
    start = (source.x + source.width, source.middle)
    if target.x > source.x + source.width / 2:
        points = [start, *placed.ways.get((link.source, link.target), ()), (target.x - 5, target.middle)]
        path = f"M{start[0]:.1f} {start[1]:.1f}" + "".join(
            _curve(before, after) for before, after in itertools.pairwise(points)
        )
    else:
        # Within a column, or back to an earlier one: out to the right and in from the right.
        end = (target.x + target.width + 5, target.middle)
        bend = max(start[0], end[0]) + 36
        path = f"M{start[0]:.1f} {start[1]:.1f}C{bend:.1f} {start[1]:.1f} {bend:.1f} {end[1]:.1f} "
        path += f"{end[0]:.1f} {end[1]:.1f}"
    kind = "link old" if link.outdated else "link"
    head = _head(path, backward=target.x <= source.x + source.width / 2, old=bool(link.outdated))
    told = f"{link.count:,} reads" if link.count > 1 else "1 read"
    if link.outdated:
        told += f", {link.outdated:,} of other content than is current"
    thick = min(1.4 + 0.35 * (len(str(link.count)) - 1), 3.0)
    return f'<g><title>{told}</title><path class="{kind}" d="{path}" stroke-width="{thick:.2f}"/>{head}</g>'


def _curve(before: tuple[float, float], after: tuple[float, float]) -> str:
    """Level at both ends, so that one follows smoothly upon another."""
    half = (before[0] + after[0]) / 2
    return f"C{half:.1f} {before[1]:.1f} {half:.1f} {after[1]:.1f} {after[0]:.1f} {after[1]:.1f}"


def _head(path: str, *, backward: bool, old: bool) -> str:
    """An arrow's head at the end of a path, drawn by hand: not everything that shows SVG knows markers."""
    x, y = (float(one) for one in path.rsplit(" ", 2)[-2:])
    tip, tail = (x - 5, x + 3) if backward else (x + 5, x - 3)
    kind = "head old" if old else "head"
    return f'<path class="{kind}" d="M{tip:.1f} {y:.1f}L{tail:.1f} {y - 4:.1f}L{tail:.1f} {y + 4:.1f}Z"/>'


# ── around it ────────────────────────────────────────────────────────────────────────────────────────────────────


def _legend(statuses: list[str], *, outdated: bool) -> tuple[str, float]:
    parts, x = [], 0.0
    for status in statuses:
        parts.append(f'<rect class="{status.lower()}" x="{x:.0f}" y="-10" width="10" height="10" rx="3"/>')
        name = status_text(status)
        parts.append(f'<text class="line" x="{x + 16:.0f}" y="-1" font-size="{_LINE_SIZE}">{_escaped(name)}</text>')
        x += 16 + _text_width(name, _LINE_SIZE) + 22
    if outdated:
        parts.append(f'<path class="link old" d="M{x:.0f} -5h26" stroke-width="1.6"/>')
        text = "read other content than is current"
        parts.append(f'<text class="line" x="{x + 34:.0f}" y="-1" font-size="{_LINE_SIZE}">{text}</text>')
        x += 34 + _text_width(text, _LINE_SIZE)
    return "".join(parts), x


def _styles() -> str:
    def rules(colours: dict[str, str], **ground: str) -> str:
        marks = "".join(f".{status.lower()}{{fill:{colour}}}" for status, colour in colours.items())
        return (
            f"{marks}.ground{{fill:{ground['ground']}}}"
            f".box{{fill:{ground['box']};stroke:{ground['edge']};stroke-width:1.2}}"
            f".centre{{stroke:{ground['centre']};stroke-width:2.6}}"
            f".name{{fill:{ground['name']}}}.line{{fill:{ground['line']}}}"
            f".link{{fill:none;stroke:{ground['link']}}}.head{{fill:{ground['link']}}}"
            f".link.old{{stroke:{colours['STALE']};stroke-dasharray:5 4}}.head.old{{fill:{colours['STALE']}}}"
        )

    light = rules(
        COLOURS, ground="#ffffff", box="#f8fafc", edge="#cbd5e1", centre="#2563eb", name="#16202c", line="#52606d",
        link="#9aa8b8",
    )  # fmt: skip
    dark = rules(
        _DARK, ground="#12171e", box="#1c242e", edge="#3a4756", centre="#6ea8fe", name="#f0f4f8", line="#a8b5c4",
        link="#5d6d7e",
    )  # fmt: skip
    return f"{light}@media (prefers-color-scheme:dark){{{dark}}}"


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _text_width(text: str, size: float) -> float:
    """About how wide a text is: fonts differ, and nothing here can ask one."""
    return sum(_em(one) for one in text) * size


def _em(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.02
    if unicodedata.combining(letter):
        return 0.0
    return 0.38 if letter in _NARROW else 0.95 if letter in _WIDE else 0.7 if letter.isupper() else 0.62


def _fitted(text: str, size: float, room: float) -> str:
    """The text, or as much of its beginning as there is room for."""
    if _text_width(text, size) <= room + 0.5:
        return text
    kept = text
    while kept and _text_width(kept + "…", size) > room:
        kept = kept[:-1]
    return kept + "…"


def _escaped(text: str) -> str:
    """Text as XML holds it: no markup, and nothing that XML cannot write or that turns the line around."""
    kept = "\n".join(map(_printable, text.split("\n")))
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#39;")):
        kept = kept.replace(sign, entity)
    return kept


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text)


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
        label = "\\n".join(_escaped_for_dot(line) for line in (box.asset, *box.lines))
        lines.append(f'  {box.id} [label="{label}", color="{COLOURS.get(box.worst, _GREY)}", penwidth={width}];')
    for link in picture.links:
        more = [f'label="{link.count:,}"'] if link.count > 1 else []
        more += ["style=dashed", 'color="#d97706"'] if link.outdated else []
        attributes = f" [{', '.join(more)}]" if more else ""
        lines.append(f"  {link.source} -> {link.target}{attributes};")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return f'"{_escaped_for_dot(text)}"'


def _escaped_for_dot(text: str) -> str:
    """As Graphviz reads it in a quoted label: a backslash would begin an escape, and a newline end the line."""
    return _printable(text).replace("\\", "\\\\").replace('"', '\\"')


def mermaid(picture: Picture) -> str:
    """A flowchart, left to right. Whatever is no letter, digit or plain sign is written as its number."""
    lines = ["---", f'title: "{_title(picture.title)}"', "---", "flowchart LR"]
    for box in picture.boxes:
        label = "<br/>".join(escaped(line) for line in (box.asset, *box.lines))
        lines.append(f'  {box.id}("{label}"):::{box.worst.lower()}')
    for link in picture.links:
        arrow = "-.->" if link.outdated else "-->"
        lines.append(f"  {link.source} {arrow}{f'|{link.count}|' if link.count > 1 else ''} {link.target}")
    lines += [f"  classDef {name.lower()} stroke:{colour},stroke-width:2px" for name, colour in COLOURS.items()]
    lines += [f"  style {box.id} stroke-width:4px" for box in picture.boxes if box.centre]
    return "\n".join([*lines, ""])


def escaped(text: str) -> str:
    """As Mermaid reads it in a quoted label: `#35;` is the sign with that number."""
    return "".join(one if one.isalnum() or one in _PLAIN else f"#{ord(one)};" for one in _printable(text))


def _title(text: str) -> str:
    """As YAML reads it in double quotes, and with nothing in it that a page could take for markup."""
    return "".join(one if one.isalnum() or one in _PLAIN else " " for one in text)

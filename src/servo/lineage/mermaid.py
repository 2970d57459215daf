"""A picture in the language of Mermaid, which Markdown on many sites draws."""

from __future__ import annotations

from servo.lineage.graph import COLOURS, Picture

_PLAIN = frozenset(" .,:/=-_()…·×+")


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
    centre = ",".join(box.id for box in picture.boxes if box.centre)
    if centre:
        lines += [f"  style {one} stroke-width:4px" for one in centre.split(",")]
    return "\n".join([*lines, ""])


def escaped(text: str) -> str:
    """As Mermaid reads it in a quoted label: `#35;` is the sign with that number."""
    shown = "".join(one if one.isprintable() else " " for one in text)
    return "".join(one if one.isalnum() or one in _PLAIN else f"#{ord(one)};" for one in shown)


def _title(text: str) -> str:
    """As YAML reads it in double quotes, and with nothing in it that a page could take for markup."""
    return "".join(one if one.isalnum() or one in _PLAIN else " " for one in text)

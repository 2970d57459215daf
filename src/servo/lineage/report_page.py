"""The audit report as a PDF, typeset by Typst, with a picture of the lineage.

What a user wrote is data all the way: the template gets one JSON text, and shows its strings as text, never as markup.
Long lists are cut off here, with a word on how many more there are; the JSON report has them all. Typst comes with its
compiler and its fonts; nothing is fetched.

Columns of the picture are distances: the audited materialization on the right, what it was made from to its left.
Partitions of one asset are drawn one by one while they are few, and as one box once they are many, so that a thousand
inputs are a picture as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from importlib import resources
from typing import Any, Literal, TypeVar

import msgspec

from servo.errors import MissingExtra, ServoError
from servo.lineage.records import CallRecord, Source, call_sentences, counted
from servo.lineage.report import Report, key_text
from servo.lineage.statements import (
    Approval,
    Attempt,
    Current,
    Decision,
    Escalation,
    Execution,
    Finish,
    Node,
    Request,
    Step,
)

T = TypeVar("T")

_MOST_ROWS = 60
_NONE = "–"
_BECAME = {
    "run": "published by its run",
    "approval": "published after approval",
    "hand": "published by hand",
    "mark": "marked by hand",
    "rollback": "made current again by a rollback",
}


def typeset(report: Report, *, image: Literal["pdf", "png"] = "pdf") -> list[bytes]:
    """The report as one PDF, or as an image of each page."""
    try:
        import typst  # noqa: PLC0415 (a compiler of 40 MB, for those who print)
    except ImportError as problem:
        raise MissingExtra("a PDF needs typst, which is not installed", hint="pip install typst") from problem
    template = resources.files("servo.lineage").joinpath("report.typ").read_bytes()
    try:
        made: object = typst.compile(
            template,
            format=image,
            ppi=110,
            ignore_system_fonts=True,  # the same page on every machine
            sys_inputs={"report": json.dumps(view(report))},
            timestamp=datetime.fromisoformat(report.generated_at).replace(microsecond=0),
        )
    except typst.TypstError as problem:
        raise ServoError(f"the report could not be typeset: {problem.message}", hint="use --format json") from problem
    pages = made if isinstance(made, list) else [made]
    return [page for page in pages if isinstance(page, bytes)]


def view(report: Report) -> dict[str, Any]:
    """The content of the page, as text for the template."""
    execution, head = report.execution, report.proof.head
    return {
        "title": "Audit report",
        "asset": report.asset,
        "partition": _key_text(report.partition),
        "workspace": f"{report.workspace.tenant}/{report.workspace.name}",
        "report_hash": report.report_hash,
        "generated_at": _moment(report.generated_at),
        "as_of": _NONE if report.as_of is None else _moment(report.as_of),
        "summary": _summary(report),
        "subject": [
            ["Materialization", report.materialization],
            ["Asset id", report.asset_id],
            ["Partition key", report.partition or "(none)"],
            ["Code version", report.code_version or _NONE],
            ["Requested by", report.actor],
            ["Published", _became(report.published)],
            ["Current since", _became(report.current)],
        ],
        "execution": [] if execution is None else _execution(execution),
        "attempts": [] if execution is None else [_attempt(one) for one in execution.attempts],
        "output": [
            ["Content hash", report.output.content_hash or _NONE],
            ["Rows", _number(report.output.rows)],
            ["Bytes", _number(report.output.bytes)],
            ["Files", _number(report.output.files)],
            ["Made", f"{_moment(report.output.made_at)} by {report.output.made_by}, event {report.output.event}"],
            *(["Call", sentence] for sentence in _call(report)),
        ],
        "picture": picture(report),
        "inputs": _cut([node for node in report.lineage if node.depth == 1], _version),
        "upstream": _cut([node for node in report.lineage if node.depth > 1], _version),
        "lineage": {"total": len(report.lineage)},
        "checks": _cut(
            report.checks,
            lambda check: {
                "name": check.name,
                "passed": check.passed,
                "blocking": check.blocking,
                "observed": check.observed or _NONE,
                "attempt": str(check.attempt),
                "at": _moment(check.at),
                "event": str(check.event),
            },
        ),
        "approvals": [_approval(one) for one in report.approvals],
        "head": [
            ["Ledger of", f"{report.workspace.tenant}/{report.workspace.name}"],
            ["Head", f"position {head.position:,}, {_moment(head.occurred_at)}"],
            ["Event", head.event_id],
            ["Chain hash", head.chain_hash],
            ["Report hash", report.report_hash],
        ],
        "proof": _cut(
            report.proof.events,
            lambda event: {
                "position": str(event.position),
                "type": event.event_type,
                "id": event.event_id,
                "hash": event.chain_hash,
            },
        ),
    }


def _key_text(key: str) -> str:
    return key_text(key) or "the whole asset"


def _call(report: Report) -> list[str]:
    """The call that made it in sentences, if it was for several partitions or left rows out."""
    call = report.call
    if call is None:
        return []
    record = CallRecord(
        partitions=call.partitions,
        given=[Source("", one.asset, one.partition, one.materialization) for one in report.inputs],
        rows_left_out=call.rows_left_out,
        left_out_example=call.left_out_example,
        samples=call.samples,
    )
    own = {one.materialization for one in report.inputs if one.mapped}
    return call_sentences(record, own, report.partition, report.output.rows)


def _summary(report: Report) -> list[dict[str, str]]:
    """The main figures, each with whether it is good."""
    status = "BY HAND" if report.execution is None else report.execution.status
    failed = sum(not check.passed for check in _last_checks(report))
    open_ones = [one for one in report.approvals if one.status != "APPROVED"]
    decided = "none asked" if not report.approvals else "approved" if not open_ones else open_ones[-1].status.lower()
    assets = len({node.asset for node in report.lineage})
    return [
        {"label": "Run", "value": status, "tone": _tone(status)},
        {
            "label": "Checks",
            "value": "none" if not report.checks else "all passed" if not failed else f"{failed} failed",
            "tone": "plain" if not report.checks else "good" if not failed else "bad",
        },
        {
            "label": "Approval",
            "value": decided,
            "tone": "plain" if not report.approvals else "good" if not open_ones else "bad",
        },
        {
            "label": f"Made from {counted(assets, 'asset')}",
            "value": counted(len(report.lineage), "version"),
            "tone": "plain",
        },
        {"label": "Proved by", "value": counted(len(report.proof.events), "event"), "tone": "plain"},
    ]


def _last_checks(report: Report) -> list[Any]:
    last = max((check.attempt for check in report.checks), default=0)
    return [check for check in report.checks if check.attempt == last]


def _execution(run: Execution) -> list[list[str]]:
    trigger = run.trigger
    return [
        ["Run", run.run],
        [
            "Status",
            run.status + ("" if run.finished is None or not run.finished.reason else f": {run.finished.reason}"),
        ],
        ["Requested", _when(run.requested)],
        ["Trigger", _NONE if trigger is None else " · ".join(filter(None, (trigger.kind, trigger.id, trigger.detail)))],
        ["Run key", run.run_key or _NONE],
        ["Deployment", run.deployment or _NONE],
        ["Started", _when(run.started)],
        ["Finished", _when(run.finished)],
        ["Duration", _duration(run.duration_ms)],
        ["Task", run.task or _NONE],
    ]


def _attempt(one: Attempt) -> dict[str, str]:
    ended = one.ended
    return {
        "attempt": str(one.attempt),
        "worker": one.worker or _NONE,
        "spark": one.spark_application or _NONE,
        "started": _NONE if one.started is None else _moment(one.started.at),
        "duration": _duration(one.duration_ms),
        "outcome": _NONE if ended is None else ended.outcome,
        "tone": "plain" if ended is None else _tone(ended.outcome),
        "reason": "" if ended is None else ended.reason or "",
    }


def _approval(one: Approval) -> dict[str, Any]:
    decided, escalated = one.decided, one.escalated
    rows = [
        ["Checkpoint", one.checkpoint],
        ["Asked for", _when(one.requested)],
        ["Role", (one.role or _NONE) + (" (not whoever requested the run: four eyes)" if one.four_eyes else "")],
        ["Bound to content", one.content_hash or _NONE],
    ]
    if one.deadline is not None:
        rows.append(["Deadline", f"{_moment(one.deadline)}, then {one.on_deadline}"])
    if escalated is not None:
        rows.append(["Escalated", f"to {escalated.to}, {_when(escalated)}"])
    if decided is not None:
        rows += [["Decided", _when(decided)], ["Reason", decided.reason or _NONE]]
    return {"name": one.name, "status": one.status, "tone": _tone(one.status), "rows": rows}


def _version(node: Node) -> dict[str, str]:
    return {
        "depth": str(node.depth),
        "asset": node.asset,
        "partition": _key_text(node.partition),
        "materialization": node.materialization,
        "hash": node.content_hash or _NONE,
        "code": node.code_version or _NONE,
        "run": node.run or _NONE,
        "made_at": _NONE if node.made_at is None else _moment(node.made_at),
        "event": _NONE if node.event is None else str(node.event),
    }


def _became(current: Current | None) -> str:
    if current is None:
        return _NONE
    reason = f": {current.reason}" if current.reason else ""
    return f"{_moment(current.at)}, {_BECAME[current.by]}, by {current.actor}, event {current.event}{reason}"


def _cut(items: Sequence[T], shown: Callable[[T], dict[str, Any]]) -> dict[str, Any]:
    return {
        "rows": [shown(item) for item in items[:_MOST_ROWS]],
        "total": len(items),
        "more": max(0, len(items) - _MOST_ROWS),
    }


def _tone(status: str) -> str:
    if status in ("SUCCEEDED", "APPROVED"):
        return "good"
    return "bad" if status in ("FAILED", "REJECTED", "EXPIRED", "CANCELLED") else "plain"


def _when(part: Step | Finish | Request | Decision | Escalation | None) -> str:
    """When something happened, by whom where that is known, and by which event."""
    if part is None:
        return _NONE
    by = f" by {part.by}" if isinstance(part, Request | Decision) else ""
    return f"{_moment(part.at)}{by}, event {part.event}"


def _moment(text: str) -> str:
    """`2025-01-15 12:00:00.123 UTC`; an event id as it is."""
    return f"{text[:10]} {text[11:23]} UTC" if text.endswith("Z") and len(text) == 27 else text


def _number(value: int | None) -> str:
    return _NONE if value is None else f"{value:,}"


def _duration(milliseconds: int | None) -> str:
    if milliseconds is None:
        return _NONE
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.3f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min {seconds % 60:.0f} s".removeprefix("0 h ")


# ── the picture ──────────────────────────────────────────────────────────────────────────────────────────────────

_PAGE_WIDTH = 174.0  # what a page has between its margins
_WIDEST, _GAP = 50.0, 9.0
_TITLE_LINE, _TEXT_LINE, _PADDING, _BETWEEN = 3.4, 2.8, 2.5, 3.0  # millimetres down
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
        self.height = _TITLE_LINE * len(title) + _TEXT_LINE * len(lines) + _PADDING


def picture(report: Report) -> dict[str, Any]:
    """Boxes and lines, and how much room they take."""
    columns = _columns(report)
    width = min(_WIDEST, (_PAGE_WIDTH - _GAP * (len(columns) - 1)) / len(columns))
    across = width * len(columns) + _GAP * (len(columns) - 1)
    left = (_PAGE_WIDTH - across) / 2
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
        "width": _PAGE_WIDTH,
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
        columns.append(_picture_boxes(by_depth[depth]))
    return columns[::-1]


def _picture_boxes(nodes: Sequence[Node]) -> list[_Box]:
    by_asset: dict[str, list[Node]] = {}
    for node in nodes:
        by_asset.setdefault(node.asset, []).append(node)
    alone = len(nodes) <= _MOST_BOXES
    boxes: list[_Box] = []
    for asset, members in by_asset.items():
        if len(members) <= _FEW and (alone or len(members) == 1):
            boxes += [_picture_box(node) for node in members]
        else:
            first, last = _key_text(members[0].partition), _key_text(members[-1].partition)
            boxes.append(_folded(asset, members, [f"{first} … {last}"]))
    if len(boxes) > _MOST_BOXES:
        rest = boxes[_MOST_BOXES - 1 :]
        names = {name for box in rest for name in box.members}
        wanted = [node for node in nodes if node.materialization in names]
        boxes = [*boxes[: _MOST_BOXES - 1], _folded(f"{len(rest)} more", wanted, [])]
    return boxes


def _picture_box(node: Node) -> _Box:
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

"""The report on paper: a page that one hands to an auditor, set by Typst.

What a user wrote is data all the way: the template gets one JSON text, and shows its strings as text, never as markup.
Long lists are cut off here, with a word on how many more there are; the JSON report has them all. Typst comes with its
compiler and its fonts; nothing is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib import resources
from typing import Any, Literal, TypeVar

from servo.errors import MissingExtra, ServoError
from servo.lineage.records import CallRecord, call_sentences, counted
from servo.lineage.report import Report, key_text
from servo.lineage.report_picture import picture
from servo.lineage.statements import Approval, Attempt, Current, Execution, Node
from servo.lineage.story import Source

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
    """All that the page shows, as text."""
    execution, head = report.execution, report.proof.head
    return {
        "title": "Audit report",
        "asset": report.asset,
        "partition": key_text(report.partition) or "the whole asset",
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


def _call(report: Report) -> list[str]:
    """What is to be known of the call that made it, if it was for several partitions or left rows out."""
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
    """The few figures that are looked at first, each with whether it is good."""
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
    asked = run.requested
    return [
        ["Run", run.run],
        [
            "Status",
            run.status + ("" if run.finished is None or not run.finished.reason else f": {run.finished.reason}"),
        ],
        ["Requested", _NONE if asked is None else f"{_moment(asked.at)} by {asked.by}, event {asked.event}"],
        ["Trigger", _NONE if trigger is None else " · ".join(filter(None, (trigger.kind, trigger.id, trigger.detail)))],
        ["Run key", run.run_key or _NONE],
        ["Deployment", run.deployment or _NONE],
        ["Started", _NONE if run.started is None else f"{_moment(run.started.at)}, event {run.started.event}"],
        ["Finished", _NONE if run.finished is None else f"{_moment(run.finished.at)}, event {run.finished.event}"],
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
    asked = f"{_moment(one.requested.at)} by {one.requested.by}, event {one.requested.event}"
    rows = [
        ["Checkpoint", one.checkpoint],
        ["Asked for", asked],
        ["Role", (one.role or _NONE) + (" (not whoever requested the run: four eyes)" if one.four_eyes else "")],
        ["Bound to content", one.content_hash or _NONE],
    ]
    if one.deadline is not None:
        rows.append(["Deadline", f"{_moment(one.deadline)}, then {one.on_deadline}"])
    if escalated is not None:
        rows.append(["Escalated", f"to {escalated.to}, {_moment(escalated.at)}, event {escalated.event}"])
    if decided is not None:
        rows.append(["Decided", f"{_moment(decided.at)} by {decided.by}, event {decided.event}"])
        rows.append(["Reason", decided.reason or _NONE])
    return {"name": one.name, "status": one.status, "tone": _tone(one.status), "rows": rows}


def _version(node: Node) -> dict[str, str]:
    return {
        "depth": str(node.depth),
        "asset": node.asset,
        "partition": key_text(node.partition) or "the whole asset",
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

"""Audit reports as people ask for them."""

from __future__ import annotations

from datetime import datetime

from servo.lineage.report import Report
from servo.operations.audit.reports import Audits
from servo.operations.audit.requests import GetReport, KeepReport
from servo.operations.handling import answers
from servo.operations.moments import past_moment
from servo.operations.outside import Outside
from servo.status.state import State


@answers(GetReport, evidence=lambda outside, _, __: outside.now())
def get_report(state: State, request: GetReport, now: datetime) -> Report:
    return Audits(state, now).report(request.asset, request.partition)


def _keeping(outside: Outside, state: State, request: KeepReport) -> Report:
    """The report, of which vacuum spares from here on what it cites, whatever retention says."""
    then = state if request.as_of is None else state.at(past_moment(request.as_of, "as_of"))
    report = Audits(then, outside.now()).report(request.asset, request.partition)
    outside.keep_cited(report)
    return report


@answers(KeepReport, evidence=_keeping)
def keep_report(_: State, __: KeepReport, report: Report) -> Report:
    return report
